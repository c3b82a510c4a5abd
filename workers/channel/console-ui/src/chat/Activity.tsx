/** What the agent did for an answer: collapsed, and readable when opened. */

import { memo, useState, type ReactNode } from "react";
import type { Activity } from "../api/types.ts";
import { duration, plural } from "../ui/format.ts";
import { Icon, type IconName } from "../ui/Icon.tsx";
import { Name } from "../ui/Name.tsx";
import { useNow } from "../ui/Time.tsx";
import { readable } from "./readable.ts";

/** Entries that are drawn at once; older ones on request. */
const SHOWN = 50;

export function ActivityView({
  activity,
  running,
  unfolded = false,
}: {
  activity: Activity[];
  running: boolean;
  unfolded?: boolean;
}): ReactNode {
  const [open, setOpen] = useState(unfolded);
  const [all, setAll] = useState(false);
  if (activity.length === 0) return null;
  const hidden = all ? 0 : Math.max(0, activity.length - SHOWN);
  const at = running ? activity.findLast((entry) => entry.kind === "tool" && entry.endedAt === undefined) : undefined;
  // What a server posts is newer than what its call says.
  const posted = running ? activity.findLast((entry) => isPosted(entry) && entry.endedAt === undefined) : undefined;
  const progress = posted === undefined ? (at?.title ?? at?.text) : told(posted);
  const wrong = activity.reduce((sum, entry) => sum + (entry.isError === true ? 1 : 0), 0);
  return (
    <section className="activity" aria-label="Activity">
      <button type="button" className="activity-summary" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name="chevron" className="turning" />
        <span className="activity-title">
          {at === undefined ? (
            summary(activity)
          ) : (
            <>
              Running <Name>{label(at)}</Name>
            </>
          )}
        </span>
        {at !== undefined && <Running since={at.startedAt} />}
        {wrong > 0 && <span className="tag bad">{wrong === 1 ? "1 failed" : `${wrong} failed`}</span>}
      </button>
      {progress !== undefined && (
        <p className="activity-progress muted" dir="auto">
          {progress}
        </p>
      )}
      {open && (
        <div className="activity-body">
          {hidden > 0 && (
            <button type="button" className="button small" onClick={() => setAll(true)}>
              Show all {plural(activity.length, "entry", "entries")}
            </button>
          )}
          <ol className="activity-list">
            {activity.slice(hidden).map((entry) => (
              <Entry key={entry.id} entry={entry} running={running} />
            ))}
          </ol>
        </div>
      )}
    </section>
  );
}

function label(entry: Activity): string {
  return entry.name ?? entry.title ?? "a tool";
}

function isPosted(entry: Activity): boolean {
  return entry.name === "server_progress";
}

/** What happened beside the tools, as a sentence. */
function told(entry: Activity): string {
  const detail = entry.text === undefined || entry.text === "" ? "" : `: ${entry.text}`;
  if (entry.name === "retry_started") return `Asks ${entry.title ?? "the model"} again${detail}`;
  if (entry.name === "failover_started") return `Goes on with ${entry.title ?? "another model"}${detail}`;
  if (isPosted(entry)) return `${entry.title ?? "A server"}${detail}`;
  return entry.text ?? entry.title ?? entry.name ?? "";
}

/** "3 tool calls · 4.2 s". */
function summary(activity: Activity[]): string {
  const tools = activity.filter((entry) => entry.kind === "tool");
  const parts: string[] = [];
  if (tools.length > 0) parts.push(plural(tools.length, "tool call"));
  const thoughts = activity.filter((entry) => entry.kind === "thought").length;
  if (thoughts > 0) parts.push(plural(thoughts, "thought"));
  const warnings = activity.filter((entry) => entry.kind === "warning").length;
  if (warnings > 0) parts.push(plural(warnings, "warning"));
  if (parts.length === 0) parts.push(plural(activity.length, "step"));
  const took = tools.reduce((sum, entry) => sum + ((entry.endedAt ?? entry.startedAt) - entry.startedAt), 0);
  if (took > 0) parts.push(duration(took));
  return parts.join(" · ");
}

function Running({ since }: { since: number }): ReactNode {
  const now = useNow(1000);
  return <span className="muted figures">{duration(Math.max(0, now - since))}</span>;
}

const ICONS: Record<Activity["kind"], IconName> = {
  tool: "tool",
  thought: "more",
  status: "run",
  warning: "alert",
};

const Entry = memo(function Entry({ entry, running }: { entry: Activity; running: boolean }): ReactNode {
  const [open, setOpen] = useState(false);
  const icon = ICONS[entry.kind] ?? "more";
  if (entry.kind !== "tool") {
    return (
      <li className="entry" data-kind={entry.kind}>
        <div className="entry-head">
          <Icon name={icon} />
          <p className="entry-text" dir="auto">
            {told(entry)}
          </p>
        </div>
      </li>
    );
  }
  const ended = entry.endedAt !== undefined;
  return (
    <li className="entry" data-kind="tool">
      <button type="button" className="entry-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name={icon} />
        <Name className="entry-name">{label(entry)}</Name>
        <span className="entry-gist muted" dir="auto">
          {gist(entry.arguments)}
        </span>
        {entry.isError === true && <span className="tag bad">failed</span>}
        {ended ? (
          <span className="muted figures">{duration((entry.endedAt ?? 0) - entry.startedAt)}</span>
        ) : running ? (
          <Running since={entry.startedAt} />
        ) : (
          <span className="tag">not finished</span>
        )}
        <Icon name="chevron" className="turning" />
      </button>
      {open && (
        <div className="entry-body">
          {(entry.title ?? entry.text) !== undefined && <p dir="auto">{entry.title ?? entry.text}</p>}
          <Payload title="Arguments" text={entry.arguments} />
          <Payload title={entry.isError === true ? "Error" : "Result"} text={entry.result} />
          {entry.truncated === true && <p className="muted">Cut: the whole is longer than what is kept here.</p>}
        </div>
      )}
    </li>
  );
});

function Payload({ title, text }: { title: string; text: string | undefined }): ReactNode {
  if (text === undefined || text === "") return null;
  return (
    <div className="payload">
      <p className="payload-title">{title}</p>
      <pre tabIndex={0} aria-label={title} role="region" dir="auto">
        {readable(text)}
      </pre>
    </div>
  );
}

/** The first line of the arguments, for a row. */
function gist(text: string | undefined): string {
  return text === undefined || text === "{}" ? "" : text.slice(0, 160).replaceAll(/\s+/g, " ");
}
