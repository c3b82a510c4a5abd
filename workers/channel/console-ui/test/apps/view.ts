/** Documents of apps for tests: a client of the protocol by hand, so that it can also break it. */

/** Runs in the app. `heard` is every message that came, in order. */
const CLIENT = `
const heard = [], waiting = new Map();
let next = 1;
const post = (message) => parent.postMessage(message, "*");
const say = (method, params = {}) => post({ jsonrpc: "2.0", method, params });
const ask = (method, params = {}) => new Promise((resolve) => {
  const id = next++;
  waiting.set(id, resolve);
  post({ jsonrpc: "2.0", id, method, params });
});
const answers = { "ui/resource-teardown": () => ({}), ping: () => ({}) };
const seen = (method) => heard.filter((message) => message.method === method);
addEventListener("message", ({ data }) => {
  heard.push(data);
  if (data.method === undefined) return waiting.get(data.id)?.(data);
  if (data.id === undefined) return;
  const answer = answers[data.method];
  if (answer === undefined) return post({ jsonrpc: "2.0", id: data.id, error: { code: -32601, message: "unknown" } });
  Promise.resolve(answer(data.params)).then((result) => post({ jsonrpc: "2.0", id: data.id, result }));
});
const until = async (what, ms = 20000) => {
  const end = performance.now() + ms;
  while (!what()) {
    if (performance.now() > end) return false;
    await new Promise((done) => setTimeout(done, 10));
  }
  return true;
};
const initialize = (version = "2026-01-26", capabilities = {}) =>
  ask("ui/initialize", { protocolVersion: version, appInfo: { name: "test", version: "1" }, appCapabilities: capabilities });
const start = async (capabilities) => {
  const answer = await initialize(undefined, capabilities);
  say("ui/notifications/initialized");
  await until(() => seen("ui/notifications/tool-result").length + seen("ui/notifications/tool-cancelled").length > 0);
  return answer;
};
`;

/** A document with this body and script; what the script leaves on \`globalThis\` a test can read. */
export function app(script: string, body = "<h1>A test app</h1>"): string {
  return `<!doctype html><html><head><title>t</title></head><body>${body}<script>${CLIENT}
Object.assign(globalThis, { heard, seen, say, ask, post, until, initialize, start, answers });
(async () => { ${script} })().catch((error) => { globalThis.failed = String(error); });
</script></body></html>`;
}

/** An app that only starts. */
export const PLAIN = app(`globalThis.initialized = await start(); say("ui/notifications/size-changed", { height: document.documentElement.scrollHeight });`);
