/** The life of a view beside what it shows: what it is told, what ends it, and what it leaves. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { app, PLAIN } from "../apps/view.ts";
import { askForApp, decide, frameOf, holds, openApp } from "../apps/open.ts";
import { PATIENCE_MS } from "../page.ts";
import { clean, setup } from "./setup.ts";

const it = setup();

test("a view is told of another width and another language, each alone", async () => {
  const console = await it.open({ viewport: { width: 1300, height: 800 } });
  const { page } = console;
  it.mock.apps.define("plain", { html: PLAIN });
  const { frame } = await openApp(console, "plain");
  await holds(frame, "globalThis.initialized !== undefined");
  const changes = "seen('ui/notifications/host-context-changed').map((m) => m.params)";
  await page.setViewportSize({ width: 700, height: 800 });
  await holds(frame, `${changes}.some((c) => c.containerDimensions?.width === innerWidth && innerWidth < 700)`);
  await page.evaluate(() => {
    Object.defineProperty(navigator, "language", { value: "fr-CA" });
    dispatchEvent(new Event("languagechange"));
  });
  await holds(frame, `${changes}.some((c) => c.locale === 'fr-CA')`);
  assert.ok(await frame.evaluate(`${changes}.every((c) => Object.keys(c).length === 1)`));
  // In full, the height is the page's as well.
  const answer = (await frame.evaluate("ask('ui/request-display-mode', { mode: 'fullscreen' })")) as { result: { mode: string } };
  assert.equal(answer.result.mode, "fullscreen");
  await holds(frame, `${changes}.at(-1).containerDimensions?.height > 400`);
  await page.setViewportSize({ width: 700, height: 500 });
  await holds(frame, `${changes}.at(-1).containerDimensions?.height < 500 && ${changes}.at(-1).displayMode === undefined`);
  clean(console);
  await console.close();
});

test("an app fills the page neither while somebody writes nor after it was taken back", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("filling", { html: PLAIN });
  const { card, frame } = await openApp(console, "filling");
  await holds(frame, "globalThis.initialized !== undefined");
  const full = async (): Promise<string> => ((await frame.evaluate("ask('ui/request-display-mode', { mode: 'fullscreen' })")) as { result: { mode: string } }).result.mode;
  await console.field.fill("my words");
  assert.equal(await full(), "inline");
  await page.keyboard.type(" go on");
  assert.equal(await console.field.inputValue(), "my words go on");
  await console.field.fill("");
  assert.equal(await full(), "fullscreen");
  const back = card.getByRole("button", { name: "Back to the thread" });
  await back.waitFor();
  await page.keyboard.press("Escape");
  await back.waitFor({ state: "detached" });
  for (let n = 0; n < 3; n += 1) assert.equal(await full(), "inline");
  await card.getByRole("button", { name: "Enlarge" }).click();
  await back.waitFor();
  assert.equal(await full(), "fullscreen");
  clean(console);
  await console.close();
});

test("an app may ask to be closed, and is asked for its last words", async () => {
  const console = await it.open();
  it.mock.apps.define("tired", { html: app("answers['ui/resource-teardown'] = async () => { await ask('tools/list'); return {}; }; globalThis.initialized = await start();"), tools: { poll: () => ({ content: [] }) } });
  const { card, frame } = await openApp(console, "tired");
  await holds(frame, "globalThis.initialized !== undefined");
  const asked = it.mock.apps.asked.length;
  await frame.evaluate("say('ui/notifications/request-teardown')");
  await card.getByText("The app is closed.").waitFor();
  assert.deepEqual(it.mock.apps.asked.slice(asked), ["tools/list"]);
  assert.equal(await card.locator("iframe").count(), 0);
  clean(console);
  await console.close();
});

test("an app has its last words when its thread is left", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("left", { html: app("answers['ui/resource-teardown'] = async () => { await ask('tools/list'); return {}; }; globalThis.initialized = await start();"), tools: { poll: () => ({ content: [] }) } });
  const { frame } = await openApp(console, "left");
  await holds(frame, "globalThis.initialized !== undefined");
  const { asked, views } = it.mock.apps;
  const before = [asked.length, views.size];
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("heading", { level: 1, name: "Settings" }).waitFor();
  // A text would be evaluated again at each look, which the page's policy forbids.
  await page.waitForFunction(() => document.querySelectorAll("iframe").length === 0);
  assert.deepEqual(asked.slice(before[0]), ["tools/list"]);
  const end = Date.now() + PATIENCE_MS;
  while (views.size >= (before[1] ?? 0) && Date.now() < end) await page.waitForTimeout(20);
  assert.equal(views.size, (before[1] ?? 0) - 1, "the server was told");
  clean(console);
  await console.close();
});

test("what an app withdraws, and what is under way when it closes, is given up", async () => {
  const console = await it.open();
  const { page } = console;
  let called = 0;
  const never = (): Promise<never> => ((called += 1), new Promise<never>(() => undefined));
  it.mock.apps.define("patient", { html: PLAIN, tools: { wait: never } });
  const { card, frame } = await openApp(console, "patient");
  await holds(frame, "globalThis.initialized !== undefined");
  let given = 0;
  page.on("requestfailed", (request) => {
    if (/\/(requests|confirmations\/[^/]+)$/.test(request.url())) given += 1;
  });
  const until = async (what: () => boolean): Promise<void> => {
    const end = Date.now() + PATIENCE_MS;
    while (!what() && Date.now() < end) await page.waitForTimeout(20);
    assert.ok(what());
  };
  await frame.evaluate("void (globalThis.first = ask('tools/call', { name: 'wait' })), 0");
  await decide(page, "Allow this tool until the app closes");
  await until(() => called === 1);
  await frame.evaluate("void say('notifications/cancelled', { requestId: [...waiting.keys()].at(-1) })");
  await until(() => given === 1);
  await frame.evaluate("void ask('tools/call', { name: 'wait' }), 0");
  await until(() => called === 2);
  await card.getByRole("button", { name: "Close the app" }).click();
  await card.getByText("The app is closed.").waitFor();
  await until(() => given === 2);
  await console.close();
});

test("a large result comes whole, and one that is too large is called off and said", async () => {
  const console = await it.open();
  const many = Array.from({ length: 200_000 }, () => 1);
  let deep: unknown = 1;
  for (let n = 0; n < 100; n += 1) deep = [deep];
  it.mock.apps.define("many", { html: PLAIN, record: { result: { content: [], structuredContent: { many, deep } } } });
  const large = await openApp(console, "many");
  await holds(large.frame, "globalThis.initialized !== undefined");
  assert.equal(await large.frame.evaluate("seen('ui/notifications/tool-result')[0].params.structuredContent.many.length"), many.length);
  for (const [name, record, heard] of [
    ["result", { result: { content: [{ type: "text", text: "x".repeat(1024 * 1024) }] } }, ["ui/notifications/tool-input", "ui/notifications/tool-cancelled"]],
    ["input", { input: { text: "x".repeat(1024 * 1024) } }, ["ui/notifications/tool-cancelled"]],
  ] as const) {
    it.mock.apps.define(name, { html: PLAIN, record: record as never });
    const { card, frame } = await openApp(console, name);
    await holds(frame, "globalThis.initialized !== undefined");
    assert.deepEqual(await frame.evaluate("heard.map((m) => m.method).filter(Boolean)"), heard);
    assert.match(String(await frame.evaluate("seen('ui/notifications/tool-cancelled')[0].params.reason")), /too large for an app/);
    await card.getByText("One thing was not given to this app").click();
    await card.getByText(/is too large for an app/).waitFor();
  }
  clean(console);
  await console.close();
});

test("what was granted loads in an app that has a process of its own", async () => {
  const console = await it.open();
  const seen: string[] = [];
  await console.context.route("https://granted.example/**", async (route) => {
    const request = route.request();
    seen.push(request.resourceType());
    const picture = Buffer.from("R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==", "base64");
    if (request.resourceType() === "image") await route.fulfill({ contentType: "image/gif", body: picture });
    else if (request.resourceType() === "document") await route.fulfill({ contentType: "text/html", body: "<p>framed" });
    else await route.fulfill({ contentType: "text/plain", body: "fetched", headers: { "access-control-allow-origin": "*" } });
  });
  const loads = `globalThis.initialized = await start();
    globalThis.fetched = await (await fetch("https://granted.example/data")).text();
    const load = (made) => new Promise((done) => { made.onload = () => done(true); made.onerror = () => done(false); document.body.append(made); });
    globalThis.drawn = await load(Object.assign(new Image(), { src: "https://granted.example/a.gif" }));
    globalThis.framed = await load(Object.assign(document.createElement("iframe"), { src: "https://granted.example/frame" }));`;
  const given = ["https://granted.example"];
  it.mock.apps.define("granted", { html: app(loads), record: { csp: { connectDomains: given, resourceDomains: given, frameDomains: given } } });
  const { card, frame } = await openApp(console, "granted");
  await holds(frame, "globalThis.framed !== undefined");
  assert.deepEqual(await frame.evaluate("[fetched, drawn, framed, crossOriginIsolated]"), ["fetched", true, true, true]);
  assert.deepEqual(seen, ["fetch", "image", "document"]);
  assert.equal(await card.getAttribute("data-state"), "open");
  await console.close();
});

const LOOP = app("await start(); setTimeout(() => { for (;;); }, 200)");
const STOPPED = "it no longer answered";
/** The watch is slow to judge, and so may the machine be. */
const JUDGED_MS = 2 * PATIENCE_MS;

test("an app that never rests is stopped, and no other app is held up", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.isolated = true;
  it.mock.apps.define("plain", { html: PLAIN, tools: { poll: () => ({ content: [], structuredContent: { polled: true } }) } });
  it.mock.apps.define("loop", { html: LOOP });
  await console.ask("app plain loop");
  const [good, bad] = ["plain", "loop"].map((name) => console.answer.getByRole("article", { name: `App The ${name}` }));
  assert.ok(good !== undefined && bad !== undefined);
  await bad.scrollIntoViewIfNeeded();
  await bad.and(page.locator("[data-ready]")).waitFor();
  await good.scrollIntoViewIfNeeded();
  const frame = await frameOf(good);
  await holds(frame, "globalThis.initialized !== undefined");
  // While the other one goes on.
  await frame.evaluate("new Promise((done) => setTimeout(done, 600))");
  assert.equal(await bad.getAttribute("data-state"), "open");
  assert.deepEqual(((await frame.evaluate("ask('ping')")) as { result: object }).result, {});
  const call = frame.evaluate("ask('tools/call', { name: 'poll' })");
  await decide(page, "Allow once");
  assert.deepEqual(((await call) as { result: { structuredContent: object } }).result.structuredContent, { polled: true });
  await console.field.fill("still here");
  assert.equal(await console.field.inputValue(), "still here");
  await bad.getByText(STOPPED).waitFor({ timeout: JUDGED_MS });
  assert.equal(await good.getAttribute("data-state"), "open");
  assert.deepEqual(((await frame.evaluate("ask('ping')")) as { result: object }).result, {});
  // It may be tried again; another one that starts meanwhile is not held up either.
  await bad.getByRole("button", { name: "Open it again" }).click();
  await bad.and(page.locator("[data-ready]")).waitFor();
  await bad.getByRole("button", { name: "Close the app" }).click();
  await bad.getByText("The app is closed.").waitFor();
  clean(console);
  await console.close();
});

test("where apps share a process, all that are held up are stopped, and can be opened again", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.isolated = false;
  it.mock.apps.define("plain", { html: PLAIN });
  it.mock.apps.define("loop", { html: LOOP });
  await console.ask("app plain");
  const good = page.getByRole("article", { name: "App The plain" });
  await good.and(page.locator("[data-ready]")).waitFor();
  await console.send("app loop");
  await console.ended();
  const bad = page.getByRole("article", { name: "App The loop" });
  await bad.and(page.locator("[data-ready]")).waitFor();
  for (const card of [good, bad]) await card.getByText(STOPPED).waitFor({ timeout: JUDGED_MS });
  await good.getByRole("button", { name: "Open it again" }).click();
  await good.and(page.locator("[data-ready]")).waitFor();
  it.mock.apps.isolated = true;
  clean(console);
  await console.close();
});

test("an app that is slow for a while is left alone", async () => {
  const console = await it.open();
  it.mock.apps.define("busy", { html: app("globalThis.initialized = await start(); setTimeout(() => { const end = performance.now() + 8000; while (performance.now() < end); globalThis.rested = true; }, 100);") });
  const card = await askForApp(console, "busy");
  await card.and(console.page.locator("[data-ready]")).waitFor();
  const frame = await frameOf(card);
  await holds(frame, "globalThis.rested === true");
  assert.equal(await card.getAttribute("data-state"), "open");
  clean(console);
  await console.close();
});
