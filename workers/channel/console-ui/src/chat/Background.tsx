/** Work that an answer began and that goes on: where it stands, until its own answer is there. */

import { createContext, useCallback, useContext, type ReactNode } from "react";
import { api } from "../api/client.ts";
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

function Standing({ id }: { id: string }): ReactNode {
  const read = useCallback((): Promise<Continuation> => api.continuation(id), [id]);
  const { value } = useResource(read, ["threads", "status"], AGAIN_MS);
  const ended = value === null ? undefined : ENDED[value.state];
  const waits = value !== null && isPending(value.state);
  const posted = value === null ? null : postedAt(value);
  return (
    <>
      {waits ? <span className="spinner" aria-hidden="true" /> : <Icon name={value?.state === "delivery_unknown" ? "alert" : "clock"} />}
      <p className="muted">
        {ended ?? "Work goes on in the background. Its answer comes here, by itself."}{" "}
        {waits && (
          <>
            Deadline: <Time at={value.deadline} />.{" "}
          </>
        )}
        {posted !== null && (
          <>
            <Link to={posted}>To its answer</Link>{" "}
          </>
        )}
        <Link to={continuationPath(id)}>How it stands</Link>
      </p>
    </>
  );
}
