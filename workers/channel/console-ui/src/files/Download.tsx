/** Fetches a file of the list of all, checks it and saves it; or says who can. */

import { useEffect, useRef, useState, type ReactNode } from "react";
import { api, sentence } from "../api/client.ts";
import type { Artifact } from "../api/types.ts";
import { notify, say } from "../state/notices.ts";
import { CopyButton } from "../ui/CopyButton.tsx";
import { Icon } from "../ui/Icon.tsx";
import { plain } from "../ui/plain.ts";
import { command } from "./command.ts";
import { fetchFile, save } from "./fetchFile.ts";

export function Download({ file }: { file: Artifact }): ReactNode {
  const [progress, setProgress] = useState<number | null>(null);
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);
  const name = plain(file.name);
  const address = api.artifactAddress(file);
  if (address === null) {
    return <CopyButton text={command(file)} label={`Copy the command that fetches ${name}: it is another channel's`} small />;
  }
  const fetched = async (): Promise<void> => {
    abort.current?.abort();
    const controller = new AbortController();
    abort.current = controller;
    setProgress(0);
    try {
      const { bytes } = await fetchFile({ ...file, address, bytes: file.sizeBytes }, setProgress, controller.signal);
      save(bytes, name);
      say(`${name} was fetched.`);
    } catch (cause) {
      if (!controller.signal.aborted) notify(`${name}: ${sentence(cause)}`, "bad");
    } finally {
      if (abort.current === controller) setProgress(null);
    }
  };
  return (
    <a
      className="icon-button small"
      href={address}
      download={name}
      aria-label={`Download ${name}`}
      title={`Download ${name}`}
      onClick={(event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        void fetched();
      }}
    >
      {progress === null ? <Icon name="download" /> : <progress aria-label={`Fetching ${name}`} value={progress} max={1} />}
    </a>
  );
}
