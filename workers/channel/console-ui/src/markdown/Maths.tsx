/** A formula, drawn by the browser's own MathML; the source until then, and when it has errors. */

import { useLayoutEffect, useRef, useState, type ReactNode } from "react";

type Draw = (source: string, target: HTMLElement, display: boolean) => void;
let draw: Draw | null = null;

export function Maths({ source, display = false }: { source: string; display?: boolean }): ReactNode {
  const target = useRef<HTMLSpanElement>(null);
  const [ready, setReady] = useState(draw !== null);
  const [wrong, setWrong] = useState<string | null>(null);
  useLayoutEffect(() => {
    if (draw === null) {
      import("./formula.ts").then(
        (module) => {
          draw = module.draw;
          setReady(true);
        },
        () => undefined,
      );
      return;
    }
    if (target.current === null) return;
    try {
      draw(source, target.current, display);
    } catch {
      setWrong(source);
    }
  }, [source, display, ready]);
  if (!ready || wrong === source) return <code className={display ? "maths display" : "maths"}>{source}</code>;
  return (
    <span
      className={display ? "maths display" : "maths"}
      dir="ltr"
      {...(display ? { role: "group", "aria-label": "Formula", tabIndex: 0 } : {})}
      ref={target}
    />
  );
}
