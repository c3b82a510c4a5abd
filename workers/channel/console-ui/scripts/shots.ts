/** Pictures of the main pages, light and dark, phone and desktop, to look at. */

import { mkdirSync } from "node:fs";
import { seed } from "../mock/seed.ts";
import { Mock } from "../mock/server.ts";
import { close, Console } from "../test/page.ts";

const out = process.argv[2] ?? new URL("../shots", import.meta.url).pathname;
mkdirSync(out, { recursive: true });

const mock = new Mock({ dist: new URL("../dist", import.meta.url).pathname });
seed(mock);
const origin = await mock.start();
const SIZES = { desktop: { width: 1280, height: 860 }, phone: { width: 390, height: 844 } };

for (const [name, viewport] of Object.entries(SIZES)) {
  for (const colorScheme of ["light", "dark"] as const) {
    const console = await Console.open(origin, mock.login(), { viewport, colorScheme, hasTouch: name === "phone" });
    const { page } = console;
    const shot = async (what: string): Promise<void> => {
      await page.waitForTimeout(250);
      await page.screenshot({ path: `${out}/${name}-${colorScheme}-${what}.png` });
    };
    await shot("new");
    await console.ask("tour of the orders");
    await page.waitForTimeout(600);
    await shot("thread-end");
    await page.getByRole("button", { name: /tool call/ }).click();
    await page.getByRole("button", { name: /^Bash .*failed/ }).click();
    await page.locator(".thread-scroll").evaluate((element) => (element.scrollTop = 0));
    await shot("thread");
    await page.locator(".thread-scroll").evaluate((element) => (element.scrollTop = 720));
    await shot("thread-middle");
    await console.ask("files please");
    await page.getByRole("button", { name: /^Preview orders.csv/ }).click();
    await page.getByRole("button", { name: /^Preview chart.png/ }).click();
    await page.getByRole("img").waitFor();
    await page.locator(".thread-scroll").evaluate((element) => (element.scrollTop = 0));
    await shot("files-top");
    await page.locator(".thread-scroll").evaluate((element) => (element.scrollTop = element.scrollHeight));
    await shot("files-end");
    await console.ask("fail now").catch(() => undefined);
    await shot("failed");
    for (const path of ["search?q=figures", "runs", "workers", "files", "settings"]) {
      await console.goto(`/${path}`);
      await page.waitForTimeout(500);
      await shot(path.split("?")[0] ?? path);
    }
    await page.goto(`${origin}/runs`);
    await page.getByRole("region", { name: "Runs" }).getByRole("link").nth(4).click();
    await page.getByRole("heading", { name: "Tool calls" }).waitFor();
    await shot("run");
    if (name === "phone") {
      await page.getByRole("button", { name: "Open the menu" }).click();
      await shot("drawer");
    } else {
      await page.keyboard.press("Control+/");
      await shot("shortcuts");
    }
    for (const error of console.watch.errors) globalThis.console.log(`${name} ${colorScheme}: ${error}`);
    await console.close();
  }
}
await close();
await mock.stop();
