/** Our page looks at our host from the inside; how many of its requirements hold is printed. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Locator } from "playwright-core";
import { CONFORMANCE, REQUIREMENTS } from "../apps/conformance.ts";
import { holds, openApp } from "../apps/open.ts";
import { PLAIN } from "../apps/view.ts";
import { RESULT_BYTES } from "../../src/apps/limits.ts";
import { PATIENCE_MS } from "../page.ts";
import { setup } from "./setup.ts";

const it = setup();

test("what a host owes to a view holds, seen from the view", async () => {
  const console = await it.open();
  const { page } = console;
  const noise: string[] = [];
  page.on("console", (message) => noise.push(message.text()));
  await page.emulateMedia({ colorScheme: "light" });
  await console.context.route("https://example.com/**", (route) => route.fulfill({ body: "x" }));
  // Behind another tab a page is hardly drawn, and what isn't drawn can't be clicked.
  const opened: string[] = [];
  console.context.on("page", (other) => {
    opened.push(other.url());
    void other.close().then(() => page.bringToFront());
  });
  it.mock.apps.define("conformance", {
    html: CONFORMANCE,
    record: {
      csp: { connectDomains: [] },
      result: { content: [{ type: "text", text: "made" }], structuredContent: { made: true }, _meta: { viewUUID: "u" }, isError: false },
    },
    tools: { own: ({ n }) => ({ content: [], structuredContent: { n } }) },
  });
  const turns = await page.locator("article.user").count();
  const { card, frame } = await openApp(console, "conformance");
  // The person's part.
  const allow = ["Allow once", "Open in a new tab", "Allow", "Save"];
  const end = Date.now() + 3 * PATIENCE_MS;
  let themed = false;
  while (!(await frame.evaluate("globalThis.done === true")) && Date.now() < end) {
    for (const name of allow) {
      const button = page.getByRole("dialog").getByRole("button", { name, exact: true });
      // It waits until it may be clicked, and the question may be over by then.
      if ((await button.count()) > 0) await button.click({ timeout: 5000 }).catch(() => undefined);
    }
    if (!themed && (await frame.evaluate("globalThis.themeAsked === true"))) {
      themed = true;
      await page.emulateMedia({ colorScheme: "dark" });
    }
    const failed = await frame.evaluate("globalThis.failed");
    assert.equal(typeof failed === "string" ? failed : "", "");
    await page.waitForTimeout(50);
  }
  const report = (await frame.evaluate("report()")) as { passed: string[]; failed: Record<string, string[]> };
  const passed = new Set(report.passed);
  // What shows outside of the view.
  const shown = (id: string, holds: boolean): void => void (holds ? passed.add(id) : (report.failed[id] = ["seen from outside"], passed.delete(id)));
  shown("H33", (await page.locator("article.user").count()) === turns + 1);
  const note = page.getByRole("list", { name: "From apps" });
  const there = (what: Locator): Promise<boolean> => what.waitFor().then(() => true, () => false);
  shown("H32", opened.length === 1);
  shown("H34", (await there(note.getByText("Context from"))) && (await note.getByText("Context from").count()) === 1);
  shown("H21", await there(card.getByText(/were not given to this app/)));
  await card.getByRole("button", { name: "Close the app" }).click();
  await card.getByText("The app is closed.").waitFor();
  await card.getByText(/in the app's log/).click();
  shown("H28", await there(card.getByText("last words")));
  // Another one, whose result can't be sent: one that was called off is never kept.
  it.mock.apps.define("called-off", { html: PLAIN, record: { result: { content: [{ type: "text", text: "x".repeat(RESULT_BYTES) }] } } });
  const off = await openApp(console, "called-off");
  await holds(off.frame, "globalThis.initialized !== undefined");
  shown("H27", (await off.frame.evaluate("heard.map((m) => m.method).filter(Boolean).join()")) === "ui/notifications/tool-input,ui/notifications/tool-cancelled");
  const all = Object.keys(REQUIREMENTS);
  process.stdout.write(`# conformance: ${all.filter((id) => passed.has(id)).length} of ${all.length} applicable requirements\n`);
  assert.deepEqual(report.failed, {});
  assert.deepEqual(all.filter((id) => !passed.has(id)), []);
  // The bridge writes nothing of what passes to the browser's console.
  assert.deepEqual(noise.filter((line) => !/undeclared\.example|Content Security Policy|Refused to|violates|Failed to load resource/.test(line)), []);
  await console.close();
});
