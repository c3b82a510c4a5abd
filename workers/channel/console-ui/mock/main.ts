/** `npm run mock`: the scripted server on port 5051, for `npm run dev` or with the built page. */

import { seed } from "./seed.ts";
import { Mock } from "./server.ts";

const mock = new Mock({
  dist: new URL("../dist", import.meta.url).pathname,
  port: Number(process.env["PORT"] ?? 5051),
  open: true,
});
seed(mock);
console.log(`${await mock.start()}  (without a login; messages that begin with tour, tools, files, slow, fail, …)`);
