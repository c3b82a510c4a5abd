import { useEffect, useState, type ReactNode } from "react";
import { relative, time } from "./format.ts";

/** How long ago something was, with the exact time as a title. */
export function Time({ at }: { at: number | string | null | undefined }): ReactNode {
  const now = useNow(30_000);
  const ms = time(at);
  if (ms === null) return <span>–</span>;
  const date = new Date(ms);
  return (
    <time dateTime={date.toISOString()} title={date.toLocaleString()}>
      {relative(ms, now)}
    </time>
  );
}

/** The time, again every so often. */
export function useNow(everyMs: number | null): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (everyMs === null) return undefined;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
