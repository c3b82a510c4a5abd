/** Files that are sent, and files that come. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as operator from "../../mock/operator.ts";
import { clean, setup } from "./setup.ts";

const it = setup();
const sha = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

test("files are attached by the picker, by pasting and by dropping", async () => {
  const console = await it.open();
  const { page } = console;
  const chooser = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Attach files" }).click();
  await (await chooser).setFiles({ name: "picked.txt", mimeType: "text/plain", buffer: Buffer.from("picked") });
  for (const [how, target] of [
    ["paste", "textarea"],
    ["drop", "body"],
  ] as const) {
    await page.locator(target).first().evaluate((element, kind) => {
      const data = new DataTransfer();
      data.items.add(new File([`${kind}ed`], `${kind}ed.txt`, { type: "text/plain" }));
      const options = { bubbles: true, cancelable: true };
      element.dispatchEvent(
        kind === "paste"
          ? new ClipboardEvent("paste", { ...options, clipboardData: data })
          : new DragEvent("drop", { ...options, dataTransfer: data }),
      );
    }, how);
  }
  const list = page.getByRole("list", { name: "Attached files" });
  for (const name of ["picked.txt", "pasteed.txt", "droped.txt"]) await list.getByText(name).waitFor();
  await page.getByRole("button", { name: "Remove pasteed.txt" }).click();
  await console.send("With files");
  await console.ended();
  assert.equal(await page.locator("article.user").getByRole("listitem").count(), 2);
  const sent = [...it.mock.uploads.values()].map((upload) => upload.sha256);
  assert.ok(sent.includes(sha(Buffer.from("picked"))) && sent.includes(sha(Buffer.from("droped"))));
  clean(console);
  await console.close();
});

test("a file of 20 MiB is sent, and a larger one is refused before it is", async () => {
  const console = await it.open();
  const { page } = console;
  await page.locator("input[type=file]").setInputFiles({
    name: "whole.bin",
    mimeType: "application/octet-stream",
    buffer: Buffer.alloc(20 * 1024 * 1024, 7),
  });
  await page.locator("input[type=file]").setInputFiles({
    name: "more.bin",
    mimeType: "application/octet-stream",
    buffer: Buffer.alloc(20 * 1024 * 1024 + 1, 7),
  });
  await page.getByRole("log", { name: "Notices" }).getByText("a file may have 20.0 MiB").waitFor();
  await page.getByRole("progressbar", { name: "Sending whole.bin" }).waitFor({ state: "detached" });
  await console.send("A large one");
  await console.ended();
  const upload = [...it.mock.uploads.values()].find((one) => one.name === "whole.bin");
  assert.equal(upload?.sha256, sha(Buffer.alloc(20 * 1024 * 1024, 7)));
  await console.close();
});

test("a reply file is saved byte for byte, under its name", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("files please");
  const card = page.getByRole("article", { name: "File orders.csv" });
  const [download] = await Promise.all([page.waitForEvent("download"), card.getByRole("link", { name: /Download/ }).click()]);
  assert.equal(download.suggestedFilename(), "orders.csv");
  const published = [...it.mock.files.values()].find((kept) => kept.part.name === "orders.csv");
  assert.equal(sha(readFileSync(await download.path())), published?.part.sha256);
  await card.getByText("verified").waitFor();
  clean(console);
  await console.close();
});

test("files are shown within the page, and none of them runs", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("files please");
  const show = async (name: string): Promise<void> => page.getByRole("button", { name: `Preview ${name}` }).click();
  await show("orders.csv");
  await page.getByRole("cell", { name: "up, again" }).waitFor();
  await show("chart.png");
  const picture = page.getByRole("img", { name: "chart.png" });
  await picture.waitFor();
  assert.match((await picture.getAttribute("src")) ?? "", /^blob:/);
  assert.ok(await picture.evaluate((image: HTMLImageElement) => image.decode().then(() => image.naturalWidth === 320)));
  await show("notes.txt");
  await page.getByText("the warehouse was closed").waitFor();
  await show("page.html");
  await page.getByText("<script>window.__hit = 20</script>").waitFor();
  await show("drawing.svg");
  await page.getByText('onload="window.__hit = 21"').waitFor();
  await show("report.pdf");
  await page.getByRole("img", { name: "Page 1" }).waitFor();
  await page.locator("canvas[data-drawn]").waitFor();
  // Something was drawn: the page is not white alone.
  const dark = await page.locator("canvas[data-drawn]").evaluate((canvas: HTMLCanvasElement) => {
    const { data } = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height) ?? { data: [] };
    return [...data].filter((value, at) => at % 4 === 0 && value < 100).length;
  });
  assert.ok(dark > 50, `${dark} dark pixels`);
  assert.equal(await page.evaluate(() => (globalThis as { __hit?: number }).__hit), undefined);
  assert.equal(await page.locator("iframe, object, embed").count(), 0);
  clean(console);
  await console.close();
});

test("a file that is gone or changed is not used, and says why", async () => {
  const console = await it.open();
  const { page } = console;
  await console.ask("files please");
  const gone = page.getByRole("article", { name: "File gone.txt" });
  await gone.getByRole("link", { name: /Download/ }).click();
  await gone.getByRole("alert").getByText("kept for 30 days").waitFor();
  const swapped = page.getByRole("article", { name: "File swapped.txt" });
  let saved = false;
  page.on("download", () => (saved = true));
  await swapped.getByRole("link", { name: /Download/ }).click();
  await swapped.getByRole("alert").getByText("not what was published").waitFor();
  await swapped.getByRole("button", { name: /Preview/ }).click();
  await swapped.getByRole("alert").getByText("not what was published").waitFor();
  assert.equal(await swapped.getByText("xxxx").count(), 0);
  assert.equal(saved, false);
  const failure = page.getByRole("article", { name: "A part that failed" });
  await failure.getByText("The file is larger than 20 MiB").waitFor();
  await failure.getByText("movie.mkv").waitFor();
  await console.close();
});

test("a file of the list of all is saved byte for byte; one that was swapped is not, and another channel's has a command", async () => {
  const console = await it.open({ permissions: ["clipboard-read", "clipboard-write"] });
  const { page } = console;
  await console.goto("/files");
  const rows = page.getByRole("table").getByRole("row");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    rows.nth(1).getByRole("link", { name: "Download orders.csv" }).click(),
  ]);
  assert.equal(download.suggestedFilename(), "orders.csv");
  const [first] = operator.artifacts;
  assert.equal(`sha256:${sha(readFileSync(await download.path()))}`, first?.integrityId);
  // A name can't pass for another here either.
  await rows.nth(4).getByRole("link", { name: "Download <b>bold</b>\ufffdgpj.csv" }).waitFor();
  let saved = false;
  page.on("download", () => (saved = true));
  await rows.nth(2).getByRole("link", { name: "Download chart.png" }).click();
  await page.getByRole("log", { name: "Notices" }).getByText("chart.png: What came is not what was published").waitFor();
  assert.equal(saved, false);
  assert.equal(await rows.nth(3).getByRole("link", { name: /Download/ }).count(), 0);
  await rows.nth(3).getByRole("button", { name: /Copy the command/ }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "monoctl artifacts get a2 -o report.pdf");
  clean(console);
  await console.close();
});
