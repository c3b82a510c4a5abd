/** The verdict on all continuations together, and why it is what it is. */

import type { ReactNode } from "react";
import type { ContinuationHealth, ContinuationState } from "../api/types.ts";
import { reasons, STATES } from "../state/continuations.ts";
import { Tag } from "../ui/DataTable.tsx";
import { count, duration } from "../ui/format.ts";
import { Icon } from "../ui/Icon.tsx";
import { Time } from "../ui/Time.tsx";

export function HealthView({
  health,
  onState,
}: {
  health: ContinuationHealth;
  /** Shows the records of a state. */
  onState: (state: ContinuationState) => void;
}): ReactNode {
  const why = reasons(health);
  const { limits } = health.storage;
  return (
    <>
      <section className="tiles" aria-label="Health">
        <div className="tile">
          <h2>Health</h2>
          <Tag state={health.status} />
        </div>
        <div className="tile">
          <h2>Pending</h2>
          <span className="big">{count(health.pending)}</span>
          <span className="muted">{count(health.due)} due</span>
        </div>
        <div className="tile">
          <h2>Oldest pending</h2>
          <span className="big">{health.oldestPendingAt === undefined ? "–" : <Time at={health.oldestPendingAt} />}</span>
        </div>
        <div className="tile">
          <h2>Active</h2>
          <span className="big">{count(health.storage.active)}</span>
          <span className="muted">{limits.maxActiveRecords === undefined ? "" : `of at most ${count(limits.maxActiveRecords)}`}</span>
        </div>
        <div className="tile">
          <h2>Kept</h2>
          <span className="big">{count(health.storage.records)}</span>
          <span className="muted">{count(health.storage.capturedText)} with a captured text</span>
        </div>
      </section>
      {why.length > 0 && (
        <section className={health.status === "unhealthy" ? "card failure" : "card"} aria-label="Reasons">
          <Icon name={health.status === "unhealthy" ? "alert" : "clock"} />
          <ul className="card-body reasons">
            {why.map(({ text, remedy, state }) => (
              <li key={text}>
                <strong>{text}</strong> {remedy}{" "}
                {state !== undefined && (
                  <button type="button" className="text-button" onClick={() => onState(state)}>
                    Show {state.replaceAll("_", " ")}
                  </button>
                )}
              </li>
            ))}
          </ul>
        </section>
      )}
      {health.clock !== undefined && (
        <p className="muted small-print">
          A step of {duration(Math.abs(health.clock.steppedByMs))} {health.clock.steppedByMs < 0 ? "back" : "forward"}; what expires is held for{" "}
          {duration(health.clock.heldForMs)} more.
        </p>
      )}
      <ul className="counts" aria-label="Records by state">
        {STATES.filter((state) => (health.counts[state] ?? 0) > 0).map((state) => (
          <li key={state}>
            <Tag state={state} /> <span className="figures">{count(health.counts[state] ?? 0)}</span>
          </li>
        ))}
      </ul>
    </>
  );
}
