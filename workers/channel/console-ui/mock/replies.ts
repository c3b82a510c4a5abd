/** What the scripted agent does, chosen by the first word of a message. */

import { createHash } from "node:crypto";
import { deflateSync } from "node:zlib";
import type { Activity, FailurePart, FilePart, Frame } from "../src/api/types.ts";

/** A file that the mock keeps, with its part. */
export interface Kept {
  part: FilePart;
  content: Buffer;
  /** What a download answers instead of the content. */
  broken?: "artifact_expired" | "artifact_integrity_failed" | "swapped";
}

export interface Script {
  /** Frames with the pause before each in milliseconds. */
  frames: { after: number; frame: Exclude<Frame, { type: "finish" }> }[];
  files: Kept[];
  failures: FailurePart[];
  end: "succeeded" | "failed" | "interrupted" | "never";
}

type Step = Script["frames"][number];

export const TOUR = `# What the figures say

The intake grew by **12.4 %** over the quarter, and most of it came from *two* regions.
Here is the short version; the table has the rest.

| Region | Orders | Change | Share |
|:--|--:|--:|:-:|
| North | 12,480 | +18.2 % | 41 % |
| West | 9,112 | +11.0 % | 30 % |
| South | 5,204 | −2.1 % | 17 % |
| East | 3,660 | +4.4 % | 12 % |

## How it was computed

1. Read the export and drop \`cancelled\` rows.
2. Group by region and week.
   - Weeks begin on Monday.
   - Partial weeks are left out.
3. Fit a line with least squares: $y = \\beta_0 + \\beta_1 x$, where

$$\\beta_1 = \\frac{\\sum_{i=1}^{n} (x_i - \\bar{x})(y_i - \\bar{y})}{\\sum_{i=1}^{n} (x_i - \\bar{x})^2}$$

\`\`\`python
import pandas as pd

def by_region(path: str) -> pd.DataFrame:
    """Orders of each region and week."""
    orders = pd.read_csv(path, parse_dates=["placed"])
    orders = orders[orders["state"] != "cancelled"]
    week = orders["placed"].dt.to_period("W-SUN")
    return orders.groupby(["region", week]).size().unstack()  # 52 columns at most
\`\`\`

- [x] Look at all four regions.
- [ ] Ask for week 31 again.

> The South lost a warehouse in week 31; without those two weeks it grew as well.

More about the method is in [the notes](https://example.com/notes?week=31), and the chart is
![Orders by week](https://images.example.net/orders.png).
`;

export const HOSTILE = `<script>window.__hit = 1</script>
<img src=x onerror="window.__hit = 2">
<iframe src="https://evil.example/frame"></iframe>
<a href="javascript:window.__hit = 3">click</a>
<style>body { display: none }</style>

[a script](javascript:window.__hit=4) and [data](data:text/html,<script>window.__hit=5</script>)
and [relative](/api/v1/logout) and [a user](https://user:secret@evil.example/).

![pixel](https://evil.example/pixel.png?who=you)
![x" onerror="window.__hit = 6](https://evil.example/a"onerror="window.__hit=7)

<https://evil.example/auto> and https://evil.example/bare

[look-alike](https://xn--pple-43d.example/)

Bidi: invoice\u202Egpj.exe and \u2067\u05E9\u05DC\u05D5\u05DD\u2069 stay in their place.

$\\href{javascript:window.__hit=8}{x}$ and $\\includegraphics{https://evil.example/m.png}$ and $\\htmlStyle{position:fixed}{x}$

| a | b |
|---|---|
| <b onclick="window.__hit = 9">x</b> | \`<img src=y>\` |

\`\`\`html"><script>window.__hit = 10</script>
<script>window.__hit = 11</script>
\`\`\`

[ref]: javascript:window.__hit=12
[ref] and ${"[".repeat(400)} and ${"*a ".repeat(300)} and ${"> ".repeat(200)}deep
`;

function words(text: string, pause: number): Step[] {
  const pieces = text.match(/\S+\s*|\s+/g) ?? [];
  return pieces.map((piece) => ({ after: pause, frame: { type: "append", text: piece } }));
}

function tool(id: string, name: string, startedAt: number, rest: Partial<Activity>): Step["frame"] {
  return { type: "event", activity: { id, kind: "tool", name, startedAt, ...rest } };
}

/** A small picture: a gradient as a PNG. */
function png(width = 320, height = 160): Buffer {
  const rows: Buffer[] = [];
  for (let y = 0; y < height; y += 1) {
    const row = Buffer.alloc(1 + width * 3);
    for (let x = 0; x < width; x += 1) {
      const bar = Math.floor(x / 40) % 2 === 0 && y > height - 20 - ((x * 37) % 110);
      row.set(bar ? [14, 107, 102] : [226, 240 - Math.floor(y / 16), 236], 1 + x * 3);
    }
    rows.push(row);
  }
  const chunk = (type: string, data: Buffer): Buffer => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const out = Buffer.alloc(body.length + 8);
    out.writeUInt32BE(data.length, 0);
    body.copy(out, 4);
    out.writeUInt32BE(crc(body), body.length + 4);
    return out;
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 13, 10, 26, 10]),
    chunk("IHDR", head),
    chunk("IDAT", deflateSync(Buffer.concat(rows))),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function crc(data: Buffer): number {
  let sum = 0xffffffff;
  for (const byte of data) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return (sum ^ 0xffffffff) >>> 0;
}

/** A PDF of one page that would run script in a viewer that lets it. */
export function pdf(): Buffer {
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R /OpenAction << /S /JavaScript /JS (app.alert(1)) >> >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 140] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
    "<< /Length 60 >>\nstream\nBT /F1 24 Tf 30 70 Td (Report of the quarter) Tj ET        \nendstream",
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
  ];
  let text = "%PDF-1.4\n";
  const places: number[] = [];
  objects.forEach((object, index) => {
    places.push(text.length);
    text += `${index + 1} 0 obj\n${object}\nendobj\n`;
  });
  const start = text.length;
  text += `xref\n0 6\n0000000000 65535 f \n${places.map((at) => `${String(at).padStart(10, "0")} 00000 n \n`).join("")}`;
  text += `trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`;
  return Buffer.from(text, "latin1");
}

function keep(message: string, id: string, name: string, mediaType: string, content: Buffer | string): Kept {
  const bytes = Buffer.from(content);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return {
    content: bytes,
    part: {
      type: "attachment",
      messageId: message,
      id,
      name,
      mediaType,
      bytes: bytes.length,
      sha256,
      expiresAt: Date.now() + 30 * 86_400_000,
      integrityId: `sha256:${sha256}`,
    },
  };
}

function files(message: string): Kept[] {
  const csv = `region,orders,note\nNorth,12480,"up, again"\nWest,9112,\nSouth,5204,"said ""wait"""\n`;
  const broken: Kept = { ...keep(message, "f7", "gone.txt", "text/plain", "gone"), broken: "artifact_expired" };
  const swapped: Kept = { ...keep(message, "f8", "swapped.txt", "text/plain", "as published"), broken: "swapped" };
  return [
    keep(message, "f1", "orders.csv", "text/csv", csv),
    keep(message, "f2", "chart.png", "image/png", png()),
    keep(message, "f3", "notes.txt", "text/plain", "Week 31: the warehouse was closed.\nשלום\n"),
    keep(message, "f4", "page.html", "text/html", "<script>window.__hit = 20</script><h1>Hello</h1>"),
    keep(message, "f5", "drawing.svg", "image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg" onload="window.__hit = 21"/>`),
    keep(message, "f6", "report.pdf", "application/pdf", pdf()),
    broken,
    swapped,
    keep(message, "f9", `<img src=x onerror="window.__hit=22">\u202Egpj.exe`, "application/octet-stream", "x"),
  ];
}

/** The script of a reply. `at` is when it starts. */
export function script(prompt: string, message: string, at: number): Script {
  const first = prompt.trim().split(/\s+/)[0]?.toLowerCase() ?? "";
  const plain: Script = { frames: [], files: [], failures: [], end: "succeeded" };
  switch (first) {
    case "slow":
      // Runs until it is stopped.
      return { ...plain, frames: words("one two three four five six seven eight nine ten. ".repeat(2000), 60), end: "never" };
    case "tour":
      return {
        ...plain,
        frames: [
          { after: 5, frame: { type: "event", activity: { id: "w", kind: "thought", text: "The export has weeks; group by them first.", startedAt: at } } },
          { after: 5, frame: tool("t1", "Read", at, { arguments: '{"path":"orders.csv","lines":200}' }) },
          { after: 5, frame: tool("t1", "Read", at, { result: "region,orders,note\nNorth,12480", endedAt: at + 42 }) },
          { after: 5, frame: tool("t2", "Bash", at + 50, { arguments: '{"command":"python3 fit.py --weeks 52 orders.csv"}' }) },
          { after: 5, frame: tool("t2", "Bash", at + 50, { result: "Traceback: no module named pandas", isError: true, endedAt: at + 860 }) },
          { after: 5, frame: tool("t3", "Bash", at + 900, { arguments: '{"command":"pip install pandas && python3 fit.py"}' }) },
          { after: 5, frame: tool("t3", "Bash", at + 900, { result: '{"slope":0.124,"weeks":52}', endedAt: at + 4300 }) },
          ...words(TOUR, 2),
        ],
        files: files(message).slice(0, 2),
      };
    case "tools":
      return {
        ...plain,
        frames: [
          { after: 5, frame: tool("t1", "Read", at, { arguments: '{"path":"a.txt"}' }) },
          { after: 20, frame: tool("t1", "Read", at, { result: "the content", endedAt: at + 42 }) },
          { after: 20, frame: tool("t2", "Bash", at, { arguments: '{"command":"false"}', text: "half way there" }) },
          { after: 300, frame: tool("t2", "Bash", at, { result: "exit status 1", isError: true, endedAt: at + 300 }) },
          ...words("Two tools were called.", 5),
        ],
      };
    case "files":
      return {
        ...plain,
        frames: words("Here are the files.", 5),
        files: files(message),
        failures: [
          { type: "failure", code: "too_large", name: "movie.mkv", message: "The file is larger than 20 MiB, so it was not attached." },
        ],
      };
    case "background": {
      const id = prompt.split(" ")[1] ?? "";
      const activity: Activity = { id: "b1", kind: "status", name: "background_work", arguments: JSON.stringify([id]), text: "Work goes on in the background.", startedAt: at, endedAt: at };
      return { ...plain, frames: [...words("I have started it.", 5), { after: 5, frame: { type: "event", activity } }] };
    }
    case "driven":
      // A test tells what comes.
      return { ...plain, end: "never" };
    case "fail":
      return {
        ...plain,
        frames: [
          ...words("Half of an answer", 5),
          { after: 10, frame: { type: "error", failure: { kind: "provider_auth", message: "The model service refused the key. Check providers.*.apiKey." } } },
        ],
        end: "failed",
      };
    case "void":
      // A model attempt that broke off.
      return {
        ...plain,
        frames: [...words("This is void", 20), { after: 100, frame: { type: "replace", text: "" } }, ...words("This counts.", 20)],
      };
    case "interrupt":
      return { ...plain, frames: words("Half of an answer", 5), end: "interrupted" };
    case "hostile":
      return { ...plain, frames: words(HOSTILE, 0), files: files(message).slice(8) };
    case "long": {
      const line = "All work and no play makes a long answer, with *marks* and `code` in it.\n\n";
      const piece = line.repeat(400);
      return {
        ...plain,
        frames: Array.from({ length: Math.ceil((10 * 1024 * 1024) / piece.length) }, () => ({
          after: 0,
          frame: { type: "append" as const, text: piece },
        })),
      };
    }
    case "events":
      return {
        ...plain,
        frames: [
          ...Array.from({ length: 5000 }, (_, n) => ({
            after: 0,
            frame: tool(`e${n}`, `tool_${n}`, at + n, { arguments: `{"n":${n}}`, result: "ok", endedAt: at + n + 3 }),
          })),
          ...words("5,000 calls were made.", 0),
        ],
      };
    default:
      return { ...plain, frames: words(`You said: ${prompt.slice(0, 500)}\n\nThat is **noted**.`, 5) };
  }
}
