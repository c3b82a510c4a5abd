import { useEffect, useState, type ReactNode } from "react";
import { notify, say } from "../state/notices.ts";
import { Icon } from "./Icon.tsx";

/** Copies a text and says that it did. */
export function CopyButton({ text, label, small = false }: { text: string; label: string; small?: boolean }): ReactNode {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return undefined;
    const timer = setTimeout(() => setCopied(false), 2000);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <button
      type="button"
      className={small ? "icon-button small" : "icon-button"}
      aria-label={label}
      title={label}
      onClick={() => {
        navigator.clipboard.writeText(text).then(
          () => {
            setCopied(true);
            say("Copied.");
          },
          () => notify("The browser doesn't allow copying here.", "bad"),
        );
      }}
    >
      <Icon name={copied ? "check" : "copy"} />
    </button>
  );
}
