/**
 * An app of an agent that is not ours, in the thread of its session.
 *
 * The daemon has the server `dice` behind its gateway, and the agent has called `roll_dice` with two
 * dice (`CONSOLE_URL`, `CONSOLE_LOGIN`, `GATEWAY_THREAD`). Where `GATEWAY_STEPS` names a folder,
 * whoever runs this does what a file there is named after, and answers with another: `ended` ends the
 * server, `again` has the agent call once more.
 */

import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Frame, Locator } from "playwright-core";
import { decide, frameOf, holds } from "../apps/open.ts";
import { clean } from "../clean.ts";
import { close, Console, PATIENCE_MS } from "../page.ts";

const named = (name: string): string => {
  const value = process.env[name];
  assert.ok(value, `${name} is not set`);
  return value;
};
const steps = process.env["GATEWAY_STEPS"];
let console: Console;

before(async () => {
  console = await Console.open(named("CONSOLE_URL").replace(/\/$/, ""), named("CONSOLE_LOGIN"));
  await console.goto(`/t/${named("GATEWAY_THREAD")}`);
});
after(close);

/** The app of the agent's call of this number, from 0. */
async function opened(call: number): Promise<{ card: Locator; frame: Frame }> {
  const card = console.page.getByRole("article", { name: /^App / }).nth(call);
  await card.and(console.page.locator("[data-ready]")).waitFor();
  return { card, frame: await frameOf(card) };
}

async function shows(frame: Frame, dice: number): Promise<void> {
  await holds(frame, `document.querySelectorAll("#dice li").length === ${dice}`);
  await frame.getByRole("status").getByText(/^Together \d+\.$/).waitFor();
}

/** Rolls again from inside of the app, and allows it. */
async function again(frame: Frame): Promise<void> {
  const answered = console.page.waitForResponse((response) => /\/confirmations\/[^/]+$/.test(response.url()));
  await frame.getByRole("button", { name: "Roll again" }).click();
  await decide(console.page, "Allow once");
  assert.equal((await answered).status(), 200);
}

/** Has something done outside. */
async function step(name: string): Promise<void> {
  const folder = steps ?? "";
  writeFileSync(join(folder, name), "");
  const end = Date.now() + 2 * PATIENCE_MS;
  while (!existsSync(join(folder, `${name}.done`))) {
    assert.ok(Date.now() < end, `nobody did: ${name}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

test("the app is there, and calls its server once that was allowed", async () => {
  const { card, frame } = await opened(0);
  await shows(frame, 2);
  await again(frame);
  await shows(frame, 2);
  assert.equal(await card.getByText("no longer connected").count(), 0);
  // What marks the result for the agent is on no page.
  assert.doesNotMatch(await console.page.locator("body").innerText(), /mcp-app:/);
  assert.doesNotMatch(await frame.locator("body").innerText(), /mcp-app:/);
  clean(console);
});

if (steps !== undefined) {
  for (const ended of ["ended-server", "ended-bridge"]) {
    test(`after ${ended} the app says that it is not connected, and the agent's next one is`, async () => {
      const before = await console.page.getByRole("article", { name: /^App / }).count();
      const { frame } = await opened(before - 1);
      await step(ended);
      await frame.getByRole("button", { name: "Roll again" }).click();
      await frame.getByRole("status").getByText(/^Not rolled: /).waitFor();
      await step(`again-${ended}`);
      const next = await opened(before);
      await shows(next.frame, before + 2);
      await again(next.frame);
      await shows(next.frame, before + 2);
      // The older one is shown as it was, and says so.
      await console.page.reload();
      const older = await opened(before - 1);
      await shows(older.frame, before + 1);
      await older.card.getByText("no longer connected").waitFor();
      clean(console);
    });
  }
}
