/** For everybody: with the keyboard alone, on a phone, and as axe sees it. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import type { Page } from "playwright-core";
import * as operator from "../../mock/operator.ts";
import type { Console } from "../page.ts";
import { clean, setup } from "./setup.ts";

const it = setup();
/** Pictures of all pages, to look at. */
const SHOTS = process.env["CONSOLE_SHOTS"] ?? new URL("../../shots", import.meta.url).pathname;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Finding {
  id: string;
  help: string;
  nodes: { html: string; failureSummary?: string }[];
}

async function axe(page: Page, where: string): Promise<void> {
  const found = await page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: { run: (at: Document, options: object) => Promise<{ violations: Finding[] }> } };
    const { violations } = await axe.run(document, {
      runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    });
    return violations;
  });
  const told = found.map((one) => `${one.id}: ${one.help}\n${one.nodes.map((node) => `  ${node.html}\n  ${node.failureSummary ?? ""}`).join("\n")}`);
  assert.deepEqual(told, [], where);
}

/** Every page that there is, one after the other. */
async function each(console: Console, visit: (where: string) => Promise<void>): Promise<void> {
  const { page } = console;
  await console.goto("/");
  await visit("new");
  await console.ask("tour of the orders");
  await page.getByRole("button", { name: /tool call/ }).click();
  await page.getByRole("button", { name: /^Bash .*failed/ }).click();
  await page.locator("math").first().waitFor();
  await visit("thread");
  await console.ask("files please");
  await page.getByRole("button", { name: "Preview orders.csv" }).click();
  await page.getByRole("button", { name: "Preview chart.png" }).click();
  await page.getByRole("img").waitFor();
  await visit("files of a reply");
  await page.getByRole("button", { name: "Edit the message" }).click();
  await visit("editing");
  await console.goto("/");
  await console.send("slow please");
  await page.getByText("one two").first().waitFor();
  await console.send("Queued");
  await page.getByText("Waits behind").waitFor();
  await visit("running");
  await page.getByRole("button", { name: "Take it back" }).click();
  await page.getByRole("button", { name: "Stop the answer" }).click();
  await console.ended("cancelled");
  await console.send("fail");
  await console.ended("failed");
  await visit("failed");
  await console.goto("/search?q=figures");
  await page.getByRole("main").getByRole("link").first().waitFor();
  await visit("search");
  await console.goto("/runs");
  await page.getByRole("table").waitFor();
  await visit("runs");
  await page.getByRole("table").getByRole("link").nth(4).click();
  await page.getByRole("heading", { name: "Events" }).waitFor();
  await page.getByRole("button", { name: /Bash/ }).click();
  await page.getByRole("region", { name: "Arguments" }).getByText("make report").waitFor();
  await page.getByRole("region", { name: "Error" }).getByText("Error 2").waitFor();
  await visit("run");
  await console.goto("/continuations");
  await page.getByRole("table").waitFor();
  await visit("continuations");
  await page.getByRole("button", { name: "Show delivery unknown" }).click();
  await page.getByRole("table").getByText("delivery unknown").first().waitFor();
  await page.getByRole("table").getByRole("link").last().click();
  await page.getByRole("button", { name: "Leave it" }).waitFor();
  await visit("continuation");
  await page.getByRole("button", { name: "Send it again …" }).click();
  await page.getByRole("checkbox", { name: "I know that it may be posted twice." }).waitFor();
  await visit("continuation sent again");
  await page.keyboard.press("Escape");
  await console.ask("background please");
  await page.getByText("Deadline:").waitFor();
  await visit("background work");
  await console.goto("/workers");
  await page.getByRole("button", { name: /^store/ }).click();
  await visit("workers");
  await console.goto("/files");
  await page.getByRole("table").waitFor();
  await visit("files");
  await console.goto("/settings");
  await page.getByRole("table").waitFor();
  await visit("settings");
}

const SIZES = { desktop: { width: 1280, height: 860 }, phone: { width: 360, height: 740 } };

test("axe finds nothing on any page, light and dark, phone and desktop; nothing is wider than the screen", async () => {
  const console = await it.open({ viewport: SIZES.desktop });
  const { page } = console;
  await page.addInitScript(AXE);
  const look = async (where: string, sizes: (keyof typeof SIZES)[] = ["phone", "desktop"]): Promise<void> => {
    for (const size of sizes) {
      await page.setViewportSize(SIZES[size]);
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        await axe(page, `${where}, ${size}, ${colorScheme}`);
        const width = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(width <= SIZES[size].width, `${where} is ${width} wide`);
        await page.screenshot({ path: `${SHOTS}/${size}-${colorScheme}-${where.replaceAll(" ", "-")}.png` });
      }
    }
  };
  await each(console, look);
  await page.keyboard.press("Control+/");
  await page.getByRole("dialog").waitFor();
  await look("shortcuts");
  await page.keyboard.press("Escape");
  await page.setViewportSize(SIZES.phone);
  await page.getByRole("button", { name: "Open the menu" }).click();
  await look("drawer", ["phone"]);
  clean(console);
  await console.close();
});

test("a phone: the drawer opens, leads on and closes, and the keyboard can't reach it while closed", async () => {
  const console = await it.open({ viewport: SIZES.phone, hasTouch: true, isMobile: true });
  const { page } = console;
  const link = console.threads.getByRole("link", { name: "Orders by region and week" });
  assert.equal(await link.isVisible(), false);
  await page.getByRole("button", { name: "Open the menu" }).tap();
  await link.tap();
  await page.getByRole("heading", { name: "What the figures say" }).waitFor();
  await link.waitFor({ state: "hidden" });
  await page.getByRole("button", { name: /^Actions for Orders/ }).first().tap();
  await page.getByRole("menuitem", { name: "Rename" }).tap();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).tap();
  await console.send("Hello from the phone");
  await page.getByText("You said: Hello from the phone").waitFor();
  for (const button of await page.getByRole("button").all()) {
    if (!(await button.isVisible())) continue;
    const box = await button.boundingBox();
    assert.ok(box === null || (box.width >= 24 && box.height >= 24), await button.innerText());
  }
  clean(console);
  await console.close();
});

test("everything is reached with the keyboard alone", async () => {
  const console = await it.open();
  const { page } = console;
  const focused = (): Promise<string> =>
    page.evaluate(() => {
      const element = document.activeElement;
      return element?.getAttribute("aria-label") ?? element?.textContent ?? "";
    });
  await console.goto("/");
  await page.locator("body").press("Tab");
  assert.match(await focused(), /Skip to the content/);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "Message");
  await page.keyboard.type("Written by keys");
  await page.keyboard.press("Enter");
  await console.ended();
  await page.keyboard.press("ArrowUp");
  await page.getByRole("textbox", { name: "Edit the message" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("textbox", { name: "Edit the message" }).waitFor({ state: "detached" });
  // The list of threads is one stop of the tab key, and the arrow keys move in it.
  await console.threads.getByRole("link", { name: "Written by keys" }).focus();
  await page.keyboard.press("ArrowDown");
  assert.match(await focused(), /Orders by region/);
  await page.keyboard.press("Tab");
  assert.match(await focused(), /Actions for Orders by region/);
  await page.keyboard.press("Enter");
  assert.equal(await focused(), "Rename");
  await page.keyboard.press("Enter");
  await page.getByRole("textbox", { name: "Title" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.match(await focused(), /Actions for Orders by region/);
  await page.keyboard.press("Control+Alt+n");
  await page.getByRole("heading", { name: "What shall we do?" }).waitFor();
  await page.keyboard.press("Shift+Escape");
  assert.equal(await focused(), "Message");
  await page.keyboard.press("Alt+ArrowDown");
  await page.waitForURL("**/t/*");
  await page.keyboard.press("Control+/");
  await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+k");
  await page.getByRole("searchbox").fill("figures");
  await page.getByRole("main").getByRole("link").first().waitFor();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/t/*");
  clean(console);
  await console.close();
});

test("the operators' pages show what the daemon says, and a session can be revoked", async () => {
  const console = await it.open();
  const { page } = console;
  await console.goto("/workers");
  await page.getByRole("button", { name: /^store serving confined/ }).click();
  await page.getByText("read shadow").waitFor();
  await page.getByText("no Landlock, a probe was not refused").waitFor();
  await console.goto("/runs");
  await page.getByRole("combobox", { name: "Status" }).selectOption("failed");
  await page.getByRole("table").getByText("provider_auth").first().waitFor();
  await page.getByRole("table").getByText("succeeded").first().waitFor({ state: "detached" });
  await page.getByRole("table").getByRole("link").first().click();
  await page.getByText("The model service refused the key.").waitFor();
  await console.goto("/files");
  await page.getByText("of 256 MiB used by 18 files of 1,000, 2 about to go").waitFor();
  await page.getByText("<b>bold</b>\ufffdgpj.csv").waitFor();
  await console.goto("/settings");
  await page.getByRole("searchbox", { name: "Filter by key" }).fill("apikey");
  await page.getByRole("table").getByText("providers.anthropic.apiKey").waitFor();
  const other = await it.open();
  await page.reload();
  const sessions = page.getByRole("listitem").filter({ hasText: "last seen" });
  await sessions.nth(1).waitFor();
  const before = await sessions.count();
  await page.getByRole("button", { name: /^Revoke/ }).last().click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await page.waitForFunction((count) => document.querySelectorAll(".sessions li").length === count - 1, before);
  await other.page.reload();
  await other.page.getByText("monoctl console open").waitFor();
  await other.close();
  await page.getByRole("button", { name: /^Log out/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Log out" }).click();
  await page.getByRole("heading", { name: "You are logged out" }).waitFor();
  await console.close();
});

test("a run's id leaves room for its status on a phone, and is whole when it is wanted", async () => {
  const console = await it.open({ viewport: SIZES.phone, permissions: ["clipboard-read", "clipboard-write"] });
  const { page } = console;
  await console.goto("/runs");
  const row = page.getByRole("table").getByRole("row").nth(1);
  const status = await row.getByText("running").boundingBox();
  assert.ok(status !== null && status.x + status.width <= SIZES.phone.width, JSON.stringify(status));
  const id = operator.runs[0]?.runId ?? "";
  const link = row.getByRole("link", { name: id, exact: true });
  const whole = link.getByText(id);
  const shown = (): Promise<boolean> => whole.evaluate((element) => getComputedStyle(element).clipPath === "none");
  assert.equal(await shown(), false);
  await link.hover();
  assert.equal(await shown(), true);
  const box = await whole.boundingBox();
  assert.ok(box !== null && box.x >= 0 && box.x + box.width <= SIZES.phone.width, JSON.stringify(box));
  await page.mouse.move(0, 0);
  assert.equal(await shown(), false);
  await page.getByRole("region", { name: "Runs" }).focus();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  assert.equal(await shown(), true);
  await row.getByRole("button", { name: `Copy the id of run ${id}` }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), id);
  clean(console);
  await console.close();
});

test("light and dark can be chosen, and the choice is kept", async () => {
  const console = await it.open({ colorScheme: "light" });
  const { page } = console;
  const ground = (): Promise<string> => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await ground();
  await page.getByRole("radio", { name: "Dark" }).check();
  const dark = await ground();
  assert.notEqual(dark, light);
  await page.reload();
  await console.field.waitFor();
  assert.equal(await ground(), dark);
  await page.getByRole("radio", { name: "As the system" }).check();
  assert.equal(await ground(), light);
  await console.close();
});
