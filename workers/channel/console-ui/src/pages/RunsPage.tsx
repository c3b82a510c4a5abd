/** The runs, newest first. */

import { useCallback, useState, type ReactNode } from "react";
import { api, sentence } from "../api/client.ts";
import type { Run } from "../api/types.ts";
import { notify } from "../state/notices.ts";
import { useResource } from "../state/resource.ts";
import { DataTable, Page, Tag } from "../ui/DataTable.tsx";
import { count, duration, money } from "../ui/format.ts";
import { RunLink } from "../ui/RunLink.tsx";
import { Empty, Failed, Loading } from "../ui/States.tsx";
import { Time } from "../ui/Time.tsx";

const STATES = ["running", "succeeded", "failed", "cancelled", "interrupted"];

export default function RunsPage(): ReactNode {
  const [status, setStatus] = useState("");
  const read = useCallback(() => api.runs(status), [status]);
  const { value, error, reload, set } = useResource(read, ["runs"]);
  const more = async (): Promise<void> => {
    try {
      const page = await api.runs(status, value?.nextCursor);
      set((old) => ({ ...page, runs: [...old.runs, ...page.runs] }));
    } catch (cause) {
      notify(sentence(cause), "bad");
    }
  };
  return (
    <Page
      title="Runs"
      aside={
        <label className="inline-field">
          <span className="visually-hidden">Status</span>
          <select value={status} onChange={(event) => setStatus(event.target.value)}>
            <option value="">All</option>
            {STATES.map((state) => (
              <option key={state} value={state}>
                {state}
              </option>
            ))}
          </select>
        </label>
      }
    >
      {error !== null && <Failed message={error} onRetry={reload} />}
      {value === null && error === null && <Loading what="the runs" />}
      {value !== null && value.runs.length === 0 && <Empty icon="run" title="No runs" />}
      {value !== null && value.runs.length > 0 && (
        <DataTable<Run>
          label="Runs"
          rows={value.runs}
          id={(run) => run.runId}
          columns={[
            {
              title: "Run",
              cell: (run) => <RunLink id={run.runId} />,
            },
            {
              title: "Status",
              cell: (run) => (
                <>
                  <Tag state={run.status} /> {run.failureKind != null && <code className="muted">{run.failureKind}</code>}
                </>
              ),
            },
            { title: "Started", cell: (run) => <Time at={run.startedAt} /> },
            { title: "Took", figures: true, cell: (run) => (run.durationMs == null ? "–" : duration(run.durationMs)) },
            { title: "Source", cell: (run) => <bdi>{run.source}</bdi> },
            { title: "Model", cell: (run) => <bdi>{run.model ?? "–"}</bdi> },
            {
              title: "Tokens",
              figures: true,
              cell: (run) => (run.usage === undefined ? "–" : count(run.usage.input + run.usage.output)),
            },
            {
              title: "Cost",
              figures: true,
              cell: (run) => (run.usage?.costUsd == null ? "–" : money(run.usage.costUsd)),
            },
          ]}
        />
      )}
      {value?.nextCursor !== undefined && (
        <button type="button" className="button centred" onClick={() => void more()}>
          More
        </button>
      )}
    </Page>
  );
}
