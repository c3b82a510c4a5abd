/** What apps put into the message that is being written: seen here, and taken out here. */

import { useEffect, type ReactNode } from "react";
import { contexts, placed, proposals, settle, type Proposal } from "../state/appTexts.ts";
import { useStore } from "../state/store.ts";
import { count } from "../ui/format.ts";
import { Icon } from "../ui/Icon.tsx";
import { Name } from "../ui/Name.tsx";

export function AppTexts({
  thread,
  text,
  free,
  onText,
}: {
  thread: string;
  /** What stands in the message. */
  text: string;
  /** Nobody is writing. */
  free: () => boolean;
  onText: (change: (text: string) => string) => void;
}): ReactNode {
  const kept = useStore(contexts).filter((one) => one.thread === thread);
  const proposal = useStore(proposals).find((one) => one.thread === thread);
  const place = (one: Proposal): void => {
    placed(one);
    onText((since) => (since.trim() === "" ? one.text : `${since}\n${one.text}`));
  };
  useEffect(() => {
    if (proposal === undefined) return;
    if (proposal.placed !== true && text === "" && free()) place(proposal);
    // It was deleted by hand.
    if (proposal.placed === true && text === "") settle(proposal);
  }, [proposal, text]);
  if (kept.length === 0 && proposal === undefined) return null;
  return (
    <ul className="pending app-texts" aria-label="From apps">
      {kept.map((one) => (
        <li key={one.view} className="chip">
          <details>
            <summary>
              <Icon name="tool" /> Context from <Name>{one.app}</Name>{" "}
              <span className="muted">{count(one.text.length)} characters go along</span>
            </summary>
            <pre className="app-preview">{one.text}</pre>
          </details>
          <button type="button" className="icon-button small" aria-label={`Leave out the context from ${one.app}`} onClick={one.drop}>
            <Icon name="close" />
          </button>
        </li>
      ))}
      {proposal !== undefined && (
        <li className="chip">
          {proposal.placed === true ? (
            <span>
              <Icon name="tool" /> This text is from the app <Name>{proposal.app}</Name>
            </span>
          ) : (
            <>
              <details open>
                <summary>
                  <Icon name="tool" /> The app <Name>{proposal.app}</Name> proposes a message
                </summary>
                <pre className="app-preview">{proposal.text}</pre>
              </details>
              <button type="button" className="button small" onClick={() => place(proposal)}>
                Put it into the message
              </button>
            </>
          )}
          <button
            type="button"
            className="icon-button small"
            aria-label={`Leave out the text of ${proposal.app}`}
            onClick={() => {
              if (proposal.placed === true) onText((since) => since.replace(proposal.text, () => "").trim());
              settle(proposal);
            }}
          >
            <Icon name="close" />
          </button>
        </li>
      )}
    </ul>
  );
}
