/** A modal dialog: the browser keeps the focus inside and gives it back. */

import { useEffect, useId, useRef, type ReactNode } from "react";
import { createPortal } from "react-dom";
import { Icon } from "./Icon.tsx";

export function Dialog({
  title,
  onClose,
  wide = false,
  about,
  children,
}: {
  title: ReactNode;
  onClose: () => void;
  wide?: boolean;
  /** The id of what says more than the title: read out with it. */
  about?: string;
  children: ReactNode;
}): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current;
    const before = document.activeElement;
    element?.showModal();
    return () => {
      element?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return createPortal(
    <dialog
      ref={dialog}
      className={wide ? "dialog wide" : "dialog"}
      aria-labelledby={id}
      aria-describedby={about}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        // The dialog's own box is its content; a click on itself is one on the backdrop.
        if (event.target === dialog.current) onClose();
        // A portal's events go up through the elements that opened it.
        event.stopPropagation();
      }}
      onKeyDown={(event) => event.stopPropagation()}
    >
      <div className="dialog-box">
        <header>
          <h2 id={id}>{title}</h2>
          <button type="button" className="icon-button" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>,
    document.body,
  );
}

/** A question with one dangerous answer. */
export function Confirm({
  title,
  action,
  onConfirm,
  onClose,
  children,
}: {
  title: string;
  action: string;
  onConfirm: () => void;
  onClose: () => void;
  children: ReactNode;
}): ReactNode {
  return (
    <Dialog title={title} onClose={onClose}>
      {children}
      <div className="dialog-actions">
        <button type="button" className="button" onClick={onClose}>
          Cancel
        </button>
        <button
          type="button"
          className="button danger"
          onClick={() => {
            onClose();
            onConfirm();
          }}
        >
          {action}
        </button>
      </div>
    </Dialog>
  );
}
