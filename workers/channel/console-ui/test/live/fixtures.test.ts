/**
 * Apps of published servers, each opened by a call of its tool.
 *
 * `FIXTURES` names them; a daemon has these servers and a model that does what a message says
 * (`CONSOLE_URL`, `CONSOLE_LOGIN`). A row of a table is printed for each.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { appFrames } from "../apps/open.ts";
import { close, Console, PATIENCE_MS } from "../page.ts";
import { FIXTURES } from "./fixtures.ts";

/** How long an app is looked at. */
const WATCHED_MS = 6000;
/**
 * How long one may take to start: a browser, four servers and a daemon on a machine that runs other
 * tests as well.
 */
const START_MS = 4 * PATIENCE_MS;
let console: Console;

before(async () => {
  const origin = process.env["CONSOLE_URL"];
  const login = process.env["CONSOLE_LOGIN"];
  assert.ok(origin && login, "CONSOLE_URL and CONSOLE_LOGIN say where the console is");
  console = await Console.open(origin.replace(/\/$/, ""), login);
  console.context.setDefaultTimeout(START_MS);
});
after(close);

interface Seen {
  asked: Map<string, number>;
  questions: Set<string>;
  statuses: Map<string, number>;
}

const names = (process.env["FIXTURES"] ?? "").split(" ").filter((one) => one !== "");

/** A tool has its server in its name where two are called the same. */
function toolOf(name: string): string {
  const tool = FIXTURES[name]?.tool ?? "";
  return names.some((other) => other !== name && FIXTURES[other]?.tool === tool) ? `mcp__${name}__${tool}` : tool;
}

for (const name of names) {
  test(`the app of ${name} opens`, async () => {
    const fixture = FIXTURES[name];
    assert.ok(fixture !== undefined, "an unknown fixture");
    const { page } = console;
    const seen: Seen = { asked: new Map(), questions: new Set(), statuses: new Map() };
    const requests = (request: { url: () => string; postData: () => string | null }): void => {
      if (!/\/views\/[^/]+\/requests$/.test(request.url())) return;
      const { method } = JSON.parse(request.postData() ?? "{}") as { method?: string };
      if (method !== undefined) seen.asked.set(method, (seen.asked.get(method) ?? 0) + 1);
    };
    page.on("request", requests);
    const arrived: string[] = [];
    // One that a policy stopped is begun, and never finished.
    const finished = (request: { url: () => string }): void => {
      if (/^(https?|wss?):/.test(request.url()) && !request.url().startsWith(`${console.origin}/`)) arrived.push(request.url());
    };
    page.on("requestfinished", finished);
    const began = Date.now();
    await console.ask(`[[mock:tool ${toolOf(name)} ${JSON.stringify(fixture.arguments ?? {})}]] [[mock:text shown]]`);
    const card = console.answer.getByRole("article", { name: /^App / });
    await card.waitFor();
    const dialog = page.getByRole("dialog");
    const end = Date.now() + START_MS;
    let watched: number | null = null;
    let readyMs: number | null = null;
    const missing = async (): Promise<boolean> =>
      (fixture.asks ?? []).some((method) => !seen.asked.has(method)) ||
      (fixture.beside !== undefined && !fixture.beside.test((await card.locator(".app-notes").allTextContents()).join("\n")));
    while (Date.now() < (watched ?? end) || (Date.now() < end && (await missing()))) {
      if (readyMs === null && (await card.getAttribute("data-ready")) !== null) {
        readyMs = Date.now() - began;
        watched = Date.now() + WATCHED_MS;
      }
      if (watched === null && fixture.silent === true && Date.now() - began > WATCHED_MS) watched = Date.now() + 1000;
      // The person's part: whatever is asked is allowed, for good where that can be.
      if ((await dialog.count()) > 0) {
        seen.questions.add((await dialog.getByRole("heading").first().innerText().catch(() => "")).trim());
        for (const button of ["Allow this tool until the app closes", "Allow once", "Allow", "Save", "Don't allow"]) {
          const found = dialog.getByRole("button", { name: button, exact: true });
          if ((await found.count()) > 0) {
            await found.click({ timeout: 3000 }).catch(() => undefined);
            break;
          }
        }
      }
      await page.waitForTimeout(60);
    }
    const frame = appFrames(page).at(-1);
    const drawn = frame === undefined ? 0 : ((await frame.evaluate("document.body.innerText.length + 100 * document.querySelectorAll('canvas, svg, video, button').length").catch(() => 0)) as number);
    const height = await card.locator(".app-place").evaluate((element) => element.clientHeight);
    const notes = await card.locator(".app-notes summary").allInnerTexts();
    await card.locator(".app-notes details").evaluateAll((all) => all.forEach((one) => one.setAttribute("open", "")));
    const beside = await card.locator(".app-notes").allInnerTexts();
    await card.getByRole("button", { name: "Close the app" }).click();
    const closing = Date.now();
    await card.getByText("The app is closed.").waitFor();
    const closeMs = Date.now() - closing;
    page.off("request", requests);
    page.off("requestfinished", finished);
    const asked = [...seen.asked].map(([method, count]) => `${method} ${count}×`).join(", ");
    const state = readyMs === null ? "does not start" : "starts, draws";
    process.stdout.write(`| ${name} | ${state} | ${height} px | ${asked === "" ? "–" : asked} | ${closeMs < 1000 ? "answers" : "no answer in time"} | ${[fixture.exception, ...notes].filter(Boolean).join("; ").replaceAll("|", "/") || "–"} |\n`);
    if (fixture.silent === true) assert.equal(readyMs, null);
    else {
      assert.ok(readyMs !== null, `it never said that it had started; beside it: ${beside.join("\n")}`);
      assert.ok(drawn > 20, `it drew nothing: ${drawn}`);
      assert.ok(height > 40);
    }
    for (const method of fixture.asks ?? []) assert.ok(seen.asked.has(method), `it never asked for ${method}; it asked for ${asked}`);
    if (fixture.beside !== undefined) assert.match(beside.join("\n"), fixture.beside);
    // Without an origin that the configuration allows, nothing leaves.
    assert.deepEqual(arrived, []);
  });
}

test("a tool without an app shows none", async () => {
  await console.ask('[[mock:tool echo {"message":"hi"}]] [[mock:text done]]');
  assert.equal(await console.answer.getByRole("article", { name: /^App / }).count(), 0);
});
