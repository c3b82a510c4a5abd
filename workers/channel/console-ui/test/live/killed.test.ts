/**
 * A worker that dies while it writes, as a person sees it. Whoever runs this kills it, when the file
 * `CONSOLE_STREAMING` is there: then words of the answer are on the page.
 */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, test } from "node:test";
import { clean } from "../clean.ts";
import { close, Console } from "../page.ts";

after(close);

test("a worker that is killed in mid-stream is told as such, and what was there stays", async () => {
  const named = (name: string): string => {
    const value = process.env[name];
    assert.ok(value, `${name} is not set`);
    return value;
  };
  const console = await Console.open(named("CONSOLE_URL"), named("CONSOLE_LOGIN"));
  const { page } = console;
  await console.send(named("CONSOLE_MESSAGE"));
  await console.answer.getByText("word word word").waitFor();
  writeFileSync(named("CONSOLE_STREAMING"), "");
  await console.ended("failed");
  await page.getByText("The answer failed").first().waitFor();
  const told = await console.answer.locator(".prose").innerText();
  assert.match(told, /^word word word/);
  await page.reload();
  await page.getByText("The answer failed").first().waitFor();
  assert.equal(await console.answer.locator(".prose").innerText(), told);
  await page.getByRole("button", { name: "Try again" }).waitFor();
  clean(console);
});
