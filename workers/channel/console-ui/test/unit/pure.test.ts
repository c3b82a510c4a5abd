import assert from "node:assert/strict";
import { test } from "node:test";
import type { FilePart } from "../../src/api/types.ts";
import { api } from "../../src/api/client.ts";
import { command } from "../../src/files/command.ts";
import { shortId } from "../../src/ui/shortId.ts";
import { fileName } from "../../src/chat/uploads.ts";
import { readable } from "../../src/chat/readable.ts";
import { hash } from "../../src/files/fetchFile.ts";
import { imageType, kind, table } from "../../src/files/preview.ts";
import { weaknesses } from "../../src/pages/confinement.ts";
import { parse } from "../../src/state/routes.ts";
import { duration, era, money, relative, size, time } from "../../src/ui/format.ts";
import { plain } from "../../src/ui/plain.ts";

test("figures", () => {
  assert.deepEqual([0, 1023, 1536, 20_971_520, 3e12].map(size), ["0 B", "1023 B", "1.5 KiB", "20.0 MiB", "2.7 TiB"]);
  assert.deepEqual([4, 999, 1500, 61_000, 3_700_000, 200_000_000].map(duration), [
    "4 ms",
    "999 ms",
    "1.5 s",
    "1 min 1 s",
    "1 h 1 min",
    "2 days 7 h",
  ]);
  assert.equal(money(0.0123), "$0.0123");
  assert.equal(money(12.3), "$12.30");
  const now = Date.parse("2026-03-10T12:00:00Z");
  assert.equal(relative(now - 61_000, now), "1 minute ago");
  assert.equal(relative(now + 30 * 86_400_000 - 500, now), "in 30 days");
  assert.equal(era(now, now), "Today");
  assert.equal(era(now - 90 * 86_400_000, now), "Older");
  assert.equal(time("2026-03-10T12:00:00Z"), now);
  assert.equal(time("no time"), null);
});

test("a long id is cut in its middle, a short one is whole", () => {
  assert.equal(shortId("01998a4e-5f0c-7000-8000-00000000ab3f"), "01998a4e…ab3f");
  assert.equal(shortId("0123456789abcdef"), "0123456789abcdef");
  assert.equal(shortId(""), "");
});

test("a listed file has an address only where it went to a thread, made of its ids", () => {
  const file = {
    id: "a/1",
    runId: "r1",
    conversationId: "web:t1:2",
    deliveryConversationId: "web:t1",
    name: "n",
    mediaType: "a/b",
    sizeBytes: 1,
    integrityId: "sha256:00",
    createdAt: "",
    expiresAt: "",
  };
  assert.equal(api.artifactAddress(file), "/api/v1/threads/t1/files/a%2F1?run=r1&integrity=sha256%3A00");
  assert.match(api.artifactAddress({ ...file, app: "0a" }) ?? "", /&app=0a$/);
  for (const deliveryConversationId of ["terminal", "openai-api:t1", "web:", "web:../x", "web:t1:2", null]) {
    assert.equal(api.artifactAddress({ ...file, deliveryConversationId }), null, String(deliveryConversationId));
  }
});

test("a command has no name that a shell could read as more", () => {
  assert.equal(command({ id: "a1", name: "weekly-2.csv" }), "monoctl artifacts get a1 -o weekly-2.csv");
  for (const name of ["-o", "a b", "$(x)", "a;b", "..", "/etc/x", "ä", "a\nb", ""]) {
    assert.equal(command({ id: "a1", name }), "monoctl artifacts get a1 -o FILE", name);
  }
});

test("paths", () => {
  assert.deepEqual(parse("/"), { page: "new" });
  assert.deepEqual(parse("/t/abc", "", "#m-x1"), { page: "thread", id: "abc", message: "x1" });
  assert.deepEqual(parse("/t/abc", "", "#m-<img>"), { page: "thread", id: "abc", message: null });
  assert.deepEqual(parse("/search", "?q=a%20b"), { page: "search", q: "a b" });
  assert.deepEqual(parse("/runs/run-1"), { page: "run", id: "run-1" });
  for (const path of ["/t/", "/t/a/b", "/t/..%2f..", "/t/<x>", "/nothing", `/t/${"x".repeat(200)}`]) {
    assert.equal(parse(path).page, "missing", path);
  }
});

test("SVG and HTML are text, and images are what their bytes say", () => {
  assert.equal(kind("image/svg+xml", "a.svg"), "text");
  assert.equal(kind("text/html; charset=utf-8", "a.html"), "text");
  assert.equal(kind("application/xhtml+xml", "a"), "text");
  assert.equal(kind("image/png", "a.png"), "image");
  assert.equal(kind("text/csv", "a.csv"), "table");
  assert.equal(kind("application/zip", "a.csv"), "none");
  assert.equal(imageType(Uint8Array.from([0x89, 0x50, 0x4e, 0x47])), "image/png");
  assert.equal(imageType(new TextEncoder().encode("<svg onload=x>")), null);
});

test("values with separators, quotes and lines in them", () => {
  assert.deepEqual(table('a,b\r\n"1,5","x ""y""\nz"\n,\n').rows, [
    ["a", "b"],
    ["1,5", 'x "y"\nz'],
    ["", ""],
  ]);
  assert.deepEqual(table("a;b\n1;2").rows, [
    ["a", "b"],
    ["1", "2"],
  ]);
  assert.deepEqual(table("\ufeffa\tb").rows, [["a", "b"]]);
  assert.deepEqual(table(""), { rows: [], cut: false });
  const long = table("a,b\n".repeat(5000));
  assert.equal(long.rows.length, 1000);
  assert.ok(long.cut);
  const wide = table(Array.from({ length: 80 }, (_, n) => n).join(","));
  assert.equal(wide.rows[0]?.length, 50);
  assert.ok(wide.cut);
});

test("a name can't turn or hide what follows it", () => {
  assert.equal(plain("invoice\u202egpj.exe"), "invoice\ufffdgpj.exe");
  assert.equal(plain("a\u0000b\u2066c\u200bd"), "a\ufffdb\ufffdc\ufffdd");
  assert.equal(plain("שלום 👩‍💻 é"), "שלום 👩‍💻 é");
});

test("a file is sent under a name that the server takes", () => {
  assert.equal(fileName("a b.txt"), "a b.txt");
  assert.equal(fileName("..\\..\\x/y\u202egpj.exe"), "_.._x_y_gpj.exe");
  assert.equal(fileName(""), "pasted");
  assert.equal(fileName(".env"), "env");
  const long = fileName(`${"é".repeat(400)}.csv`);
  assert.ok(long.endsWith("é.csv"));
  assert.ok(Buffer.byteLength(long) <= 240);
});

test("arguments are shown with a line for each field", () => {
  assert.equal(readable('{"a":1,"b":[2]}'), '{\n  "a": 1,\n  "b": [\n    2\n  ]\n}');
  assert.equal(readable('"a\\nb"'), "a\nb");
  assert.equal(readable('{"cut": '), '{"cut": ');
});

test("the published hash is read from either field", () => {
  const sum = "ab".repeat(32);
  const part = { integrityId: `sha256:${sum.toUpperCase()}` } as FilePart;
  assert.equal(hash(part), sum);
  assert.equal(hash({ ...part, sha256: "cd".repeat(32) }), "cd".repeat(32));
  assert.equal(hash({ ...part, integrityId: "opaque" }), null);
});

test("what isn't said of a confinement counts as missing", () => {
  const whole = { seccomp: 2, no_new_privs: true, landlock_abi: 5, capabilities: 0, uid: 7, probes: { a: "refused" } };
  const worker = { role: "store", state: "serving", pid: 1 };
  assert.deepEqual(weaknesses({ ...worker, sandbox: whole }), []);
  assert.equal(weaknesses({ ...worker, pid: null }), null);
  assert.equal(weaknesses({ ...worker })?.length, 1);
  assert.equal(weaknesses({ ...worker, sandbox: {} })?.length, 5);
  assert.deepEqual(weaknesses({ ...worker, sandbox: { ...whole, probes: { a: "NOT refused: x" } } }), ["a probe was not refused"]);
});
