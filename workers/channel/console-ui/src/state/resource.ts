/** Something that is read from the server and read again when a hint says so. */

import { useCallback, useEffect, useRef, useState } from "react";
import { sentence } from "../api/client.ts";
import { onHint } from "../api/hints.ts";
import type { Hint } from "../api/types.ts";

export interface Resource<T> {
  value: T | null;
  error: string | null;
  reload: () => void;
  set: (change: (value: T) => T) => void;
}

/** `read` must be stable (`useCallback`); `everyMs` reads again as long as the tab is shown. */
export function useResource<T>(read: () => Promise<T>, kinds: Hint["kind"][] = [], everyMs?: number): Resource<T> {
  const [value, setValue] = useState<T | null>(null);
  const [error, setError] = useState<string | null>(null);
  const turn = useRef(0);
  const wanted = kinds.join();

  const reload = useCallback(() => {
    const mine = ++turn.current;
    read().then(
      (next) => {
        if (mine !== turn.current) return;
        setValue(next);
        setError(null);
      },
      (cause: unknown) => {
        if (mine === turn.current) setError(sentence(cause));
      },
    );
  }, [read]);

  useEffect(() => {
    setValue(null);
    setError(null);
    reload();
    let soon: ReturnType<typeof setTimeout> | undefined;
    const stop =
      wanted === ""
        ? () => undefined
        : onHint((hint) => {
            if (hint.kind !== "all" && !wanted.split(",").includes(hint.kind)) return;
            clearTimeout(soon);
            soon = setTimeout(reload, 150);
          });
    const every =
      everyMs === undefined
        ? undefined
        : setInterval(() => {
            if (document.visibilityState === "visible") reload();
          }, everyMs);
    return () => {
      turn.current++;
      clearTimeout(soon);
      clearInterval(every);
      stop();
    };
  }, [reload, wanted, everyMs]);

  const set = useCallback((change: (value: T) => T) => {
    setValue((old) => (old === null ? old : change(old)));
  }, []);
  return { value, error, reload, set };
}
