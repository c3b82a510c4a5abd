/** The page as its tests see it: by role and name, wherever it is served from. */

import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type Locator, type Page } from "playwright-core";

/** A slow machine with everything in parallel. */
export const PATIENCE_MS = 30_000;

let browser: Promise<Browser> | null = null;

export function launch(): Promise<Browser> {
  browser ??= chromium.launch({
    executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
    headless: true,
    // Chromium's sandbox refuses root, which is who tests in a container.
    args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
  });
  return browser;
}

export async function close(): Promise<void> {
  await (await browser)?.close();
  browser = null;
}

/** What happened in a page that must not. */
export interface Watch {
  /** Addresses that were asked for outside of the console. */
  foreign: string[];
  errors: string[];
}

export class Console {
  readonly page: Page;
  readonly context: BrowserContext;
  readonly origin: string;
  readonly watch: Watch;

  private constructor(context: BrowserContext, page: Page, origin: string) {
    this.context = context;
    this.page = page;
    this.origin = origin;
    this.watch = { foreign: [], errors: [] };
    this.observe(page);
  }

  /** A browser of its own, logged in by a link's path. */
  static async open(origin: string, login: string, options: BrowserContextOptions = {}): Promise<Console> {
    const context = await (await launch()).newContext({ reducedMotion: "reduce", ...options });
    context.setDefaultTimeout(PATIENCE_MS);
    const page = await context.newPage();
    const console = new Console(context, page, origin);
    await page.goto(`${origin}${login}`);
    await page.getByRole("button", { name: "Log in" }).click();
    await console.field.waitFor();
    return console;
  }

  /** Another tab of the same browser. */
  async tab(path: string): Promise<Console> {
    const page = await this.context.newPage();
    const other = new Console(this.context, page, this.origin);
    await page.goto(`${this.origin}${path}`);
    return other;
  }

  private observe(page: Page): void {
    page.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(`${this.origin}/`) && !url.startsWith("blob:")) this.watch.foreign.push(url);
    });
    page.on("pageerror", (error) => this.watch.errors.push(String(error)));
    page.on("console", (message) => {
      if (message.type() === "error" && !/status of \d+|ERR_(INCOMPLETE|CONNECTION|EMPTY|NETWORK)/.test(message.text())) {
        this.watch.errors.push(message.text());
      }
    });
  }

  async goto(path: string): Promise<void> {
    await this.page.goto(`${this.origin}${path}`);
    await this.page.getByRole("heading", { level: 1 }).first().waitFor();
  }

  get field(): Locator {
    return this.page.getByRole("textbox", { name: "Message", exact: true });
  }

  get threads(): Locator {
    return this.page.getByRole("navigation", { name: "Threads" });
  }

  get answers(): Locator {
    return this.page.locator("article.assistant");
  }

  get answer(): Locator {
    return this.answers.last();
  }

  async send(text: string): Promise<void> {
    await this.field.fill(text);
    // On a touch screen the enter key is a new line.
    await this.page.getByRole("button", { name: /^(Send|Queue the message)$/ }).click();
  }

  /** Sends the first message of a new thread and waits until its answer is there. */
  async ask(text: string): Promise<void> {
    await this.goto("/");
    await this.send(text);
    await this.page.waitForURL("**/t/*");
    await this.ended();
  }

  /** The last answer is over. */
  async ended(status = "succeeded"): Promise<void> {
    await this.page.locator(`article.assistant[data-status="${status}"]`).last().waitFor();
    await this.page.locator('article.assistant[data-status="running"]').waitFor({ state: "detached" });
  }

  async menu(button: Locator, item: string): Promise<void> {
    await button.click();
    await this.page.getByRole("menuitem", { name: item }).click();
  }

  async close(): Promise<void> {
    await this.context.close();
  }
}
