/** Threads, and the way to all other pages. */

import { useRef, useState, type ReactNode } from "react";
import { api } from "./api/client.ts";
import type { Status, Thread } from "./api/types.ts";
import { ThreadMenu } from "./chat/ThreadHeader.tsx";
import { useResource } from "./state/resource.ts";
import type { Route } from "./state/routes.ts";
import { threadPath } from "./state/routes.ts";
import { useStore } from "./state/store.ts";
import { setTheme, theme, type Theme } from "./state/theme.ts";
import { lists, readMoreThreads, readThreads, type Which } from "./state/threads.ts";
import { era } from "./ui/format.ts";
import { Icon, type IconName } from "./ui/Icon.tsx";
import { Link } from "./ui/Link.tsx";
import { Name } from "./ui/Name.tsx";
import { step } from "./ui/roving.ts";
import { useNow } from "./ui/Time.tsx";

const PAGES: { page: Route["page"]; to: string; icon: IconName; label: string }[] = [
  { page: "workers", to: "/workers", icon: "shield", label: "Workers" },
  { page: "runs", to: "/runs", icon: "run", label: "Runs" },
  { page: "continuations", to: "/continuations", icon: "clock", label: "Continuations" },
  { page: "files", to: "/files", icon: "file", label: "Files" },
  { page: "settings", to: "/settings", icon: "settings", label: "Settings" },
];

/** How often it is looked whether an answer waits for a person's word. */
const STATUS_MS = 60_000;
const readStatus = (): Promise<Status> => api.status();

export function Sidebar({
  current,
  page,
  version,
  onHelp,
}: {
  current: string | null;
  page: Route["page"];
  version: string;
  onHelp: () => void;
}): ReactNode {
  const [which, setWhich] = useState<Which>("active");
  const list = useStore(lists[which]);
  const wanting = useResource(readStatus, ["status"], STATUS_MS).value?.continuations?.status === "unhealthy";
  const show = (next: Which): void => {
    setWhich(next);
    if (lists[next].get().state === "empty") void readThreads(next);
  };
  return (
    <aside className="sidebar" aria-label="Sidebar">
      <div className="sidebar-head">
        <span className="brand">mono</span>
        <button type="button" className="icon-button" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (Ctrl + /)" onClick={onHelp}>
          <Icon name="keyboard" />
        </button>
      </div>
      <div className="sidebar-actions">
        <Link to="/" className="button primary wide" aria-current={page === "new" ? "page" : undefined}>
          <Icon name="plus" /> New thread
        </Link>
        <Link to="/search" className="nav-item" aria-current={page === "search" ? "page" : undefined}>
          <Icon name="search" /> Search
          <span className="keys" aria-hidden="true">
            <kbd>Ctrl</kbd>
            <kbd>K</kbd>
          </span>
        </Link>
      </div>
      <nav className="threads" aria-label="Threads">
        <div className="threads-head">
          <h2>{which === "active" ? "Threads" : "Archive"}</h2>
          <button type="button" className="text-button" onClick={() => show(which === "active" ? "archived" : "active")}>
            {which === "active" ? "Show the archive" : "Back to threads"}
          </button>
        </div>
        <ThreadList threads={list.threads} current={current} />
        {list.state === "read" && list.threads.length === 0 && (
          <p className="muted small-print">{which === "active" ? "No threads yet." : "Nothing is archived."}</p>
        )}
        {list.state === "failed" && (
          <p className="small-print" role="alert">
            {list.error}{" "}
            <button type="button" className="text-button" onClick={() => void readThreads(which)}>
              Try again
            </button>
          </p>
        )}
        {list.next !== null && (
          <button type="button" className="button small centred" onClick={() => void readMoreThreads(which)}>
            More
          </button>
        )}
      </nav>
      <nav className="pages" aria-label="Operator pages">
        {PAGES.map((one) => (
          <Link
            key={one.page}
            to={one.to}
            className="nav-item"
            aria-current={page === one.page || `${page}s` === one.page ? "page" : undefined}
          >
            <Icon name={one.icon} /> {one.label}
            {one.page === "continuations" && wanting && (
              <>
                <span className="dot bad" aria-hidden="true" />
                <span className="visually-hidden">(somebody has to look)</span>
              </>
            )}
          </Link>
        ))}
      </nav>
      <div className="sidebar-foot">
        <ThemeSwitch />
        <span className="muted">{version}</span>
      </div>
    </aside>
  );
}

function ThreadList({ threads, current }: { threads: Thread[]; current: string | null }): ReactNode {
  const list = useRef<HTMLDivElement>(null);
  const now = useNow(60_000);
  const here = threads.some((thread) => thread.id === current);
  const groups = new Map<string, Thread[]>();
  for (const thread of threads) {
    const name = era(thread.updatedAt, now);
    groups.set(name, [...(groups.get(name) ?? []), thread]);
  }
  let first = true;
  return (
    <div ref={list} onKeyDown={(event) => step(event, list.current, "[data-thread]")}>
      {[...groups].map(([name, members]) => (
        <section key={name} aria-label={name}>
          <h3 className="era">{name}</h3>
          <ul>
            {members.map((thread) => {
              // One stop of the tab key for the list, the arrow keys within it.
              const stop = here ? thread.id === current : first;
              first = false;
              return <Row key={thread.id} thread={thread} current={current} stop={stop} />;
            })}
          </ul>
        </section>
      ))}
    </div>
  );
}

function Row({ thread, current, stop }: { thread: Thread; current: string | null; stop: boolean }): ReactNode {
  const title = thread.title || "New thread";
  const [focused, setFocused] = useState(false);
  return (
    <li
      className="thread-row"
      data-unread={thread.unread || undefined}
      onFocus={() => setFocused(true)}
      onBlur={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget)) setFocused(false);
      }}
    >
      <Link
        to={threadPath(thread.id)}
        className="nav-item"
        data-thread
        tabIndex={stop || focused ? 0 : -1}
        aria-current={thread.id === current ? "page" : undefined}
        title={title}
      >
        <Name className="thread-name">{title}</Name>
        {thread.running && (
          <>
            <span className="spinner" aria-hidden="true" />
            <span className="visually-hidden">(answering)</span>
          </>
        )}
        {thread.unread && !thread.running && (
          <>
            <span className="dot" aria-hidden="true" />
            <span className="visually-hidden">(unread)</span>
          </>
        )}
      </Link>
      <ThreadMenu thread={thread} current={current} tabIndex={stop || focused ? 0 : -1} />
    </li>
  );
}

const THEMES: { value: Theme; icon: IconName; label: string }[] = [
  { value: "light", icon: "sun", label: "Light" },
  { value: "system", icon: "system", label: "As the system" },
  { value: "dark", icon: "moon", label: "Dark" },
];

function ThemeSwitch(): ReactNode {
  const value = useStore(theme);
  return (
    <fieldset className="segments">
      <legend className="visually-hidden">Colours</legend>
      {THEMES.map((one) => (
        <label key={one.value} title={one.label}>
          <input type="radio" name="theme" checked={value === one.value} onChange={() => setTheme(one.value)} />
          <Icon name={one.icon} />
          <span className="visually-hidden">{one.label}</span>
        </label>
      ))}
    </fieldset>
  );
}
