/** What stands where something is being read, is missing or is empty. */

import type { ReactNode } from "react";
import { Icon, type IconName } from "./Icon.tsx";

export function Loading({ what }: { what: string }): ReactNode {
  return (
    <p className="state" role="status">
      <span className="spinner" aria-hidden="true" /> Reading {what} …
    </p>
  );
}

export function Failed({ message, onRetry }: { message: string; onRetry?: () => void }): ReactNode {
  return (
    <div className="card failure" role="alert">
      <Icon name="alert" />
      <div className="card-body">
        <p dir="auto">{message}</p>
        {onRetry !== undefined && (
          <button type="button" className="button" onClick={onRetry}>
            Try again
          </button>
        )}
      </div>
    </div>
  );
}

export function Empty({ icon, title, children }: { icon: IconName; title: string; children?: ReactNode }): ReactNode {
  return (
    <div className="state empty">
      <Icon name={icon} />
      <p className="empty-title">{title}</p>
      {children}
    </div>
  );
}
