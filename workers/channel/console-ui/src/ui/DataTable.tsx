/** A table of records: scrolls sideways by itself, so the page never does. */

import type { ReactNode } from "react";

export interface Column<T> {
  title: string;
  cell: (row: T) => ReactNode;
  /** Figures stand to the right. */
  figures?: boolean;
}

export function DataTable<T>({
  label,
  columns,
  rows,
  id,
}: {
  label: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T, index: number) => string | number;
}): ReactNode {
  return (
    <div className="table-scroll data" role="region" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.title} scope="col" data-align={column.figures === true ? "right" : undefined}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={id(row, index)}>
              {columns.map((column) => (
                <td key={column.title} data-align={column.figures === true ? "right" : undefined}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Names with their values. */
export function Facts({ facts }: { facts: [string, ReactNode][] }): ReactNode {
  return (
    <dl className="facts">
      {facts
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

export function Page({ title, aside, children }: { title: ReactNode; aside?: ReactNode; children: ReactNode }): ReactNode {
  return (
    <div className="page">
      <header className="page-bar">
        <h1>{title}</h1>
        {aside}
      </header>
      <div className="page-scroll" tabIndex={0} role="region" aria-label="Content">
        <div className="page-body">{children}</div>
      </div>
    </div>
  );
}

/** A word for a state, with its colour; never the colour alone. */
export function Tag({ state }: { state: string }): ReactNode {
  return (
    <span className={`tag ${tone(state)}`}>
      <span className="tag-dot" aria-hidden="true" />
      {state.replaceAll("_", " ")}
    </span>
  );
}

function tone(state: string): string {
  if (["succeeded", "success", "serving", "healthy", "refused", "idle", "ok", "delivered"].includes(state)) return "good";
  if (["running", "starting", "queued", "stopping", "waiting", "draining", "degraded"].includes(state)) return "busy";
  if (["claimed", "result_received", "synthesizing", "ready_to_deliver", "delivery_retry"].includes(state)) return "busy";
  if (["cancelled"].includes(state)) return "";
  return "bad";
}
