/** Apps that want out: nothing arrives at a listener, and the console stays what it was. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { attack, control, LEAVING, QUIET } from "../apps/hostile.ts";
import { Listener } from "../apps/listener.ts";
import { appFrames, askForApp, frameOf, holds, openApp } from "../apps/open.ts";
import { app, PLAIN } from "../apps/view.ts";
import { launch, PATIENCE_MS, type Console } from "../page.ts";
import { document as appDocument, innerPolicy } from "../../src/apps/policy.ts";
import { setup } from "./setup.ts";

const it = setup();
const listener = new Listener();
before(() => listener.start());
after(() => listener.stop());

/** Ways that make no request even where nothing stops them: a person's click is missing, or a file. */
const SILENT_ANYWAY = new Set(["popup", "link_blank", "download", "download_detached", "top", "parent", "top_script", "parent_script", "opener", "service_worker", "shared_worker", "report", "manifest", "icon", "track", "form", "data", "javascript", "child", "prefetch", "speculation", "preconnect", "frame_data", "frame_blob", "base"]);

/** Time for what was begun to arrive. */
const settle = (page: Console["page"], ms = 700): Promise<void> => page.waitForTimeout(ms);

async function alive(console: Console): Promise<void> {
  await console.field.fill("still here");
  assert.equal(await console.field.inputValue(), "still here");
  assert.ok(console.page.url().startsWith(it.origin));
}

test("the listener would be told: a bare frame reaches it by the same ways", async () => {
  const context = await (await launch()).newContext();
  const page = await context.newPage();
  const missing: string[] = [];
  const reached: string[] = [];
  for (const [name, way] of Object.entries({ ...QUIET, ...LEAVING })) {
    listener.pages.set(`/control/${name}`, control(listener.origin, way));
    listener.pages.set(`/around/${name}`, `<!doctype html><iframe src="/control/${name}"></iframe>`);
    await page.goto(`${listener.origin}/around/${name}`);
    const end = Date.now() + (SILENT_ANYWAY.has(name) ? 300 : PATIENCE_MS);
    while (!listener.hits.includes(`/${name}`) && Date.now() < end) await page.waitForTimeout(20);
    (listener.hits.includes(`/${name}`) ? reached : missing).push(name);
  }
  process.stdout.write(`# control: ${reached.length} of ${reached.length + missing.length} ways arrive from a bare frame (not: ${missing.join(" ")})\n`);
  assert.deepEqual(missing.filter((name) => !SILENT_ANYWAY.has(name)), []);
  assert.ok(reached.length >= 40);
  await context.close();
});

test("no request leaves an app that stays where it is", async () => {
  const console = await it.open();
  listener.hits.length = 0;
  const before = listener.connections;
  it.mock.apps.define("quiet", { html: attack(listener.origin, Object.values(QUIET)) });
  const { card, frame } = await openApp(console, "quiet");
  await holds(frame, "globalThis.tried === true");
  await settle(console.page);
  assert.deepEqual(listener.hits, []);
  process.stdout.write(`# ${Object.keys(QUIET).length} ways without leaving: 0 requests, ${listener.connections - before} connections\n`);
  await card.getByText(/things were not given to this app/).waitFor();
  await alive(console);
  assert.equal(console.context.pages().length, 1);
  await console.close();
});

test("an app that tries to leave its page gets nowhere, and is stopped", async () => {
  const console = await it.open();
  listener.hits.length = 0;
  const before = listener.connections;
  for (const [name, way] of Object.entries(LEAVING)) {
    it.mock.apps.define(name, { html: attack(listener.origin, [way]), tools: { poll: () => ({ content: [] }) } });
    const card = await askForApp(console, name);
    // Stopped, or nothing came of it.
    const stays = ["javascript", "form_self", "child", "base"].includes(name);
    await card.getByText("it tried to leave its page").waitFor({ timeout: stays ? 1500 : PATIENCE_MS }).catch(() => undefined);
    const left = (await card.getAttribute("data-state")) === "over";
    assert.ok(left || (await card.locator(".app-place > iframe").count()) === 1, name);
    if (!stays) assert.ok(left, `${name} retires the frame`);
  }
  await settle(console.page);
  assert.deepEqual(listener.hits, []);
  // Chromium connects to the host of a navigation before its policy refuses it; nothing is said there.
  process.stdout.write(`# ${Object.keys(LEAVING).length} ways of leaving: 0 requests, ${listener.connections - before} connections\n`);
  assert.deepEqual(it.mock.apps.done.filter((one) => one.method === "tools/call"), []);
  await alive(console);
  await console.close();
});

test("what would come in place of an app can't speak for it", async () => {
  // With a granted frame origin the app's own frame can go there; what it finds speaks to nobody.
  const console = await it.open();
  const calls: unknown[] = [];
  const html = app("await start(); location = 'https://granted.example/'");
  it.mock.apps.define("swap", { html, record: { csp: { frameDomains: ["https://granted.example"] } }, tools: { poll: () => (calls.push(1), { content: [] }) } });
  await console.context.route("https://granted.example/**", (route) =>
    route.fulfill({
      contentType: "text/html",
      body: `<script>setInterval(() => parent.postMessage({ jsonrpc: "2.0", id: 77, method: "tools/call", params: { name: "poll" } }, "*"), 1)</script>`,
    }),
  );
  const asked = it.mock.apps.asked.length;
  const card = await askForApp(console, "swap");
  await card.getByText("it tried to leave its page").waitFor();
  await settle(console.page);
  assert.equal(await console.page.getByRole("dialog").count(), 0);
  assert.equal(it.mock.apps.asked.length, asked);
  assert.deepEqual(calls, []);
  await console.close();
});

test("forged messages of the proxy and other identities bind nothing again", async () => {
  const console = await it.open();
  const forge = `
    const frame = { mono: { nonce: "0", invocation: "1", connection: "2" } };
    for (const to of [parent, top]) for (const message of [
      { ...frame, method: "ui/notifications/sandbox-resource-ready", params: { html: "<h1>other</h1>", policy: "default-src *", clipboard: true } },
      { jsonrpc: "2.0", method: "ui/notifications/sandbox-resource-ready", params: { html: "<h1>other</h1>", sandbox: "allow-scripts allow-same-origin" } },
      { jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} },
      { ...frame, message: { jsonrpc: "2.0", id: 9, method: "tools/call", params: { name: "poll" } } },
      { ...frame, retired: "navigated" }, { mono: null }, { mono: 1 }, null, [], "x", 3,
    ]) to.postMessage(message, "*");
    globalThis.forged = true;`;
  it.mock.apps.define("forger", { html: app(`globalThis.initialized = await start(); ${forge}`), tools: { poll: () => ({ content: [] }) } });
  const { card, frame } = await openApp(console, "forger");
  await holds(frame, "globalThis.forged === true");
  await settle(console.page, 300);
  // From the console's other frames, and from itself.
  await console.page.evaluate(() => {
    const outer = document.querySelector<HTMLIFrameElement>(".app-place > iframe");
    outer?.contentWindow?.postMessage({ mono: { nonce: "0", invocation: "1", connection: "2" }, method: "ui/notifications/sandbox-resource-ready", params: { html: "x", policy: "y", clipboard: true } }, "*");
    window.postMessage({ mono: { nonce: "0", invocation: "1", connection: "2" }, message: { jsonrpc: "2.0", id: 5, method: "tools/call", params: { name: "poll" } } }, "*");
  });
  await settle(console.page, 300);
  const outer = card.locator(".app-place > iframe");
  assert.equal(await outer.getAttribute("sandbox"), "allow-scripts");
  const inner = frame.parentFrame()?.locator("iframe");
  assert.equal(await inner?.getAttribute("sandbox"), "allow-scripts");
  assert.equal(await inner?.getAttribute("allow"), null);
  assert.equal(await frame.parentFrame()?.locator("meta[http-equiv]").getAttribute("content"), "frame-src 'none'");
  assert.equal(appFrames(console.page).length, 1);
  assert.equal(await frame.evaluate("heard.filter((m) => m.id === 9 || m.id === 5).length"), 0);
  assert.equal(await frame.evaluate("heard.filter((m) => m.method === 'ui/notifications/tool-input').length"), 1);
  assert.equal(await console.page.getByRole("dialog").count(), 0);
  await console.close();
});

test("an app reaches neither storage, nor the page, nor another app", async () => {
  const console = await it.open();
  const reach = `
    await start();
    const tried = {};
    const attempt = (name, what) => { try { tried[name] = String(what()); } catch (error) { tried[name] = error.name; } };
    attempt("origin", () => self.origin);
    attempt("cookie", () => document.cookie);
    attempt("localStorage", () => localStorage.length);
    attempt("sessionStorage", () => sessionStorage.length);
    attempt("parent", () => parent.document);
    attempt("top", () => top.document);
    attempt("topLocation", () => top.location.href);
    attempt("frameElement", () => frameElement);
    attempt("siblings", () => [...Array(top.length).keys()].filter((n) => { try { return top.frames[n].frames[0] !== self && top.frames[n].frames[0].document; } catch { return false; } }).length + " of " + top.length);
    attempt("proxy", () => top.frames[0].document);
    attempt("referrer", () => document.referrer);
    attempt("eval", () => eval("1 + 1"));
    attempt("function", () => new Function("return 1")());
    tried.indexedDB = await new Promise((done) => { try { const r = indexedDB.open("x"); r.onsuccess = () => done("open"); r.onerror = () => done("refused"); } catch (e) { done(e.name); } });
    tried.caches = await (async () => { try { return String(await caches.keys()); } catch (e) { return e.name; } })();
    tried.clipboard = await navigator.clipboard.writeText("x").then(() => "written", (e) => e.name).catch(String);
    globalThis.tried = tried;`;
  it.mock.apps.define("reach", { html: app(reach) });
  it.mock.apps.define("plain", { html: PLAIN });
  await console.ask("app plain reach");
  const card = console.answer.getByRole("article", { name: "App The reach" });
  await card.scrollIntoViewIfNeeded();
  const end = Date.now() + PATIENCE_MS;
  let tried: Record<string, string> | undefined;
  while (tried === undefined && Date.now() < end) {
    for (const frame of appFrames(console.page)) tried ??= (await frame.evaluate("globalThis.tried").catch(() => undefined)) as Record<string, string> | undefined;
    await console.page.waitForTimeout(30);
  }
  assert.deepEqual(tried, {
    origin: "null",
    cookie: "SecurityError",
    localStorage: "SecurityError",
    sessionStorage: "SecurityError",
    parent: "SecurityError",
    top: "SecurityError",
    topLocation: "SecurityError",
    frameElement: "null",
    siblings: "0 of 2",
    proxy: "SecurityError",
    referrer: "",
    eval: "EvalError",
    function: "EvalError",
    indexedDB: "SecurityError",
    caches: "SecurityError",
    clipboard: "NotAllowedError",
  });
  await console.close();
});

test("the clipboard is delegated through both frames when it was granted, and only then", async () => {
  const console = await it.open();
  const html = app("await start(); globalThis.may = document.featurePolicy?.allowsFeature('clipboard-write'); globalThis.started = true;");
  it.mock.apps.define("clip", { html, record: { permissions: { clipboardWrite: {} } } });
  it.mock.apps.define("noclip", { html });
  for (const [name, may] of [["clip", true], ["noclip", false]] as const) {
    const { frame } = await openApp(console, name);
    await holds(frame, "globalThis.started");
    assert.equal(await frame.evaluate("globalThis.may"), may, name);
    assert.equal(await frame.evaluate("document.featurePolicy.allowsFeature('camera') || document.featurePolicy.allowsFeature('geolocation') || document.featurePolicy.allowsFeature('microphone')"), false);
  }
  await console.close();
});

test("a declaration adds origins to the policy, and never a directive", async () => {
  const console = await it.open();
  const bad = ["https://a.example; script-src *", "https://a.example,https://b.example", "'unsafe-eval'", "*", "data:", "https://u@a.example", "https://a.example/path", "https://a.example\n; x", '"><meta>', "</script>", "$&", "http://a.example", "wss://a.example", "https://*.*.example", "https://a.example:99999", "https://*", "https://localhost", "https://127.0.0.1"];
  const good = ["https://a.example", "https://*.b.example", "https://c.example:8443"];
  const all = [...bad, ...good];
  it.mock.apps.define("domains", { html: PLAIN, record: { csp: { connectDomains: all, resourceDomains: all, frameDomains: all, baseUriDomains: all } } });
  const { frame } = await openApp(console, "domains");
  await holds(frame, "globalThis.initialized !== undefined");
  const list = good.join(" ");
  assert.equal(
    await frame.evaluate("document.querySelector('meta[http-equiv]').content"),
    `default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline' ${list}; img-src data: ${list}; media-src data: ${list}; font-src ${list}; connect-src ${list}; frame-src ${list}; base-uri ${list}; worker-src 'none'; object-src 'none'; form-action 'none'`,
  );
  assert.equal(await frame.parentFrame()?.locator("meta[http-equiv]").getAttribute("content"), `frame-src ${list}`);
  await console.close();
});

test("storms of messages and sizes, and an endless loop, don't hold the console up", async () => {
  const console = await it.open();
  it.mock.apps.define("sizes", { html: app("await start(); let n = 0; globalThis.going = true; setInterval(() => { for (let i = 0; i < 50; i += 1) say('ui/notifications/size-changed', { height: 100 + (n++ % 900) }); }, 10)") });
  it.mock.apps.define("storm", { html: app("await start(); globalThis.going = true; setInterval(() => { for (let i = 0; i < 2000; i += 1) say('notifications/message', { level: 'info', data: 'x' + i }); }, 5)") });
  it.mock.apps.define("loop", { html: app("await start(); setTimeout(() => { for (;;); }, 100)") });
  const sizes = await openApp(console, "sizes");
  await holds(sizes.frame, "globalThis.going === true");
  await settle(console.page, 400);
  let began = Date.now();
  await alive(console);
  assert.ok(Date.now() - began < PATIENCE_MS / 3, "sizes hold the console up");
  const storm = await askForApp(console, "storm");
  await storm.getByText("it sent too many messages").waitFor();
  await alive(console);
  // Not asked in its frame, which answers nothing any more.
  const loop = await askForApp(console, "loop");
  await loop.and(console.page.locator("[data-ready]")).waitFor();
  await settle(console.page, 400);
  began = Date.now();
  await alive(console);
  assert.ok(Date.now() - began < PATIENCE_MS / 3, "a loop holds the console up");
  // Closing it takes no answer of its own.
  await loop.getByRole("button", { name: "Close the app" }).click();
  await loop.getByText("The app is closed.").waitFor();
  it.mock.apps.define("plain", { html: PLAIN });
  const next = await askForApp(console, "plain");
  await next.and(console.page.locator("[data-ready]")).waitFor();
  await console.close();
});

test("an app that talks past its proxy is stopped, and the console goes on", async () => {
  const console = await it.open();
  it.mock.apps.define("past", { html: app("await start(); globalThis.going = true; const text = 'x'.repeat(500); setInterval(() => { for (let i = 0; i < 200; i += 1) top.postMessage({ jsonrpc: '2.0', method: 'ping', text }, '*'); }, 5)") });
  const card = await askForApp(console, "past");
  await card.getByText("it sent too many messages").waitFor();
  await alive(console);
  await console.close();
});

test("no other app speaks to an app, and frames of its own do", async () => {
  const console = await it.open();
  it.mock.apps.define("victim", {
    html: app(`globalThis.initialized = await start();
      const child = Object.assign(document.createElement("iframe"), { srcdoc: "<script>parent.postMessage({ from: 'child' }, '*')</" + "script>" });
      document.body.append(child);`),
  });
  it.mock.apps.define("neighbour", {
    html: app(`await start();
      globalThis.speak = () => { let n = 0; for (let i = 0; i < top.length; i += 1) { const other = top.frames[i].frames[0]; if (other === self) continue; n += 1;
        other.postMessage({ from: "neighbour" }, "*"); other.postMessage({ jsonrpc: "2.0", method: "ui/notifications/tool-result", params: { content: [], structuredContent: { from: "neighbour" } } }, "*"); } return n; };`),
  });
  await console.ask("app victim neighbour");
  const [victim, neighbour] = ["victim", "neighbour"].map((name) => console.answer.getByRole("article", { name: `App The ${name}` }));
  assert.ok(victim !== undefined && neighbour !== undefined);
  await neighbour.scrollIntoViewIfNeeded();
  const other = await frameOf(neighbour);
  await holds(other, "globalThis.speak !== undefined");
  await victim.scrollIntoViewIfNeeded();
  const frame = await frameOf(victim);
  await holds(frame, "heard.some((m) => m.from === 'child')");
  assert.equal(await other.evaluate("speak()"), 1);
  await settle(console.page);
  assert.equal(await frame.evaluate("JSON.stringify(heard).includes('neighbour')"), false);
  assert.deepEqual(((await frame.evaluate("ask('ping')")) as { result: object }).result, {});
  await console.close();
});

test("bombs of JSON and messages that are none come to an error or to nothing", async () => {
  const console = await it.open();
  const bombs = `
    globalThis.initialized = await start();
    const deep = (n) => { let v = 1; for (let i = 0; i < n; i += 1) v = [v]; return v; };
    const round = {}; round.self = round;
    globalThis.codes = [];
    for (const params of [
      { name: "poll", arguments: { v: deep(500) } }, { name: "poll", arguments: round }, { name: "poll", arguments: { v: "x".repeat(70000) } },
      { name: "poll", arguments: { v: new Array(60000) } }, { name: "poll", arguments: { v: new Map([[1, 2]]) } }, { name: "poll", arguments: { v: 10n } },
      { name: "poll", arguments: { v: new Date() } }, { name: "poll", arguments: { v: new ArrayBuffer(8) } }, { name: "poll", arguments: { v: "x".repeat(3e6) } },
    ]) codes.push((await ask("tools/call", params)).error?.data?.code);
    for (const odd of [null, 1, "x", [], {}, { jsonrpc: "1.0", id: 1, method: "ping" }, { jsonrpc: "2.0" }, { jsonrpc: "2.0", id: {}, method: "ping" }, { jsonrpc: "2.0", id: 1.5, method: "ping" },
      { jsonrpc: "2.0", id: "y".repeat(500), method: "ping" }, { jsonrpc: "2.0", id: 5555, result: {} }, { jsonrpc: "2.0", method: 7 }, { jsonrpc: "2.0", id: 90001, method: "__proto__" }, { jsonrpc: "2.0", id: 90002, method: "ping", params: [] }]) post(odd);
    globalThis.unknown = await Promise.all(["sampling/createMessage", "prompts/list", "resources/list", "resources/templates/list", "initialize", "constructor", "ui/log"].map((method) => ask(method)));
    globalThis.after = await ask("ping");`;
  it.mock.apps.define("bombs", { html: app(bombs), tools: { poll: () => ({ content: [] }) } });
  const asked = it.mock.apps.asked.length;
  const { frame } = await openApp(console, "bombs");
  await holds(frame, "globalThis.after !== undefined").catch(async () => { throw new Error(String(await frame.evaluate("JSON.stringify([globalThis.codes, globalThis.unknown, globalThis.failed])"))); });
  assert.deepEqual(await frame.evaluate("globalThis.codes"), new Array(9).fill("app_request_too_large"));
  assert.deepEqual(await frame.evaluate("globalThis.unknown.map((m) => m.error.code)"), new Array(7).fill(-32601));
  assert.deepEqual(await frame.evaluate("globalThis.after.result"), {});
  assert.equal(it.mock.apps.asked.length, asked);
  await alive(console);
  await console.close();
});

test("requests before initialized wait a little, and are refused after that", async () => {
  const console = await it.open();
  const early = (wait: number): string =>
    app(`const answers = Array.from({ length: 10 }, () => ask("tools/list")); await initialize(); await new Promise((done) => setTimeout(done, ${wait})); say("ui/notifications/initialized");
      globalThis.codes = (await Promise.all(answers)).map((m) => m.error?.data?.code ?? "ok");`);
  it.mock.apps.define("early", { html: early(100), tools: { poll: () => ({ content: [] }) } });
  it.mock.apps.define("late", { html: early(3000), tools: { poll: () => ({ content: [] }) } });
  const soon = await openApp(console, "early");
  await holds(soon.frame, "globalThis.codes !== undefined");
  assert.deepEqual(await soon.frame.evaluate("globalThis.codes"), [...new Array(8).fill("ok"), "app_not_initialized", "app_not_initialized"]);
  const late = await openApp(console, "late");
  await holds(late.frame, "globalThis.codes !== undefined");
  assert.deepEqual(await late.frame.evaluate("globalThis.codes"), new Array(10).fill("app_not_initialized"));
  await console.close();
});

test("the same configuration again shows the app anew, and another one changes nothing", async () => {
  const console = await it.open();
  // Each says who it is, again and again, and once more when it has to go.
  const speaker = (name: string): string =>
    appDocument(`<script>const say = (n) => parent.postMessage({ jsonrpc: "2.0", method: "x", params: { name: "${name}", n } }, "*");
      setInterval(() => say(1), 5); addEventListener("pagehide", () => say(2));</script>`, {}, true);
  // What the compiler of the tests calls for each function that has a name.
  await console.page.evaluate("globalThis.__name = (made) => made");
  const heard = await console.page.evaluate(async ({ first, second, policy, wider }) => {
    const outer = Object.assign(document.createElement("iframe"), { src: "/api/v1/mcp-app-proxy" });
    outer.setAttribute("sandbox", "allow-scripts");
    const all: { name?: string; what: string }[] = [];
    const notes = (data: Record<string, unknown>): { name?: string; what: string } => {
      const message = data["message"] as { params: { name: string } } | undefined;
      if (message !== undefined) return { what: "message", name: message.params.name };
      return { what: Object.keys(data).filter((key) => key !== "mono").map((key) => `${key} ${String(data[key])}`).join() };
    };
    addEventListener("message", (event) => event.source === outer.contentWindow && all.push(notes(event.data as Record<string, unknown>)));
    const until = async (what: string, name?: string): Promise<void> => {
      const [from, end] = [all.length, Date.now() + 20_000];
      while (!all.slice(from).some((one) => one.what.includes(what) && one.name === name)) {
        if (Date.now() > end) throw new Error(`no ${what} ${name ?? ""} after ${JSON.stringify(all.slice(-5))}`);
        await new Promise((done) => setTimeout(done, 5));
      }
    };
    document.body.append(outer);
    await until("proxy-ready");
    const own = { nonce: "n", invocation: "i", connection: "c" };
    const send = (mono: object, what: object): void => outer.contentWindow?.postMessage({ mono, ...what }, "*");
    const show = (mono: object, html: string, more: object = {}): void => {
      send(mono, { jsonrpc: "2.0", method: "ui/notifications/sandbox-resource-ready", params: { html, policy, clipboard: false, ...more } });
    };
    const long = " ".repeat(8 * 1024 * 1024 + 64 * 1024);
    const refused = (): void => {
      for (const html of ["<h1>other</h1>", ` ${second}`, second.replace("no-referrer", "origin"), second + long]) show(own, html);
      show(own, second, { policy: "default-src *" });
      show(own, second.replaceAll(policy, `${policy}; x`), { policy: `${policy}; x` });
      show({ ...own, nonce: "" }, second);
      show({ ...own, nonce: "n".repeat(201) }, second);
    };
    // None of these is a configuration, so the first that is one binds.
    refused();
    show(own, first);
    await until("message", "first");
    refused();
    for (const other of [{ ...own, nonce: "m" }, { ...own, invocation: "j" }, { ...own, connection: "d" }]) show(other, second);
    show(own, second, { clipboard: true });
    show(own, second.replaceAll(policy, wider), { policy: wider });
    // It answers in order: what was sent before had its chance.
    send(own, { alive: true });
    await until("alive");
    all.push({ what: "again" });
    show(own, second);
    await until("message", "second");
    for (let n = 0; n < 10; n += 1) await until("message", "second");
    return all;
  }, { first: speaker("first"), second: speaker("second"), policy: innerPolicy({}), wider: innerPolicy({ connectDomains: ["https://a.example"] }) });
  const again = heard.findIndex((one) => one.what === "again");
  const [before, after] = [heard.slice(0, again), heard.slice(again)];
  assert.deepEqual(before.filter((one) => /shown|retired/.test(one.what)).map((one) => one.what), ["shown true"]);
  assert.ok(before.every((one) => one.name !== "second"));
  assert.deepEqual(after.filter((one) => /shown|retired/.test(one.what)).map((one) => one.what), ["retired replaced", "shown true"]);
  const replaced = after.findIndex((one) => one.what.startsWith("retired"));
  assert.ok(after.slice(replaced).every((one) => one.name !== "first"), "what was replaced is not heard any more");
  await console.close();
});

test("the proxy opened bare has no origin and shows nothing", async () => {
  const console = await it.open();
  const page = await console.context.newPage();
  const response = await page.goto(`${it.origin}/api/v1/mcp-app-proxy`).catch(() => null);
  if (response !== null) assert.equal(await page.evaluate("self.origin"), "null");
  listener.pages.set("/framing", `<!doctype html><iframe src="${it.origin}/api/v1/mcp-app-proxy"></iframe>`);
  await page.goto(`${listener.origin}/framing`);
  await page.waitForTimeout(300);
  assert.equal(await page.frames()[1]?.locator("script").count(), 0, "another site can't frame it");
  await console.close();
});

test("WebRTC is the channel that remains: it is known, and can be asked to stay away", async () => {
  const console = await it.open();
  const call = `await start(); globalThis.has = typeof RTCPeerConnection;
    if (globalThis.RTCPeerConnection) { const c = new RTCPeerConnection({ iceServers: [{ urls: "stun:127.0.0.1:${listener.udpPort}" }] }); c.createDataChannel("x"); c.setLocalDescription(await c.createOffer()); }
    globalThis.tried = true;`;
  it.mock.apps.define("caller", { html: app(call) });
  it.mock.apps.define("quietcaller", { html: app(call), record: { webrtc: false } });
  const one = await openApp(console, "caller");
  await holds(one.frame, "globalThis.tried === true");
  await settle(console.page, 1500);
  process.stdout.write(`# WebRTC: ${listener.packets} packets left (the known residual risk)\n`);
  const before = listener.packets;
  const two = await openApp(console, "quietcaller");
  await holds(two.frame, "globalThis.tried === true");
  assert.equal(await two.frame.evaluate("globalThis.has"), "undefined");
  await settle(console.page, 500);
  process.stdout.write(`# WebRTC with the switch off: ${listener.packets - before} further packets\n`);
  await console.close();
});
