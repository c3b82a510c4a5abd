/** The frame of the page: who is logged in, the sidebar, and the page of the route. */

import { lazy, Suspense, useCallback, useEffect, useRef, useState, useSyncExternalStore, type ReactNode } from "react";
import { ApiError, api, onLoggedOut, sentence } from "./api/client.ts";
import { linkState } from "./api/hints.ts";
import type { Bootstrap } from "./api/types.ts";
import { NewThread } from "./chat/NewThread.tsx";
import { ThreadMenu } from "./chat/ThreadHeader.tsx";
import { ThreadPage } from "./chat/ThreadPage.tsx";
import { Sidebar } from "./Sidebar.tsx";
import { navigate, useRoute } from "./state/route.ts";
import { threadPath, type Route } from "./state/routes.ts";
import { useStore } from "./state/store.ts";
import { keepThreads, lists, openThread } from "./state/threads.ts";
import { Boundary } from "./ui/Boundary.tsx";
import { Icon } from "./ui/Icon.tsx";
import { Name } from "./ui/Name.tsx";
import { Notices } from "./ui/Notices.tsx";
import { ShortcutsDialog } from "./ui/ShortcutsDialog.tsx";
import { plain } from "./ui/plain.ts";
import { useShortcut } from "./ui/shortcuts.ts";
import { Empty, Failed, Loading } from "./ui/States.tsx";
import { Link } from "./ui/Link.tsx";

const SearchPage = lazy(() => import("./pages/SearchPage.tsx"));
const RunsPage = lazy(() => import("./pages/RunsPage.tsx"));
const RunPage = lazy(() => import("./pages/RunPage.tsx"));
const ContinuationsPage = lazy(() => import("./pages/ContinuationsPage.tsx"));
const ContinuationPage = lazy(() => import("./pages/ContinuationPage.tsx"));
const WorkersPage = lazy(() => import("./pages/WorkersPage.tsx"));
const FilesPage = lazy(() => import("./pages/FilesPage.tsx"));
const SettingsPage = lazy(() => import("./pages/SettingsPage.tsx"));

export function App(): ReactNode {
  const [bootstrap, setBootstrap] = useState<Bootstrap | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [loggedOut, setLoggedOut] = useState(false);

  const read = useCallback(() => {
    setError(null);
    api.bootstrap().then(setBootstrap, (cause: unknown) => {
      if (!(cause instanceof ApiError && cause.status === 401)) setError(sentence(cause));
    });
  }, []);
  useEffect(() => {
    const stop = onLoggedOut(() => setLoggedOut(true));
    read();
    return stop;
  }, [read]);

  if (loggedOut) return <LoggedOut />;
  if (bootstrap === null) {
    return <main className="alone">{error === null ? <Loading what="the console" /> : <Failed message={error} onRetry={read} />}</main>;
  }
  return <Frame bootstrap={bootstrap} />;
}

function LoggedOut(): ReactNode {
  return (
    <main className="alone">
      <h1>You are logged out</h1>
      <p>
        Run <code>monoctl console open</code> on the machine of the daemon, and open the link that it prints.
      </p>
    </main>
  );
}

function titleOf(route: Route): string {
  switch (route.page) {
    case "new":
      return "New thread";
    case "thread":
      return "Thread";
    case "run":
      return "Run";
    case "continuation":
      return "Continuation";
    case "missing":
      return "Not found";
    default:
      return route.page[0]?.toUpperCase() + route.page.slice(1);
  }
}

function Frame({ bootstrap }: { bootstrap: Bootstrap }): ReactNode {
  const route = useRoute();
  const [sidebar, setSidebar] = useState(false);
  const [folded, setFolded] = useState(false);
  const [help, setHelp] = useState(false);
  const link = useSyncExternalStore(linkState.subscribe, linkState.get);
  const { threads } = useStore(lists.active);
  const main = useRef<HTMLElement>(null);
  const current = route.page === "thread" ? route.id : null;

  useEffect(() => keepThreads(), []);

  const open = useStore(openThread);
  const here = open?.id === current ? open : threads.find((thread) => thread.id === current);
  const title = here?.title || titleOf(route);
  const unread = threads.filter((thread) => thread.unread && thread.id !== current).length;
  useEffect(() => {
    document.title = `${unread > 0 ? `(${unread}) ` : ""}${plain(title)} – mono`;
  }, [title, unread]);

  // Another page: the drawer of a narrow screen closes, and a reader stands at the page's beginning.
  const place = `${route.page} ${"id" in route ? route.id : ""}`;
  const before = useRef(place);
  useEffect(() => {
    if (before.current === place) return;
    before.current = place;
    setSidebar(false);
    const field = main.current?.querySelector<HTMLElement>("[data-first]");
    (field ?? main.current)?.focus({ preventScroll: true });
  }, [place]);

  const neighbour = (by: number): void => {
    const at = threads.findIndex((thread) => thread.id === current);
    const next = threads[at < 0 ? 0 : at + by];
    if (next !== undefined) navigate(threadPath(next.id));
  };
  useShortcut("search", () => navigate("/search"));
  useShortcut("new", () => navigate("/"));
  useShortcut("help", () => setHelp(true));
  useShortcut("sidebar", () => (narrow() ? setSidebar(!sidebar) : setFolded(!folded)));
  useShortcut("next", () => neighbour(1));
  useShortcut("previous", () => neighbour(-1));

  return (
    <div className="frame" data-drawer={sidebar || undefined} data-folded={folded || undefined}>
      <a className="skip-link" href="#main" onClick={(event) => {
        event.preventDefault();
        main.current?.focus();
      }}>
        Skip to the content
      </a>
      <header className="top-bar">
        <button
          type="button"
          className="icon-button"
          aria-label={sidebar ? "Close the menu" : "Open the menu"}
          aria-expanded={sidebar}
          onClick={() => setSidebar(!sidebar)}
        >
          <Icon name="menu" />
        </button>
        <span className="top-title">
          <Name>{title}</Name>
        </span>
        {open !== null && <ThreadMenu thread={open} current={open.id} />}
        <Link to="/" className="icon-button" aria-label="New thread">
          <Icon name="plus" />
        </Link>
      </header>
      <Sidebar current={current} page={route.page} version={bootstrap.version} onHelp={() => setHelp(true)} />
      <div className="scrim" onClick={() => setSidebar(false)} />
      <main id="main" ref={main} tabIndex={-1}>
        {link === "broken" && (
          <p className="banner" role="status">
            <Icon name="alert" /> The connection to the daemon broke. What is shown may be old.
          </p>
        )}
        <Boundary key={place}>
          <Suspense fallback={<Loading what="the page" />}>
            <Page route={route} bootstrap={bootstrap} />
          </Suspense>
        </Boundary>
      </main>
      <Notices />
      {help && <ShortcutsDialog onClose={() => setHelp(false)} />}
    </div>
  );
}

function narrow(): boolean {
  return matchMedia("(max-width: 800px)").matches;
}

function Page({ route, bootstrap }: { route: Route; bootstrap: Bootstrap }): ReactNode {
  switch (route.page) {
    case "new":
      return <NewThread bootstrap={bootstrap} />;
    case "thread":
      return <ThreadPage key={route.id} id={route.id} message={route.message} bootstrap={bootstrap} />;
    case "search":
      return <SearchPage q={route.q} />;
    case "runs":
      return <RunsPage />;
    case "run":
      return <RunPage key={route.id} id={route.id} />;
    case "continuations":
      return <ContinuationsPage />;
    case "continuation":
      return <ContinuationPage key={route.id} id={route.id} />;
    case "workers":
      return <WorkersPage />;
    case "files":
      return <FilesPage />;
    case "settings":
      return <SettingsPage bootstrap={bootstrap} />;
    case "missing":
      return (
        <Empty icon="alert" title="There is no such page">
          <Link to="/" className="button">
            To the start
          </Link>
        </Empty>
      );
  }
}
