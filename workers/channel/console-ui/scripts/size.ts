/** The script that the first paint waits for stays small: compressed, all of it counted. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const MOST = 200_000;
const dist = new URL("../dist", import.meta.url).pathname;

let page: string;
try {
  page = readFileSync(join(dist, "index.html"), "utf8");
} catch {
  console.error("There is no dist/index.html; run `npm run build` first.");
  process.exit(1);
}

/** The page's script, what it preloads, and what these import without being asked. */
const wanted = [...page.matchAll(/(?:src|href)="\/(assets\/[^"]+\.js)"/g)].map((match) => match[1] ?? "");
const seen = new Set<string>();
let total = 0;
while (wanted.length > 0) {
  const name = wanted.pop() ?? "";
  if (seen.has(name)) continue;
  seen.add(name);
  const source = readFileSync(join(dist, name));
  total += gzipSync(source, { level: 9 }).length;
  for (const [, found] of source.toString("utf8").matchAll(/(?:^|[;}\n])import[^"'()]*["']\.\/([^"']+\.js)["']/g)) {
    wanted.push(`assets/${found ?? ""}`);
  }
}

const problems: string[] = [];
if (seen.size === 0) problems.push("the page has no script");
if (total >= MOST) problems.push(`the first paint needs ${total} bytes of script, compressed; ${MOST} are allowed`);
if (/<script(?![^>]*\ssrc=)/.test(page)) problems.push("there is inline script in the page");
if (/\sstyle=|<style/.test(page)) problems.push("there is inline style in the page");
for (const name of readdirSync(join(dist, "assets"))) {
  // The reader of PDF files could compile formulas of a file; it is told not to, and the policy of
  // its worker forbids it.
  if (name.startsWith("pdf.worker")) continue;
  const source = /\.(m?js|css)$/.test(name) ? readFileSync(join(dist, "assets", name), "utf8") : "";
  if (/\beval\(|new Function\(/.test(source)) problems.push(`${name} evaluates text as script`);
}
for (const problem of problems) console.error(problem);
console.log(`first paint: ${total} bytes of compressed script in ${seen.size} files`);
process.exit(problems.length === 0 ? 0 : 1);
