import type { ReactNode } from "react";
import { CopyButton } from "./CopyButton.tsx";
import { Link } from "./Link.tsx";
import { shortId } from "./shortId.ts";

/** A run in a table: its id is cut, and whole under the pointer, with the focus, and when it is copied. */
export function RunLink({ id }: { id: string }): ReactNode {
  const short = shortId(id);
  return (
    <span className="run-link">
      <CopyButton text={id} label={`Copy the id of run ${id}`} small />
      <Link to={`/runs/${encodeURIComponent(id)}`} className="id">
        {short === id ? (
          id
        ) : (
          <>
            <span aria-hidden="true">{short}</span>
            <span className="whole-id">{id}</span>
          </>
        )}
      </Link>
    </span>
  );
}
