/** Continuations as an operator sees them, and as the person who waits for one does. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Locator, Page } from "playwright-core";
import { CAPTURED } from "../../mock/continuations.ts";
import { clean, setup } from "./setup.ts";

const it = setup();

const table = (page: Page): Locator => page.getByRole("region", { name: "Continuations" }).getByRole("table");
const card = (page: Page): Locator => page.getByRole("region", { name: "State" });
const dialog = (page: Page): Locator => page.getByRole("dialog");

/** The path of a record that the page has never seen. */
function fresh(...of: Parameters<typeof it.mock.continuations.add>): string {
  const added = it.mock.continuations.add(...of);
  return `/continuations/${added.continuationId}`;
}

test("health says its verdict, counts and reasons; the list goes on where it ends", async () => {
  const console = await it.open();
  const { page } = console;
  await console.goto("/workers");
  // Wherever one is, it is seen that an answer waits for a person's word.
  await page.getByRole("navigation", { name: "Operator pages" }).getByRole("link", { name: "Continuations (somebody has to look)" }).click();
  await page.getByRole("region", { name: "Health" }).getByText("unhealthy").waitFor();
  await page.getByRole("region", { name: "Health" }).getByText("of at most 10,000").waitFor();
  const why = page.getByRole("region", { name: "Reasons" });
  await why.getByText("Nobody knows whether 2 answers were posted.").waitFor();
  await why.getByText("1 answer can't be delivered.").waitFor();
  // The newest first, and as many as a page has.
  await table(page).getByRole("row").nth(1).getByText("verify-the-export").waitFor();
  const rows = (): Promise<number> => table(page).getByRole("row").count();
  assert.equal(await rows(), 21);
  await page.getByText("monoctl continuations list --cursor MjA").waitFor();
  await page.getByRole("button", { name: "More" }).click();
  await page.getByText("monoctl continuations list --cursor NDA").waitFor();
  assert.equal(await rows(), 41);
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("button", { name: "More" }).waitFor({ state: "detached" });
  assert.equal(await rows(), it.mock.continuations.records.length + 1);
  // One state of all pages, from its reason.
  await why.getByRole("button", { name: "Show delivery unknown" }).click();
  await page.waitForFunction(() => document.querySelectorAll(".data tbody tr").length === 2);
  assert.equal(await page.getByRole("combobox", { name: "State" }).inputValue(), "delivery_unknown");
  await page.getByRole("combobox", { name: "State" }).selectOption("");
  // A name is text, whatever it says.
  await table(page).getByText('<img src=x onerror="document.title=1">\ufffdgpj.task').click();
  await card(page).getByText("A service works on it.").waitFor();
  assert.equal(await page.locator("main img").count(), 0);
  clean(console);
  await console.close();
});

test("one record shows its attempts, origin, receipt and the commands that do the same", async () => {
  const console = await it.open();
  const { page } = console;
  const path = fresh("dead_lettered");
  const id = path.split("/")[2] ?? "";
  await console.goto(path);
  await card(page).getByText("dead lettered").waitFor();
  await page.getByText("unsupported_destination: that is no thread of the console").waitFor();
  await page.getByText("pinned: the conversation is kept as it was").waitFor();
  const commands = page.getByRole("list", { name: "Commands" });
  assert.deepEqual(await commands.getByRole("listitem").allInnerTexts(), [`monoctl continuations show ${id}`, `monoctl continuations retry ${id}`]);
  await page.getByRole("button", { name: "Send it again" }).click();
  await dialog(page).getByText("No model is asked.").waitFor();
  await dialog(page).getByRole("button", { name: "Send it again" }).click();
  await card(page).getByText("ready to deliver", { exact: true }).waitFor();
  // From elsewhere: an open page is told.
  const record = it.mock.continuations.records.find((one) => one.continuationId === id);
  assert.ok(record);
  record.state = "delivered";
  record.receipt = { kind: "delivered", deliveredAt: new Date().toISOString(), channelId: "web:t1", deliveryId: "m1", historyRecorded: false, historyErrorCode: "history_unavailable" };
  it.mock.hint({ kind: "status" });
  await page.getByText("no; it is not posted again").waitFor();
  await page.getByText("history_unavailable").waitFor();
  await card(page).getByRole("link", { name: "See the answer in its thread" }).waitFor();
  clean(console);
  await console.close();
});

test("what is unknown is resolved in three ways, each after its consequences", async () => {
  const console = await it.open();
  const { page } = console;
  for (const [button, action, becomes, sent] of [
    ["It was delivered", "It was delivered", "delivered", { kind: "delivered", deliveryId: "m-77" }],
    ["It was not delivered", "It was not delivered: send it", "ready to deliver", { kind: "not_delivered" }],
    ["Leave it", "Leave it as a dead letter", "dead lettered", { kind: "dead_lettered" }],
  ] as const) {
    await console.goto(fresh("delivery_unknown"));
    await card(page).getByText("It may have been posted").waitFor();
    // Whoever goes back has done nothing.
    await card(page).getByRole("button", { name: button, exact: true }).click();
    await dialog(page).getByRole("button", { name: "Go back" }).click();
    await dialog(page).waitFor({ state: "detached" });
    await card(page).getByText("delivery unknown", { exact: true }).waitFor();
    await card(page).getByRole("button", { name: button, exact: true }).click();
    if ("deliveryId" in sent) await dialog(page).getByRole("textbox").fill(sent.deliveryId);
    const [request] = await Promise.all([
      page.waitForRequest((one) => one.method() === "POST"),
      dialog(page).getByRole("button", { name: action, exact: true }).click(),
    ]);
    assert.deepEqual(request.postDataJSON(), sent);
    await card(page).getByText(becomes, { exact: true }).waitFor();
    await dialog(page).waitFor({ state: "detached" });
  }
  clean(console);
  await console.close();
});

test("what may have been posted is sent again only after that was accepted", async () => {
  const console = await it.open();
  const { page } = console;
  await console.goto(fresh("delivery_unknown"));
  await card(page).getByRole("button", { name: "Send it again …" }).click();
  await dialog(page).getByText("may post it twice").waitFor();
  const send = dialog(page).getByRole("button", { name: "Send it again" });
  assert.equal(await send.isDisabled(), true);
  await dialog(page).getByRole("checkbox", { name: "I know that it may be posted twice." }).check();
  const [request] = await Promise.all([page.waitForRequest((one) => one.method() === "POST"), send.click()]);
  assert.deepEqual(request.postDataJSON(), { allowUnknown: true });
  await card(page).getByText("ready to deliver", { exact: true }).waitFor();
  clean(console);
  await console.close();
});

test("a refusal is told with its remedy, and the page shows how it stands by then", async () => {
  const console = await it.open();
  const { page } = console;
  const path = fresh("claimed");
  await console.goto(path);
  await card(page).getByRole("button", { name: "Give it up" }).click();
  it.mock.continuations.refuses = [409, "continuation_in_flight", "The continuation is being processed."];
  await dialog(page).getByRole("button", { name: "Give it up" }).click();
  await dialog(page).getByRole("alert").getByText("The continuation is being processed. A model or the channel is being asked at this moment.").waitFor();
  await dialog(page).getByRole("button", { name: "Give it up" }).click();
  await card(page).getByText("cancelled", { exact: true }).waitFor();
  assert.equal(await card(page).getByRole("button").count(), 0);
  await console.goto("/continuations/never-there");
  await page.getByRole("alert").getByText("There is no such continuation. Tombstones are kept for a bounded time.").waitFor();
  clean(console);
  await console.close();
});

test("a captured text is shown when it is asked for, as text", async () => {
  const console = await it.open();
  const { page } = console;
  await console.goto("/continuations");
  const [before] = CAPTURED.split("\n");
  await table(page).getByText("verify-the-export").click();
  await page.getByRole("heading", { name: "Captured text" }).waitFor();
  assert.ok(!(await page.locator("main").innerText()).includes("All 42 items"));
  await page.getByRole("button", { name: "Show the captured text" }).click();
  const shown = page.getByRole("region", { name: "Captured text" });
  await shown.getByText("items are there.").waitFor();
  assert.equal(before, "# Checked");
  assert.equal(await page.locator("main script").count(), 0);
  // Any other has none to ask for.
  await console.goto(fresh("delivered"));
  await page.getByRole("heading", { name: "Receipt" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Show the captured text" }).count(), 0);
  clean(console);
  await console.close();
});

test("where they are not switched on, or there is none, the page says what they are and how to begin", async () => {
  const console = await it.open();
  const { page } = console;
  const { continuations } = it.mock;
  const kept = continuations.records.splice(0);
  try {
    await console.goto("/continuations");
    await page.getByText("No continuations yet").waitFor();
    await page.getByText("goes on by itself").waitFor();
    continuations.enabled = false;
    await page.reload();
    await page.getByText("Continuations are not switched on").waitFor();
    await page.getByText("tools.continuationServers").first().waitFor();
    await page.getByRole("button", { name: "Copy the configuration" }).waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
  } finally {
    continuations.enabled = true;
    continuations.records.push(...kept);
  }
  clean(console);
  await console.close();
});

test("who began background work sees in the thread that it goes on, and then its answer", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("background please");
  const hint = console.answers.first().getByRole("list", { name: "Background work" });
  await hint.getByText("Work goes on in the background. Its answer comes here, by itself.").waitFor();
  await hint.getByText("Deadline:").waitFor();
  await hint.getByRole("link", { name: "How it stands" }).click();
  await card(page).getByText("claimed", { exact: true }).waitFor();
  await page.goBack();
  await hint.waitFor();
  const thread = new URL(page.url()).pathname.slice(3);
  const record = it.mock.continuations.records[0];
  assert.ok(record);
  it.mock.answerLater(thread, record.continuationId, "It is done: **42**.");
  await console.answers.nth(1).getByText("It is done").waitFor();
  await hint.getByText("The background work is done.").waitFor();
  await hint.getByRole("link", { name: "To its answer" }).click();
  await page.locator("article[data-target]").getByText("It is done").waitFor();
  // And from the answer back to what it is the answer of.
  await console.answers.nth(1).getByRole("link", { name: "Background work" }).click();
  await card(page).getByText("delivered", { exact: true }).waitFor();
  await card(page).getByRole("link", { name: "See the answer in its thread" }).click();
  await page.locator("article[data-target]").getByText("It is done").waitFor();
  clean(console);
  await console.close();
});

test("work that ended without an answer doesn't look as if it went on", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("background please");
  const hint = console.answers.first().getByRole("list", { name: "Background work" });
  await hint.getByText("Deadline:").waitFor();
  const record = it.mock.continuations.records[0];
  assert.ok(record);
  record.state = "cancelled";
  it.mock.hint({ kind: "status" });
  await hint.getByText("The background work was given up. No answer comes.").waitFor();
  assert.equal(await page.locator(".background .spinner").count(), 0);
  // Nor when its tombstone is gone.
  it.mock.continuations.records.shift();
  it.mock.hint({ kind: "status" });
  await hint.getByText("How it ended is not kept any more.").waitFor();
  assert.equal(await hint.getByRole("link").count(), 0);
  clean(console);
  await console.close();
});
