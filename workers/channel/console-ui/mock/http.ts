/** What the mock reads from a request and writes to a response. */

import type { IncomingMessage, ServerResponse } from "node:http";

const MAX_BODY = 256 * 1024;

/** An answer that is no success. */
export class Refusal extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function send(response: ServerResponse, status: number, value?: unknown): void {
  response.writeHead(status, { "cache-control": "no-store", ...(value === undefined ? {} : { "content-type": "application/json" }) });
  response.end(value === undefined ? undefined : JSON.stringify(value));
}

export function sse(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  response.write(": open\n\n");
}

export async function read(request: IncomingMessage, most: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    length += piece.length;
    if (length > most) throw new Refusal(413, "too_large", "That is too much.");
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

export async function body(request: IncomingMessage, most = MAX_BODY): Promise<unknown> {
  const text = (await read(request, most)).toString("utf8");
  try {
    return JSON.parse(text);
  } catch {
    throw new Refusal(400, "invalid_json", "The body is no JSON.");
  }
}
