/** From frames to a message: pure. */

import type { Activity, AppPart, Frame, Message, Part } from "../api/types.ts";

/** Entries of activity that are kept for one reply; more are counted only by the server. */
export const MAX_ACTIVITY = 20_000;

/** Apps that are shown at once. */
const MAX_VIEWS = 20;

/**
 * The reply as a reader sees it who has all frames still to come. Apps that are shown already stay:
 * taken away and put back they would begin anew.
 */
export function blank(message: Message): Message {
  return { ...message, text: "", activity: [] };
}

function isApp(part: Part | undefined, id: string): part is AppPart {
  return part?.type === "mcp_app" && part["id"] === id;
}

function withView(parts: readonly Part[], view: AppPart | { id: string; stage: "gone" }): Part[] {
  if (view.stage === "gone") return parts.filter((part) => !isApp(part, view.id));
  const at = parts.findIndex((part) => isApp(part, view.id));
  const old = parts[at];
  // What was seen of the arguments stays until they are there.
  if (isApp(old, view.id)) return parts.with(at, view.stage === "draft" && old.soFar !== undefined ? { ...view, soFar: old.soFar } : view);
  return parts.length < MAX_VIEWS ? [...parts, view] : [...parts];
}

function withInput(parts: readonly Part[], id: string, soFar: Record<string, unknown>): Part[] {
  return parts.map((part) => (isApp(part, id) && part.stage === "draft" ? { ...part, soFar } : part));
}

/** The message after these frames. The given one isn't changed. */
export function apply(message: Message, frames: readonly Frame[]): Message {
  let next: Message = { ...message };
  let activity: Activity[] | null = null;
  let positions: Map<string, number> | null = null;
  let text = message.text;
  for (const frame of frames) {
    switch (frame.type) {
      case "status":
        next.status = frame.state;
        break;
      case "append":
        text += frame.text;
        break;
      case "replace":
        text = frame.text;
        break;
      case "event": {
        activity ??= [...message.activity];
        positions ??= new Map(activity.map((entry, index) => [entry.id, index]));
        const at = positions.get(frame.activity.id);
        if (at !== undefined) {
          activity[at] = { ...activity[at], ...frame.activity };
        } else if (activity.length < MAX_ACTIVITY) {
          positions.set(frame.activity.id, activity.length);
          activity.push(frame.activity);
        }
        break;
      }
      case "view":
        next.parts = withView(next.parts, frame.part);
        break;
      case "input":
        next.parts = withInput(next.parts, frame.id, frame.arguments);
        break;
      case "finish": {
        // A frame is bounded: of a long answer it has the beginning, and the rest is here already.
        const { truncated, ...end } = frame.message;
        if (truncated === true && text.startsWith(end.text)) {
          if (end.activity.length > 0) activity = null;
          next = { ...end, activity: end.activity.length > 0 ? end.activity : next.activity };
        } else {
          next = { ...frame.message };
          text = end.text;
          activity = null;
        }
        positions = null;
        break;
      }
      case "error":
        next.status = frame.failure.kind === "cancelled" ? "cancelled" : "failed";
        next.failure = frame.failure;
        break;
      default:
        // A newer server says more than this page knows.
        break;
    }
  }
  next.text = text;
  if (activity !== null) next.activity = activity;
  return next;
}

/** True when nothing more will come. */
export function isOver(message: Message): boolean {
  return message.status !== "running" && message.status !== "queued";
}
