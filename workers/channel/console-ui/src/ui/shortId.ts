/** An id with its middle left out, if it is long: its beginning says when, its end which. Pure. */
export function shortId(id: string): string {
  return id.length <= MOST ? id : `${id.slice(0, HEAD)}…${id.slice(-TAIL)}`;
}

const MOST = 16;
const HEAD = 8;
const TAIL = 4;
