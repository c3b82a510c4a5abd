/**
 * Between the bridge and a view's window: checks everything, logs nothing.
 *
 * The window's messages have come from the right window with the right identity when they arrive
 * here (`frame.ts`).
 */

import { Gate, type Dropped, type Message } from "./gate.ts";
import { Rate } from "./json.ts";
import { BURST, EARLY_MS, PER_SECOND, STORM } from "./limits.ts";

/** Where a view's window is spoken to. */
export interface Wire {
  post: (message: Message) => void;
  /** Takes what the window says from now on. */
  listen: (receive: (data: unknown) => void) => void;
  close: () => void;
}

export class ViewTransport {
  onmessage?: (message: never) => void;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  /** Told of each message that was not passed on. */
  ondropped?: (why: Dropped | "rate") => void;
  /** Told once, when so much was dropped that the app has to be stopped. */
  onstorm?: () => void;

  private readonly wire: Wire;
  private readonly gate = new Gate();
  private readonly rate = new Rate(BURST, PER_SECOND, performance.now());
  private held: { message: Message; timer: ReturnType<typeof setTimeout> }[] = [];
  private closed = false;

  constructor(wire: Wire) {
    this.wire = wire;
  }

  get ready(): boolean {
    return this.gate.ready;
  }

  start(): Promise<void> {
    this.wire.listen((data) => this.receive(data));
    return Promise.resolve();
  }

  send(message: unknown): Promise<void> {
    const passed = this.gate.outgoing(message as Message);
    if (passed !== null) this.wire.post(passed);
    return Promise.resolve();
  }

  close(): Promise<void> {
    if (this.closed) return Promise.resolve();
    this.closed = true;
    this.gate.close();
    for (const { timer } of this.held) clearTimeout(timer);
    this.held = [];
    this.wire.close();
    this.onclose?.();
    return Promise.resolve();
  }

  private receive(data: unknown): void {
    if (this.closed) return;
    if (!this.rate.take(performance.now())) {
      this.ondropped?.("rate");
      if (this.rate.dropped === STORM) this.onstorm?.();
      return;
    }
    const verdict = this.gate.incoming(data);
    switch (verdict.kind) {
      case "pass":
        this.deliver(verdict.message);
        if (this.gate.ready) this.release();
        break;
      case "answer":
        this.wire.post(verdict.message);
        break;
      case "hold":
        this.hold(verdict.message);
        break;
      case "drop":
        this.ondropped?.(verdict.why);
        break;
    }
  }

  private deliver(message: Message): void {
    this.onmessage?.(message as never);
  }

  private hold(message: Message): void {
    const one = {
      message,
      timer: setTimeout(() => {
        this.held = this.held.filter((other) => other !== one);
        if (message.id !== undefined) this.wire.post(this.gate.early(message.id).message);
      }, EARLY_MS),
    };
    this.held.push(one);
  }

  private release(): void {
    const held = this.held;
    this.held = [];
    for (const { message, timer } of held) {
      clearTimeout(timer);
      this.deliver(message);
    }
  }
}
