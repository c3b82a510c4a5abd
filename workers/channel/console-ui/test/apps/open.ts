/** An app in a page, as tests reach for it. */

import type { Frame, Locator, Page } from "playwright-core";
import { PATIENCE_MS, type Console } from "../page.ts";

export interface Opened {
  card: Locator;
  /** The app's own frame. */
  frame: Frame;
}

/** Frames of apps in a page, in their order. */
export function appFrames(page: Page): Frame[] {
  return page.frames().filter((frame) => frame.parentFrame()?.url().endsWith("/api/v1/mcp-app-proxy") === true);
}

export async function frameOf(card: Locator): Promise<Frame> {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    // Asked for anew each time: a frame that moves into a process of its own has none for a moment.
    const outer = await (await card.locator(".app-place > iframe").elementHandle())?.contentFrame();
    const inner = outer?.childFrames()[0];
    if (inner !== undefined) return inner;
    if (Date.now() > end) throw new Error("the app's frame didn't come");
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** Asks for an app that the mock knows. */
export async function askForApp(console: Console, name: string): Promise<Locator> {
  await console.ask(`app ${name}`);
  const id = (await console.answer.getAttribute("id")) ?? "";
  return console.page.locator(`#${id}`).getByRole("article", { name: /^App / }).first();
}

/** Asks for an app that the mock knows, and waits for its frame. */
export async function openApp(console: Console, name: string): Promise<Opened> {
  const card = await askForApp(console, name);
  await card.locator(".app-place > iframe").waitFor({ state: "attached" });
  return { card, frame: await frameOf(card) };
}

/** Waits until an expression in the frame holds. The frame's policy allows no evaluation of its own. */
export async function holds(frame: Frame, expression: string, patience = PATIENCE_MS): Promise<void> {
  const end = Date.now() + patience;
  while (!(await frame.evaluate(`Boolean(${expression})`))) {
    if (Date.now() > end) throw new Error(`it never held: ${expression}`);
    await new Promise((done) => setTimeout(done, 25));
  }
}

/** Answers the question that is open. */
export async function decide(page: Page, button: string | RegExp): Promise<void> {
  await page.getByRole("dialog").getByRole("button", { name: button, exact: true }).click();
}
