/** Answers of somebody who wants more than to answer. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { PATIENCE_MS } from "../page.ts";
import { clean, setup } from "./setup.ts";

const it = setup();

test("script and markup in an answer stay text, and no request leaves", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("hostile please");
  await page.getByText("stay in their place").waitFor();
  // Formulas and colours are loaded, too.
  await page.locator(".prose math").first().waitFor();
  assert.equal(await page.evaluate(() => (globalThis as { __hit?: number }).__hit), undefined);
  assert.equal(
    await page.locator(".message img, .message script, .message iframe, .message style, .message [onclick], .message [onerror], .message [style]").count(),
    0,
  );
  const addresses = await page.locator(".message a").evaluateAll((links) => links.map((link) => (link as HTMLAnchorElement).href));
  for (const address of addresses) assert.match(address, /^(https:\/\/(evil\.example|xn--pple-43d\.example)\/|http:\/\/127\.0\.0\.1:\d+\/(api\/v1\/messages|runs)\/)/);
  for (const rel of await page.locator(".prose a").evaluateAll((links) => links.map((link) => link.getAttribute("rel")))) {
    assert.match(rel ?? "", /noopener noreferrer/);
  }
  const name = page.locator(".file-name");
  assert.equal(await name.innerText(), '<img src=x onerror="window.__hit=22">\ufffdgpj.exe');
  clean(console);
  await console.close();
});

test("a foreign address is shown before it is opened", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("hostile please");
  await page.getByRole("link", { name: "look-alike" }).click();
  const dialog = page.getByRole("dialog", { name: "Open this address?" });
  await dialog.getByText("xn--pple-43d.example", { exact: true }).waitFor();
  await dialog.getByRole("button", { name: "Stay here" }).click();
  await dialog.waitFor({ state: "detached" });
  const image = page.getByRole("link", { name: /pixel \(evil\.example\)/ });
  await image.click();
  await dialog.getByText("https://evil.example/pixel.png?who=you").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.ok(await image.evaluate((element) => element === document.activeElement), "the focus comes back");
  await image.click({ button: "middle" });
  await dialog.waitFor();
  assert.equal(console.context.pages().length, 1);
  clean(console);
  await console.close();
});

test("ten million characters don't hold the page up", async () => {
  const console = await it.open();
  const { page } = console;
  await console.goto("/");
  await page.evaluate(() => {
    const state = globalThis as unknown as { longest: number };
    state.longest = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) state.longest = Math.max(state.longest, entry.duration);
    }).observe({ type: "longtask" });
  });
  await console.send("long please");
  await page.getByText("This answer is long").waitFor();
  await console.ended();
  assert.ok((await page.locator(".message *").count()) < 30_000);
  await page.getByRole("button", { name: "Show all as plain text" }).click();
  await page.getByText("Shown whole, as plain text.").waitFor();
  const all = await page.locator(".plain").evaluate((element) => element.textContent?.length ?? 0);
  assert.ok(all > 10 * 1024 * 1024);
  await console.field.fill("still alive");
  const longest = await page.evaluate(() => (globalThis as unknown as { longest: number }).longest);
  // Laying ten million characters out at once takes many times this.
  assert.ok(longest < PATIENCE_MS / 6, `one task held the page for ${longest} ms`);
  clean(console);
  await console.close();
});

test("five thousand tool calls are counted, and drawn on request", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("events please");
  await page.getByRole("button", { name: /5,000 tool calls/ }).click();
  assert.equal(await page.locator(".entry").count(), 50);
  await page.getByRole("button", { name: "Show all 5,000 entries" }).click();
  assert.equal(await page.locator(".entry").count(), 5000);
  await page.locator(".entry").last().getByRole("button").click();
  await page.getByRole("region", { name: "Arguments" }).getByText('"n": 4999').waitFor();
  await console.field.fill("still alive");
  await console.close();
});

test("nothing of the address is used as an address", async () => {
  const console = await it.open();
  const { page } = console;
  for (const path of ["/t/..%2f..%2flogout", "/t/%3Cimg%20src=x%3E", "/search?q=%3Cimg%20src=x%20onerror=alert(1)%3E", "/runs/..", "/https://evil.example"]) {
    await page.goto(`${it.origin}${path}`);
    await page.getByRole("navigation", { name: "Threads" }).waitFor();
    assert.equal(await page.locator("img").count(), 0);
  }
  clean(console);
  await console.close();
});
