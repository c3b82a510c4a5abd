/**
 * A page that looks at its host from the inside, requirement by requirement.
 *
 * The numbers are those of the obligations of a host in the MCP Apps specification, in the order of
 * its text; those that show in a server's connection (advertising, reading the resource, metadata,
 * what the model is given) are tested where the connection is. What a person has to decide is
 * decided by the test.
 */

import { app } from "./view.ts";

/** Applicable in a browser, with what is looked at. */
export const REQUIREMENTS: Record<string, string> = {
  H8: "a call of a tool that is not the app's is refused with an error",
  H9: "a call of one that is comes back with its result",
  H10: "structuredContent and _meta of the result reach the view",
  H11: "the view is in a sandboxed frame",
  H12: "there is a proxy between the view and the host",
  H13: "the view's origin is not the host's",
  H15: "the document came after the proxy was ready, with its policy first",
  H16: "nothing loads that was not declared",
  H17: "whatever is no message between host and proxy passes, both ways",
  H18: "nothing comes before initialized",
  H19: "no request comes that the host did not make",
  H20: "permissions are what the host says that it granted",
  H21: "the policy is told in the host's capabilities",
  H22: "what is malformed is rejected, and the view goes on",
  H23: "ui/initialize is answered with all four parts",
  H24: "the complete input comes once, before the result, also when it is empty",
  H25: "no partial input comes after the input",
  H26: "the result comes whole",
  H27: "a view whose result doesn't come is told so",
  H28: "the view is asked before it is removed, and has time to answer",
  H29: "the frame follows size-changed",
  H30: "no mode is switched to that the view did not declare",
  H31: "request-display-mode is answered with the mode that results",
  H32: "an allowed link opens, another scheme is refused",
  H33: "a message is taken and no turn begins",
  H34: "context is taken, and the last one counts",
  H35: "a file is saved under a clean name",
  H36: "ping is answered and logging is accepted",
  context: "theme, 76 variables, dimensions, locale, time zone and tool are told",
  changes: "a change of the theme is told, and only what changed",
  revision: "the revision that was asked for is the one that is answered",
};

export const CONFORMANCE = app(`
const passed = new Set(), failed = {};
const check = (id, holds, what = "") => { if (!holds) (failed[id] ??= []).push(what); else if (!failed[id]) passed.add(id); };
Object.assign(globalThis, { passed, failed, report: () => ({ passed: [...passed].filter((id) => !failed[id]), failed }) });
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

const hello = await initialize("2026-01-26", { availableDisplayModes: ["inline"] });
const { result = {} } = hello;
check("H23", typeof result.protocolVersion === "string" && typeof result.hostInfo?.name === "string" && typeof result.hostCapabilities === "object" && typeof result.hostContext === "object");
check("revision", result.protocolVersion === "2026-01-26");
await wait(400);
check("H18", heard.length === 1, JSON.stringify(heard.map((m) => m.method)));
say("ui/notifications/initialized");
await until(() => seen("ui/notifications/tool-result").length > 0);

const order = heard.map((m) => m.method).filter((m) => m?.startsWith("ui/notifications/tool-"));
check("H24", order.join() === "ui/notifications/tool-input,ui/notifications/tool-result" && JSON.stringify(seen("ui/notifications/tool-input")[0].params) === '{"arguments":{}}', order.join());
const [{ params: final }] = seen("ui/notifications/tool-result");
check("H10", final.structuredContent?.made === true && final._meta?.viewUUID === "u");
check("H26", final.content?.[0]?.text === "made" && final.isError === false);

check("H11", (() => { try { localStorage.length; return false; } catch { return true; } })());
check("H12", parent !== top && parent !== self);
check("H13", self.origin === "null" && (() => { try { top.document; return false; } catch { return true; } })());
const policy = document.querySelector("meta");
check("H15", policy?.httpEquiv === "Content-Security-Policy" && document.head.firstElementChild === policy);
const blocked = [];
document.addEventListener("securitypolicyviolation", (event) => blocked.push(event.effectiveDirective));
await fetch("https://undeclared.example/").catch(() => {});
for (const [tag, rest] of [["img", { src: "https://undeclared.example/i" }], ["script", { src: "https://undeclared.example/s" }], ["iframe", { src: "https://undeclared.example/f" }], ["link", { rel: "stylesheet", href: "https://undeclared.example/c" }], ["object", { data: "https://undeclared.example/o" }], ["base", { href: "https://undeclared.example/" }]]) {
  document.body.append(Object.assign(document.createElement(tag), rest));
}
// Some are told twice, and in no order.
const directives = ["connect-src", "img-src", "script-src-elem", "frame-src", "style-src-elem", "base-uri", "object-src"];
await until(() => directives.every((one) => blocked.includes(one)));
for (const directive of directives) check("H16", blocked.includes(directive), directive + " of " + blocked);

check("H20", JSON.stringify(result.hostCapabilities.sandbox?.permissions) === "{}" && !document.featurePolicy.allowsFeature("clipboard-write") && !document.featurePolicy.allowsFeature("camera"));
check("H21", Array.isArray(result.hostCapabilities.sandbox?.csp?.connectDomains));

const { hostContext: context } = result;
const variables = Object.entries(context.styles?.variables ?? {});
check("context", variables.length === 76 && variables.every(([name, value]) => name.startsWith("--") && typeof value === "string" && value !== ""), variables.length + " variables");
check("context", ["light", "dark"].includes(context.theme) && context.containerDimensions?.width > 0 && context.containerDimensions.maxHeight > 0, "dimensions");
check("context", typeof context.locale === "string" && typeof context.timeZone === "string" && context.toolInfo?.tool?.name === "conformance" && context.displayMode === "inline", "rest");

const oracle = await ask("tools/call", { name: "own", arguments: { n: 1 } });
check("H9", oracle.result?.structuredContent?.n === 1, JSON.stringify(oracle));
const foreign = await ask("tools/call", { name: "foreign" });
check("H8", foreign.error?.code === -32000 && foreign.error.data?.code === "app_tool_forbidden", JSON.stringify(foreign));

say("x/unknown-notification", { any: 1 });
const unknown = await ask("x/unknown-request");
check("H17", unknown.error?.code === -32601, JSON.stringify(unknown));
say("ui/notifications/sandbox-resource-ready", { html: "x" });
const odd = await ask("ui/message", { role: "user", content: { type: "text", text: "x" } });
check("H22", odd.error?.code === -32602, JSON.stringify(odd));
for (const bad of [null, 7, "x", [], { jsonrpc: "2.0" }, { jsonrpc: "2.0", id: 1.5, method: 3 }]) post(bad);
check("H22", JSON.stringify((await ask("ping")).result) === "{}");
check("H36", JSON.stringify((await ask("ping")).result) === "{}");
say("notifications/message", { level: "info", data: "logged by the page" });
check("H36", result.hostCapabilities.logging !== undefined);

const mode = await ask("ui/request-display-mode", { mode: "fullscreen" });
check("H30", mode.result?.mode === "inline", JSON.stringify(mode));
check("H31", (await ask("ui/request-display-mode", { mode: "pip" })).result?.mode === "inline");

const before = innerHeight;
say("ui/notifications/size-changed", { height: before + 111 });
check("H29", await until(() => innerHeight === before + 111), String(innerHeight));

const link = await ask("ui/open-link", { url: "https://example.com/conformance" });
check("H32", link.result !== undefined && !link.result.isError, JSON.stringify(link));
check("H32", (await ask("ui/open-link", { url: "javascript:1" })).error !== undefined);
const message = await ask("ui/message", { role: "user", content: [{ type: "text", text: "proposed by the page" }] });
check("H33", message.result !== undefined && !message.result.isError, JSON.stringify(message));
const first = await ask("ui/update-model-context", { structuredContent: { n: 1 } });
const second = await ask("ui/update-model-context", { structuredContent: { n: 2 } });
check("H34", first.result !== undefined && second.result !== undefined);
const file = await ask("ui/download-file", { contents: [{ type: "resource", resource: { uri: "file:///../a/report.txt", mimeType: "text/plain", text: "x" } }] });
check("H35", file.result !== undefined && !file.result.isError, JSON.stringify(file));

globalThis.themeAsked = true;
await until(() => seen("ui/notifications/host-context-changed").some((m) => "theme" in m.params));
const change = seen("ui/notifications/host-context-changed").find((m) => "theme" in m.params);
check("changes", change !== undefined && Object.keys(change.params).length === 1);
check("H25", seen("ui/notifications/tool-input-partial").length === 0 && seen("ui/notifications/tool-input").length === 1);
check("H19", heard.every((m) => m.method === undefined || m.id === undefined));
globalThis.done = true;
answers["ui/resource-teardown"] = () => { check("H28", true); say("notifications/message", { level: "info", data: "last words" }); return {}; };
`);
