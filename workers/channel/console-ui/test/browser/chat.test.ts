/** Writing, and reading what comes. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { clean, setup } from "./setup.ts";

const it = setup();

test("without a login there is no page, and a link works once", async () => {
  const link = it.mock.login();
  const { Console } = await import("../page.ts");
  const console = await Console.open(it.origin, link);
  const other = await console.context.browser()?.newContext();
  assert.ok(other);
  const page = await other.newPage();
  await page.goto(`${it.origin}/`);
  await page.getByText("monoctl console open").waitFor();
  await page.goto(`${it.origin}${link}`);
  await page.getByText("used or too old").waitFor();
  await other.close();
  await console.close();
});

test("a message is sent and its answer streams in, with markdown", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("tour of the orders");
  await page.getByRole("heading", { name: "What the figures say" }).waitFor();
  const table = page.getByRole("table").first();
  assert.equal(await table.getByRole("row").count(), 5);
  assert.equal(await table.getByRole("columnheader").nth(1).evaluate((e) => getComputedStyle(e).textAlign), "end");
  await page.locator("math").first().waitFor();
  await page.locator(".code .hljs-keyword").first().waitFor();
  const done = page.getByRole("checkbox", { name: "Done" });
  assert.ok((await done.isChecked()) && (await done.isDisabled()));
  assert.equal(await page.getByRole("checkbox", { name: "To do" }).isChecked(), false);
  await page.getByRole("listitem").filter({ hasText: /^Look at all four regions\.$/ }).waitFor();
  assert.equal(await console.threads.getByRole("link", { name: "tour of the orders" }).count(), 1);
  clean(console);
  await console.close();
});

test("code is copied as it is", async () => {
  const console = await it.open({ permissions: ["clipboard-read", "clipboard-write"] });
  await console.ask("tour of the orders");
  await console.page.getByRole("button", { name: "Copy code" }).click();
  const copied = await console.page.evaluate(() => navigator.clipboard.readText());
  assert.match(copied, /^import pandas as pd\n\ndef by_region/);
  await console.close();
});

test("a reload in mid-answer goes on showing it, without a gap or a repetition", async () => {
  const console = await it.open();
  const { page } = console;
  await console.goto("/");
  await console.send("slow please");
  await page.getByText("one two three four five").first().waitFor();
  await page.reload();
  await page.getByText("nine ten. one two three").first().waitFor();
  await page.getByRole("button", { name: "Stop the answer" }).click();
  await console.ended("cancelled");
  const text = (await console.answer.locator(".prose").innerText()).trim().replaceAll(/\s+/g, " ");
  assert.ok("one two three four five six seven eight nine ten. ".repeat(2000).startsWith(text), text);
  await page.getByText("Stopped.", { exact: true }).waitFor();
  clean(console);
  await console.close();
});

test("a connection that breaks in mid-answer is taken up again", async () => {
  const console = await it.open();
  const { page } = console;
  await console.goto("/");
  await console.send("slow please");
  await page.getByText("one two three").first().waitFor();
  it.mock.breakStreams();
  const before = (await console.answer.locator(".prose").innerText()).length;
  await page.waitForFunction(
    (length) => (document.querySelector(".prose")?.textContent?.length ?? 0) > length + 100,
    before,
  );
  await page.keyboard.press("Control+.");
  await console.ended("cancelled");
  const text = (await console.answer.locator(".prose").innerText()).trim().replaceAll(/\s+/g, " ");
  assert.ok("one two three four five six seven eight nine ten. ".repeat(2000).startsWith(text), text);
  await console.close();
});

test("a restart in mid-answer is told as such, and what was there stays", async () => {
  const console = await it.open();
  const { page } = console;
  await console.goto("/");
  await console.send("slow please");
  await page.getByText("one two three").first().waitFor();
  it.mock.interrupt();
  await console.ended("interrupted");
  await page.getByText("The service was restarted while it was answering.").waitFor();
  assert.match(await console.answer.locator(".prose").innerText(), /^one two three/);
  await page.getByRole("button", { name: "Try again" }).waitFor();
  // Hints come again without a reload.
  await page.getByText("The connection to the daemon broke").waitFor({ state: "detached" });
  await console.close();
});

test("when the tab that listens closes, another listens", async () => {
  const console = await it.open();
  await console.ask("Hello there");
  const other = await console.tab(new URL(console.page.url()).pathname);
  await other.page.getByText("is noted").waitFor();
  await console.page.close();
  await other.page.bringToFront();
  const third = await console.tab(new URL(other.page.url()).pathname);
  await third.page.getByText("is noted").waitFor();
  await third.menu(third.page.getByRole("main").getByRole("button", { name: /^Actions for/ }), "Delete");
  await third.page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await other.page.bringToFront();
  await other.page.getByText("There is no such thread").waitFor();
  await console.close();
});

test("a page whose script is gone says so, and the rest stays", async () => {
  const console = await it.open();
  const { page } = console;
  await page.route("**/assets/WorkersPage-*", (route) => route.fulfill({ status: 404 }));
  await page.getByRole("link", { name: "Workers" }).click();
  await page.getByRole("heading", { name: "This page can't be shown" }).waitFor();
  await page.getByRole("link", { name: "Runs" }).click();
  await page.getByRole("table").waitFor();
  await console.close();
});

test("two tabs are in step: a message, its answer, a new title", async () => {
  const console = await it.open();
  await console.ask("Hello there");
  const path = new URL(console.page.url()).pathname;
  const other = await console.tab(path);
  await other.page.getByText("is noted").waitFor();
  // A tab that isn't shown follows nothing, and reads again when it is.
  await console.page.bringToFront();
  await console.send("Hello again");
  await console.page.getByText("You said: Hello again").waitFor();
  await other.page.bringToFront();
  await other.page.getByText("You said: Hello again").waitFor();
  await console.menu(console.page.getByRole("main").getByRole("button", { name: /^Actions for/ }), "Rename");
  await console.page.getByRole("textbox", { name: "Title" }).fill("A better title");
  await console.page.getByRole("button", { name: "Rename", exact: true }).click();
  await other.page.getByRole("heading", { level: 1, name: "A better title" }).waitFor();
  clean(console);
  await console.close();
});

test("a message waits behind a running answer, and can be taken back", async () => {
  const console = await it.open();
  const { page } = console;
  await console.goto("/");
  await console.send("slow please");
  await page.getByText("one two").first().waitFor();
  await console.send("Second");
  await console.send("Third");
  const waiting = page.getByText("Waits behind the running answer.");
  await waiting.nth(1).waitFor();
  await page.getByRole("button", { name: "Take it back" }).last().click();
  await page.getByText("Third", { exact: true }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Stop the answer" }).click();
  await page.getByText("You said: Second").waitFor();
  assert.equal(await waiting.count(), 0);
  await console.close();
});

test("edit and resend drops what came after", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("First wording");
  await console.send("A later message");
  await page.getByText("You said: A later message").waitFor();
  await page.getByRole("button", { name: "Edit the message" }).first().click();
  const edit = page.getByRole("textbox", { name: "Edit the message" });
  assert.equal(await edit.inputValue(), "First wording");
  await edit.fill("Second wording");
  await edit.press("Enter");
  await page.getByText("You said: Second wording").waitFor();
  assert.equal(await page.getByText("A later message").count(), 0);
  assert.equal(await console.answers.count(), 1);
  await console.close();
});

test("tool calls are collapsed and readable, with durations and failures", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("tools please");
  const summary = page.getByRole("button", { name: /2 tool calls · 342 ms 1 failed/ });
  await summary.waitFor();
  assert.equal(await page.getByText("the content", { exact: true }).count(), 0);
  await summary.click();
  await page.getByRole("button", { name: /^Read/ }).click();
  await page.getByText("the content", { exact: true }).waitFor();
  await page.getByRole("button", { name: /^Bash .*failed 300 ms/ }).click();
  await page.getByRole("region", { name: "Error" }).getByText("exit status 1").waitFor();
  await console.close();
});

test("a failed attempt's text is replaced, a failure says what to do, and can be tried again", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("void attempt");
  assert.equal((await console.answer.locator(".prose").innerText()).trim(), "This counts.");
  await console.send("fail now");
  await console.ended("failed");
  await page.getByText("The model service refused the key.").waitFor();
  await page.getByText("Half of an answer").waitFor();
  await page.getByRole("button", { name: "Try again" }).click();
  await console.ended("failed");
  await console.send("interrupt");
  await console.ended("interrupted");
  await page.getByText("The answer was interrupted", { exact: true }).waitFor();
  await console.close();
});

test("what was written stays when sending it fails", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("Hello there");
  await page.route("**/turns", (route) => route.abort());
  await console.send("Precious words");
  await page.getByRole("log", { name: "Notices" }).getByText("can't be reached").waitFor();
  assert.equal(await console.field.inputValue(), "Precious words");
  await page.reload();
  await console.field.waitFor();
  assert.equal(await console.field.inputValue(), "Precious words");
  await console.close();
});

test("what is written while a message is sent stays in the field", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("Hello there");
  let let_go: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (let_go = resolve));
  await page.route("**/turns", async (route) => {
    await held;
    await route.continue();
  });
  await console.send("On its way");
  await console.field.pressSequentially("The next words");
  let_go();
  await page.locator("article.user").getByText("On its way").waitFor();
  await console.ended();
  assert.ok((await console.field.inputValue()).endsWith("The next words"), await console.field.inputValue());
  await console.close();
});

test("threads are renamed, archived, found again and deleted", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("Unusual word: quokka");
  await console.menu(page.getByRole("main").getByRole("button", { name: /^Actions for/ }), "Archive");
  await console.threads.getByRole("link", { name: "quokka" }).waitFor({ state: "detached" });
  await console.threads.getByRole("button", { name: "Show the archive" }).click();
  await console.threads.getByRole("link", { name: "quokka" }).waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("searchbox").fill("quokka");
  const hit = page.getByRole("main").getByRole("link", { name: /You said: .*quokka/ });
  assert.equal(await hit.locator("mark").innerText(), "quokka");
  await hit.click();
  await page.locator("article[data-target]").waitFor();
  await console.menu(page.getByRole("main").getByRole("button", { name: /^Actions for/ }), "Delete");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("heading", { name: "What shall we do?" }).waitFor();
  await console.threads.getByRole("link", { name: "quokka" }).waitFor({ state: "detached" });
  await console.close();
});

test("an unread thread says so until it is opened", async () => {
  const console = await it.open();
  const unread = console.threads.getByRole("link", { name: "Draft the note to the team (unread)" });
  await unread.click();
  await unread.waitFor({ state: "detached" });
  await console.close();
});

test("a long history is read page by page", async () => {
  const console = await it.open();
  const { page } = console;
  await console.threads.getByRole("link", { name: "A thread with a long history" }).click();
  await page.getByText("Answer 60.").waitFor();
  assert.equal(await page.getByText("Question 1", { exact: true }).count(), 0);
  await page.getByRole("button", { name: "Show earlier messages" }).click();
  await page.getByRole("button", { name: "Show earlier messages" }).click();
  await page.getByText("Question 1", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Show earlier messages" }).waitFor({ state: "detached" });
  await console.close();
});

test("a session that was revoked elsewhere says that it ended", async () => {
  const console = await it.open();
  await console.field.fill("x");
  it.mock.sessions.clear();
  // The page may have noticed by one of its own requests, and then there is no field any more.
  await console.field.press("Enter", { timeout: 2_000 }).catch(() => undefined);
  await console.page.getByRole("heading", { name: "You are logged out" }).waitFor();
  await console.close();
});
