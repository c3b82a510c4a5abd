/** A mock with the built page, and browsers on it. */

import { existsSync } from "node:fs";
import { after, before } from "node:test";
import type { BrowserContextOptions } from "playwright-core";
import { seed } from "../../mock/seed.ts";
import { Mock } from "../../mock/server.ts";
import { close, Console } from "../page.ts";

export interface Setup {
  mock: Mock;
  origin: string;
  /** A browser of its own, logged in; closed after the test. */
  open: (options?: BrowserContextOptions) => Promise<Console>;
}

/** Call once in a test file; the fields are there when the tests run. */
export function setup(): Setup {
  const dist = new URL("../../dist", import.meta.url).pathname;
  const mock = new Mock({ dist });
  const it: Setup = {
    mock,
    origin: "",
    open: (options) => Console.open(it.origin, mock.login(), options),
  };
  before(async () => {
    if (!existsSync(`${dist}/index.html`)) throw new Error("there is no built page; run `npm run build`");
    seed(mock);
    it.origin = await mock.start();
  });
  after(async () => {
    await close();
    await mock.stop();
  });
  return it;
}

export { clean } from "../clean.ts";
