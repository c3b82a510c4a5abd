/** Who is logged in, and the configuration with the origin of each value. */

import { useState, type ReactNode } from "react";
import { api, sentence } from "../api/client.ts";
import type { Bootstrap, ConfigField, Session } from "../api/types.ts";
import { notify } from "../state/notices.ts";
import { useResource } from "../state/resource.ts";
import { Confirm } from "../ui/Dialog.tsx";
import { DataTable, Facts, Page } from "../ui/DataTable.tsx";
import { plural, size } from "../ui/format.ts";
import { Failed, Loading } from "../ui/States.tsx";
import { Time } from "../ui/Time.tsx";

const readSessions = (): Promise<{ sessions: Session[] }> => api.sessions();
const readConfig = (): Promise<{ fields: ConfigField[] }> => api.config();

export default function SettingsPage({ bootstrap }: { bootstrap: Bootstrap }): ReactNode {
  return (
    <Page title="Settings">
      <h2 className="section-title">Agent</h2>
      <Facts
        facts={[
          ["Name", <bdi>{bootstrap.agent.label}</bdi>],
          ["Model", bootstrap.agent.model],
          ["Version", bootstrap.version],
          ["Largest attachment", size(bootstrap.limits.attachmentBytes)],
          ["Attachments of a message", bootstrap.limits.attachments],
        ]}
      />
      <Sessions />
      <Configuration />
      <p className="muted small-print section-title">
        <a href="/assets/licences.txt" download="licences.txt">
          Licences of what this page is made of
        </a>
      </p>
    </Page>
  );
}

function Sessions(): ReactNode {
  const { value, error, reload } = useResource(readSessions);
  const [asking, setAsking] = useState<Session | null>(null);
  const end = async (session: Session): Promise<void> => {
    try {
      await (session.current ? api.logout() : api.revoke(session.id));
      // Tells the rest of the page by a 401.
      if (session.current) api.bootstrap().catch(() => undefined);
      else reload();
    } catch (cause) {
      notify(sentence(cause), "bad");
    }
  };
  return (
    <>
      <h2 className="section-title">Sessions</h2>
      {error !== null && <Failed message={error} onRetry={reload} />}
      {value === null && error === null && <Loading what="the sessions" />}
      {value !== null && (
        <ul className="sessions">
          {value.sessions.map((session) => (
            <li key={session.id}>
              <div>
                <p dir="auto">
                  {browser(session.userAgent)} {session.current && <span className="tag good">this one</span>}
                </p>
                <p className="muted small-print">
                  Since <Time at={session.createdAt} />, last seen <Time at={session.lastSeenAt} />
                </p>
              </div>
              <button type="button" className="button" onClick={() => setAsking(session)}>
                {session.current ? "Log out" : "Revoke"}
                <span className="visually-hidden"> {browser(session.userAgent)}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
      {asking !== null && (
        <Confirm
          title={asking.current ? "Log out?" : "Revoke this session?"}
          action={asking.current ? "Log out" : "Revoke"}
          onConfirm={() => void end(asking)}
          onClose={() => setAsking(null)}
        >
          <p>
            To log in again, <code>monoctl console open</code> is needed.
          </p>
        </Confirm>
      )}
    </>
  );
}

/** A browser by the names that people know; the header itself is a long tale. */
function browser(agent: string): string {
  const name = (
    [
      [/Edg\//, "Edge"],
      [/Firefox\//, "Firefox"],
      [/Chrom(e|ium)\//, "Chrome"],
      [/Safari\//, "Safari"],
    ] as const
  ).find(([pattern]) => pattern.test(agent))?.[1];
  const system = (
    [
      [/Android/, "Android"],
      [/iPhone|iPad/, "iOS"],
      [/Windows/, "Windows"],
      [/Mac OS/, "macOS"],
      [/Linux/, "Linux"],
    ] as const
  ).find(([pattern]) => pattern.test(agent))?.[1];
  if (name === undefined) return agent.slice(0, 80) || "Unknown browser";
  return system === undefined ? name : `${name} on ${system}`;
}

function Configuration(): ReactNode {
  const { value, error, reload } = useResource(readConfig);
  const [filter, setFilter] = useState("");
  const [set, setSet] = useState(false);
  const wanted = filter.trim().toLowerCase();
  const rows = (value?.fields ?? []).filter(
    (field) => (!set || field.origin !== "default") && field.key.toLowerCase().includes(wanted),
  );
  return (
    <>
      <h2 className="section-title">Configuration</h2>
      {error !== null && <Failed message={error} onRetry={reload} />}
      {value === null && error === null && <Loading what="the configuration" />}
      {value !== null && (
        <>
          <div className="filters">
            <label className="inline-field">
              <span className="visually-hidden">Filter by key</span>
              <input type="search" placeholder="Filter by key" value={filter} onChange={(e) => setFilter(e.target.value)} />
            </label>
            <label className="check">
              <input type="checkbox" checked={set} onChange={(e) => setSet(e.target.checked)} /> Only what was set
            </label>
            <span className="muted">{plural(rows.length, "key")}</span>
          </div>
          <DataTable<ConfigField>
            label="Configuration"
            rows={rows}
            id={(field) => field.key}
            columns={[
              { title: "Key", cell: (field) => <code className="id">{field.key}</code> },
              {
                title: "Value",
                cell: (field) => (
                  <code className="value" dir="auto">
                    {typeof field.value === "string" ? field.value : JSON.stringify(field.value)}
                  </code>
                ),
              },
              {
                title: "Origin",
                cell: (field) => <span className={field.origin === "default" ? "tag" : "tag busy"}>{field.origin}</span>,
              },
            ]}
          />
        </>
      )}
    </>
  );
}
