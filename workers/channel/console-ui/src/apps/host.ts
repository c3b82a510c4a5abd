/**
 * One mounted app: its frame, the bridge on it, and what becomes of what it asks for.
 *
 * The bridge has no client of its own, so that nothing is forwarded by itself: each request goes to
 * the console's server, which decides, or to a person, or is refused here.
 */

import { AppBridge, type McpUiDisplayMode, type McpUiHostContext } from "@modelcontextprotocol/ext-apps/app-bridge";
import { ProtocolError } from "@modelcontextprotocol/client";
import type { View } from "../api/apps.ts";
import { AppError } from "../api/apps.ts";
import { ApiError } from "../api/client.ts";
import type { AppRecord, Confirmation, Decision, FilePart } from "../api/types.ts";
import type { AppFrame, Ending } from "./frame.ts";
import { guardFocus, writing } from "./focus.ts";
import { INVALID_PARAMS, REFUSED, sendable } from "./gate.ts";
import { embedded, FILES, head, linked, type HandedFile } from "./handed.ts";
import { Height } from "./height.ts";
import { currentTheme, dimensions, hostContext, MODES, onTheme } from "./hostContext.ts";
import { FIRST_HEIGHT, MESSAGE_CHARS, MESSAGE_PAUSE_MS, PULSE_MS, TEARDOWN_MS, WAITING_DECISIONS } from "./limits.ts";
import { link } from "./link.ts";
import { origin, origins } from "./policy.ts";
import { preview } from "./preview.ts";
import { Pulse } from "./pulse.ts";
import { ViewTransport } from "./transport.ts";

export interface Note {
  kind: "blocked" | "refused" | "log" | "dropped";
  text: string;
}

/** What the page does for a view. */
export interface Page {
  /** Asks the person; the dialog is gone when it answers. */
  decide: (confirmation: Confirmation) => Promise<Decision>;
  /** A link that was allowed. */
  open: (href: string) => void;
  /** A file that was allowed, and is kept. */
  save: (file: FilePart) => void;
  /** True when the text stands in the composer. */
  propose: (text: string) => boolean;
  /** What goes to the model with the next message. */
  keep: (text: string) => void;
  note: (note: Note) => void;
  height: (pixels: number) => void;
  mode: (mode: McpUiDisplayMode) => void;
  ready: () => void;
  ended: (why: Ending | Closing) => void;
  /** The server no longer knows the view, as after another start of its worker. */
  lost: () => void;
  /** A dialog of any app is open: whatever would change the page around it waits. */
  busy: () => boolean;
}

/** Why a view is asked to end. */
export type Closing = "closed" | "crowded";

type Params = Record<string, unknown>;
const NOTHING_CAME = "The call came to no result that could be shown.";
const TOO_LARGE = "What the tool was called with, or what came of it, is too large for an app.";

/** An error as the app gets it: fixed words of the server's, and its stable code. */
function told(error: unknown): ProtocolError {
  if (error instanceof ProtocolError) return error;
  if (error instanceof AppError && error.rpc !== undefined) return new ProtocolError(error.rpc.code, error.rpc.message);
  if (error instanceof ApiError) {
    const code = error.code === "app_arguments_invalid" || error.code === "app_request_invalid" ? INVALID_PARAMS : REFUSED;
    return new ProtocolError(code, error.message, { code: error.code });
  }
  return new ProtocolError(REFUSED, "It was not done.");
}

const refused = (message: string, code: string): ProtocolError => new ProtocolError(REFUSED, message, { code });

export class AppHost {
  private readonly frame: AppFrame;
  private readonly bridge: AppBridge;
  private readonly transport: ViewTransport;
  /** Of a call without a result it is what is known so far. */
  private record: AppRecord;
  private readonly view: View;
  private readonly page: Page;
  private readonly place: HTMLElement;
  private readonly origins: Record<"connectDomains" | "resourceDomains" | "frameDomains" | "baseUriDomains", string[]>;
  private readonly abort = new AbortController();
  private readonly height = new Height(FIRST_HEIGHT);
  private readonly closers: (() => void)[] = [];
  private mode: McpUiDisplayMode = "inline";
  private size: { width: number; height: number };
  /** A person took it back into the thread, and may enlarge it again. */
  private stays = false;
  /** What the arguments say so far, as long as they are not whole. */
  private soFar: Params | null = null;
  private inputSent = false;
  private waiting = 0;
  private saving = false;
  private lastMessage = -Infinity;
  private dropped = false;
  private over = false;
  private closing: Promise<void> | null = null;

  /** The frame stands in `place` and shows nothing yet. */
  constructor(place: HTMLElement, frame: AppFrame, record: AppRecord, html: string, view: View, page: Page) {
    this.place = place;
    this.frame = frame;
    this.record = record;
    this.view = view;
    this.page = page;
    this.size = { width: place.clientWidth, height: place.clientHeight };
    // Told as it is: what the policy can't take is not given either.
    const { connectDomains, resourceDomains, frameDomains, baseUriDomains } = record.csp;
    this.origins = {
      connectDomains: origins(connectDomains),
      resourceDomains: origins(resourceDomains),
      frameDomains: origins(frameDomains),
      baseUriDomains: origins(baseUriDomains),
    };
    for (const value of Object.values(record.csp).flat()) {
      if (origin(value) === null) page.note({ kind: "refused", text: `${String(value).slice(0, 300)} is no plain https origin` });
    }
    const clipboard = record.permissions.clipboardWrite !== undefined;
    this.transport = new ViewTransport(frame);
    this.transport.ondropped = (why) => {
      if (why === "rate" || why === "too_large") this.dropping();
    };
    this.transport.onstorm = () => this.end("storm");
    this.bridge = this.build(clipboard);
    void this.bridge.connect(this.transport as never);
    frame.show(
      {
        html,
        origins: this.origins,
        clipboard,
        webrtc: record.webrtc !== false,
        invocation: record.invocationId,
        connection: record.connectionId,
        title: `App ${record.title ?? record.toolName} of ${record.serverName}`,
      },
      {
        ended: (why) => this.end(why),
        blocked: (directive, address) => {
          // Libraries try whether text can be run as script; that it can't is no loss to most.
          if (address === "eval") page.note({ kind: "log", text: "text can't be run as script here (eval)" });
          else page.note({ kind: "blocked", text: `${directive}: ${address === "" ? "something" : address}` });
        },
        dropping: () => this.dropping(),
      },
    );
    this.watch();
  }

  /** As the server calls it. */
  get viewId(): string {
    return this.view.id;
  }

  private build(clipboard: boolean): AppBridge {
    const { record } = this;
    const capabilities = {
      openLinks: {},
      downloadFile: {},
      // A view whose connection is gone can call nothing.
      ...(this.view.connected ? { serverTools: {} } : {}),
      logging: {},
      sandbox: { csp: this.origins, permissions: clipboard ? { clipboardWrite: {} } : {} },
      updateModelContext: { text: {}, structuredContent: {} },
      message: { text: {} },
    };
    const bridge = new AppBridge(null, { name: "mono-console", version: "1" }, capabilities, {
      hostContext: hostContext(record, this.mode, this.size),
    });
    bridge.oninitialized = () => void this.begin();
    bridge.onsizechange = ({ height }) => {
      if (this.mode !== "inline") return;
      const next = this.height.report(height, performance.now());
      if (next !== null) this.page.height(next);
    };
    bridge.onloggingmessage = ({ level, data }) => {
      const { text } = preview(data);
      this.page.note({ kind: "log", text: `${level}: ${text.slice(0, 500)}` });
    };
    bridge.onrequestteardown = () => void this.close();
    bridge.onrequestdisplaymode = ({ mode }) => Promise.resolve({ mode: this.wish(mode) });
    bridge.oncalltool = (params, { mcpReq }) => this.asked("tools/call", params as Params, mcpReq.signal) as never;
    bridge.setRequestHandler("tools/list" as never, ((_: unknown, { mcpReq }: { mcpReq: { signal: AbortSignal } }) =>
      this.asked("tools/list", {}, mcpReq.signal)) as never);
    bridge.onreadresource = (params, { mcpReq }) => this.asked("resources/read", { uri: params.uri }, mcpReq.signal) as never;
    bridge.onopenlink = ({ url }, { mcpReq }) => this.opened(url, mcpReq.signal);
    bridge.onmessage = (params, { mcpReq }) => this.proposed(params as unknown as Params, mcpReq.signal);
    bridge.onupdatemodelcontext = async (params, { mcpReq }) => {
      const kept = (await this.asked("ui/update-model-context", params as Params, mcpReq.signal)) as { text?: unknown };
      if (typeof kept.text === "string" && !this.over) this.page.keep(kept.text);
      return {};
    };
    bridge.ondownloadfile = (params, { mcpReq }) => this.downloaded(params as unknown as Params, mcpReq.signal);
    return bridge;
  }

  /** The view is ready: it is told all that is known by now. */
  private async begin(): Promise<void> {
    await this.say();
    this.page.ready();
  }

  /**
   * What its tool is called with, and what came of it, as far as that is known. What can't be sent
   * is said, so that the view doesn't wait for it.
   */
  private async say(): Promise<void> {
    if (!this.transport.ready || this.over) return;
    const { input, result, draft } = this.record;
    if (draft === true && input === null) {
      if (this.soFar !== null && sendable({ arguments: this.soFar })) await this.bridge.sendToolInputPartial({ arguments: this.soFar });
      return;
    }
    const fits = sendable({ arguments: input });
    if (!this.inputSent) {
      this.inputSent = true;
      if (fits) await this.bridge.sendToolInput({ arguments: input ?? {} });
    }
    if (draft === true) return;
    if (fits && sendable(result)) {
      await this.bridge.sendToolResult(result as never);
    } else {
      await this.bridge.sendToolCancelled({ reason: TOO_LARGE });
      this.page.note({ kind: "dropped", text: TOO_LARGE });
    }
  }

  /** More of the arguments of a call that is not made yet. */
  partial(soFar: Params): void {
    if (soFar === this.soFar || this.record.draft !== true || this.record.input !== null) return;
    this.soFar = soFar;
    void this.say();
  }

  /** The call is made, or has a result. */
  know(record: AppRecord): void {
    const before = this.record;
    if (before.draft !== true || (record.draft === true && (record.input === null || before.input !== null))) return;
    this.record = record;
    void this.say();
  }

  /** Sends changes of where it is shown, and only to a view that has asked. */
  private tell(change: McpUiHostContext): void {
    if (this.transport.ready) void this.bridge.sendHostContextChange(change);
  }

  private watch(): void {
    this.closers.push(guardFocus(this.frame.element, () => this.end("focus")));
    this.closers.push(onTheme(() => this.tell({ theme: currentTheme() })));
    const language = (): void => this.tell({ locale: navigator.language });
    addEventListener("languagechange", language);
    this.closers.push(() => removeEventListener("languagechange", language));
    // An app that never rests can't be asked to end; its frame, and the process in it, can go.
    const pulse = new Pulse();
    const timer = setInterval(() => {
      if (pulse.over(this.frame.pulse(), document.hidden, this.transport.ready)) this.end("silent");
    }, PULSE_MS);
    this.closers.push(() => clearInterval(timer));
    const observer = new ResizeObserver(() => {
      const size = { width: this.place.clientWidth, height: this.place.clientHeight };
      const widthChanged = Math.round(size.width) !== Math.round(this.size.width);
      const heightChanged = Math.round(size.height) !== Math.round(this.size.height);
      this.size = size;
      // Hidden, it has no size; that is no change of where it is shown. In the thread the height is
      // the app's own doing.
      if (size.width === 0 || (!widthChanged && (this.mode === "inline" || !heightChanged))) return;
      this.tell({ containerDimensions: dimensions(this.mode, size) });
    });
    observer.observe(this.place);
    this.closers.push(() => observer.disconnect());
  }

  /** A mode that the view asked for; what it gets. */
  private wish(mode: unknown): McpUiDisplayMode {
    const declared = this.bridge.getAppCapabilities()?.availableDisplayModes;
    const known = MODES.find((own) => own === mode);
    if (known === undefined || (declared !== undefined && !declared.includes(known)) || this.page.busy()) return this.mode;
    // It would take the keyboard from who writes, and the page from who wants it back.
    if (known === "fullscreen" && (this.stays || writing())) return this.mode;
    this.display(known);
    return known;
  }

  /** A mode that the person chose. */
  show(mode: McpUiDisplayMode): void {
    this.stays = mode === "inline";
    this.display(mode);
  }

  private display(mode: McpUiDisplayMode): void {
    if (mode === this.mode || this.over) return;
    this.mode = mode;
    this.page.mode(mode);
    this.size = { width: this.place.clientWidth, height: this.place.clientHeight };
    this.tell({ displayMode: mode, containerDimensions: dimensions(mode, this.size) });
  }

  /** True when the view says that it can be shown in this mode, or says nothing. */
  can(mode: McpUiDisplayMode): boolean {
    return this.bridge.getAppCapabilities()?.availableDisplayModes?.includes(mode) ?? true;
  }

  /** Has the server do it, after a person where the server says so. */
  private asked(method: string, params: Params, signal: AbortSignal): Promise<Params> {
    return this.judged(method, params, signal, async (either) => {
      try {
        return (await this.view.request(method, params, either)) as Params;
      } catch (error) {
        if (!(error instanceof AppError) || error.confirmation === undefined) throw error;
        return (await this.confirmed(error.confirmation, either)) as Params;
      }
    });
  }

  /** What the server refuses is noted, and told to the app in words of ours. */
  private async judged<T>(method: string, params: Params, signal: AbortSignal, act: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const either = AbortSignal.any([signal, this.abort.signal]);
    try {
      return await act(either);
    } catch (error) {
      if (either.aborted) throw refused("It was cancelled.", "app_cancelled");
      this.noteRefusal(method, params, error);
      throw told(error);
    }
  }

  private async confirmed(confirmation: Confirmation, signal: AbortSignal): Promise<unknown> {
    if (this.waiting >= WAITING_DECISIONS) throw refused("Too many questions are open.", "app_rate_limited");
    this.waiting += 1;
    try {
      const decision = signal.aborted ? "deny" : await this.page.decide(confirmation);
      return await this.view.decide(confirmation.id, this.over ? "deny" : decision, this.over ? undefined : signal);
    } finally {
      this.waiting -= 1;
    }
  }

  private noteRefusal(method: string, params: Params, error: unknown): void {
    if (!(error instanceof ApiError)) return;
    if (error.code === "app_declined" || error.status < 400) return;
    if (error.code === "app_forbidden" && this.record.draft !== true) this.page.lost();
    const name = method === "tools/call" && typeof params["name"] === "string" ? ` ${params["name"].slice(0, 128)}` : "";
    this.page.note({ kind: "refused", text: `${method}${name}: ${error.message}` });
  }

  private async opened(url: unknown, signal: AbortSignal): Promise<{ isError?: boolean }> {
    if (link(url) === null) {
      this.page.note({ kind: "refused", text: "It wanted to open an address that is no plain https address." });
      throw refused("Only https addresses without user and password can be opened.", "app_open_link_forbidden");
    }
    const allowed = link((await this.asked("ui/open-link", { url }, signal))["url"]);
    if (allowed === null) throw refused("It can't be opened.", "app_open_link_forbidden");
    this.page.open(allowed.href);
    return {};
  }

  /** Puts a text where the person can send it, or leave it. */
  private async proposed(params: Params, signal: AbortSignal): Promise<{ isError?: boolean }> {
    const content = Array.isArray(params["content"]) ? (params["content"] as { type?: unknown; text?: unknown }[]) : [];
    const texts = content.map((block) => (block.type === "text" && typeof block.text === "string" ? block.text : null));
    const length = texts.reduce((sum, text) => sum + (text?.length ?? 0), 0);
    if (texts.length === 0 || texts.includes(null) || length > MESSAGE_CHARS) throw new ProtocolError(INVALID_PARAMS, "A message is text, and not long.");
    const now = performance.now();
    if (this.page.busy() || now - this.lastMessage < MESSAGE_PAUSE_MS) throw refused("Not so often.", "app_rate_limited");
    this.lastMessage = now;
    const { text } = await this.asked("ui/message", params, signal);
    if (typeof text !== "string" || this.over || !this.page.propose(text)) return { isError: true };
    return {};
  }

  /** Files are offered first. Their bytes leave the page once the person wants them, and are kept before they are saved. */
  private async downloaded(params: Params, signal: AbortSignal): Promise<{ isError?: boolean }> {
    // All of them are in memory.
    if (this.saving) throw refused("One after the other.", "app_rate_limited");
    this.saving = true;
    try {
      const method = "ui/download-file";
      const files = await this.handed(params["contents"], signal);
      const told = files.map(({ uri, mimeType, bytes }) => ({ uri, mimeType, bytes: bytes.length }));
      const { files: wanted } = await this.asked(method, { files: told, head: head(files[0]) }, signal);
      if (!Array.isArray(wanted) || wanted.length !== files.length) return { isError: true };
      for (const [at, { bytes }] of files.entries()) {
        const { file } = (wanted as { file?: unknown }[])[at] ?? {};
        if (typeof file !== "string") return { isError: true };
        const kept = await this.judged(method, {}, signal, (either) => this.view.hand(file, bytes, either));
        if (this.over) return { isError: true };
        this.page.save(kept);
      }
      return {};
    } finally {
      this.saving = false;
    }
  }

  /** What is only linked to is read as the app would read it: its server says which it may. */
  private async handed(contents: unknown, signal: AbortSignal): Promise<HandedFile[]> {
    const invalid = (): ProtocolError => new ProtocolError(INVALID_PARAMS, "One to ten embedded files are handed over at once.");
    if (!Array.isArray(contents) || contents.length === 0 || contents.length > FILES) throw invalid();
    const files: HandedFile[] = [];
    for (const content of contents as unknown[]) {
      const uri = linked(content);
      const read = uri === null ? null : await this.asked("resources/read", { uri }, signal);
      const resource = Array.isArray(read?.["contents"]) ? (read["contents"] as unknown[])[0] : undefined;
      const file = embedded(uri === null ? content : { type: "resource", resource });
      if (file === null) throw invalid();
      files.push(file);
    }
    return files;
  }

  private dropping(): void {
    if (this.dropped) return;
    this.dropped = true;
    this.page.note({ kind: "dropped", text: "It sends more than is taken; some of it was left out." });
  }

  /** Asks the view to end, waits a little, and takes it away. */
  close(why: Closing = "closed"): Promise<void> {
    this.closing ??= this.teardown(why);
    return this.closing;
  }

  /** The same, when its place is about to go. */
  part(): void {
    if (this.over) return;
    // Its call came to nothing.
    if (this.record.draft === true && this.transport.ready) void this.bridge.sendToolCancelled({ reason: NOTHING_CAME });
    this.frame.part();
    void this.close();
  }

  private async teardown(why: Closing): Promise<void> {
    if (this.over) return;
    if (this.transport.ready) {
      // A refusal is an answer, and so is an app that doesn't know the request.
      await this.bridge.teardownResource({}, { timeout: TEARDOWN_MS }).catch(() => undefined);
    }
    this.end(why);
  }

  /** Takes the view away at once. */
  abandon(): void {
    this.end("closed");
  }

  private end(why: Ending | Closing): void {
    if (this.over) return;
    this.over = true;
    this.abort.abort();
    this.closers.forEach((close) => close());
    void this.bridge.close().catch(() => undefined);
    void this.transport.close();
    this.page.ended(why);
  }
}

