/** Files on their way to the server, for one message that is being written. */

import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { api, sendContent, sentence } from "../api/client.ts";
import type { Attachment, Bootstrap } from "../api/types.ts";
import { size } from "../ui/format.ts";
import { plain } from "../ui/plain.ts";
import { notify, say } from "../state/notices.ts";

export interface Pending {
  key: number;
  name: string;
  bytes: number;
  /** 0 to 1. */
  progress: number;
  /** Set once the server has it. */
  id?: string;
  error?: string;
}

export interface Uploads {
  pending: Pending[];
  add: (files: Iterable<File>) => void;
  remove: (key: number) => void;
  /** Forgets those that were sent with a message. */
  clear: () => void;
  ids: string[];
  busy: boolean;
}

let keys = 0;

/** A name that the server takes: plain, short, and not hidden; pasted images have none. */
export function fileName(name: string): string {
  const clean = plain(name)
    .replaceAll(/[/\\\u200c-\u200f\ufffd]/g, "_")
    .replace(/^\.+/, "");
  const dot = clean.lastIndexOf(".");
  const ending = dot > 0 && clean.length - dot <= 16 ? clean.slice(dot) : "";
  let stem = clean.slice(0, clean.length - ending.length);
  const bytes = new TextEncoder();
  while (bytes.encode(stem + ending).length > 240) stem = [...stem].slice(0, -1).join("");
  return stem + ending || "pasted";
}

const nameOf = (file: File): string => fileName(file.name);

/** The media type the browser says, when it is one; else bytes. */
function typeOf(file: File): string {
  const type = file.type.split(";")[0]?.trim().toLowerCase() ?? "";
  return /^[a-z0-9.+-]+\/[a-z0-9.+-]+$/.test(type) ? type : "application/octet-stream";
}

export function useUploads(limits: Bootstrap["limits"], kept: Attachment[] = []): Uploads {
  const [pending, setPending] = useState<Pending[]>(() =>
    kept.map(({ id, name, bytes }) => ({ key: ++keys, id, name, bytes, progress: 1 })),
  );
  const controllers = useRef(new Map<number, AbortController>());
  const count = useRef(pending.length);
  const bytes = useRef(pending.reduce((sum, one) => sum + one.bytes, 0));
  const own = useRef(new Set<string>());
  useEffect(
    () => () => {
      for (const controller of controllers.current.values()) controller.abort();
    },
    [],
  );

  useEffect(() => {
    count.current = pending.length;
    bytes.current = pending.reduce((sum, one) => sum + one.bytes, 0);
  }, [pending]);

  const change = useCallback((key: number, by: Partial<Pending>) => {
    setPending((all) => all.map((one) => (one.key === key ? { ...one, ...by } : one)));
  }, []);

  const start = useCallback(
    async (key: number, file: File) => {
      const controller = new AbortController();
      controllers.current.set(key, controller);
      try {
        const { id } = await api.declareUpload(nameOf(file), typeOf(file), file.size);
        await sendContent(id, file, (progress) => change(key, { progress }), controller.signal);
        own.current.add(id);
        change(key, { id, progress: 1 });
        say(`${nameOf(file)} is attached.`);
      } catch (error) {
        if (!controller.signal.aborted) change(key, { error: sentence(error) });
      } finally {
        controllers.current.delete(key);
      }
    },
    [change],
  );

  const add = useCallback(
    (files: Iterable<File>) => {
      const added: Pending[] = [];
      for (const file of files) {
        if (count.current >= limits.attachments) {
          notify(`A message takes ${limits.attachments} files at most.`, "bad");
          break;
        }
        if (file.size > limits.attachmentBytes) {
          notify(`${nameOf(file)} has ${size(file.size)}; a file may have ${size(limits.attachmentBytes)}.`, "bad");
          continue;
        }
        const most = limits.attachmentsBytes ?? Number.POSITIVE_INFINITY;
        if (bytes.current + file.size > most) {
          notify(`The files of a message may have ${size(most)} together.`, "bad");
          break;
        }
        const key = ++keys;
        count.current += 1;
        bytes.current += file.size;
        added.push({ key, name: nameOf(file), bytes: file.size, progress: 0 });
        void start(key, file);
      }
      if (added.length > 0) setPending((all) => [...all, ...added]);
    },
    [limits, start],
  );

  const remove = useCallback((key: number) => {
    controllers.current.get(key)?.abort();
    setPending((all) => {
      const id = all.find((one) => one.key === key)?.id;
      // One that belongs to an earlier message isn't ours to delete.
      if (id !== undefined && own.current.delete(id)) api.deleteUpload(id).catch(() => undefined);
      return all.filter((one) => one.key !== key);
    });
  }, []);

  const clear = useCallback(() => {
    own.current.clear();
    setPending([]);
  }, []);

  return useMemo(
    () => ({
      pending,
      add,
      remove,
      clear,
      ids: pending.flatMap((one) => one.id ?? []),
      busy: pending.some((one) => one.id === undefined && one.error === undefined),
    }),
    [pending, add, remove, clear],
  );
}
