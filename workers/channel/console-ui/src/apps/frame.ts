/**
 * The outer of an app's two frames, and who may speak through it.
 *
 * Both are opaque: the app has no origin, no storage and no way to the page but messages. The first
 * identity that the proxy is told is the only one that it ever takes.
 */

import type { Message } from "./gate.ts";
import type { Wire } from "./transport.ts";
import { STORM } from "./limits.ts";
import { document as appDocument, innerPolicy, type Origins } from "./policy.ts";

export const PROXY = "/api/v1/mcp-app-proxy";
/** Nothing but script: no origin, no windows, no forms, no leaving (spec s0, "MCP Apps"). */
const SANDBOX = "allow-scripts";

export type Ending = "navigated" | "storm" | "replaced" | "proxy_gone" | "focus" | "silent";

export interface Shown {
  html: string;
  origins: Origins;
  clipboard: boolean;
  webrtc: boolean;
  invocation: string;
  connection: string;
  title: string;
}

export interface FrameEvents {
  /** The frame is gone for good. */
  ended: (why: Ending) => void;
  /** The app's policy kept it from something. What it says comes from the app. */
  blocked: (directive: string, address: string) => void;
  /** It sends more than is passed on. */
  dropping: () => void;
}

interface FromProxy {
  mono?: { nonce?: unknown; invocation?: unknown; connection?: unknown };
  message?: unknown;
  retired?: unknown;
  blocked?: { directive?: unknown; address?: unknown };
  dropping?: unknown;
  alive?: unknown;
}

const text = (value: unknown): string => (typeof value === "string" ? value.slice(0, 300) : "");
const ENDINGS: readonly unknown[] = ["navigated", "storm", "replaced"];

function nonce(): string {
  // Not `randomUUID`, which a console that is served without TLS doesn't have.
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** How deep frames within frames are looked at. */
const NESTED = 16;

/** True for a window that is below another one. Whose parent a window has is told across origins. */
function within(source: MessageEventSource | null, outer: Window | null): boolean {
  if (outer === null || source === null || !("parent" in source)) return false;
  let at: Window | null = source;
  // One that is gone meanwhile has no parent.
  for (let n = 0; n < NESTED && at !== null && at !== at.parent; n += 1) {
    at = at.parent as Window | null;
    if (at === outer) return true;
  }
  return false;
}

/** A frame in `place`. It loads at once, so that it is there when what it shows has been read. */
export class AppFrame implements Wire {
  private readonly place: HTMLElement;
  private frame: HTMLIFrameElement;
  private identity = { nonce: nonce(), invocation: "", connection: "" };
  private shown: Shown | null = null;
  private events: FrameEvents | null = null;
  private receive: ((data: unknown) => void) | null = null;
  private waiting = false;
  private configured = false;
  private answered = true;
  private loads = 0;
  /** What the app said to this window itself. */
  private past = 0;
  private over = false;

  constructor(place: HTMLElement) {
    this.place = place;
    addEventListener("message", this.heard);
    this.frame = this.load(false);
  }

  get element(): HTMLIFrameElement {
    return this.frame;
  }

  /** Shows an app; once. */
  show(shown: Shown, events: FrameEvents): void {
    if (this.shown !== null) return;
    this.shown = shown;
    this.events = events;
    // It ended before there was anybody to tell.
    if (this.over) return queueMicrotask(() => events.ended("proxy_gone"));
    this.identity = { nonce: this.identity.nonce, invocation: shown.invocation, connection: shown.connection };
    if (shown.clipboard) {
      // What a frame is given has to be there when it loads.
      this.frame.removeEventListener("load", this.loaded);
      this.frame.remove();
      this.loads = 0;
      this.waiting = false;
      this.frame = this.load(true);
    }
    this.frame.title = shown.title;
    if (this.waiting) this.configure();
  }

  listen(receive: (data: unknown) => void): void {
    this.receive = receive;
  }

  post(message: Message): void {
    this.send({ message });
  }

  /** Asks for a sign of life; true when the last one was answered. */
  pulse(): boolean {
    const answered = this.answered;
    this.answered = false;
    this.send({ alive: true });
    return answered;
  }

  /** Takes it out of its place without an end of what runs in it, where the browser can do that. */
  part(): void {
    const { body } = document;
    if (this.over || !("moveBefore" in body) || !this.frame.isConnected) return;
    this.frame.hidden = true;
    body.moveBefore(this.frame, null);
  }

  close(): void {
    if (this.over) return;
    this.over = true;
    this.receive = null;
    removeEventListener("message", this.heard);
    this.frame.removeEventListener("load", this.loaded);
    this.frame.remove();
  }

  private load(clipboard: boolean): HTMLIFrameElement {
    const element = document.createElement("iframe");
    element.setAttribute("sandbox", SANDBOX);
    element.referrerPolicy = "no-referrer";
    if (clipboard) element.allow = "clipboard-write";
    element.src = PROXY;
    element.addEventListener("load", this.loaded);
    this.place.append(element);
    return element;
  }

  private send(what: object): void {
    // The proxy has no origin that could be named here; who it is stands with the window itself.
    if (!this.over) this.frame.contentWindow?.postMessage({ mono: this.identity, ...what }, "*");
  }

  private end(why: Ending): void {
    if (this.over) return;
    this.close();
    this.events?.ended(why);
  }

  private readonly loaded = (): void => {
    this.loads += 1;
    if (this.loads > 1) this.end("proxy_gone");
  };

  /** Past its proxy an app has nothing to say, and none of it is read. One that goes on is stopped. */
  private strayed(source: MessageEventSource | null): void {
    if (!within(source, this.frame.contentWindow)) return;
    this.past += 1;
    if (this.past === STORM) this.end("storm");
  }

  private readonly heard = (event: MessageEvent): void => {
    if (event.source !== this.frame.contentWindow) return this.strayed(event.source);
    if (event.origin !== "null") return;
    const data = event.data as (FromProxy & { method?: unknown }) | null;
    if (typeof data !== "object" || data === null) return;
    if (!this.configured) {
      if (data.method !== "ui/notifications/sandbox-proxy-ready") return;
      this.waiting = true;
      this.configure();
      return;
    }
    const { mono } = data;
    const { nonce, invocation, connection } = this.identity;
    if (mono?.nonce !== nonce || mono.invocation !== invocation || mono.connection !== connection) return;
    if (data.retired !== undefined) this.end(ENDINGS.includes(data.retired) ? (data.retired as Ending) : "navigated");
    else if (data.blocked !== undefined) this.events?.blocked(text(data.blocked.directive), text(data.blocked.address));
    else if (data.dropping === true) this.events?.dropping();
    else if (data.alive === true) this.answered = true;
    else if (data.message !== undefined) this.receive?.(data.message);
  };

  private configure(): void {
    if (this.shown === null) return;
    this.configured = true;
    const { html, origins, webrtc, clipboard } = this.shown;
    this.send({
      jsonrpc: "2.0",
      method: "ui/notifications/sandbox-resource-ready",
      params: { html: appDocument(html, origins, webrtc), policy: innerPolicy(origins), clipboard },
    });
  }
}
