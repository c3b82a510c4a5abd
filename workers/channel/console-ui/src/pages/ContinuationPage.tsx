/** One continuation: where it stands, what was tried, and what can be done. */

import { useCallback, useState, type ReactNode } from "react";
import { api, sentence } from "../api/client.ts";
import type { Continuation } from "../api/types.ts";
import { LongText } from "../chat/LongText.tsx";
import { commands, isOff, isSettled, MEANING, MODES, ORIGINS, possible, postedAt, remedy } from "../state/continuations.ts";
import { useResource } from "../state/resource.ts";
import { CopyButton } from "../ui/CopyButton.tsx";
import { Facts, Page, Tag } from "../ui/DataTable.tsx";
import { count, plural } from "../ui/format.ts";
import { Icon } from "../ui/Icon.tsx";
import { Link } from "../ui/Link.tsx";
import { Name } from "../ui/Name.tsx";
import { Failed, Loading } from "../ui/States.tsx";
import { Time, useNow } from "../ui/Time.tsx";
import { Actions } from "./ContinuationActions.tsx";
import { Off } from "./ContinuationTeach.tsx";

export default function ContinuationPage({ id }: { id: string }): ReactNode {
  const read = useCallback(async (): Promise<Continuation | "off"> => {
    try {
      return await api.continuation(id);
    } catch (error) {
      if (isOff(error)) return "off";
      const todo = remedy(error);
      throw todo === null ? error : new Error(`${sentence(error)} ${todo}`);
    }
  }, [id]);
  const { value, error, reload, set } = useResource(read, ["status", "threads", "runs"], 5000);
  return (
    <Page title="Continuation" aside={<Link to="/continuations">All continuations</Link>}>
      {error !== null && <Failed message={error} onRetry={reload} />}
      {value === null && error === null && <Loading what="the continuation" />}
      {value === "off" && <Off />}
      {value !== null && value !== "off" && (
        <Shown
          record={value}
          onChanged={(next) => {
            set(() => next);
            reload();
          }}
          onRefused={reload}
        />
      )}
    </Page>
  );
}

function Shown({
  record,
  onChanged,
  onRefused,
}: {
  record: Continuation;
  onChanged: (next: Continuation) => void;
  onRefused: () => void;
}): ReactNode {
  const now = useNow(5000);
  const can = possible(record, now);
  const { receipt, lastError, originContext: origin } = record;
  const posted = postedAt(record);
  return (
    <>
      <section className={record.state === "delivery_unknown" ? "card failure" : "card"} aria-label="State">
        <Icon name={record.state === "delivery_unknown" ? "alert" : "clock"} />
        <div className="card-body">
          <p className="card-title">
            <Name>{record.taskKey}</Name> <Tag state={record.state} />
          </p>
          <p>{MEANING[record.state] ?? "A newer daemon says more than this page knows."}</p>
          {posted !== null && <Link to={posted}>See the answer in its thread</Link>}
          <Actions record={record} can={can} onChanged={onChanged} onRefused={onRefused} />
        </div>
      </section>
      <Facts
        facts={[
          ["Id", <code className="id">{record.continuationId}</code>],
          ["Mode", `${record.mode.replaceAll("_", " ")}: ${MODES[record.mode] ?? "unknown"}`],
          ["Created", <Time at={record.createdAt} />],
          ["Updated", <Time at={record.updatedAt} />],
          ["Deadline", <Time at={record.deadline} />],
          ["Next attempt", record.nextAttemptAt === undefined ? null : <Time at={record.nextAttemptAt} />],
          ["Asked a model", plural(record.attempts.synthesis, "time")],
          ["Waited for its turn's end", (record.synthesisDeferrals ?? 0) === 0 ? null : plural(record.synthesisDeferrals ?? 0, "time")],
          ["Asked the channel", plural(record.attempts.delivery, "time")],
          ["Words", record.completionKind === undefined ? null : completion(record.completionKind)],
          ["Origin", `${origin.state.replaceAll("_", " ")}${ORIGINS[origin.state] === undefined ? "" : `: ${ORIGINS[origin.state]}`}`],
          ["Messages of the origin", origin.messageCount === undefined ? null : count(origin.messageCount)],
          [
            "Digest of the origin",
            origin.digest === undefined ? null : (
              <code className="id" title={origin.digest}>
                {origin.digest.slice(0, 12)}
              </code>
            ),
          ],
        ]}
      />
      {lastError !== undefined && (
        <>
          <h2 className="section-title">{isSettled(record.state) && record.state !== "delivered" ? "Why it ended" : "What last went wrong"}</h2>
          <div className="framed">
            <p dir="auto">
              <Name>{lastError.reason}</Name>
            </p>
            <p className="muted small-print">
              <code>
                <Name>{lastError.code}</Name>
              </code>{" "}
              · <Time at={lastError.at} />
            </p>
          </div>
        </>
      )}
      {receipt !== undefined && (
        <>
          <h2 className="section-title">Receipt</h2>
          <Facts
            facts={[
              ["Kind", receipt.kind],
              ["At", <Time at={receipt.deliveredAt} />],
              ["Place", receipt.channelId === undefined ? null : <Name>{receipt.channelId}</Name>],
              ["Delivery", receipt.deliveryId === undefined ? null : <Name>{receipt.deliveryId}</Name>],
              ["In the agent's memory", receipt.historyRecorded === undefined ? null : receipt.historyRecorded ? "yes" : "no; it is not posted again"],
              ["Why not", receipt.historyErrorCode === undefined ? null : <Name>{receipt.historyErrorCode}</Name>],
            ]}
          />
        </>
      )}
      {record.state === "delivered" && receipt?.kind === "captured" && <Captured id={record.continuationId} />}
      <h2 className="section-title">In a terminal</h2>
      <ul className="commands" aria-label="Commands">
        {commands(record, can).map((command) => (
          <li key={command} className="command">
            <code>{command}</code>
            <CopyButton text={command} label={`Copy: ${command}`} />
          </li>
        ))}
      </ul>
    </>
  );
}

function completion(kind: string): string {
  if (kind === "synthesized") return "by a model";
  if (kind === "origin_context_unavailable") return "fixed: the conversation could not be restored, and no model was asked";
  return kind;
}

/** What was kept for who verifies. It is read when it is asked for, and nowhere else. */
function Captured({ id }: { id: string }): ReactNode {
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const show = (): void => {
    setError(null);
    api.capturedText(id).then(
      (captured) => setText(captured.text),
      (cause: unknown) => setError(`${sentence(cause)} The text may be older than what is kept of captured ones.`),
    );
  };
  return (
    <>
      <h2 className="section-title">Captured text</h2>
      {error !== null && <Failed message={error} />}
      {text === null ? (
        <button type="button" className="button" onClick={show}>
          <Icon name="eye" /> Show the captured text
        </button>
      ) : (
        <div className="framed" role="region" aria-label="Captured text">
          <LongText text={text} complete />
        </div>
      )}
    </>
  );
}
