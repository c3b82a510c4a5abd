/**
 * An app of a whole daemon: what its server, the daemon and a person decide.
 *
 * The daemon has the server `dice` and a model that does what a message says (`CONSOLE_URL`,
 * `CONSOLE_LOGIN`).
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
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
  // What it didn't get stands beside it: of its page, and of what it asked for.
  await card.getByText(/things were not given to this app/).click();
  await card.getByText("connections to https://dice.example: not on the host's list").waitFor();
  await card.getByText("tools/call dice_odds").waitFor();
  await card.getByText("resources/read").waitFor();
  clean(console);
});

test("its files are saved once that was allowed, under mended names", async () => {
  const { page } = console;
  const { frame } = await opened();
  const bytes = Buffer.from([0, 255, 10, 13, 7]);
  const file = { type: "resource", resource: { uri: "file:///odds/..%2f.six%2e\u202egnp.bin", mimeType: "application/octet-stream", blob: bytes.toString("base64") } };
  const no = ask(frame, 9011, "ui/download-file", { contents: [file] });
  await decide(page, "Don't allow");
  assert.equal((await no).error?.data?.code, "app_declined");
  const yes = ask(frame, 9012, "ui/download-file", { contents: [file] });
  await page.getByRole("dialog", { name: "Save files of the app?" }).getByText("_.six._gnp.bin").waitFor();
  const [download] = await Promise.all([page.waitForEvent("download"), decide(page, "Save")]);
  assert.deepEqual((await yes).result, {});
  assert.equal(download.suggestedFilename(), "_.six._gnp.bin");
  assert.deepEqual(readFileSync(await download.path()), bytes);
  const linked = await ask(frame, 9013, "ui/download-file", { contents: [{ type: "resource_link", uri: "https://dice.example/x", name: "x" }] });
  assert.equal(linked.error?.data?.code, "app_request_invalid");
  const large = await ask(frame, 9014, "ui/download-file", { contents: [{ type: "resource", resource: { uri: "file:///x", text: "x".repeat(1024 * 1024) } }] });
  assert.equal(large.error?.data?.code, "app_request_too_large");
  clean(console);
});

test("its message waits in the composer, and is sent by the person", async () => {
  const { page } = console;
  const { frame } = await opened();
  const turns = await page.locator("article.user").count();
  await page.evaluate("document.activeElement.blur()");
  const answer = await ask(frame, 9021, "ui/message", { role: "user", content: [{ type: "text", text: "[[mock:text again]]" }] });
  assert.deepEqual(answer.result, {});
  const note = page.getByRole("list", { name: "From apps" });
  await note.waitFor();
  assert.equal(await console.field.inputValue(), "[[mock:text again]]");
  const soon = await ask(frame, 9022, "ui/message", { role: "user", content: [{ type: "text", text: "and again" }] });
  assert.equal(soon.error?.data?.code, "app_rate_limited");
  assert.equal(await page.locator("article.user").count(), turns);
  await note.getByRole("button", { name: /^Leave out the text of / }).click();
  assert.equal(await console.field.inputValue(), "");
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

test("after a reload the stored app is there again, connected and without what was allowed before", async () => {
  const { page } = console;
  await page.reload();
  const card = page.getByRole("article", { name: /^App / });
  await card.and(page.locator("[data-ready]")).waitFor();
  const frame = await frameOf(card);
  await holds(frame, "document.body.innerText.length > 0");
  assert.equal(await card.getByText("no longer connected").count(), 0);
  const call = ask(frame, 9301, "tools/call", { name: "reroll", arguments: { count: 1 } });
  await decide(page, "Allow once");
  assert.ok((await call).result?.["content"] !== undefined);
  clean(console);
});
