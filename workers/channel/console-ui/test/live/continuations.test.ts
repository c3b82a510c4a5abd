/**
 * Continuations of a whole daemon. Whoever runs this made one whose delivery is unknown (`CONSOLE_UNKNOWN`) and one
 * that was captured, knows a message that begins background work (`CONSOLE_MESSAGE`), and ends that work when the file
 * `CONSOLE_WAITS` is there: then the page shows that it goes on.
 */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { clean } from "../clean.ts";
import { close, Console } from "../page.ts";

let console: Console;

function named(name: string): string {
  const value = process.env[name];
  assert.ok(value, `${name} is not set`);
  return value;
}

before(async () => {
  console = await Console.open(named("CONSOLE_URL"), named("CONSOLE_LOGIN"));
});
after(close);

test("what is unknown is found by its reason, and resolved as delivered", async () => {
  const { page } = console;
  await console.goto("/continuations");
  await page.getByRole("region", { name: "Health" }).getByText("unhealthy").waitFor();
  await page.getByRole("region", { name: "Reasons" }).getByText("Nobody knows whether 1 answer was posted.").waitFor();
  await page.getByRole("button", { name: "Show delivery unknown" }).click();
  const rows = page.getByRole("region", { name: "Continuations" }).getByRole("row");
  await rows.nth(1).getByText(named("CONSOLE_UNKNOWN")).waitFor();
  assert.equal(await rows.count(), 2);
  await rows.nth(1).getByRole("link").click();
  const card = page.getByRole("region", { name: "State" });
  await card.getByText("It may have been posted, and nobody can say.").waitFor();
  await page.getByText(`monoctl continuations resolve ${named("CONSOLE_UNKNOWN")} not-delivered`).waitFor();
  await card.getByRole("button", { name: "It was delivered" }).click();
  await page.getByRole("dialog").getByRole("textbox").fill("seen-17");
  await page.getByRole("dialog").getByRole("button", { name: "It was delivered" }).click();
  await card.getByText("delivered", { exact: true }).waitFor();
  await page.getByText("seen-17").waitFor();
  assert.equal(await card.getByRole("button").count(), 0);
  await page.getByRole("link", { name: "All continuations" }).click();
  await page.getByRole("region", { name: "Health" }).getByText("healthy", { exact: true }).waitFor();
  clean(console);
});

test("a captured text is shown when it is asked for", async () => {
  const { page } = console;
  await console.goto("/continuations");
  await page.getByRole("region", { name: "Continuations" }).getByRole("link", { name: "check" }).click();
  await page.getByRole("heading", { name: "Captured text" }).waitFor();
  assert.ok(!(await page.locator("body").innerText()).includes(named("CONSOLE_CAPTURED")));
  await page.getByRole("button", { name: "Show the captured text" }).click();
  await page.getByRole("region", { name: "Captured text" }).getByText(named("CONSOLE_CAPTURED")).waitFor();
  clean(console);
});

test("who asked sees that work goes on, and its answer comes into the open thread", async () => {
  const { page } = console;
  await console.ask(named("CONSOLE_MESSAGE"));
  const hint = console.answers.first().getByRole("list", { name: "Background work" });
  await hint.getByText("Work goes on in the background. Its answer comes here, by itself.").waitFor();
  await hint.getByText("Deadline:").waitFor();
  // It is kept with the thread.
  await page.reload();
  await hint.getByText("Deadline:").waitFor();
  writeFileSync(named("CONSOLE_WAITS"), "");
  await console.answers.nth(1).getByText("are there.").waitFor();
  await hint.getByRole("link", { name: "To its answer" }).click();
  await page.locator("article[data-target]").getByText("are there.").waitFor();
  await console.answers.nth(1).getByRole("link", { name: "Background work" }).click();
  const card = page.getByRole("region", { name: "State" });
  await card.getByText("delivered", { exact: true }).waitFor();
  await card.getByRole("link", { name: "See the answer in its thread" }).click();
  await page.locator("article[data-target]").getByText("are there.").waitFor();
  clean(console);
});
