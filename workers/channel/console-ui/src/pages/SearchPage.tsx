/** Search over titles and messages. */

import { useEffect, useRef, useState, type ReactNode } from "react";
import { api, sentence } from "../api/client.ts";
import type { HitPage } from "../api/types.ts";
import { navigate } from "../state/route.ts";
import { threadPath } from "../state/routes.ts";
import { say } from "../state/notices.ts";
import { Page } from "../ui/DataTable.tsx";
import { plural } from "../ui/format.ts";
import { Link } from "../ui/Link.tsx";
import { Name } from "../ui/Name.tsx";
import { step } from "../ui/roving.ts";
import { Empty, Failed } from "../ui/States.tsx";
import { Time } from "../ui/Time.tsx";

export default function SearchPage({ q }: { q: string }): ReactNode {
  const [text, setText] = useState(q);
  const [page, setPage] = useState<HitPage | null>(null);
  const [error, setError] = useState<string | null>(null);
  const list = useRef<HTMLOListElement>(null);
  const wanted = text.trim();

  useEffect(() => {
    if (wanted === "") {
      setPage(null);
      return undefined;
    }
    const controller = new AbortController();
    const timer = setTimeout(() => {
      navigate(`/search?q=${encodeURIComponent(wanted)}`, true);
      api.search(wanted, null, controller.signal).then(
        (found) => {
          setPage(found);
          setError(null);
          say(`${plural(found.hits.length, "result")}${found.next === null ? "" : " and more"}.`);
        },
        (cause: unknown) => {
          if (!controller.signal.aborted) setError(sentence(cause));
        },
      );
    }, 200);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [wanted]);

  const more = async (): Promise<void> => {
    if (page?.next == null) return;
    try {
      const next = await api.search(wanted, page.next);
      setPage({ hits: [...page.hits, ...next.hits], next: next.next });
    } catch (cause) {
      setError(sentence(cause));
    }
  };

  return (
    <Page title="Search">
      <label className="search-field">
        <span className="visually-hidden">Search threads and messages</span>
        <input
          type="search"
          dir="auto"
          value={text}
          maxLength={200}
          placeholder="Titles and messages"
          data-first
          autoFocus
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "ArrowDown") list.current?.querySelector<HTMLElement>("a")?.focus();
          }}
        />
      </label>
      {error !== null && <Failed message={error} />}
      {page !== null && page.hits.length === 0 && <Empty icon="search" title="Nothing was found" />}
      {page !== null && (
        <ol className="hits" ref={list} onKeyDown={(event) => step(event, list.current, "a")}>
          {page.hits.map((hit, index) => (
            <li key={`${hit.threadId} ${hit.messageId ?? index}`}>
              <Link to={threadPath(hit.threadId, hit.messageId)} className="hit">
                <span className="hit-head">
                  <Name className="hit-title">{hit.title || "New thread"}</Name>
                  <span className="muted">
                    <Time at={hit.at} />
                  </span>
                </span>
                <span className="hit-text" dir="auto">
                  {hit.snippet.map((piece, at) => (piece.hit ? <mark key={at}>{piece.text}</mark> : piece.text))}
                </span>
              </Link>
            </li>
          ))}
        </ol>
      )}
      {page?.next != null && (
        <button type="button" className="button centred" onClick={() => void more()}>
          More
        </button>
      )}
    </Page>
  );
}
