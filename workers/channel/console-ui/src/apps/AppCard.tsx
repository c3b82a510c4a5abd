/** An app of a reply: its stored record, and the view that it is shown in. */

import { useCallback, useContext, useEffect, useLayoutEffect, useRef, useState, type ReactNode } from "react";
import { apps, type View } from "../api/apps.ts";
import { api, ApiError, sentence } from "../api/client.ts";
import { onHint } from "../api/hints.ts";
import type { AppPart, AppRecord, FilePart } from "../api/types.ts";
import { fetchFile, save } from "../files/fetchFile.ts";
import { forget, keepContext, propose } from "../state/appTexts.ts";
import { notify, say } from "../state/notices.ts";
import { useStore } from "../state/store.ts";
import { ThreadId } from "../state/threadId.ts";
import { Icon } from "../ui/Icon.tsx";
import { Name } from "../ui/Name.tsx";
import { plain } from "../ui/plain.ts";
import { Loading } from "../ui/States.tsx";
import { AppFiles } from "./AppFiles.tsx";
import { AppNotes } from "./AppNotes.tsx";
import { DecisionDialog } from "./DecisionDialog.tsx";
import { question, questions, withdraw } from "./decisions.ts";
import { AppFrame } from "./frame.ts";
import { AppHost, type Note, type Page } from "./host.ts";
import { inertOthers } from "./inert.ts";
import { FIRST_HEIGHT } from "./limits.ts";
import { enter, leave } from "./openViews.ts";

type State =
  | { is: "waiting" | "reading" | "open" }
  | { is: "over"; text: string }
  | { is: "failed"; text: string };

const ENDINGS: Record<string, string> = {
  navigated: "The app was stopped: it tried to leave its page.",
  storm: "The app was stopped: it sent too many messages.",
  replaced: "The app was stopped.",
  proxy_gone: "The app was stopped: its frame was loaded again.",
  focus: "The app was stopped: it took the keyboard again and again.",
  silent: "The app was stopped: it no longer answered.",
  closed: "The app is closed.",
  crowded: "The app was closed to make room for another one.",
};
/** A browser keeps the process of frames that are gone for a while; what it never ends would begin in it. */
const REST_MS = 5000;
/** Notes that are kept for one view. */
const MOST_NOTES = 100;

export default function AppCard({ part }: { part: AppPart }): ReactNode {
  const thread = useContext(ThreadId);
  const name = plain(part.title ?? part.toolName);
  const [state, setState] = useState<State>({ is: "waiting" });
  const [record, setRecord] = useState<AppRecord | null>(null);
  const [connected, setConnected] = useState(true);
  const [notes, setNotes] = useState<Note[]>([]);
  const [saved, setSaved] = useState<FilePart[]>([]);
  const [height, setHeight] = useState(FIRST_HEIGHT);
  const [ready, setReady] = useState(false);
  const [full, setFull] = useState(false);
  const [folded, setFolded] = useState(false);
  const [resting, setResting] = useState(false);
  const card = useRef<HTMLElement>(null);
  const place = useRef<HTMLDivElement>(null);
  const host = useRef<AppHost | null>(null);
  const asked = useStore(questions)[0];

  const note = useCallback((one: Note) => {
    setNotes((all) => (all.length >= MOST_NOTES || all.some((other) => other.text === one.text && other.kind === one.kind) ? all : [...all, one]));
  }, []);

  const open = useCallback(async () => {
    const element = place.current;
    if (host.current !== null || element === null) return;
    setState({ is: "reading" });
    setNotes([]);
    setHeight(FIRST_HEIGHT);
    // All of it at once: none of it depends on another.
    const frame = new AppFrame(element);
    const opening = apps.open(part);
    const undo = (): void => {
      frame.close();
      opening.then((opened: View) => opened.close()).catch(() => undefined);
    };
    try {
      const [about, html, opened] = await Promise.all([apps.record(part), apps.html(part), opening]);
      // The page went on while this was read.
      if (place.current !== element || host.current !== null) return undo();
      setRecord(about);
      setConnected(opened.connected);
      const page: Page = {
        decide: (confirmation) => question(opened.id, name, confirmation),
        open: (href) => {
          // As a person's own click, which it was; nothing of it comes back to this page.
          window.open(href, "_blank", "noopener,noreferrer");
        },
        save: (file) => {
          setSaved((all) => [file, ...all]);
          fetchFile({ ...file, address: api.fileAddress(file) }, () => undefined, new AbortController().signal).then(
            ({ bytes }) => save(bytes, plain(file.name)),
            (error: unknown) => notify(sentence(error), "bad"),
          );
        },
        propose: (text) => propose({ view: opened.id, thread, app: name, text }),
        keep: (text) =>
          keepContext({
            view: opened.id,
            thread,
            app: name,
            text,
            drop: () => {
              forget(opened.id);
              opened.dropContext().catch((error: unknown) => notify(sentence(error), "bad"));
            },
          }),
        note,
        height: setHeight,
        mode: (mode) => setFull(mode === "fullscreen"),
        ready: () => {
          setReady(true);
          say(`The app ${name} is open.`);
        },
        ended: (why) => {
          leave(opened.id);
          withdraw(opened.id);
          forget(opened.id);
          opened.close().catch(() => undefined);
          if (host.current !== made) return;
          host.current = null;
          setFull(false);
          setReady(false);
          setState({ is: "over", text: ENDINGS[why] ?? "The app is closed." });
          if (why !== "silent") return;
          setResting(true);
          setTimeout(() => setResting(false), REST_MS);
        },
        lost: () => setConnected(false),
        busy: () => questions.get().length > 0,
      };
      const made: AppHost = new AppHost(element, frame, about, html, opened, page);
      host.current = made;
      enter(opened.id, () => void made.close("crowded"));
      setState({ is: "open" });
    } catch (error) {
      undo();
      setState({ is: "failed", text: GONE[error instanceof ApiError ? error.code : ""] ?? sentence(error) });
    }
  }, [part.messageId, part.id, thread, name, note]);

  // When it comes near to where it is seen, and then for good: scrolling is no reason to lose it.
  useEffect(() => {
    const element = card.current;
    if (element === null) return undefined;
    const observer = new IntersectionObserver(
      (entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        observer.disconnect();
        void open();
      },
      { rootMargin: "400px" },
    );
    observer.observe(element);
    // A page that goes has no time for a view's last words.
    const left = (): void => host.current?.abandon();
    addEventListener("pagehide", left);
    return () => {
      observer.disconnect();
      removeEventListener("pagehide", left);
      void host.current?.close();
    };
  }, [open]);

  // Before its place is taken out of the page, so that the app can have its last words.
  useLayoutEffect(
    () => () => {
      const leaving = host.current;
      if (leaving === null) return;
      withdraw(leaving.viewId);
      leaving.part();
    },
    [],
  );

  // The call goes on while its page is open: what becomes of it is told to the same view.
  const { stage, soFar } = part;
  useEffect(() => {
    if (state.is === "open" && soFar !== undefined) host.current?.partial(soFar);
  }, [state.is, soFar]);
  useEffect(() => {
    const shown = host.current;
    if (state.is !== "open" || shown === null || stage === "draft" || record?.draft !== true) return;
    apps.record(part).then(
      (about) => {
        if (host.current !== shown) return;
        setRecord(about);
        shown.know(about);
      },
      // It is gone, and the page is told so in a moment.
      () => undefined,
    );
  }, [state.is, stage, record?.draft, part.messageId, part.id]);

  useEffect(
    () =>
      onHint((hint) => {
        if (hint.kind !== "app" || hint.id !== part.id || host.current === null) return;
        apps.record(part).then(
          (about) => setConnected(about.connected),
          () => setConnected(false),
        );
      }),
    [part.messageId, part.id],
  );

  useFull(full, card, () => host.current?.show("inline"));

  const live = state.is === "open";
  // A question is about to be answered: nothing of any app can be used meanwhile.
  const inert = asked !== undefined;
  const refusals = record?.refused ?? [];
  return (
    <article ref={card} className="card app" aria-label={`App ${name}`} data-full={full || undefined} data-state={state.is} data-ready={ready || undefined}>
      <header className="app-head" inert={inert}>
        <Icon name="tool" />
        <p className="app-name">
          <Name>{name}</Name> <span className="muted">from <Name>{part.serverName}</Name></span>
          {live && !connected && (
            <span className="app-offline muted" title="It is shown as it was stored and can call nothing.">
              {" "}
              · no longer connected
            </span>
          )}
        </p>
        {live && (
          <span className="app-actions">
            {!full && (
              <button type="button" className="button small" aria-expanded={!folded} onClick={() => setFolded(!folded)}>
                {folded ? "Show" : "Fold"}
                <span className="visually-hidden"> {name}</span>
              </button>
            )}
            {!folded && host.current?.can("fullscreen") !== false && (
              <button type="button" className="button small" onClick={() => host.current?.show(full ? "inline" : "fullscreen")}>
                {full ? "Back to the thread" : "Enlarge"}
                <span className="visually-hidden"> {name}</span>
              </button>
            )}
            <button type="button" className="icon-button small" aria-label={`Close the app ${name}`} onClick={() => void host.current?.close()}>
              <Icon name="close" />
            </button>
          </span>
        )}
      </header>
      {state.is === "reading" && <Loading what="the app" />}
      {(state.is === "over" || state.is === "failed") && (
        <div className="app-over" role={state.is === "failed" ? "alert" : "status"}>
          <p dir="auto">{state.text}</p>
          <button type="button" className="button" disabled={resting} onClick={() => void open()}>
            {state.is === "over" ? "Open it again" : "Try again"}
          </button>
        </div>
      )}
      <Place place={place} shown={live && !folded} inert={inert} height={full ? null : height} bordered={record?.prefersBorder !== false} />
      {record !== null && <AppFiles part={part} saved={saved} />}
      {record !== null && <AppNotes refused={refusals} notes={notes} redacted={record.redacted === true} />}
      {asked !== undefined && asked.view === host.current?.viewId && <DecisionDialog key={asked.confirmation.id} question={asked} />}
    </article>
  );
}

const GONE: Record<string, string> = {
  app_missing: "This app is not kept any more.",
  app_expired: "This app was kept for a time and is gone.",
};

/**
 * Where the frame stands. Its height is set by script: the page's policy allows no style in markup.
 */
function Place({
  place,
  shown,
  inert,
  height,
  bordered,
}: {
  place: React.RefObject<HTMLDivElement | null>;
  shown: boolean;
  inert: boolean;
  /** In pixels; null fills what there is. */
  height: number | null;
  bordered: boolean;
}): ReactNode {
  useLayoutEffect(() => {
    if (place.current !== null) place.current.style.height = height === null ? "" : `${height}px`;
  }, [place, height]);
  return <div ref={place} className="app-place" data-shown={shown || undefined} data-bordered={bordered || undefined} inert={inert} />;
}

/** In full a view covers the page: in the top layer, without moving, which would load it again. */
function useFull(full: boolean, card: React.RefObject<HTMLElement | null>, back: () => void): void {
  useLayoutEffect(() => {
    const element = card.current;
    if (!full || element === null) return undefined;
    const before = document.activeElement;
    element.setAttribute("popover", "manual");
    element.showPopover();
    const restore = inertOthers(element);
    element.querySelector<HTMLElement>(".app-actions button")?.focus();
    const key = (event: KeyboardEvent): void => {
      if (event.key !== "Escape" || questions.get().length > 0) return;
      event.preventDefault();
      back();
    };
    addEventListener("keydown", key, true);
    return () => {
      removeEventListener("keydown", key, true);
      restore();
      element.hidePopover();
      element.removeAttribute("popover");
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, [full]);
}
