/** The parts of showing an app that have no effects. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { PROXY_ISOLATION, PROXY_POLICY } from "../../mock/apps.ts";
import { Gate, sendable, type Message } from "../../src/apps/gate.ts";
import { embedded, head, linked } from "../../src/apps/handed.ts";
import { clamped, Height } from "../../src/apps/height.ts";
import { Rate, weigh } from "../../src/apps/json.ts";
import { HEIGHT_CHANGES, MAX_HEIGHT, MIN_HEIGHT, RESULT_BYTES, RESULT_DEPTH } from "../../src/apps/limits.ts";
import { link } from "../../src/apps/link.ts";
import { document as appDocument, granted, innerPolicy, opening, origin, origins, within } from "../../src/apps/policy.ts";
import { bounded, cut, preview, REDACTED } from "../../src/apps/preview.ts";
import { Pulse } from "../../src/apps/pulse.ts";
import { revision } from "../../src/apps/revision.ts";

test("an origin is https, a name and a port", () => {
  for (const good of ["https://a.example", "https://*.a.example", "https://a.example:8443", "https://xn--a-ecp.example", "https://a-b.c.example"]) {
    assert.equal(origin(good), good);
  }
  assert.equal(origin("  https://A.Example "), "https://a.example");
  for (const bad of [
    "", "a.example", "http://a.example", "wss://a.example", "ftp://a.example", "https://", "https://*", "https://*.example", "https://example", "https://localhost",
    "https://a.example/", "https://a.example/x", "https://a.example?x", "https://a.example#x", "https://u@a.example", "https://u:p@a.example",
    "https://a.example;", "https://a.example,https://b.example", "https://a.example 'unsafe-eval'", "https://a.example\nx", "https://a.exam ple",
    "'self'", "'unsafe-inline'", "*", "data:", "blob:", "javascript:x", "https://*.*.example.org", "https://a*.example", "https://a.*.example",
    "https://a.example:0", "https://a.example:65536", "https://a.example:x", "https://127.0.0.1", "https://[::1]", "https://1.2.3.4:5",
    "https://-a.example", "https://a-.example", "https://a..example", `https://${"a".repeat(64)}.example`, `https://${"a.".repeat(200)}example`,
    '"><meta http-equiv=x>', "</meta>", "$&", "$`", "https://a.example$&",
  ]) {
    assert.equal(origin(bad), null, bad);
  }
  for (const odd of [null, undefined, 1, {}, [], ["https://a.example"]]) assert.equal(origin(odd), null);
  assert.deepEqual(origins(["https://a.example", 7, "x", "https://a.example"]), ["https://a.example"]);
  assert.deepEqual(origins("https://a.example"), []);
  assert.equal(origins(Array.from({ length: 500 }, (_, n) => `https://a${n}.example`)).length, 64);
});

test("what is declared is given where the host's list covers it, and an empty list covers nothing", () => {
  assert.deepEqual(granted(["https://a.example", "https://b.example"], []), []);
  assert.deepEqual(granted(["https://a.example", "https://b.example"], ["https://a.example"]), ["https://a.example"]);
  assert.ok(within("https://x.a.example", "https://*.a.example") && within("https://*.x.a.example", "https://*.a.example"));
  for (const [declared, allowed] of [
    ["https://a.example", "https://*.a.example"],
    ["https://xa.example", "https://*.a.example"],
    ["https://x.a.example:8443", "https://*.a.example"],
    ["https://*.example.org", "https://a.example.org"],
    ["https://*.a.example", "https://x.a.example"],
  ] as const) {
    assert.ok(!within(declared, allowed), `${declared} in ${allowed}`);
  }
});

test("the policy is strict without declarations, and no declaration adds a directive", () => {
  assert.equal(
    innerPolicy({}),
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; media-src data:; font-src 'none'; connect-src 'none'; " +
      "frame-src 'none'; base-uri 'none'; worker-src 'none'; object-src 'none'; form-action 'none'",
  );
  const names = (policy: string): string[] => policy.split("; ").map((directive) => directive.split(" ")[0] ?? "");
  const hostile = ["https://a.example; script-src *", "x\"><script>", "https://ok.example"];
  const policy = innerPolicy({ connectDomains: hostile, resourceDomains: hostile, frameDomains: hostile, baseUriDomains: hostile });
  assert.deepEqual(names(policy), names(innerPolicy({})));
  assert.match(policy, /script-src 'unsafe-inline';/);
  assert.equal(policy.match(/https:\/\/ok\.example/g)?.length, 7);
});

test("the proxy takes the documents that the page makes, and no others", () => {
  const proxy = readFileSync(new URL("../../src/apps/proxy.html", import.meta.url), "utf8");
  const source = /const SOURCE = ("(?:[^"\\]|\\.)*")/.exec(proxy)?.[1] ?? '""';
  const SOURCE = JSON.parse(source.replaceAll("\\\\", "\\\\")) as string;
  const LIST = `(?:'none'|${SOURCE}(?: ${SOURCE})*)`;
  const shape = /const POLICY = new RegExp\(\s*([\s\S]*?),\s*\);/.exec(proxy)?.[1] ?? "";
  const parts = [...shape.matchAll(/`([^`]*)`/g)].map((match) => match[1] ?? "").join("");
  const pattern = new RegExp(parts.replaceAll("${SOURCE}", SOURCE).replaceAll("${LIST}", LIST));
  for (const given of [{}, { frameDomains: ["https://a.example"] }, { connectDomains: ["https://a.example", "https://*.b.example:8443"], resourceDomains: ["https://c.example"], baseUriDomains: ["https://d.example"] }]) {
    assert.match(innerPolicy(given), pattern);
  }
  for (const bad of ["default-src *", innerPolicy({}).replace("script-src 'unsafe-inline'", "script-src 'unsafe-inline' https://a.example"), `${innerPolicy({})}; x`, innerPolicy({}).replace("worker-src 'none'; ", "")]) {
    assert.doesNotMatch(bad, pattern);
  }
  const start = /const opening = `([^`]*)`/.exec(proxy)?.[1]?.replace("${policy}", innerPolicy({})).replace("${LEAVING}", "mono-app-leaving");
  assert.ok(start !== undefined && appDocument("<p>x", {}, true).startsWith(start));
  assert.ok(appDocument("\ufeff<p>x", {}, true).endsWith("remove()</script><p>x"));
  assert.ok(!opening(innerPolicy({}), true).includes("RTCPeerConnection") && opening(innerPolicy({}), false).includes("RTCPeerConnection"));
});

test("the mock and the worker serve the proxy under the same policy", () => {
  const worker = readFileSync(new URL("../../../src/console/proxy.rs", import.meta.url), "utf8");
  const policy = /const POLICY: &str = "([^"]*)"/.exec(worker)?.[1]?.replace(/\\\n\s*/g, "");
  assert.equal(policy, PROXY_POLICY);
  const isolation = /const ISOLATION: \(&str, &str\) = \("document-isolation-policy", "([^"]*)"\)/.exec(worker)?.[1];
  assert.equal(isolation, PROXY_ISOLATION);
});

test("a revision is one of two, or the newest for who speaks a newer one", () => {
  assert.equal(revision("2026-01-26"), "2026-01-26");
  assert.equal(revision("2025-11-21"), "2025-11-21");
  assert.equal(revision("2027-03-01"), "2026-01-26");
  for (const none of ["2025-11-20", "2024-11-05", "", "latest", "2026-13-01", "9999-01-01x", "2026-01-26 ", null, undefined, 20260126, {}]) assert.equal(revision(none), null);
});

test("a preview is short, and its secrets are gone", () => {
  const secrets = { password: "p1", apiKey: "p2", api_key: "p3", Authorization: "p4", cookies: "p5", nested: { accessToken: "p6", list: [{ client_secret: "p7" }] }, credentials: { user: "p8" } };
  const { text } = preview(secrets);
  assert.ok(!/p[1-8]/.test(text), text);
  assert.ok(text.includes(REDACTED));
  assert.deepEqual(bounded({ a: 1, b: [true, null, "x"] }), Object.assign(Object.create(null) as object, { a: 1, b: [true, null, "x"] }));
  let deep: unknown = "bottom";
  for (let n = 0; n < 500; n += 1) deep = { deep };
  assert.ok(!preview(deep).text.includes("bottom"));
  const many = preview(Array.from({ length: 10_000 }, (_, n) => n)).text;
  assert.ok(many.includes("… 9980 more") && !many.includes("9999"));
  for (const value of ["ä".repeat(10_000), Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`k${n}`, "😀".repeat(150)]))]) {
    assert.ok(new TextEncoder().encode(preview(value).text).length <= 2048);
  }
  const short = cut("aé😀b", 6);
  assert.deepEqual(short, { text: "aé…", truncated: true });
  assert.deepEqual(JSON.parse(preview(JSON.parse('{"__proto__":{"x":1}}')).text), JSON.parse('{"__proto__":{"x":1}}'));
});

test("a link is https, whole, and says where it leads", () => {
  assert.deepEqual(link("https://a.example/x?y#z"), { href: "https://a.example/x?y#z", host: "a.example" });
  assert.equal(link("https://аpple.example/")?.host, "xn--pple-43d.example");
  for (const bad of ["http://a.example", "javascript:alert(1)", "data:x", "file:///x", "//a.example", "https:a.example", "https:/a.example", "https:///a", "https://u@a.example", "https://u:p@a.example", "https://a.example\\@b", "https://a.example/\r\nx", " https://a.example", "https://a .example", "https://", `https://a.example/${"x".repeat(9000)}`, null, 7]) {
    assert.equal(link(bad), null, String(bad));
  }
});

test("only plain JSON of a bounded size is weighed", () => {
  assert.equal(weigh({ a: [1, "é"] }, 100), 14);
  const round: Record<string, unknown> = {};
  round["self"] = round;
  for (const bad of [round, new Array(60_000), [undefined], { a: () => 1 }, { a: 10n }, new Map(), new Date(), NaN, Infinity, "x".repeat(200), { a: "é".repeat(60) }, Symbol("x"), new (class X {})()]) {
    assert.equal(weigh(bad, 100), null);
  }
  assert.equal(weigh("x".repeat(98), 100), 100);
  assert.equal(weigh("x".repeat(99), 100), null);
});

test("what an app is sent may be deep and of many values, and is bounded in bytes", () => {
  assert.ok(sendable(undefined) && sendable({ many: Array.from({ length: 300_000 }, () => 1) }));
  const deep = (levels: number): unknown => {
    let value: unknown = 1;
    for (let n = 0; n < levels; n += 1) value = [value];
    return value;
  };
  assert.ok(sendable(deep(RESULT_DEPTH)) && !sendable(deep(RESULT_DEPTH + 1)));
  assert.ok(sendable("x".repeat(RESULT_BYTES - 2)) && !sendable("x".repeat(RESULT_BYTES - 1)));
  // What it sends itself stays less.
  assert.equal(weigh(deep(65), 1000), null);
});

test("an app is given up when it misses five in a row, ten while it starts, and none in a page that isn't seen", () => {
  const after = (answers: string, started: boolean): number => {
    const pulse = new Pulse();
    return [...answers].findIndex((one) => pulse.over(one === "+", one === "h", started));
  };
  assert.equal(after("-----", true), 4);
  assert.equal(after("----+----", true), -1);
  assert.equal(after("----h----", true), -1);
  assert.equal(after("hhhhhhhhhhhh-----", true), 16);
  assert.equal(after("----------", false), 9);
});

test("messages beyond the burst are dropped, and counted", () => {
  const rate = new Rate(3, 1, 0);
  assert.deepEqual([0, 0, 0, 0, 500, 1000, 1000].map((now) => rate.take(now)), [true, true, true, false, false, true, false]);
  assert.equal(rate.dropped, 3);
});

test("heights are bounded, echoes end, and what keeps changing may only grow", () => {
  assert.deepEqual([NaN, -1, Infinity, "7", null, {}].map(clamped), [null, null, null, null, null, null]);
  assert.deepEqual([0, 41.2, 1e9].map(clamped), [MIN_HEIGHT, 42, MAX_HEIGHT]);
  const echo = new Height(320);
  let height = 320;
  for (let n = 0; n < 500; n += 1) height = echo.report(height + 16, n) ?? height;
  assert.ok(height < 320 + 16 * 12);
  const restless = new Height(320);
  let changes = 0;
  for (let n = 0; n < 2000; n += 1) if (restless.report(n % 2 === 0 ? 400 : 500 + (n % 7), n) !== null) changes += 1;
  assert.ok(changes <= HEIGHT_CHANGES + 10);
  assert.equal(new Height(320).report(320, 0), null);
});

/* The order of a conversation. */

const HELLO = { jsonrpc: "2.0", id: 1, method: "ui/initialize", params: { protocolVersion: "2025-11-21", appInfo: {}, appCapabilities: {} } };
const READY = { jsonrpc: "2.0", method: "ui/notifications/initialized" };
const answer = (id: number, result: object = {}): Message => ({ jsonrpc: "2.0", id, result });
const notify = (method: string, params = {}): Message => ({ jsonrpc: "2.0", method, params });

function opened(): Gate {
  const gate = new Gate();
  assert.equal(gate.incoming(HELLO).kind, "pass");
  assert.deepEqual(gate.outgoing(answer(1, { protocolVersion: "2026-01-26", x: 1 }))?.result, { protocolVersion: "2025-11-21", x: 1 });
  assert.equal(gate.incoming(READY).kind, "pass");
  return gate;
}

test("nothing goes to a view before it is ready, and nothing of it counts", () => {
  const gate = new Gate();
  const sends = ["tool-input", "tool-input-partial", "tool-result", "tool-cancelled", "host-context-changed"].map((name) => notify(`ui/notifications/${name}`));
  const silent = (): void => {
    for (const message of [...sends, { jsonrpc: "2.0" as const, id: 5, method: "ui/resource-teardown" }]) assert.equal(gate.outgoing(message), null);
  };
  silent();
  assert.deepEqual(gate.incoming(READY), { kind: "drop", why: "out_of_order" });
  assert.deepEqual(gate.incoming(notify("ui/notifications/size-changed")), { kind: "drop", why: "too_early" });
  gate.incoming(HELLO);
  silent();
  assert.equal(gate.incoming({ ...HELLO, id: 2 }).kind, "answer");
  assert.deepEqual(gate.incoming(READY), { kind: "drop", why: "out_of_order" });
  gate.outgoing(answer(1));
  silent();
  assert.equal(gate.incoming({ jsonrpc: "2.0", id: 3, method: "ping" }).kind, "pass");
  assert.equal(gate.incoming(READY).kind, "pass");
  assert.equal(gate.incoming({ ...HELLO, id: 4 }).kind, "answer");
  assert.deepEqual(gate.incoming(READY), { kind: "drop", why: "out_of_order" });
});

test("the input goes once, no part of it after it, and the result after it and once", () => {
  const gate = opened();
  const [input, partial, result, cancelled] = ["tool-input", "tool-input-partial", "tool-result", "tool-cancelled"].map((name) => notify(`ui/notifications/${name}`)) as [Message, Message, Message, Message];
  assert.equal(gate.outgoing(result), null);
  assert.ok(gate.outgoing(partial) && gate.outgoing(partial));
  assert.ok(gate.outgoing(input));
  assert.equal(gate.outgoing(input), null);
  assert.equal(gate.outgoing(partial), null);
  assert.ok(gate.outgoing(result));
  assert.equal(gate.outgoing(result), null);
  assert.equal(gate.outgoing(cancelled), null);
  const other = opened();
  assert.ok(other.outgoing(cancelled));
  other.outgoing(input);
  assert.equal(other.outgoing(result), null);
});

test("answers are to what was asked, each once, and not too large", () => {
  const gate = opened();
  assert.deepEqual(gate.incoming(answer(9)), { kind: "drop", why: "unasked" });
  gate.outgoing({ jsonrpc: "2.0", id: 9, method: "ui/resource-teardown", params: {} });
  assert.equal(gate.incoming(answer(9)).kind, "pass");
  assert.deepEqual(gate.incoming(answer(9)), { kind: "drop", why: "unasked" });
  assert.equal(gate.outgoing(answer(77)), null);
  const call = { jsonrpc: "2.0", id: "a", method: "tools/call", params: { name: "x" } };
  assert.equal(gate.incoming(call).kind, "pass");
  assert.equal(gate.incoming(call).kind, "answer");
  const large = gate.outgoing({ jsonrpc: "2.0", id: "a", result: { text: "x".repeat(RESULT_BYTES) } });
  assert.deepEqual(large?.error?.data, { code: "app_result_too_large" });
  gate.incoming({ ...call, id: "b" });
  gate.incoming({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "b" } });
  assert.equal(gate.outgoing({ jsonrpc: "2.0", id: "b", result: {} }), null);
});

test("a message of 64 KiB is taken and an answer of 1 MiB is given, and neither of a byte more", () => {
  const bytes = (message: object): number => new TextEncoder().encode(JSON.stringify(message)).length;
  const call = (text: string): Message => ({ jsonrpc: "2.0", id: 5, method: "tools/call", params: { name: "x", arguments: { text } } });
  const filled = (message: (text: string) => Message, size: number): Message => message("x".repeat(size - bytes(message(""))));
  const most = 64 * 1024;
  assert.equal(opened().incoming(filled(call, most)).kind, "pass");
  const over = opened().incoming(filled(call, most + 1));
  assert.deepEqual(over.kind === "answer" && over.message.error?.data, { code: "app_request_too_large" });
  const note = (data: string): Message => notify("notifications/message", { data });
  assert.equal(opened().incoming(filled(note, most)).kind, "pass");
  assert.deepEqual(opened().incoming(filled(note, most + 1)), { kind: "drop", why: "too_large" });
  const text = (size: number): string => "x".repeat(size - 2);
  assert.ok(sendable(text(1024 * 1024)) && !sendable(text(1024 * 1024 + 1)));
});

test("requests under way are bounded, and so are those that are early", () => {
  const gate = opened();
  const ask = (id: number): string => gate.incoming({ jsonrpc: "2.0", id, method: "tools/list" }).kind;
  assert.deepEqual(Array.from({ length: 33 }, (_, n) => ask(n + 10)).filter((kind) => kind === "answer").length, 1);
  const fresh = new Gate();
  const kinds = Array.from({ length: 10 }, (_, n) => fresh.incoming({ jsonrpc: "2.0", id: n, method: "tools/list" }).kind);
  assert.deepEqual(kinds, [...new Array<string>(8).fill("hold"), "answer", "answer"]);
});

test("no revision in common, reserved names and what is no message", () => {
  const gate = new Gate();
  for (const version of ["nonsense", undefined, 7]) {
    const verdict = gate.incoming({ ...HELLO, params: { ...HELLO.params, protocolVersion: version } });
    assert.equal(verdict.kind === "answer" && verdict.message.error?.code, -32602);
  }
  assert.equal(gate.incoming(HELLO).kind, "pass", "it may try again");
  const open = opened();
  assert.deepEqual(open.incoming(notify("ui/notifications/sandbox-resource-ready")), { kind: "drop", why: "reserved" });
  assert.equal(open.outgoing(notify("ui/notifications/sandbox-resource-ready")), null);
  for (const odd of [null, 1, "x", [], {}, { jsonrpc: "2.0" }, { jsonrpc: "1.0", method: "ping", id: 1 }, { jsonrpc: "2.0", method: 7 }, { jsonrpc: "2.0", method: "ping", id: {} }, { jsonrpc: "2.0", method: "x y", id: 1 }, { jsonrpc: "2.0", method: "a", params: [] }]) {
    assert.equal(open.incoming(odd).kind, "drop");
  }
  open.close();
  assert.deepEqual(open.incoming(READY), { kind: "drop", why: "closed" });
  assert.equal(open.outgoing(notify("x")), null);
});

test("files are embedded, as a text or in base64, and too large to wait for a view", () => {
  const of = (resource: unknown): unknown => ({ type: "resource", resource });
  const file = embedded(of({ uri: "ui://x/a.csv?q#f", mimeType: "text/csv", text: "ä" }));
  assert.deepEqual([file?.uri, file?.mimeType, [...(file?.bytes ?? [])]], ["ui://x/a.csv", "text/csv", [0xc3, 0xa4]]);
  assert.deepEqual([...(embedded(of({ blob: "AP8K" }))?.bytes ?? [])], [0, 255, 10]);
  assert.equal(embedded(of({ uri: `ui://${"x".repeat(5000)}/name.csv`, text: "" }))?.uri.endsWith("/name.csv"), true);
  assert.equal(embedded(of({ uri: 7, mimeType: 7, text: "" }))?.uri, "");
  for (const bad of [null, 7, "x", of(null), of({}), of({ text: "", blob: "" }), of({ text: 7 }), of({ blob: "%" }), { type: "text", text: "a" }]) {
    assert.equal(embedded(bad), null, JSON.stringify(bad));
  }
  assert.equal(linked({ type: "resource_link", uri: "ui://x" }), "ui://x");
  for (const bad of [null, 7, of({ uri: "ui://x" }), { type: "resource_link" }]) assert.equal(linked(bad), null);
  assert.equal(head(undefined), "");
  assert.equal(head(embedded(of({ text: "x".repeat(9000) })) ?? undefined).length, 4096);
  const gate = new Gate();
  const request = { jsonrpc: "2.0", id: 7, method: "ui/download-file", params: {} };
  assert.equal(gate.incoming(request).kind, "answer");
  assert.equal(opened().incoming({ ...request, params: { x: "x".repeat(27 * 1024 * 1024) } }).kind, "pass");
  assert.equal(opened().incoming({ ...request, params: { x: "x".repeat(28 * 1024 * 1024) } }).kind, "answer");
});
