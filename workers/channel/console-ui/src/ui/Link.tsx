import type { ComponentProps, ReactNode } from "react";
import { navigate } from "../state/route.ts";

/** A link within the page; a modified click is the browser's. */
export function Link({ to, onClick, ...rest }: { to: string } & Omit<ComponentProps<"a">, "href">): ReactNode {
  return (
    <a
      href={to}
      {...rest}
      onClick={(event) => {
        onClick?.(event);
        if (event.defaultPrevented || event.button !== 0) return;
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        navigate(to);
      }}
    />
  );
}
