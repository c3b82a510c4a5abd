/** Frames of a running reply. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_READ, read } from "../../src/api/frame.ts";

/** An `append` of so many bytes, whole. */
function append(bytes: number, letter: string): string {
  const empty = '{"text":""}';
  const letters = (bytes - empty.length) / new TextEncoder().encode(letter).byteLength;
  assert.ok(Number.isInteger(letters));
  return `{"text":"${letter.repeat(letters)}"}`;
}

test("a frame of 8 MiB is read and one of a byte more is an error that says so", () => {
  for (const [letter, bytes] of [["x", 1], ["€", 3]] as const) {
    const fits = append(MAX_READ - ((MAX_READ - 11) % bytes), letter);
    const frame = read("append", fits);
    assert.ok(frame?.type === "append" && frame.text.length === (fits.length - 11));
  }
  const frame = read("append", append(MAX_READ + 1, "x"));
  assert.ok(frame?.type === "error" && frame.failure.kind === "frame_too_large");
  // Few letters, many bytes.
  const wide = read("append", append(MAX_READ + 3 - ((MAX_READ - 11) % 3), "€"));
  assert.equal(wide?.type, "error");
});

test("what is no object is ignored, and no frame names its own kind", () => {
  for (const data of ["", "{", "null", "[]", "7", '"finish"']) assert.equal(read("append", data), null);
  assert.deepEqual(read("append", '{"type":"finish","text":"a"}'), { type: "append", text: "a" });
});
