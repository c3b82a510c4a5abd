/**
 * An app of a whole daemon: what its server, the daemon and a person decide.
 *
 * The daemon has the server `dice` and a model that does what a message says (`CONSOLE_URL`,
 * `CONSOLE_LOGIN`).
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Frame, Locator } from "playwright-core";
import { decide, frameOf, holds } from "../apps/open.ts";
import { clean } from "../clean.ts";
import { close, Console } from "../page.ts";

let console: Console;

before(async () => {
  const origin = process.env["CONSOLE_URL"];
  const login = process.env["CONSOLE_LOGIN"];
  assert.ok(origin && login, "CONSOLE_URL and CONSOLE_LOGIN say where the console is");
  console = await Console.open(origin.replace(/\/$/, ""), login);
});
after(close);

/** Asks as the app does; its own script runs beside. */
function ask(frame: Frame, id: number, method: string, params: unknown): Promise<{ result?: Record<string, unknown>; error?: { code: number; data?: { code: string } } }> {
  return frame.evaluate(
    `new Promise((done) => {
      addEventListener("message", (event) => { if (event.data.id === ${id} && event.data.method === undefined) done(event.data); });
      parent.postMessage(${JSON.stringify({ jsonrpc: "2.0", id, method, params })}, "*");
    })`,
  );
}

async function opened(): Promise<{ card: Locator; frame: Frame }> {
  const card = console.answer.getByRole("article", { name: /^App / });
  await card.and(console.page.locator("[data-ready]")).waitFor();
  return { card, frame: await frameOf(card) };
}

test("a tool's app opens, and calls what it may once that was allowed", async () => {
  const { page } = console;
  await console.ask('[[mock:tool roll_dice {"count":3}]] [[mock:text rolled]]');
  const { card, frame } = await opened();
  await card.getByText("not given to this app").waitFor();
  const model = await ask(frame, 9001, "tools/call", { name: "dice_odds", arguments: {} });
  assert.equal(model.error?.data?.code, "app_tool_forbidden");
  const foreign = await ask(frame, 9002, "resources/read", { uri: "ui://other/page.html" });
  assert.equal(foreign.error?.data?.code, "app_resource_forbidden");
  const no = ask(frame, 9003, "tools/call", { name: "reroll", arguments: { count: 2 } });
  await decide(page, "Don't allow");
  assert.equal((await no).error?.data?.code, "app_declined");
  const yes = ask(frame, 9004, "tools/call", { name: "reroll", arguments: { count: 2 } });
  await decide(page, "Allow once");
  assert.ok((await yes).result?.["content"] !== undefined);
  const wrong = await ask(frame, 9005, "tools/call", { name: "reroll", arguments: { count: "many" } });
  assert.equal(wrong.error?.code, -32602);
  assert.equal(await page.getByRole("dialog").count(), 0);
  clean(console);
});

test("its context goes with the next message, and to the model", async () => {
  const { page } = console;
  const { frame } = await opened();
  const kept = ask(frame, 9101, "ui/update-model-context", { content: [{ type: "text", text: "The dice show 6." }] });
  await decide(page, "Allow");
  assert.ok((await kept).result !== undefined);
  const note = page.getByRole("list", { name: "From apps" });
  await note.getByText("Context from").click();
  await note.getByText("The dice show 6.").waitFor();
  await console.send("[[mock:text seen]]");
  await note.waitFor({ state: "detached" });
  await console.ended();
  clean(console);
});

test("after a reload the stored app is there again", async () => {
  const { page } = console;
  await page.reload();
  const card = page.getByRole("article", { name: /^App / });
  await card.and(page.locator("[data-ready]")).waitFor();
  await holds(await frameOf(card), "document.body.innerText.length > 0");
  clean(console);
});
