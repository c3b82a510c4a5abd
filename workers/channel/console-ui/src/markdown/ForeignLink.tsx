/** A link of an answer: opened only after its address was shown. */

import { useState, type ReactNode } from "react";
import { Dialog } from "../ui/Dialog.tsx";
import { Icon } from "../ui/Icon.tsx";
import { address as read } from "./address.ts";

export function ForeignLink({
  address,
  image = false,
  children,
}: {
  address: string;
  image?: boolean;
  children: ReactNode;
}): ReactNode {
  const [asking, setAsking] = useState(false);
  const target = read(address);
  if (target === null) {
    return (
      <span className="dead-link" title="This address can't be opened from here.">
        {image ? `Image: ${text(children)}` : children}
      </span>
    );
  }
  return (
    <>
      <a
        href={target.href}
        rel="noopener noreferrer nofollow"
        target="_blank"
        className={image ? "foreign-image" : undefined}
        onClick={(event) => {
          event.preventDefault();
          setAsking(true);
        }}
        // The middle button opens without asking too.
        onAuxClick={(event) => {
          if (event.button === 1) {
            event.preventDefault();
            setAsking(true);
          }
        }}
      >
        {image ? (
          <>
            <Icon name="image" /> <bdi>{text(children) || "Image"}</bdi> <span className="muted">({target.host})</span>
          </>
        ) : (
          children
        )}
      </a>
      {asking && (
        <Dialog title="Open this address?" onClose={() => setAsking(false)}>
          <p>
            It leads to <strong dir="ltr">{target.host}</strong>, which is not part of this console.
          </p>
          <p className="address" dir="ltr">
            {target.href}
          </p>
          <div className="dialog-actions">
            <button type="button" className="button" onClick={() => setAsking(false)}>
              Stay here
            </button>
            <a
              className="button primary"
              href={target.href}
              target="_blank"
              rel="noopener noreferrer nofollow"
              onClick={() => setAsking(false)}
            >
              Open in a new tab
            </a>
          </div>
        </Dialog>
      )}
    </>
  );
}

function text(node: ReactNode): string {
  if (typeof node === "string") return node;
  return Array.isArray(node) ? node.map((child: ReactNode) => text(child)).join("") : "";
}
