import type { ReactNode } from "react";
import { plain } from "./plain.ts";

/** A name that somebody else chose: isolated, and never markup. */
export function Name({ children, className }: { children: string; className?: string }): ReactNode {
  return <bdi className={className}>{plain(children)}</bdi>;
}
