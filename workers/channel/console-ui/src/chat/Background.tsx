/** Work that an answer began and that goes on: where it stands, until its own answer is there. */

import { createContext, useCallback, useContext, type ReactNode } from "react";
import { api, ApiError } from "../api/client.ts";
import type { Continuation, ContinuationState } from "../api/types.ts";
import { isPending, postedAt } from "../state/continuations.ts";
import { continuationPath, threadPath } from "../state/routes.ts";
import { useResource } from "../state/resource.ts";
import { ThreadId } from "../state/threadId.ts";
import { count } from "../ui/format.ts";
import { Icon } from "../ui/Icon.tsx";
import { Link } from "../ui/Link.tsx";
import { Time } from "../ui/Time.tsx";

/** Pieces of work that one message shows; the page of continuations has the others. */
const SHOWN = 5;
const AGAIN_MS = 15_000;

/** Answers that are in this thread: a continuation's id with the message's. */
export const Answers = createContext<ReadonlyMap<string, string>>(new Map());

export function Background({ ids }: { ids: string[] }): ReactNode {
  const answers = useContext(Answers);
  const thread = useContext(ThreadId);
  return (
    <ul className="background" aria-label="Background work">
      {ids.slice(0, SHOWN).map((id) => {
        const answer = answers.get(id);
        return (
          <li key={id} className="waiting">
            {answer === undefined ? (
              <Standing id={id} />
            ) : (
              <>
                <Icon name="check" />
                <p className="muted">
                  The background work is done. <Link to={threadPath(thread, answer)}>To its answer</Link>
                </p>
              </>
            )}
          </li>
        );
      })}
      {ids.length > SHOWN && (
        <li className="waiting">
          <Link to="/continuations">and {count(ids.length - SHOWN)} more</Link>
        </li>
      )}
    </ul>
  );
}

const ENDED: Partial<Record<ContinuationState, string>> = {
  delivered: "The background work is done.",
  delivery_unknown: "The background work is done; nobody knows whether its answer was posted.",
  expired: "The background work came to its deadline. No answer comes.",
  cancelled: "The background work was given up. No answer comes.",
  dead_lettered: "The answer of the background work can't be delivered.",
};

/** How it stands; `gone` where nothing is kept of it any more. */
async function look(id: string): Promise<Continuation | "gone"> {
  try {
    return await api.continuation(id);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return "gone";
    throw error;
  }
}

function Standing({ id }: { id: string }): ReactNode {
  const read = useCallback(() => look(id), [id]);
  const { value, error } = useResource(read, ["threads", "status"], AGAIN_MS);
  const record = value === null || value === "gone" ? null : value;
  const waits = record !== null && isPending(record.state);
  const posted = record === null ? null : postedAt(record);
  return (
    <>
      {waits ? <span className="spinner" aria-hidden="true" /> : <Icon name={record?.state === "delivery_unknown" ? "alert" : "clock"} />}
      <p className="muted">
        {said(value, error)}{" "}
        {waits && (
          <>
            Deadline: <Time at={record.deadline} />.{" "}
          </>
        )}
        {posted !== null && (
          <>
            <Link to={posted}>To its answer</Link>{" "}
          </>
        )}
        {value !== "gone" && <Link to={continuationPath(id)}>How it stands</Link>}
      </p>
    </>
  );
}

function said(value: Continuation | "gone" | null, error: string | null): string {
  if (value === "gone") return "Background work was begun here. How it ended is not kept any more.";
  if (value === null && error !== null) return "Background work was begun here.";
  return (value === null ? undefined : ENDED[value.state]) ?? "Work goes on in the background. Its answer comes here, by itself.";
}
