/**
 * Opens an app again and again, and prints how long it took: from the end of its tool's call to its
 * `initialized`, and the same document in a bare frame from its insertion to the same message.
 *
 * `CONSOLE_URL` and `CONSOLE_LOGIN` say where, `APP_MESSAGE` what is said, `APP_ROUNDS` how often.
 */

import { appFrames } from "../apps/open.ts";
import { close, Console } from "../page.ts";

/** What the page keeps for us. */
interface Marks {
  readyAt: number | null;
}

interface Page {
  messages: { activity: { kind: string; endedAt?: number }[]; parts: { type: string; messageId?: string; id?: string }[] }[];
}

const origin = (process.env["CONSOLE_URL"] ?? "").replace(/\/$/, "");
const rounds = Number(process.env["APP_ROUNDS"] ?? 20);
const console_ = await Console.open(origin, process.env["CONSOLE_LOGIN"] ?? "");
const { page, context } = console_;
await page.addInitScript(() => {
  const marks = globalThis as unknown as Marks;
  marks.readyAt = null;
  new MutationObserver(() => {
    if (marks.readyAt === null && document.querySelector(".card.app[data-ready]") !== null) marks.readyAt = Date.now();
  }).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-ready"] });
});
const bare = await context.newPage();

/** In a bare frame: who hosts it answers at once. */
function opened(html: string): Promise<number> {
  return bare.evaluate(
    (document_) =>
      new Promise<number>((done) => {
        const frame = document.createElement("iframe");
        const began = performance.now();
        const over = new AbortController();
        addEventListener(
          "message",
          (event) => {
            const { id, method } = event.data as { id?: unknown; method?: unknown };
            if (method === "ui/initialize") {
              const result = { protocolVersion: "2026-01-26", hostInfo: { name: "bare", version: "1" }, hostCapabilities: {}, hostContext: {} };
              frame.contentWindow?.postMessage({ jsonrpc: "2.0", id, result }, "*");
            } else if (method === "ui/notifications/initialized") {
              over.abort();
              done(performance.now() - began);
              frame.remove();
            }
          },
          { signal: over.signal },
        );
        frame.srcdoc = document_;
        document.body.append(frame);
      }),
    html,
  );
}

const times: { open: number[]; bare: number[] } = { open: [], bare: [] };
for (let round = 0; round <= rounds; round += 1) {
  await page.bringToFront();
  await console_.ask(process.env["APP_MESSAGE"] ?? "");
  await page.locator(".card.app[data-ready]").waitFor();
  if (appFrames(page).length !== 1) throw new Error("there is no one app");
  const seen = await page.evaluate(async () => {
    const path = `/api/v1/threads/${location.pathname.split("/")[2] ?? ""}`;
    const { messages } = (await (await fetch(path)).json()) as Page;
    const message = messages.at(-1);
    const part = message?.parts.find((one) => one.type === "mcp_app");
    const html = await (await fetch(`/api/v1/messages/${part?.messageId ?? ""}/apps/${part?.id ?? ""}/html`)).text();
    const calls = message?.activity.flatMap((one) => (one.kind === "tool" && one.endedAt !== undefined ? [one.endedAt] : []));
    return { html, calledAt: calls?.at(-1) ?? null, readyAt: (globalThis as unknown as Marks).readyAt };
  });
  if (seen.calledAt === null || seen.readyAt === null) throw new Error("a time is missing");
  await bare.bringToFront();
  const alone = await opened(seen.html);
  // The first one loads what the browser then has.
  if (round === 0) continue;
  times.open.push(seen.readyAt - seen.calledAt);
  times.bare.push(alone);
}
process.stdout.write(`${JSON.stringify(times)}\n`);
await close();
