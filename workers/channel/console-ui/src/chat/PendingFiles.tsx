import type { ReactNode } from "react";
import { size } from "../ui/format.ts";
import { Icon } from "../ui/Icon.tsx";
import { Name } from "../ui/Name.tsx";
import type { Uploads } from "./uploads.ts";

/** The files of a message that is being written. */
export function PendingFiles({ uploads }: { uploads: Uploads }): ReactNode {
  if (uploads.pending.length === 0) return null;
  return (
    <ul className="pending" aria-label="Attached files">
      {uploads.pending.map((one) => (
        <li key={one.key} className="chip" data-bad={one.error !== undefined || undefined}>
          <Icon name={one.error === undefined ? "file" : "alert"} />
          <Name className="chip-name">{one.name}</Name>
          <span className="muted">{size(one.bytes)}</span>
          {one.error !== undefined && <span role="alert">{one.error}</span>}
          {one.id === undefined && one.error === undefined && (
            <progress aria-label={`Sending ${one.name}`} value={one.progress} max={1} />
          )}
          <button
            type="button"
            className="icon-button small"
            aria-label={`Remove ${one.name}`}
            onClick={() => uploads.remove(one.key)}
          >
            <Icon name="close" />
          </button>
        </li>
      ))}
    </ul>
  );
}
