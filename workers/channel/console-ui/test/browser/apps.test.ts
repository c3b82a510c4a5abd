/** Apps of a reply: their life in the page, and what a person decides about them. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { Download } from "playwright-core";
import { app, PLAIN } from "../apps/view.ts";
import { decide, frameOf, holds, openApp } from "../apps/open.ts";
import { PATIENCE_MS } from "../page.ts";
import { clean, setup } from "./setup.ts";

const it = setup();

test("an app opens, is told what its tool was called with, and what came of it", async () => {
  const console = await it.open();
  it.mock.apps.define("plain", { html: PLAIN, record: { input: { n: 1 } } });
  const { frame } = await openApp(console, "plain");
  await holds(frame, "globalThis.initialized !== undefined");
  const heard = (await frame.evaluate("heard.map((m) => m.method ?? 'answer')")) as string[];
  assert.deepEqual(heard, ["answer", "ui/notifications/tool-input", "ui/notifications/tool-result"]);
  clean(console);
  await console.close();
});

test("streaming, folding and another theme leave the frame and its handshake alone", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("plain", { html: PLAIN });
  const { card, frame } = await openApp(console, "plain");
  await holds(frame, "globalThis.initialized !== undefined");
  await frame.evaluate("globalThis.mark = 7");
  await card.getByRole("button", { name: "Fold" }).click();
  await card.locator("iframe").waitFor({ state: "hidden" });
  await card.getByRole("button", { name: "Show" }).click();
  await console.send("slow please");
  await page.locator('article.assistant[data-status="running"]').waitFor();
  await page.emulateMedia({ colorScheme: "dark" });
  await holds(frame, "seen('ui/notifications/host-context-changed').some((m) => m.params.theme === 'dark')");
  assert.equal(await frame.evaluate("globalThis.mark"), 7);
  assert.equal(await frame.evaluate("heard.filter((m) => m.result?.protocolVersion).length"), 1);
  // By a key: what is written scrolls the button away from a pointer.
  await card.getByRole("button", { name: "Enlarge" }).press("Enter");
  await holds(frame, "seen('ui/notifications/host-context-changed').some((m) => m.params.displayMode === 'fullscreen')");
  await holds(frame, "innerHeight > 500");
  await page.keyboard.press("Escape");
  await holds(frame, "seen('ui/notifications/host-context-changed').at(-1).params.displayMode === 'inline' || seen('ui/notifications/host-context-changed').some((m) => m.params.displayMode === 'inline')");
  assert.equal(await frame.evaluate("globalThis.mark"), 7);
  clean(console);
  await console.close();
});

test("after a reload the stored app renders again, and says that it is no longer connected", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("leaving", { html: PLAIN, tools: { poll: () => ({ content: [] }) } });
  await openApp(console, "leaving");
  it.mock.apps.disconnect("leaving");
  await page.reload();
  const card = page.getByRole("article", { name: /^App / });
  await card.getByText("no longer connected").waitFor();
  const frame = await frameOf(card);
  await holds(frame, "globalThis.initialized !== undefined");
  assert.equal(await frame.evaluate("globalThis.initialized.result.hostCapabilities.serverTools"), undefined);
  const answer = (await frame.evaluate("ask('tools/call', { name: 'poll' })")) as { error: { data: { code: string } } };
  assert.equal(answer.error.data.code, "app_connection_closed");
  clean(console);
  await console.close();
});

test("a tool is called once a person has allowed it, once or until the app closes", async () => {
  const console = await it.open();
  const { page } = console;
  let calls = 0;
  it.mock.apps.define("caller", { html: PLAIN, tools: { poll: () => ({ content: [], structuredContent: { calls: ++calls } }) } });
  const { card, frame } = await openApp(console, "caller");
  await holds(frame, "globalThis.initialized !== undefined");
  const call = (): Promise<unknown> => frame.evaluate("ask('tools/call', { name: 'poll', arguments: { page: 3, api_token: 'abc' } })");
  const no = call();
  const dialog = page.getByRole("dialog", { name: "Let the app call a tool?" });
  await dialog.waitFor();
  const text = await dialog.innerText();
  assert.match(text, /"page": 3/);
  assert.ok(text.includes("[redacted]") && !text.includes("abc"));
  // Who asks, and for what, is read out with the title.
  const about = await dialog.evaluate((element) => document.getElementById(element.getAttribute("aria-describedby") ?? "")?.textContent);
  assert.match(about ?? "", /^The app The caller of the server mock wants to call poll with:$/);
  // The app and its header can be neither used nor reached.
  assert.ok(await card.locator(".app-place").evaluate((element) => (element as HTMLElement).inert));
  assert.ok(await card.locator(".app-head").evaluate((element) => (element as HTMLElement).inert));
  await frame.evaluate("document.body.insertAdjacentHTML('beforeend', '<input id=i>'); document.getElementById('i').focus(); globalThis.taking = setInterval(() => document.getElementById('i').focus(), 20)");
  for (let n = 0; n < 12; n += 1) {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate("document.activeElement === document.body || document.activeElement.closest('dialog') !== null ? '' : document.activeElement.outerHTML.slice(0, 200)"), "", "the focus stays in the dialog");
  }
  await page.keyboard.type("typed");
  assert.equal(await frame.evaluate("document.getElementById('i').value"), "");
  // Outside of the question it would be stopped for that.
  await frame.evaluate("clearInterval(globalThis.taking)");
  await decide(page, "Don't allow");
  assert.equal(((await no) as { error: { data: { code: string } } }).error.data.code, "app_declined");
  assert.equal(calls, 0);
  const once = call();
  await decide(page, "Allow once");
  assert.equal(((await once) as { result: { structuredContent: { calls: number } } }).result.structuredContent.calls, 1);
  const always = call();
  await decide(page, "Allow this tool until the app closes");
  await always;
  await call();
  assert.equal(calls, 3);
  const foreign = (await frame.evaluate("ask('tools/call', { name: 'other' })")) as { error: { data: { code: string } } };
  assert.equal(foreign.error.data.code, "app_tool_forbidden");
  await card.getByText("One thing was not given to this app").click();
  await card.getByText("tools/call other").waitFor();
  // A new view begins without grants.
  await card.getByRole("button", { name: "Close the app" }).click();
  await card.getByRole("button", { name: "Open it again" }).click();
  const again = await frameOf(card);
  await holds(again, "globalThis.initialized !== undefined");
  void again.evaluate("ask('tools/call', { name: 'poll' })").catch(() => undefined);
  await dialog.waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(calls, 3);
  clean(console);
  await console.close();
});

test("an app that takes the keyboard loses it again, and then its place", async () => {
  const console = await it.open();
  it.mock.apps.define("thief", { html: app("globalThis.initialized = await start();", "<input id=i>") });
  const { card, frame } = await openApp(console, "thief");
  await holds(frame, "globalThis.initialized !== undefined");
  await console.field.click();
  await frame.evaluate("document.getElementById('i').focus()");
  await console.page.locator("textarea:focus").waitFor();
  // A person may go there.
  await frame.evaluate("new Promise((done) => setTimeout(done, 1200))");
  await frame.locator("#i").click();
  await console.page.keyboard.type("meant");
  assert.equal(await frame.evaluate("document.getElementById('i').value"), "meant");
  await console.field.click();
  await frame.evaluate("setInterval(() => document.getElementById('i').focus(), 50)").catch(() => undefined);
  await card.getByText("it took the keyboard again and again").waitFor();
  await console.page.locator("textarea:focus").waitFor();
  clean(console);
  await console.close();
});

test("the focus comes back to where it was before a question", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("caller", { html: PLAIN, tools: { poll: () => ({ content: [] }) } });
  const { frame } = await openApp(console, "caller");
  await holds(frame, "globalThis.initialized !== undefined");
  await console.field.focus();
  void frame.evaluate("ask('tools/call', { name: 'poll' })").catch(() => undefined);
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.ok(await console.field.evaluate((element) => element === document.activeElement));
  await console.close();
});

test("nothing can be allowed by a click that was meant for something else", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("caller", { html: PLAIN, tools: { poll: () => ({ content: [] }) } });
  const { frame } = await openApp(console, "caller");
  await holds(frame, "globalThis.initialized !== undefined");
  // How long it can't be allowed, as the page sees it: a slow machine makes that longer.
  await page.evaluate(`
    globalThis.times = {};
    new MutationObserver(() => {
      const yes = [...document.querySelectorAll("dialog button")].find((button) => button.textContent === "Allow once");
      if (yes === undefined) return;
      times.shown ??= performance.now();
      if (yes.disabled) yes.click();
      else times.armed ??= performance.now();
    }).observe(document.body, { subtree: true, childList: true, attributes: true });`);
  void frame.evaluate("ask('tools/call', { name: 'poll' })").catch(() => undefined);
  await page.waitForFunction(() => (globalThis as { times?: { armed?: number } }).times?.armed !== undefined);
  assert.ok(((await page.evaluate("times.armed - times.shown")) as number) > 300);
  assert.equal(it.mock.apps.done.filter((one) => one.method === "tools/call" && one.params["name"] === "poll" && one.params["arguments"] === undefined).length, 0);
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  void frame.evaluate("ask('tools/call', { name: 'poll' })").catch(() => undefined);
  await page.getByRole("dialog").waitFor();
  // Pressed at once: the key that was on its way says no.
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(it.mock.apps.done.filter((one) => one.method === "tools/call" && one.params["name"] === "poll" && one.params["arguments"] === undefined).length, 0);
  await console.close();
});

test("a question that nobody answers is closed before the server forgets it", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("asking", { html: PLAIN, stands: 6000, tools: { poll: () => ({ content: [] }) } });
  const { frame } = await openApp(console, "asking");
  await holds(frame, "globalThis.initialized !== undefined");
  const call = frame.evaluate("ask('tools/call', { name: 'poll' })");
  await page.getByRole("dialog", { name: "Let the app call a tool?" }).waitFor();
  assert.equal(((await call) as { error: { data: { code: string } } }).error.data.code, "app_declined");
  assert.equal(await page.getByRole("dialog").count(), 0);
  await page.getByText("A question of the app The asking was closed: it was not answered in time.").waitFor();
  await console.close();
});

test("links are https, shown whole, and opened without a way back", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("links", { html: PLAIN });
  const { frame } = await openApp(console, "links");
  await holds(frame, "globalThis.initialized !== undefined");
  const bad = [
    "javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "vscode://x", "//evil.example", "https://user@evil.example/", "https://evil.example/\\r\\nx",
    "http://evil.example/", "https:evil.example", " https://evil.example", "https:///evil.example", "https:\\\\\\\\evil.example",
  ];
  for (const url of bad) {
    const answer = (await frame.evaluate(`ask('ui/open-link', { url: ${JSON.stringify(url).replaceAll("\\\\", "\\")} })`)) as { error?: { data?: { code: string } } };
    assert.equal(answer.error?.data?.code, "app_open_link_forbidden", url);
  }
  assert.equal(await page.getByRole("dialog").count(), 0);
  await console.context.route("https://example.com/**", (route) => route.fulfill({ body: "<script>document.title = String(opener)</script>", contentType: "text/html" }));
  const answer = frame.evaluate("ask('ui/open-link', { url: 'https://example.com/a?b=c' })");
  const dialog = page.getByRole("dialog", { name: "Open this address?" });
  await dialog.getByText("example.com", { exact: true }).waitFor();
  await dialog.getByText("https://example.com/a?b=c").waitFor();
  const [opened] = await Promise.all([console.context.waitForEvent("page"), decide(page, "Open in a new tab")]);
  await answer;
  await opened.waitForFunction("document.title === 'null'");
  await console.close();
});

test("a message of an app waits in the composer for a person", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("talker", { html: PLAIN });
  const { frame } = await openApp(console, "talker");
  await holds(frame, "globalThis.initialized !== undefined");
  const turns = await page.locator("article.user").count();
  const message = (text: string): Promise<unknown> => frame.evaluate(`ask('ui/message', { role: 'user', content: [{ type: 'text', text: ${JSON.stringify(text)} }] })`);
  await page.evaluate("document.activeElement.blur()");
  // Fifty in a loop and a megabyte: one is taken.
  const all = (await frame.evaluate(`Promise.all(Array.from({ length: 50 }, (_, n) => ask('ui/message', { role: 'user', content: [{ type: 'text', text: 'buy now ' + n }] })))`)) as { result?: object; error?: object }[];
  assert.equal(all.filter((one) => one.result !== undefined && !("isError" in one.result)).length, 1);
  const large = (await frame.evaluate(`ask('ui/message', { role: 'user', content: [{ type: 'text', text: 'x'.repeat(1048576) }] })`)) as { error?: { data: { code: string } } };
  assert.equal(large.error?.data.code, "app_request_too_large");
  const note = page.getByRole("list", { name: "From apps" });
  await note.getByText("The talker").waitFor();
  assert.match(await console.field.inputValue(), /^buy now \d+$/);
  assert.equal(await page.locator("article.user").count(), turns, "no turn began");
  await note.getByRole("button", { name: "Leave out the text of The talker" }).click();
  assert.equal(await console.field.inputValue(), "");
  // While somebody writes, the text stays as it is.
  await console.field.fill("my own words");
  await frame.evaluate("new Promise((done) => setTimeout(done, 3100))");
  await message("please");
  assert.equal(await console.field.inputValue(), "my own words");
  await note.getByRole("button", { name: "Put it into the message" }).click();
  assert.equal(await console.field.inputValue(), "my own words\nplease");
  clean(console);
  await console.close();
});

test("a draft that is an app's text says so after a reload, too", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("drafter", { html: PLAIN });
  const { frame } = await openApp(console, "drafter");
  await holds(frame, "globalThis.initialized !== undefined");
  await page.evaluate("document.activeElement.blur()");
  await frame.evaluate("ask('ui/message', { role: 'user', content: [{ type: 'text', text: 'buy now' }] })");
  const note = page.getByRole("list", { name: "From apps" }).getByText("This text is from the app The drafter");
  await note.waitFor();
  await page.reload();
  await note.waitFor();
  assert.equal(await console.field.inputValue(), "buy now");
  await console.field.fill("");
  await note.waitFor({ state: "detached" });
  await page.reload();
  await console.field.waitFor();
  assert.equal(await note.count(), 0);
  clean(console);
  await console.close();
});

test("context is granted once, the last one counts, goes with the next message, and ends with the app", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("knower", { html: PLAIN });
  const { card, frame } = await openApp(console, "knower");
  await holds(frame, "globalThis.initialized !== undefined");
  const keep = (n: number): Promise<unknown> => frame.evaluate(`ask('ui/update-model-context', { structuredContent: { page: ${n} } })`);
  const first = keep(1);
  await decide(page, "Allow");
  await first;
  await keep(2);
  const note = page.getByRole("list", { name: "From apps" });
  await note.getByText("Context from The knower").click();
  await note.getByText('{"page":2}').waitFor();
  await console.send("what do you see?");
  await note.waitFor({ state: "detached" });
  assert.deepEqual(it.mock.apps.sent, ['{"page":2}']);
  await keep(3);
  await note.getByText("Context from The knower").waitFor();
  await card.getByRole("button", { name: "Close the app" }).click();
  await note.waitFor({ state: "detached" });
  clean(console);
  await console.close();
});

test("context that is no longer kept is taken out, and the message waits for that to be seen", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("forgotten", { html: PLAIN });
  const { frame } = await openApp(console, "forgotten");
  await holds(frame, "globalThis.initialized !== undefined");
  const given = frame.evaluate("ask('ui/update-model-context', { structuredContent: { page: 1 } })");
  await decide(page, "Allow");
  await given;
  const note = page.getByRole("list", { name: "From apps" });
  await note.getByText("Context from The forgotten").waitFor();
  // As after another start of the console's worker.
  for (const view of it.mock.apps.views.values()) view.context = null;
  const [sent, told] = [await page.locator("article.user").count(), it.mock.apps.sent.length];
  await console.field.fill("what do you see?");
  await console.field.press("Enter");
  await page.getByText("no longer kept and was taken out").waitFor();
  await note.waitFor({ state: "detached" });
  assert.equal(await console.field.inputValue(), "what do you see?");
  assert.equal(await page.locator("article.user").count(), sent);
  await console.field.press("Enter");
  await page.locator("article.user").nth(sent).waitFor();
  assert.equal(it.mock.apps.sent.length, told);
  await console.close();
});

test("files are saved when a person wants them, from where they are kept", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("saver", { html: PLAIN });
  const { card, frame } = await openApp(console, "saver");
  await holds(frame, "globalThis.initialized !== undefined");
  const text = "{ type: 'resource', resource: { uri: 'file:///../../report.csv?x', mimeType: 'text/csv', text: 'a,b' } }";
  const blob = "{ type: 'resource', resource: { uri: 'ui://x/b.bin', blob: 'AP8K' } }";
  const hand = (...contents: string[]): Promise<{ result?: object; error?: { code: number; data?: { code: string } } }> =>
    frame.evaluate(`ask('ui/download-file', { contents: [${contents.join(",")}] })`);
  const dialog = page.getByRole("dialog", { name: "Save files of the app?" });

  const no = hand(text);
  await dialog.getByText("report.csv").waitFor();
  await decide(page, "Don't allow");
  assert.equal((await no).error?.data?.code, "app_declined");
  assert.equal(await card.locator(".app-files").count(), 0);

  const downloads: Download[] = [];
  page.on("download", (download) => downloads.push(download));
  const yes = hand(text, blob);
  await dialog.getByText("b.bin").waitFor();
  // Its preview is of the first.
  await dialog.getByText("a,b").waitFor();
  // One after the other.
  assert.equal((await hand(text)).error?.data?.code, "app_rate_limited");
  await decide(page, "Save");
  assert.deepEqual((await yes).result, {});
  await card.getByText("2 files of this app").click();
  await card.getByRole("article", { name: "File b.bin" }).waitFor();
  while (downloads.length < 2) await page.waitForEvent("download");
  const saved = new Map<string, string>();
  for (const download of downloads) saved.set(download.suggestedFilename(), readFileSync(await download.path()).toString("hex"));
  assert.deepEqual([...saved].sort(), [["b.bin", "00ff0a"], ["report.csv", Buffer.from("a,b").toString("hex")]]);

  // What is only linked to is read as the app reads: its own page, and nothing else.
  const foreign = await hand("{ type: 'resource_link', uri: 'https://x.example/a', name: 'a' }");
  assert.equal(foreign.error?.data?.code, "app_resource_forbidden");
  const own = hand("{ type: 'resource_link', uri: 'ui://mock/saver', name: 'a' }");
  await dialog.getByText("saver").first().waitFor();
  await decide(page, "Don't allow");
  assert.equal((await own).error?.data?.code, "app_declined");
  for (const bad of ["7", "{ type: 'text', text: 'a' }", "{ type: 'resource', resource: { uri: 'a', blob: '%' } }", ""]) {
    assert.equal((await hand(bad)).error?.code, -32602, bad);
  }
  const asked = it.mock.apps.asked.filter((method) => method === "ui/download-file").length;
  const large = await frame.evaluate("ask('ui/download-file', { contents: [{ type: 'resource', resource: { uri: 'a', text: 'x'.repeat(29 * 1024 * 1024) } }] })");
  assert.equal((large as { error?: { data?: { code: string } } }).error?.data?.code, "app_request_too_large");
  assert.equal(it.mock.apps.asked.filter((method) => method === "ui/download-file").length, asked);
  const over = await frame.evaluate("ask('ui/download-file', { contents: [{ type: 'resource', resource: { uri: 'a', text: 'x'.repeat(20 * 1024 * 1024 + 1) } }] })");
  assert.equal((over as { error?: { data?: { code: string } } }).error?.data?.code, "app_request_too_large");
  // And not so much again.
  const soon = await frame.evaluate("ask('ui/download-file', { contents: [{ type: 'resource', resource: { uri: 'a', text: 'x'.repeat(20 * 1024 * 1024) } }] })");
  assert.equal((soon as { error?: { data?: { code: string } } }).error?.data?.code, "app_rate_limited");

  // They are there after a reload.
  await page.reload();
  await page.getByText("2 files of this app").waitFor();
  clean(console);
  await console.close();
});

test("closing waits for the app's last words, and not for ever", async () => {
  const console = await it.open();
  it.mock.apps.define("polite", { html: app("answers['ui/resource-teardown'] = () => { ask('ping'); return {}; }; globalThis.initialized = await start();") });
  it.mock.apps.define("rude", { html: app("delete answers['ui/resource-teardown']; globalThis.initialized = await start();") });
  it.mock.apps.define("stuck", { html: app("answers['ui/resource-teardown'] = () => { for (;;); }; globalThis.initialized = await start();") });
  for (const name of ["polite", "rude", "stuck"]) {
    const { card, frame } = await openApp(console, name);
    await holds(frame, "globalThis.initialized !== undefined");
    const began = Date.now();
    await card.getByRole("button", { name: "Close the app" }).click();
    await card.getByText("The app is closed.").waitFor();
    assert.ok(Date.now() - began < 20_000, name);
    assert.equal(await card.locator("iframe").count(), 0);
  }
  clean(console);
  await console.close();
});

test("heights settle, and what is no height changes nothing", async () => {
  const console = await it.open();
  const report = "const told = () => say('ui/notifications/size-changed', { width: innerWidth, height: document.documentElement.scrollHeight }); new ResizeObserver(told).observe(document.documentElement);";
  it.mock.apps.define("viewport", { html: app(`globalThis.initialized = await start(); ${report}`, "<style>body{margin:0}main{height:100vh}</style><main>x</main>") });
  it.mock.apps.define("percent", { html: app(`globalThis.initialized = await start(); ${report}`, "<style>html,body{height:100%}</style>x") });
  it.mock.apps.define("odd", { html: app("globalThis.initialized = await start();") });
  for (const name of ["viewport", "percent"]) {
    const { card, frame } = await openApp(console, name);
    await holds(frame, "globalThis.initialized !== undefined");
    const height = (): Promise<number> => card.locator(".app-place").evaluate((element) => element.clientHeight);
    await frame.evaluate("new Promise((done) => setTimeout(done, 500))");
    const settled = await height();
    await frame.evaluate("new Promise((done) => setTimeout(done, 500))");
    assert.equal(await height(), settled, name);
    assert.ok(settled <= 2002);
  }
  const { card, frame } = await openApp(console, "odd");
  await holds(frame, "globalThis.initialized !== undefined");
  const height = (): Promise<string> => card.locator(".app-place").evaluate((element) => (element as HTMLElement).style.height);
  const becomes = async (wanted: string): Promise<void> => {
    const end = Date.now() + PATIENCE_MS;
    while ((await height()) !== wanted && Date.now() < end) await console.page.waitForTimeout(20);
    assert.equal(await height(), wanted);
  };
  const before = await height();
  await frame.evaluate("for (const height of [NaN, -1, Infinity, 'x', null, {}]) { try { say('ui/notifications/size-changed', { height }) } catch {} } ask('ping')");
  assert.equal(await height(), before);
  await frame.evaluate("say('ui/notifications/size-changed', { height: 1e9 }); ask('ping')");
  await becomes("2000px");
  await frame.evaluate("say('ui/notifications/size-changed', { height: 0 }); ask('ping')");
  await becomes("40px");
  clean(console);
  await console.close();
});

test("what was not granted stands beside the app", async () => {
  const console = await it.open();
  it.mock.apps.define("map", {
    html: app("globalThis.initialized = await start();", '<script src="https://cdn.example/cesium.js"></script>'),
    record: { refused: [{ kind: "resource", value: "https://cdn.example", reason: "not_allowed" }] },
  });
  const { card, frame } = await openApp(console, "map");
  await holds(frame, "globalThis.initialized !== undefined");
  await card.getByText("2 things were not given to this app").click();
  await card.getByText("files from https://cdn.example: not on the host's list").waitFor();
  await card.getByText(/blocked by its policy, .*https:\/\/cdn\.example\/cesium\.js/).waitFor();
  await console.close();
});

test("more than eight apps are not open at once", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("plain", { html: PLAIN });
  await console.ask(`app ${"plain ".repeat(10)}`);
  const cards = page.getByRole("article", { name: /^App / });
  for (let n = 0; n < 10; n += 1) {
    await cards.nth(n).scrollIntoViewIfNeeded();
    await page.locator('.card.app[data-state="reading"]').first().waitFor({ state: "detached" });
  }
  // Those that make room have a moment for their last words.
  await page.locator(".app-place > iframe").nth(8).waitFor({ state: "detached" });
  await page.getByText("The app was closed to make room for another one.").first().waitFor();
  await console.close();
});

test("a connection that ends meanwhile is said so without a reload", async () => {
  const console = await it.open();
  it.mock.apps.define("ending", { html: PLAIN });
  const { card, frame } = await openApp(console, "ending");
  await holds(frame, "globalThis.initialized !== undefined");
  assert.equal(await card.getByText("no longer connected").count(), 0);
  it.mock.apps.disconnect("ending");
  for (const view of it.mock.apps.views.values()) it.mock.hint({ kind: "app", id: view.app.part.id });
  await card.getByText("no longer connected").waitFor();
  clean(console);
  await console.close();
});

test("a view that the server no longer knows says that it is not connected", async () => {
  const console = await it.open();
  it.mock.apps.define("stale", { html: PLAIN, tools: { poll: () => ({ content: [] }) } });
  const { card, frame } = await openApp(console, "stale");
  await holds(frame, "globalThis.initialized !== undefined");
  assert.equal(await card.getByText("no longer connected").count(), 0);
  // As after another start of the worker that has the apps.
  it.mock.apps.views.clear();
  const answer = (await frame.evaluate("ask('tools/call', { name: 'poll' })")) as { error: { data: { code: string } } };
  assert.equal(answer.error.data.code, "app_forbidden");
  await card.getByText("no longer connected").waitFor();
  await console.close();
});

test("an app that is opened and closed in a hurry leaves one that hears everything once", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("hasty", { html: PLAIN });
  const { card } = await openApp(console, "hasty");
  for (let n = 0; n < 4; n += 1) {
    await card.getByRole("button", { name: "Close the app" }).click();
    await card.getByRole("button", { name: "Open it again" }).click();
    await card.locator(".app-place > iframe").waitFor({ state: "attached" });
  }
  // Away and back, before anything has started.
  const path = new URL(page.url()).pathname;
  await page.getByRole("link", { name: "Settings" }).click();
  await page.goBack();
  await page.waitForURL(`**${path}`);
  const again = page.getByRole("article", { name: "App The hasty" });
  await again.locator(".app-place > iframe").waitFor({ state: "attached" });
  const frame = await frameOf(again);
  await holds(frame, "globalThis.initialized !== undefined");
  await frame.evaluate("ask('ping')");
  assert.deepEqual(await frame.evaluate("heard.map((m) => m.method ?? 'answer')"), ["answer", "ui/notifications/tool-input", "ui/notifications/tool-result", "answer"]);
  assert.equal(await page.locator(".app-place > iframe").count(), 1);
  clean(console);
  await console.close();
});

test("two servers with the same tool and the same resource stay apart", async () => {
  const console = await it.open();
  const { page } = console;
  const calls: string[] = [];
  for (const server of ["first", "second"]) {
    it.mock.apps.define(server, {
      html: PLAIN,
      record: { serverName: server, toolName: "get-time", title: `Clock of ${server}`, resourceUri: "ui://clock/page.html" },
      tools: { poll: () => (calls.push(server), { content: [] }) },
    });
  }
  await console.ask("app first second");
  const cards = ["first", "second"].map((server) => page.getByRole("article", { name: `App Clock of ${server}` }));
  const frames = [];
  for (const card of cards) {
    await card.locator(".app-place > iframe").waitFor({ state: "attached" });
    const frame = await frameOf(card);
    await holds(frame, "globalThis.initialized !== undefined");
    frames.push(frame);
  }
  const always = frames[0]?.evaluate("ask('tools/call', { name: 'poll' })");
  await page.getByRole("dialog").getByText("first", { exact: true }).waitFor();
  await decide(page, "Allow this tool until the app closes");
  await always;
  await frames[0]?.evaluate("ask('tools/call', { name: 'poll' })");
  const other = frames[1]?.evaluate("ask('tools/call', { name: 'poll' })");
  await page.getByRole("dialog").getByText("second", { exact: true }).waitFor();
  await decide(page, "Don't allow");
  await other;
  assert.deepEqual(calls, ["first", "first"]);
  clean(console);
  await console.close();
});

test("while a question is open no message is placed and no mode changes", async () => {
  const console = await it.open();
  const { page } = console;
  it.mock.apps.define("busy", { html: PLAIN, tools: { poll: () => ({ content: [] }) } });
  const { card, frame } = await openApp(console, "busy");
  await holds(frame, "globalThis.initialized !== undefined");
  const call = frame.evaluate("ask('tools/call', { name: 'poll' })");
  await page.getByRole("dialog").waitFor();
  const message = (await frame.evaluate("ask('ui/message', { role: 'user', content: [{ type: 'text', text: 'now' }] })")) as { error: { data: { code: string } } };
  assert.equal(message.error.data.code, "app_rate_limited");
  const mode = (await frame.evaluate("ask('ui/request-display-mode', { mode: 'fullscreen' })")) as { result: { mode: string } };
  assert.equal(mode.result.mode, "inline");
  await decide(page, "Allow once");
  await call;
  assert.equal(await console.field.inputValue(), "");
  // Afterwards an app may fill the page, and a question still lies above it.
  const full = (await frame.evaluate("ask('ui/request-display-mode', { mode: 'fullscreen' })")) as { result: { mode: string } };
  assert.equal(full.result.mode, "fullscreen");
  await card.getByRole("button", { name: "Back to the thread" }).waitFor();
  const above = frame.evaluate("ask('tools/call', { name: 'poll' })");
  await decide(page, "Allow once");
  await above;
  await card.getByRole("button", { name: "Back to the thread" }).click();
  assert.equal(await page.locator("[inert]").count(), 0, "nothing stays inert");
  clean(console);
  await console.close();
});

test("a view of the older revision is answered in it", async () => {
  const console = await it.open();
  it.mock.apps.define("older", { html: app("globalThis.answer = await initialize('2025-11-21'); say('ui/notifications/initialized'); globalThis.other = await initialize('1999-01-01');") });
  it.mock.apps.define("none", { html: app("globalThis.answer = await initialize('nonsense');") });
  const { frame } = await openApp(console, "older");
  await holds(frame, "globalThis.other !== undefined");
  assert.equal(await frame.evaluate("globalThis.answer.result.protocolVersion"), "2025-11-21");
  assert.equal(await frame.evaluate("globalThis.other.error.code"), -32600);
  const none = await openApp(console, "none");
  await holds(none.frame, "globalThis.answer !== undefined");
  assert.equal(await none.frame.evaluate("globalThis.answer.error.code"), -32602);
  await console.close();
});
