/** What an app wanted and did not get, so that one that stays blank explains itself. */

import type { ReactNode } from "react";
import type { AppRecord } from "../api/types.ts";
import { Name } from "../ui/Name.tsx";
import type { Note } from "./host.ts";

const KINDS: Record<string, string> = {
  connect: "connections to",
  resource: "files from",
  frame: "frames of",
  base: "addresses relative to",
  permission: "the permission",
  meta: "its metadata",
};
const REASONS: Record<string, string> = {
  not_allowed: "not on the host's list",
  invalid: "no plain https origin",
  too_many: "too many",
  unsupported: "not supported here",
};

export function AppNotes({
  refused,
  notes,
  redacted,
}: {
  refused: AppRecord["refused"];
  notes: Note[];
  redacted: boolean;
}): ReactNode {
  const denied = notes.filter((note) => note.kind !== "log");
  const logs = notes.filter((note) => note.kind === "log");
  const count = refused.length + denied.length;
  if (count + logs.length === 0 && !redacted) return null;
  return (
    <div className="app-notes">
      {count > 0 && (
        <details>
          <summary>
            {count === 1 ? "One thing was not given" : `${count} things were not given`} to this app
          </summary>
          <ul>
            {refused.slice(0, 64).map((one, at) => (
              <li key={at}>
                {KINDS[one.kind] ?? one.kind} <Name>{one.value.slice(0, 300)}</Name>: {REASONS[one.reason] ?? one.reason}
              </li>
            ))}
            {denied.map((note, at) => (
              <li key={`n${at}`}>
                {note.kind === "blocked" ? "blocked by its policy, " : ""}
                <Name>{note.text}</Name>
              </li>
            ))}
          </ul>
        </details>
      )}
      {logs.length > 0 && (
        <details>
          <summary>{logs.length === 1 ? "One line" : `${logs.length} lines`} in the app's log</summary>
          <ul>
            {logs.map((note, at) => (
              <li key={at}>
                <Name>{note.text}</Name>
              </li>
            ))}
          </ul>
        </details>
      )}
      {redacted && <p className="muted small-print">What looked like a secret was taken out of what this app is shown.</p>}
    </div>
  );
}
