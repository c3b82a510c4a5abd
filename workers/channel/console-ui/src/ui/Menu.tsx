/** A button that opens a menu; arrow keys move in it. */

import { useEffect, useId, useLayoutEffect, useRef, useState, type ReactNode } from "react";
import { createPortal } from "react-dom";
import { Icon, type IconName } from "./Icon.tsx";
import { step } from "./roving.ts";

export interface MenuItem {
  label: string;
  icon: IconName;
  danger?: boolean;
  disabled?: boolean;
  onSelect: () => void;
}

export function MenuButton({
  label,
  items,
  tabIndex,
}: {
  label: string;
  items: MenuItem[];
  tabIndex?: number;
}): ReactNode {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  const id = useId();

  useLayoutEffect(() => {
    if (!open || button.current === null || menu.current === null) return;
    const at = button.current.getBoundingClientRect();
    const box = menu.current.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.right - box.width, innerWidth - box.width - 8));
    const below = at.bottom + 4 + box.height <= innerHeight - 8;
    menu.current.style.left = `${left}px`;
    menu.current.style.top = `${below ? at.bottom + 4 : Math.max(8, at.top - 4 - box.height)}px`;
    menu.current.querySelector<HTMLElement>('[role="menuitem"]:not(:disabled)')?.focus();
  }, [open]);

  useEffect(() => {
    if (!open) return undefined;
    const outside = (event: Event): void => {
      if (event.target instanceof Node && menu.current?.contains(event.target)) return;
      if (event.target instanceof Node && button.current?.contains(event.target)) return;
      setOpen(false);
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("scroll", outside, true);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("scroll", outside, true);
    };
  }, [open]);

  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };

  return (
    <>
      <button
        ref={button}
        type="button"
        className="icon-button"
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        tabIndex={tabIndex}
        onClick={() => setOpen(!open)}
      >
        <Icon name="more" />
      </button>
      {open &&
        createPortal(
          <div
            ref={menu}
            id={id}
            role="menu"
            aria-label={label}
            className="menu"
            onKeyDown={(event) => {
              event.stopPropagation();
              if (event.key === "Escape" || event.key === "Tab") {
                event.preventDefault();
                close();
                return;
              }
              step(event, menu.current, '[role="menuitem"]:not(:disabled)');
            }}
          >
            {items.map((item) => (
              <button
                key={item.label}
                type="button"
                role="menuitem"
                tabIndex={-1}
                disabled={item.disabled}
                className={item.danger === true ? "danger" : undefined}
                onClick={() => {
                  close();
                  item.onSelect();
                }}
              >
                <Icon name={item.icon} />
                {item.label}
              </button>
            ))}
          </div>,
          document.body,
        )}
    </>
  );
}
