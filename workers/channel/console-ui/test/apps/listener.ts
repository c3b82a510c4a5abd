/** Somebody who would like to be told: counts what arrives. */

import { createSocket, type Socket } from "node:dgram";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

export class Listener {
  /** Paths that were asked for. */
  readonly hits: string[] = [];
  connections = 0;
  packets = 0;
  private readonly server: Server;
  private readonly udp: Socket;
  /** Documents by path, for controls. */
  readonly pages = new Map<string, string>();
  origin = "";
  udpPort = 0;

  constructor() {
    this.server = createServer((request, response) => {
      const path = (request.url ?? "").split("?")[0] ?? "";
      const page = this.pages.get(path);
      if (page === undefined) this.hits.push(path);
      response.writeHead(200, { "content-type": page === undefined ? "text/plain" : "text/html", "access-control-allow-origin": "*" });
      // A page that gets here speaks for the app that brought it.
      response.end(page ?? "x");
    });
    this.server.on("connection", () => (this.connections += 1));
    this.udp = createSocket("udp4");
    this.udp.on("message", () => (this.packets += 1));
  }

  async start(): Promise<void> {
    await new Promise<void>((done) => this.server.listen(0, "127.0.0.1", done));
    await new Promise<void>((done) => this.udp.bind(0, "127.0.0.1", done));
    this.origin = `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
    this.udpPort = this.udp.address().port;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    this.udp.close();
    await new Promise((done) => this.server.close(done));
  }
}
