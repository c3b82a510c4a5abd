/** A file of a reply: what it is, how long it is kept, and what can be done with it. */

import { lazy, Suspense, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { api, sentence } from "../api/client.ts";
import type { FilePart } from "../api/types.ts";
import { size, time } from "../ui/format.ts";
import { Boundary } from "../ui/Boundary.tsx";
import { Icon } from "../ui/Icon.tsx";
import { Name } from "../ui/Name.tsx";
import { plain } from "../ui/plain.ts";
import { Loading } from "../ui/States.tsx";
import { Time, useNow } from "../ui/Time.tsx";
import { fetchFile, hash, save, type Fetched } from "./fetchFile.ts";
import { kind, MAX_PREVIEW } from "./preview.ts";

const Preview = lazy(() => import("./Preview.tsx"));

export function FileCard({ part: given }: { part: FilePart }): ReactNode {
  // Its name is shown, said and saved without what could make it look like another.
  const part = useMemo(() => ({ ...given, name: plain(given.name) }), [given]);
  const [shown, setShown] = useState<Fetched | null>(null);
  const [progress, setProgress] = useState<number | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [verified, setVerified] = useState(false);
  const abort = useRef<AbortController | null>(null);
  const now = useNow(60_000);
  useEffect(() => () => abort.current?.abort(), []);

  const expiry = time(part.expiresAt);
  const expired = expiry !== null && expiry <= now;
  const what = kind(part.mediaType, part.name);
  const sum = hash(part);

  const fetched = async (then: (file: Fetched) => void): Promise<void> => {
    abort.current?.abort();
    const controller = new AbortController();
    abort.current = controller;
    setError(null);
    setProgress(0);
    try {
      const file = await fetchFile({ ...part, address: api.fileAddress(part) }, setProgress, controller.signal);
      setVerified(file.verified === true);
      then(file);
    } catch (cause) {
      if (!controller.signal.aborted) setError(sentence(cause));
    } finally {
      if (abort.current === controller) setProgress(null);
    }
  };

  return (
    <article className="card file" aria-label={`File ${part.name}`}>
      <div className="file-head">
        <span className="file-icon">
          <Icon name={what === "image" ? "image" : "file"} />
        </span>
        <div className="file-about">
          <p className="file-name">
            <Name>{part.name}</Name>
          </p>
          <p className="file-facts muted">
            <span>{part.mediaType}</span>
            <span>{size(part.bytes)}</span>
            {expiry !== null && (
              <span>
                {expired ? "expired " : "expires "}
                <Time at={expiry} />
              </span>
            )}
            {sum !== null && (
              <span title={`SHA-256 ${sum}`}>
                <Icon name="shield" /> {verified ? "verified" : "SHA-256"} <code>{sum.slice(0, 8)}</code>
              </span>
            )}
          </p>
        </div>
        <div className="file-actions">
          {what !== "none" && !expired && part.bytes <= MAX_PREVIEW && (
            <button
              type="button"
              className="button"
              aria-expanded={shown !== null}
              onClick={() => (shown === null ? void fetched(setShown) : setShown(null))}
            >
              <Icon name="eye" /> {shown === null ? "Preview" : "Hide"}
              <span className="visually-hidden"> {part.name}</span>
            </button>
          )}
          {!expired && (
            <a
              className="button"
              href={api.fileAddress(part)}
              download={part.name}
              onClick={(event) => {
                if (event.ctrlKey || event.metaKey || event.shiftKey) return;
                event.preventDefault();
                void fetched((file) => save(file.bytes, part.name));
              }}
            >
              <Icon name="download" /> Download<span className="visually-hidden"> {part.name}</span>
            </a>
          )}
        </div>
      </div>
      {progress !== null && <progress aria-label={`Fetching ${part.name}`} value={progress} max={1} />}
      {error !== null && (
        <p className="file-error" role="alert" dir="auto">
          {error}
        </p>
      )}
      {shown !== null && (
        <Boundary>
          <Suspense fallback={<Loading what="the preview" />}>
            <Preview part={part} bytes={shown.bytes} what={what} />
          </Suspense>
        </Boundary>
      )}
    </article>
  );
}
