/** One run: what it did, how long it took, what it cost. */

import { useCallback, type ReactNode } from "react";
import { api } from "../api/client.ts";
import type { Activity, Run, ToolCall } from "../api/types.ts";
import { ActivityView } from "../chat/Activity.tsx";
import { LongText } from "../chat/LongText.tsx";
import { useResource } from "../state/resource.ts";
import { DataTable, Facts, Page, Tag } from "../ui/DataTable.tsx";
import { CopyButton } from "../ui/CopyButton.tsx";
import { count, duration, money, size } from "../ui/format.ts";
import { Link } from "../ui/Link.tsx";
import { Failed, Loading } from "../ui/States.tsx";
import { Time } from "../ui/Time.tsx";

export default function RunPage({ id }: { id: string }): ReactNode {
  const read = useCallback(() => api.run(id), [id]);
  const { value, error, reload } = useResource(read, ["runs"], 5000);
  return (
    <Page title="Run" aside={<Link to="/runs">All runs</Link>}>
      {error !== null && <Failed message={error} onRetry={reload} />}
      {value === null ? error === null && <Loading what="the run" /> : <Shown run={value} />}
    </Page>
  );
}

function Shown({ run }: { run: Run }): ReactNode {
  const { usage } = run;
  const tools = run.tools ?? [];
  const failover = run.failoverHistory ?? [];
  return (
    <>
      <Facts
        facts={[
          [
            "Run",
            <>
              <code>{run.runId}</code> <CopyButton text={run.runId} label="Copy the id of this run" small />
            </>,
          ],
          ["Status", <Tag state={run.status} />],
          ["Failure", run.failureKind == null ? null : <code>{run.failureKind}</code>],
          ["Conversation", <bdi>{run.conversationId}</bdi>],
          ["Source", <bdi>{run.sourceDetail == null ? run.source : `${run.source}: ${run.sourceDetail}`}</bdi>],
          ["Model", run.model ?? null],
          ["Started", <Time at={run.startedAt} />],
          ["Ended", run.endedAt == null ? null : <Time at={run.endedAt} />],
          ["Took", run.durationMs == null ? null : duration(run.durationMs)],
          ["Tokens read", usage === undefined ? null : count(usage.input)],
          ["Tokens written", usage === undefined ? null : count(usage.output)],
          ["From the cache", usage?.cacheRead === undefined ? null : count(usage.cacheRead)],
          ["Into the cache", usage?.cacheCreation === undefined ? null : count(usage.cacheCreation)],
          ["Cost", usage?.costUsd == null ? "not known" : money(usage.costUsd)],
        ]}
      />
      {run.error != null && <Failed message={run.error} />}
      {failover.length > 0 && (
        <>
          <h2 className="section-title">Models that were left</h2>
          <DataTable
            label="Models that were left"
            rows={failover}
            id={(_, index) => index}
            columns={[
              { title: "Model", cell: (step) => <bdi>{step.model}</bdi> },
              { title: "Why", cell: (step) => <code>{step.failureKind}</code> },
              { title: "Attempts", figures: true, cell: (step) => step.attempts },
            ]}
          />
        </>
      )}
      {tools.length > 0 && (
        <>
          <h2 className="section-title">Events</h2>
          <ActivityView activity={tools.map(event)} running={run.status === "running"} unfolded />
        </>
      )}
      {(run.messages ?? []).length > 0 && (
        <>
          <h2 className="section-title">Messages it added</h2>
          <DataTable
            label="Messages it added"
            rows={run.messages ?? []}
            id={(_, index) => index}
            columns={[
              { title: "Role", cell: (message) => message.role },
              { title: "Size", figures: true, cell: (message) => size(message.bytes) },
            ]}
          />
        </>
      )}
      {run.text != null && run.text !== "" && (
        <>
          <h2 className="section-title">Answer</h2>
          <div className="framed">
            <LongText text={run.text} complete />
          </div>
        </>
      )}
    </>
  );
}

/** A call as the activity of an answer shows it. Some models use an id again. */
function event(call: ToolCall, index: number): Activity {
  const startedAt = Date.parse(call.startedAt ?? "") || 0;
  const calm = call.state === "success" || call.state === "running";
  return {
    id: `${call.id} ${index}`,
    kind: "tool",
    name: call.name,
    arguments: call.arguments ?? "",
    result: call.preview ?? "",
    isError: !calm,
    startedAt,
    ...(call.durationMs == null ? {} : { endedAt: startedAt + call.durationMs }),
    ...(calm ? {} : { title: `Ended as: ${call.state.replaceAll("_", " ")}` }),
  };
}
