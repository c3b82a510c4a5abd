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

test("its files are kept and saved once that was allowed, under mended names", async () => {
  const { page } = console;
  const { card, frame } = await opened();
  const bytes = Buffer.from(Uint8Array.from({ length: 20 * 1024 * 1024 }, (_, at) => (at * 31) % 251));
  const name = "_.six._gnp.bin";
  // As an app would: its file is made in it, and its request is as large.
  const hand = (id: number, size: number): ReturnType<typeof ask> =>
    frame.evaluate(
      `new Promise((done) => {
        const bytes = Uint8Array.from({ length: ${size} }, (_, at) => (at * 31) % 251);
        let raw = "";
        for (let at = 0; at < bytes.length; at += 32768) raw += String.fromCharCode(...bytes.subarray(at, at + 32768));
        const resource = { uri: ${JSON.stringify("file:///odds/..%2f.six%2e\u202egnp.bin")}, mimeType: "application/octet-stream", blob: btoa(raw) };
        addEventListener("message", (event) => { if (event.data.id === ${id} && event.data.method === undefined) done(event.data); });
        parent.postMessage({ jsonrpc: "2.0", id: ${id}, method: "ui/download-file", params: { contents: [{ type: "resource", resource }] } }, "*");
      })`,
    );
  const large = await hand(9010, 22 * 1024 * 1024);
  assert.equal(large.error?.data?.code, "app_request_too_large");
  const no = hand(9011, 5);
  await decide(page, "Don't allow");
  assert.equal((await no).error?.data?.code, "app_declined");
  assert.equal(await card.getByText("One file of this app").count(), 0);
  const yes = hand(9012, bytes.length);
  await page.getByRole("dialog", { name: "Save files of the app?" }).getByText(name).waitFor();
  const [download] = await Promise.all([page.waitForEvent("download"), decide(page, "Save")]);
  assert.deepEqual((await yes).result, {});
  assert.equal(download.suggestedFilename(), name);
  assert.ok(readFileSync(await download.path()).equals(bytes));
  // It is kept beside the app, and saved again as a file of the reply is.
  await card.getByText("One file of this app").click();
  const kept = card.getByRole("article", { name: `File ${name}` });
  const [again] = await Promise.all([page.waitForEvent("download"), kept.getByRole("link", { name: /Download/ }).click()]);
  assert.ok(readFileSync(await again.path()).equals(bytes));
  const address = (await kept.getByRole("link").getAttribute("href")) ?? "";
  // Opened as a page it is a download, too, and never shown.
  const tab = await console.context.newPage();
  const [bare] = await Promise.all([tab.waitForEvent("download"), tab.goto(new URL(address, console.origin).href).catch(() => undefined)]);
  assert.equal(bare.suggestedFilename(), name);
  await tab.close();
  const linked = await ask(frame, 9013, "ui/download-file", { contents: [{ type: "resource_link", uri: "https://dice.example/x", name: "x" }] });
  assert.equal(linked.error?.data?.code, "app_resource_forbidden");
  // So much is not taken twice in a row.
  const soon = await hand(9014, bytes.length);
  assert.equal(soon.error?.data?.code, "app_rate_limited");
  // Without a session there is no file.
  const stranger = await console.context.browser()?.newContext();
  const refused = await stranger?.request.get(new URL(address, console.origin).href);
  assert.equal(refused?.status(), 401);
  await stranger?.close();
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

test("a view sees its model write, then the input and the result, while the answer goes on", async () => {
  const { page } = console;
  await console.goto("/");
  const why = "one word after the other, so that whoever looks can see how it is written ".repeat(5);
  const input = { count: 4, why };
  await console.send(`[[mock:gap 150]] [[mock:piece 4]] [[mock:tool roll_dice ${JSON.stringify(input)}]] [[mock:text ${"and so on ".repeat(25)}]]`);
  await page.waitForURL("**/t/*");
  const card = console.answer.getByRole("article", { name: /^App / });
  const frame = await frameOf(card);
  // What it was told before is no matter: the model takes its time.
  await frame.evaluate("globalThis.heard = []; addEventListener('message', (event) => heard.push(event.data));");
  const calls = "globalThis.heard.filter((m) => /tool-/.test(m?.method ?? '')).map((m) => [m.method.replace('ui/notifications/tool-', ''), m.params.arguments ?? null])";
  await frame.evaluate("globalThis.mark = 'the same'");
  await holds(frame, `${calls}.some(([kind]) => kind === "result")`, 60_000);
  assert.equal(await page.locator("article.assistant").last().getAttribute("data-status"), "running", "the answer goes on");
  const told = (await frame.evaluate(calls)) as [string, { count?: number; why?: string } | null][];
  const partial = told.slice(0, -2);
  assert.ok(partial.length >= 2, JSON.stringify(told));
  for (const [kind, { why: soFar = "", ...rest } = {}] of partial as [string, { count?: number; why?: string }][]) {
    assert.equal(kind, "input-partial");
    assert.ok(why.startsWith(soFar), soFar);
    assert.ok(rest.count === undefined || rest.count === 4);
  }
  assert.deepEqual(told.slice(-2), [
    ["input", input],
    ["result", null],
  ]);
  const early = await ask(frame, 9101, "tools/list", {});
  assert.ok(Array.isArray(early.result?.["tools"]), "it is connected before the answer's end");
  await console.ended();
  assert.equal(await frame.evaluate("globalThis.mark"), "the same");
  assert.equal(await frame.evaluate(`${calls}.length`), told.length);
  assert.equal(await console.answer.locator(".app-place > iframe").count(), 1);
  clean(console);
});

test("another tab shows it too while its model writes, and is told what comes of the call", async () => {
  const { page } = console;
  await console.goto("/");
  const input = { count: 2, why: "one word after the other, for whoever looks ".repeat(6) };
  await console.send(`[[mock:gap 150]] [[mock:piece 4]] [[mock:tool roll_dice ${JSON.stringify(input)}]] [[mock:text ${"and so on ".repeat(25)}]]`);
  await page.waitForURL("**/t/*");
  await frameOf(console.answer.getByRole("article", { name: /^App / }));
  const other = await console.tab(new URL(page.url()).pathname);
  const card = other.answer.getByRole("article", { name: /^App / });
  const frame = await frameOf(card);
  await frame.evaluate("globalThis.heard = []; addEventListener('message', (event) => heard.push(event.data?.method));");
  await holds(frame, "globalThis.heard.includes('ui/notifications/tool-input-partial')", 60_000);
  await holds(frame, "globalThis.heard.includes('ui/notifications/tool-result')", 60_000);
  assert.equal(await other.answer.getAttribute("data-status"), "running", "the answer goes on");
  await console.ended();
  await other.ended();
  assert.equal(await card.locator(".app-place > iframe").count(), 1);
  clean(other);
  clean(console);
  await other.page.close();
});
