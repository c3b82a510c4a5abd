import assert from "node:assert/strict";
import { test } from "node:test";
import { HOSTILE, TOUR } from "../../mock/replies.ts";
import { address } from "../../src/markdown/address.ts";
import { Blocks, type Block } from "../../src/markdown/blocks.ts";
import { isDone, isTask } from "../../src/markdown/tasks.ts";

/** The tokens of all blocks, without places in the text. */
function shape(blocks: Block[]): unknown {
  return blocks.map((block) => block.tokens.map(({ type, tag, content, info, hidden }) => ({ type, tag, content, info, hidden })));
}

const complete = (text: string): Block[] => new Blocks().read(text, true);
const types = (text: string): string[] =>
  complete(text).flatMap((block) => block.tokens.flatMap((token) => [token.type, ...(token.children ?? []).map((child) => child.type)]));

test("a growing text has the blocks of the whole text", () => {
  for (const text of [TOUR, HOSTILE, "- a\n\n- b\n\n  c\n\nd", "- [ ] a\n- [x] b\n\nc", "```\nx\n\ny\n```\nz", "a\n\n$$\nx\n$$\n\nb", "1\r\n\r\n2\r\n\r\n3", "1\r\r2\r\r3\r\r4"]) {
    for (const step of [1, 3, 17]) {
      const growing = new Blocks();
      for (let at = 0; at <= text.length; at += step) growing.read(text.slice(0, at), false);
      const grown = growing.read(text, false);
      // Definitions count only when the text is complete.
      if (!text.includes("[ref]:")) assert.deepEqual(shape(grown), shape(complete(text)), `steps of ${step}`);
      assert.deepEqual(shape(growing.read(text, true)), shape(complete(text)));
    }
  }
});

test("blocks that are settled are the same objects, so they aren't drawn again", () => {
  const growing = new Blocks();
  const first = growing.read("one\n\ntwo\n\nthr", false);
  const second = growing.read("one\n\ntwo\n\nthree\n\nfour", false);
  assert.equal(first[0], second[0]);
  assert.equal(first[1], second[1]);
  assert.deepEqual(new Set(second.map((block) => block.key)).size, second.length);
});

test("a text that doesn't go on from the last one is read anew", () => {
  const growing = new Blocks();
  growing.read("one\n\ntwo\n\nthree", false);
  assert.deepEqual(shape(growing.read("x", false)), shape(complete("x")));
});

test("a long text that grows costs what grew", () => {
  const growing = new Blocks();
  let text = "";
  const start = performance.now();
  for (let n = 0; n < 2000; n += 1) growing.read((text += `Line ${n} of **many**.\n\n`), false);
  // Reading all again each time takes about a minute.
  assert.ok(performance.now() - start < 15_000);
});

test("there is never HTML among the tokens", () => {
  for (const type of types(HOSTILE)) assert.ok(!type.startsWith("html"), type);
});

test("formulas are found, and money isn't one", () => {
  assert.ok(types("so $x^2$ is").includes("maths_inline"));
  assert.ok(types("so \\(x^2\\) is").includes("maths_inline"));
  assert.ok(types("$$\nx\n$$").includes("maths_block"));
  assert.ok(types("\\[\nx\n\\]").includes("maths_block"));
  for (const text of ["it costs $5 and $6", "a $ b $ c", "\\$x$", "`$x$`", "$$", "$", "$$ never closed"]) {
    assert.ok(!types(text).some((type) => type.startsWith("maths")), text);
  }
});

test("a task is an item that begins with its mark, and nothing else is", () => {
  const found = (text: string): [boolean, string][] =>
    complete(text).flatMap((block) =>
      block.tokens.flatMap((token) => {
        const [mark, ...rest] = token.children ?? [];
        return mark?.type === "task" ? [[isDone(mark), rest.map((child) => child.content).join("")] as [boolean, string]] : [];
      }),
    );
  assert.deepEqual(found("- [ ] one\n- [x] two\n- [X]   three\n* [ ] four\n1. [x] **five**\n"), [
    [false, "one"],
    [true, "two"],
    [true, "three"],
    [false, "four"],
    [true, "five"],
  ]);
  assert.deepEqual(found("- [ ] a\n\n  more\n\n- [x] b\n  - [ ] inner\n"), [
    [false, "a"],
    [true, "b"],
    [false, "inner"],
  ]);
  for (const text of ["[ ] x", "- [] x", "- [ ]x", "- [y] x", "- \\[ ] x", "- `[ ] x`", "- a [ ] x", "- [x](https://a.example) y", "> [ ] x", "- # [ ] x", "- [x] y\n\n[x]: https://a.example"]) {
    assert.deepEqual(found(text), [], text);
  }
  const items = complete("- [ ] a\n- b").flatMap((block) => block.tokens.filter((token) => token.type === "list_item_open"));
  assert.deepEqual(items.map(isTask), [true, false]);
});

test("only addresses of the web and of mail can be opened", () => {
  assert.equal(address("https://example.com/a?b#c")?.host, "example.com");
  assert.equal(address("mailto:a@example.com")?.kind, "mail");
  assert.equal(address("https://аpple.com/")?.host, "xn--pple-43d.com", "a look-alike shows as what it is");
  for (const text of [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,x",
    "blob:http://x/y",
    "file:///etc/passwd",
    "/api/v1/logout",
    "//evil.example/x",
    "?x",
    "https://user:secret@example.com/",
    "vbscript:x",
    "",
    `https://example.com/${"x".repeat(5000)}`,
  ]) {
    assert.equal(address(text), null, text);
  }
});
