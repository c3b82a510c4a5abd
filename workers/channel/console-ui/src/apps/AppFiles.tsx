/** The files that an app has handed over, and that are kept. */

import { useEffect, useState, type ReactNode } from "react";
import { apps } from "../api/apps.ts";
import type { AppPart, FilePart } from "../api/types.ts";
import { FileCard } from "../files/FileCard.tsx";

/** `saved` came since the app was opened, the last one first. */
export function AppFiles({ part, saved }: { part: AppPart; saved: FilePart[] }): ReactNode {
  const [kept, setKept] = useState<FilePart[]>([]);
  useEffect(() => {
    const abort = new AbortController();
    // An app without them is an app all the same.
    apps.files(part, abort.signal).then(setKept, () => undefined);
    return () => abort.abort();
  }, [part.messageId, part.id]);
  const files = [...saved, ...kept].filter((file, at, all) => all.findIndex((other) => other.id === file.id) === at);
  if (files.length === 0) return null;
  return (
    <details className="app-files">
      <summary>{files.length === 1 ? "One file" : `${files.length} files`} of this app</summary>
      {files.map((file) => (
        <FileCard key={file.id} part={file} />
      ))}
    </details>
  );
}
