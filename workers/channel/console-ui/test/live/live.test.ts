/**
 * The same page, served by a daemon with the demo model.
 *
 * `CONSOLE_URL` says where, and `CONSOLE_LOGIN` is the path of a link that `monoctl console open`
 * printed. Without them these tests fail: they are run on purpose.
 */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { clean } from "../clean.ts";
import { close, Console } from "../page.ts";

let console: Console;

before(async () => {
  const origin = process.env["CONSOLE_URL"];
  const login = process.env["CONSOLE_LOGIN"];
  assert.ok(origin && login, "CONSOLE_URL and CONSOLE_LOGIN say where the console is");
  console = await Console.open(origin.replace(/\/$/, ""), login);
});
after(close);

test("a link works once", async () => {
  const other = await console.context.browser()?.newContext();
  assert.ok(other);
  const page = await other.newPage();
  await page.goto(`${console.origin}${process.env["CONSOLE_LOGIN"] ?? ""}`);
  await page.getByText("monoctl console open").waitFor();
  assert.equal(await page.getByRole("button", { name: "Log in" }).count(), 0);
  await other.close();
});

test("the scripted turn streams in, and its file is saved as it was published", async () => {
  const { page } = console;
  await console.ask("demo");
  await page.getByRole("button", { name: /tool calls?/ }).first().waitFor();
  const card = console.answer.getByRole("article", { name: /^File / }).first();
  const sum = (await card.locator("[title^='SHA-256']").getAttribute("title"))?.replace("SHA-256 ", "");
  const [download] = await Promise.all([page.waitForEvent("download"), card.getByRole("link", { name: /Download/ }).click()]);
  assert.equal(createHash("sha256").update(readFileSync(await download.path())).digest("hex"), sum);
  clean(console);
});

test("two tabs are in step, and a reload shows the same", async () => {
  const path = new URL(console.page.url()).pathname;
  const other = await console.tab(path);
  await other.answer.waitFor();
  const text = await console.answer.innerText();
  await console.page.reload();
  await console.answer.waitFor();
  assert.equal((await console.answer.innerText()).length > 0, text.length > 0);
  await console.page.bringToFront();
  await console.send("A second message of this thread");
  await console.page.locator("article.user").nth(1).waitFor();
  await console.ended();
  await other.page.bringToFront();
  await other.page.locator("article.user").nth(1).waitFor();
  await other.ended();
  clean(other);
  await other.page.close();
});

test("the thread is found again", async () => {
  const { page } = console;
  await page.keyboard.press("Control+k");
  await page.getByRole("searchbox").fill("second message");
  await page.getByRole("main").getByRole("link").first().click();
  await page.locator("article[data-target]").waitFor();
});

test("operators see the daemon's workers, confined, and its runs, files and configuration", async () => {
  const { page } = console;
  await console.goto("/workers");
  await page.getByRole("button", { name: /^store serving confined/ }).waitFor();
  await console.goto("/runs");
  await page.getByRole("table").getByRole("link").first().click();
  await page.getByRole("heading", { name: "Events" }).or(page.getByRole("heading", { name: "Answer" })).first().waitFor();
  await console.goto("/files");
  await page.getByRole("table").getByRole("row").nth(1).waitFor();
  await page.getByText(/ used by /).waitFor();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("table").getByRole("link", { name: /^Download / }).first().click(),
  ]);
  assert.ok(readFileSync(await download.path()).length > 0);
  await console.goto("/settings");
  await page.getByRole("region", { name: "Configuration" }).getByText("runtime.stateDir").waitFor();
  clean(console);
});
