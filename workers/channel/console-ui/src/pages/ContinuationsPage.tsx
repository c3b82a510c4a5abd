/** Continuations: how it stands with all of them, and the list, the newest first. */

import { useCallback, useRef, useState, type ReactNode } from "react";
import { api, sentence } from "../api/client.ts";
import type { Continuation, ContinuationHealth, ContinuationState } from "../api/types.ts";
import { gather, isOff, nextCommand, remedy, STATES, type Gathered } from "../state/continuations.ts";
import { continuationPath } from "../state/routes.ts";
import { useResource } from "../state/resource.ts";
import { CopyButton } from "../ui/CopyButton.tsx";
import { DataTable, Page, Tag } from "../ui/DataTable.tsx";
import { count, plural } from "../ui/format.ts";
import { Link } from "../ui/Link.tsx";
import { Name } from "../ui/Name.tsx";
import { Empty, Failed, Loading } from "../ui/States.tsx";
import { Time } from "../ui/Time.tsx";
import { HealthView } from "./ContinuationHealth.tsx";
import { None, Off } from "./ContinuationTeach.tsx";

/** Records of one state that are looked for at once. */
const WANTED = 50;
/** Pages that are read to find them, before a person asks for more. */
const PAGES = 20;
/** Pages that are read again as often as other pages of the console are. */
const LIGHT = 3;
const OFTEN_MS = 5000;
const SELDOM_MS = 60_000;

interface Seen {
  health: ContinuationHealth;
  list: Gathered;
}

export default function ContinuationsPage(): ReactNode {
  const [state, setState] = useState<ContinuationState | null>(null);
  // How far it is read, each time anew, so that what is shown is never of two times.
  const depth = useRef(1);
  const kept = useRef<{ of: string; at: number; seen: Seen } | null>(null);
  const read = useCallback(async (): Promise<Seen | "off"> => {
    const deep = depth.current;
    const of = `${state} ${deep}`;
    const heavy = state !== null || deep > LIGHT;
    if (heavy && kept.current?.of === of && Date.now() - kept.current.at < SELDOM_MS) return kept.current.seen;
    try {
      const health = await api.continuationHealth();
      const [wanted, pages] = state === null ? [Infinity, deep] : [deep * WANTED, deep * PAGES];
      const seen = { health, list: await gather(api.continuations, state, wanted, pages) };
      kept.current = { of, at: Date.now(), seen };
      return seen;
    } catch (error) {
      if (isOff(error)) return "off";
      const todo = remedy(error);
      throw todo === null ? error : new Error(`${sentence(error)} ${todo}`);
    }
  }, [state]);
  const { value, error, reload } = useResource(read, ["status", "threads", "runs"], OFTEN_MS);
  const choose = (next: ContinuationState | null): void => {
    depth.current = 1;
    setState(next);
  };
  const more = (): void => {
    depth.current += 1;
    reload();
  };
  const on = value !== null && value !== "off" ? value : null;
  return (
    <Page
      title="Continuations"
      aside={
        on !== null && (
          <label className="inline-field">
            <span className="visually-hidden">State</span>
            <select
              value={state ?? ""}
              onChange={(event) => choose(STATES.find((one) => one === event.target.value) ?? null)}
            >
              <option value="">All states</option>
              {STATES.map((one) => (
                <option key={one} value={one}>
                  {one.replaceAll("_", " ")} ({count(on.health.counts[one] ?? 0)})
                </option>
              ))}
            </select>
          </label>
        )
      }
    >
      {error !== null && <Failed message={error} onRetry={reload} />}
      {value === null && error === null && <Loading what="the continuations" />}
      {value === "off" && <Off />}
      {on !== null && (
        <>
          <HealthView health={on.health} onState={choose} />
          <List list={on.list} state={state} />
          {on.list.next !== null && (
            <>
              <button type="button" className="button centred" onClick={more}>
                More
              </button>
              {state !== null && (
                <p className="muted small-print centred-text">
                  Found {count(on.list.records.length)} among the newest {plural(on.list.seen, "record")}.
                </p>
              )}
              <p className="command">
                <span className="muted">In a terminal:</span> <code>{nextCommand(on.list.next)}</code>
                <CopyButton text={nextCommand(on.list.next)} label="Copy the command for the next page" />
              </p>
            </>
          )}
        </>
      )}
    </Page>
  );
}

function List({ list, state }: { list: Gathered; state: ContinuationState | null }): ReactNode {
  if (list.records.length === 0) {
    if (state === null) return <None />;
    return <Empty icon="clock" title={list.next === null ? `None is ${state.replaceAll("_", " ")}` : `None so far is ${state.replaceAll("_", " ")}`} />;
  }
  return (
    <DataTable<Continuation>
      label="Continuations"
      rows={list.records}
      id={(record) => record.continuationId}
      columns={[
        {
          title: "Task",
          cell: (record) => (
            <Link to={continuationPath(record.continuationId)}>
              <Name className="name">{record.taskKey}</Name>
            </Link>
          ),
        },
        {
          title: "State",
          cell: (record) => (
            <>
              <Tag state={record.state} />{" "}
              {record.lastError !== undefined && record.state !== "delivered" && <Name className="muted">{record.lastError.code}</Name>}
              {record.receipt?.historyRecorded === false && <span className="tag bad">not remembered</span>}
            </>
          ),
        },
        { title: "Mode", cell: (record) => record.mode.replaceAll("_", " ") },
        { title: "Created", cell: (record) => <Time at={record.createdAt} /> },
        { title: "Updated", cell: (record) => <Time at={record.updatedAt} /> },
        { title: "Deadline", cell: (record) => <Time at={record.deadline} /> },
        { title: "Deliveries", figures: true, cell: (record) => record.attempts.delivery },
        { title: "Id", cell: (record) => <code className="id">{record.continuationId}</code> },
      ]}
    />
  );
}
