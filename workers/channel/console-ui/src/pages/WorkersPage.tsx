/** The workers and what confines them: what the kernel says, as `monoctl status` shows it. */

import { useState, type ReactNode } from "react";
import { api } from "../api/client.ts";
import type { Status, Worker } from "../api/types.ts";
import { useResource } from "../state/resource.ts";
import { Facts, Page, Tag } from "../ui/DataTable.tsx";
import { count, duration, plural, size } from "../ui/format.ts";
import { Icon } from "../ui/Icon.tsx";
import { Failed, Loading } from "../ui/States.tsx";
import { weaknesses } from "./confinement.ts";

const read = (): Promise<Status> => api.status();

export default function WorkersPage(): ReactNode {
  const { value, error, reload } = useResource(read, ["status", "runs"], 5000);
  return (
    <Page title="Workers">
      {error !== null && <Failed message={error} onRetry={reload} />}
      {value === null ? error === null && <Loading what="the status" /> : <Shown status={value} />}
    </Page>
  );
}

function Shown({ status }: { status: Status }): ReactNode {
  const workers = status.workers ?? [];
  const violations = Object.entries(status.violations ?? {});
  return (
    <>
      <section className="tiles" aria-label="Summary">
        <Tile title="Health">
          <Tag state={status.ok === true ? "healthy" : "unhealthy"} />
        </Tile>
        <Tile title="Runs at work">
          <span className="big">{status.runs?.working ?? "–"}</span>
          <span className="muted">{status.runs?.waiting ?? 0} waiting</span>
        </Tile>
        <Tile title="Up for">
          <span className="big">{status.uptime_ms === undefined ? "–" : duration(status.uptime_ms)}</span>
          <span className="muted">monod {status.version}</span>
        </Tile>
        <Tile title="Violations">
          <span className="big">{count(status.protocol_violations ?? 0)}</span>
          <span className="muted">of the protocol</span>
        </Tile>
        <Tile title="Memory limits">
          <span className="big">{status.memory?.enforcement ?? "–"}</span>
          <span className="muted">{status.memory?.reason ?? "how they are enforced"}</span>
        </Tile>
      </section>
      {(status.degraded ?? []).length > 0 && (
        <div className="card failure">
          <Icon name="alert" />
          <div className="card-body">
            <p className="card-title">Degraded</p>
            <ul>
              {status.degraded?.map((reason) => (
                <li key={reason} dir="auto">
                  {reason}
                </li>
              ))}
            </ul>
          </div>
        </div>
      )}
      {violations.length > 0 && (
        <div className="card failure">
          <Icon name="alert" />
          <div className="card-body">
            <p className="card-title">Forbidden system calls that ended a process</p>
            <ul>
              {violations.map(([role, calls]) => (
                <li key={role}>
                  {role}:{" "}
                  {Object.entries(calls)
                    .map(([call, times]) => `${call} ${times}`)
                    .join(", ")}
                </li>
              ))}
            </ul>
          </div>
        </div>
      )}
      <h2 className="section-title">{plural(workers.length, "process", "processes")}</h2>
      <ul className="workers">
        {workers.map((worker, index) => (
          <WorkerCard key={`${worker.role} ${worker.name ?? ""} ${worker.pid ?? index}`} worker={worker} />
        ))}
      </ul>
    </>
  );
}

function Tile({ title, children }: { title: string; children: ReactNode }): ReactNode {
  return (
    <div className="tile">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

function WorkerCard({ worker }: { worker: Worker }): ReactNode {
  const [open, setOpen] = useState(false);
  const weak = weaknesses(worker);
  const sandbox = worker.sandbox;
  const memory = worker.memory;
  const probes = Object.entries(sandbox?.probes ?? {});
  const name = worker.name === undefined ? worker.role : `${worker.role} (${worker.name})`;
  return (
    <li className="worker">
      <button type="button" className="worker-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <bdi className="worker-name">{name}</bdi>
        <Tag state={worker.state} />
        <span className={weak === null ? "tag" : weak.length === 0 ? "tag good" : "tag bad"}>
          <Icon name="shield" />
          {weak === null ? "no process" : weak.length === 0 ? "confined" : "weak"}
        </span>
        <span className="worker-figures muted figures">
          {worker.pid != null && <span>pid {worker.pid}</span>}
          <span>{size(memory?.bytes ?? worker.rss_bytes ?? 0)}</span>
          {(worker.restarts ?? 0) > 0 && <span>{plural(worker.restarts ?? 0, "restart")}</span>}
        </span>
        <Icon name="chevron" className="turning" />
      </button>
      {weak !== null && weak.length > 0 && <p className="worker-weak">{weak.join(", ")}</p>}
      {worker.outdated === true && <p className="worker-weak">It has the program or the settings of before a reload.</p>}
      {open && (
        <div className="worker-body">
          <Facts
            facts={[
              ["Memory", memory === undefined ? size(worker.rss_bytes ?? 0) : `${memory.bytes === undefined ? "?" : size(memory.bytes)} of ${size(memory.limit_bytes)}`],
              ["Protocol", worker.protocol ?? null],
              ["Restarts", worker.restarts ?? 0],
              ["User id", sandbox?.uid ?? null],
              ["System-call filters", sandbox == null ? null : `${sandbox.seccomp_filters ?? "?"} (mode ${sandbox.seccomp ?? "?"})`],
              ["No new privileges", sandbox == null ? null : sandbox.no_new_privs === true ? "set" : "not set"],
              ["Landlock", sandbox == null ? null : (sandbox.landlock_abi ?? 0) > 0 ? `version ${sandbox.landlock_abi}` : "none"],
              ["Capabilities", sandbox?.capabilities === undefined ? null : sandbox.capabilities === 0 ? "none" : `0x${sandbox.capabilities.toString(16)}`],
              ["Namespaces of its own", sandbox?.namespaces?.join(", ") ?? (sandbox == null ? null : "not known")],
              ["Last line", worker.last_line === undefined || worker.last_line === "" ? null : <code dir="auto">{worker.last_line}</code>],
            ]}
          />
          {probes.length > 0 && (
            <>
              <h3>What it tried and must not be able to do</h3>
              <ul className="probes">
                {probes.map(([probe, outcome]) => (
                  <li key={probe}>
                    <span>{probe.replaceAll("_", " ")}</span>
                    <span className={outcome === "refused" ? "tag good" : "tag bad"}>{String(outcome)}</span>
                  </li>
                ))}
              </ul>
            </>
          )}
        </div>
      )}
    </li>
  );
}
