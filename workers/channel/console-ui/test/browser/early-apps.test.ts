/** Apps of an answer that is still being written. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Locator } from "playwright-core";
import { app, PLAIN } from "../apps/view.ts";
import { frameOf, holds } from "../apps/open.ts";
import { PATIENCE_MS, type Console } from "../page.ts";
import { clean, setup } from "./setup.ts";

const it = setup();

/** An answer that the test writes; gives its id. */
async function driven(console: Console): Promise<string> {
  await console.goto("/");
  await console.send("driven");
  await console.page.waitForURL("**/t/*");
  const article = console.page.locator('article.message[data-status="running"]').last();
  await article.waitFor();
  return ((await article.getAttribute("id")) ?? "").replace(/^m-/, "");
}

const cardOf = (console: Console, message: string): Locator => console.page.locator(`#m-${message}`).getByRole("article", { name: /^App / }).first();

const results = "seen('ui/notifications/tool-result').length";

test("an app is open while its answer is written, and is the same one to its end and after it", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("plain", { html: PLAIN });
  const message = await driven(console);
  const part = it.mock.apps.make("plain", message);
  it.mock.tell(message, { type: "append", text: "I call a tool." });
  it.mock.tell(message, { type: "view", part });
  const card = cardOf(console, message);
  const frame = await frameOf(card);
  await holds(frame, `${results} === 1`);
  await frame.evaluate("globalThis.mark = 'the same'");
  const same = async (when: string): Promise<void> => {
    assert.equal(await frame.evaluate("globalThis.mark"), "the same", when);
    assert.equal(await frame.evaluate("heard.filter((m) => m.result?.hostContext !== undefined).length"), 1, `${when}: initialized once`);
    assert.equal(await frame.evaluate(results), 1, when);
    assert.equal(await page.locator(`#m-${message} .app-place > iframe`).count(), 1, when);
  };
  assert.equal(await page.locator(`#m-${message}`).getAttribute("data-status"), "running");
  for (const word of ["It ", "goes ", "on."]) it.mock.tell(message, { type: "append", text: word });
  await page.getByText("It goes on.").waitFor();
  await same("more text");
  it.mock.tell(message, { type: "view", part });
  it.mock.tell(message, { type: "event", activity: { id: "t9", kind: "tool", name: "Read", startedAt: 1 } });
  await card.getByRole("button", { name: /^Fold/ }).click();
  await card.getByRole("button", { name: /^Show/ }).click();
  await same("folded and shown");
  await page.emulateMedia({ colorScheme: "dark" });
  await holds(frame, "seen('ui/notifications/host-context-changed').some((m) => m.params.theme === 'dark')");
  await same("another theme");
  // A tab that is hidden follows nothing, and reads all of it again when it is seen.
  const visibility = (state: string): Promise<void> =>
    page.evaluate((now) => {
      Object.defineProperty(document, "visibilityState", { value: now, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, state);
  await visibility("hidden");
  it.mock.tell(message, { type: "append", text: " Said to nobody." });
  await visibility("visible");
  await page.getByText("Said to nobody.").waitFor();
  await same("a hidden tab");
  it.mock.finish(message, [part]);
  await page.locator(`#m-${message}[data-status="succeeded"]`).waitFor();
  await same("the end");
  await page.waitForTimeout(300);
  await same("after the end");
  clean(console);
  await console.close();
});

test("an app that is open may ask while its answer is written", async () => {
  const console = await it.open();
  it.mock.apps.define("asking", {
    html: app("globalThis.initialized = await start(); globalThis.told = await ask('tools/list');"),
    tools: { poll: () => ({ content: [] }) },
  });
  const message = await driven(console);
  it.mock.tell(message, { type: "view", part: it.mock.apps.make("asking", message) });
  const frame = await frameOf(cardOf(console, message));
  await holds(frame, "globalThis.told?.result.tools.length === 1");
  it.mock.finish(message, []);
  clean(console);
  await console.close();
});

test("a page that is loaded in the middle of an answer shows its app again", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("plain", { html: PLAIN });
  const message = await driven(console);
  const part = it.mock.apps.make("plain", message);
  it.mock.tell(message, { type: "view", part });
  await holds(await frameOf(cardOf(console, message)), `${results} === 1`);
  await page.reload();
  await holds(await frameOf(cardOf(console, message)), `${results} === 1`);
  it.mock.finish(message, [part]);
  await page.locator(`#m-${message}[data-status="succeeded"]`).waitFor();
  assert.equal(await page.locator(`#m-${message} .app-place > iframe`).count(), 1);
  clean(console);
  await console.close();
});

test("an app of an answer that fails has its last words and goes", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("left", { html: app("answers['ui/resource-teardown'] = async () => { await ask('tools/list'); return {}; }; globalThis.initialized = await start();") });
  const message = await driven(console);
  it.mock.tell(message, { type: "view", part: it.mock.apps.make("left", message) });
  const frame = await frameOf(cardOf(console, message));
  await holds(frame, "globalThis.initialized !== undefined");
  const asked = it.mock.apps.asked.length;
  const views = it.mock.apps.views.size;
  it.mock.finish(message, [], { kind: "worker_lost", message: "The worker was lost." });
  await page.getByText("The worker was lost.").first().waitFor();
  await page.waitForFunction((id) => document.querySelectorAll(`#m-${id} iframe`).length === 0, message);
  assert.deepEqual(it.mock.apps.asked.slice(asked), ["tools/list"]);
  const end = Date.now() + PATIENCE_MS;
  while (it.mock.apps.views.size >= views && Date.now() < end) await page.waitForTimeout(20);
  assert.equal(it.mock.apps.views.size, views - 1, "the server was told");
  clean(console);
  await console.close();
});

/** A page that tells what it heard of its call. */
const LISTENING = app("await initialize(); say('ui/notifications/initialized'); globalThis.initialized = true;");
const calls = "heard.filter((m) => /tool-/.test(m.method ?? '')).map((m) => [m.method.replace('ui/notifications/tool-', ''), m.params.arguments ?? null])";
const DRAFT = { draft: true, input: null, result: null };

test("a view sees a model write, then the input, then the result, all before the answer's end", async () => {
  const console = await it.open();
  it.mock.apps.define("writing", { html: LISTENING, tools: { poll: () => ({ content: [] }) } });
  const message = await driven(console);
  const part = it.mock.apps.make("writing", message);
  it.mock.apps.know(message, DRAFT);
  const input = (text: string): void => it.mock.tell(message, { type: "input", id: "a1", arguments: { text } });
  it.mock.tell(message, { type: "view", part: { ...part, stage: "draft" } });
  input("o");
  const card = cardOf(console, message);
  const frame = await frameOf(card);
  // What was written before the view was ready comes as soon as it is.
  await holds(frame, `${calls}.length === 1`);
  await frame.evaluate("globalThis.mark = 'the same'");
  input("one");
  await holds(frame, `${calls}.length === 2`);
  input("one two");
  await holds(frame, `${calls}.length === 3`);
  it.mock.apps.know(message, { draft: true, input: { text: "one two three" }, result: null });
  it.mock.tell(message, { type: "view", part: { ...part, stage: "called" } });
  await holds(frame, `${calls}.length === 4`);
  input("too late");
  it.mock.apps.know(message, { input: { text: "one two three" } });
  it.mock.tell(message, { type: "view", part });
  await holds(frame, `${calls}.length === 5`);
  assert.deepEqual(await frame.evaluate(calls), [
    ["input-partial", { text: "o" }],
    ["input-partial", { text: "one" }],
    ["input-partial", { text: "one two" }],
    ["input", { text: "one two three" }],
    ["result", null],
  ]);
  assert.equal(await console.page.locator(`#m-${message}`).getAttribute("data-status"), "running");
  it.mock.tell(message, { type: "append", text: "And it goes on." });
  it.mock.finish(message, [part]);
  await console.page.locator(`#m-${message}[data-status="succeeded"]`).waitFor();
  assert.equal(await frame.evaluate("globalThis.mark"), "the same");
  assert.equal(await frame.evaluate(`${calls}.length`), 5);
  const listed = (await frame.evaluate("ask('tools/list')")) as { result: { tools: unknown[] } };
  assert.equal(listed.result.tools.length, 1, "it is connected");
  clean(console);
  await console.close();
});

test("a view of a call that comes to nothing is told so and goes", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("nothing", {
    html: app(`answers['ui/resource-teardown'] = async () => { await ask('tools/list', {}); globalThis.over = true; return {}; };
      // As it is told: a frame that isn't seen has slow clocks.
      addEventListener('message', ({ data }) => { if (data.method === 'ui/notifications/tool-cancelled') ask('resources/read', { uri: 'ui://mock/nothing' }); });
      await initialize(); say('ui/notifications/initialized'); globalThis.initialized = true;`),
  });
  const message = await driven(console);
  const part = it.mock.apps.make("nothing", message);
  it.mock.apps.know(message, DRAFT);
  it.mock.tell(message, { type: "view", part: { ...part, stage: "draft" } });
  it.mock.tell(message, { type: "input", id: "a1", arguments: { n: 1 } });
  const frame = await frameOf(cardOf(console, message));
  await holds(frame, "seen('ui/notifications/tool-input-partial').length === 1");
  const asked = it.mock.apps.asked.length;
  it.mock.tell(message, { type: "view", part: { id: "a1", stage: "gone" } });
  await page.waitForFunction((id) => document.querySelectorAll(`#m-${id} iframe`).length === 0, message);
  const end = Date.now() + PATIENCE_MS;
  const heard = (): string[] => it.mock.apps.asked.slice(asked);
  while (heard().length < 2 && Date.now() < end) await page.waitForTimeout(20);
  assert.deepEqual([...heard()].sort(), ["resources/read", "tools/list"], "cancelled, and asked for its last words");
  it.mock.finish(message, []);
  clean(console);
  await console.close();
});

test("a page that is loaded while a model writes shows what is written by then", async () => {
  const console = await it.open();
  it.mock.apps.define("writing", { html: LISTENING });
  const message = await driven(console);
  const part = it.mock.apps.make("writing", message);
  it.mock.apps.know(message, DRAFT);
  it.mock.tell(message, { type: "view", part: { ...part, stage: "draft" } });
  it.mock.tell(message, { type: "input", id: "a1", arguments: { n: 1 } });
  await holds(await frameOf(cardOf(console, message)), `${calls}.length === 1`);
  await console.page.reload();
  const frame = await frameOf(cardOf(console, message));
  await holds(frame, `${calls}.length === 1`);
  // The call is made and over before anybody was told that it is made.
  it.mock.apps.know(message, { input: { n: 12 } });
  it.mock.tell(message, { type: "view", part });
  await holds(frame, `${calls}.length === 3`);
  assert.deepEqual(await frame.evaluate(calls), [
    ["input-partial", { n: 1 }],
    ["input", { n: 12 }],
    ["result", null],
  ]);
  it.mock.finish(message, [part]);
  clean(console);
  await console.close();
});
