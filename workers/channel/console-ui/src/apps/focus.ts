/**
 * The focus goes to an app by a person's doing alone.
 *
 * A frame may take it by script whenever it likes, and would read what somebody types into the page.
 * Nothing forbids it; but a person who goes there points at it, or comes by the Tab key, and has not
 * typed or pointed at something of the page just before.
 */

/** So long after the Tab key the focus may move by itself. */
const TAB_MS = 300;
/** So long after a key or a click of the page a person has not gone to an app. */
const BUSY_MS = 1000;
/** Thefts within ten seconds after which the app is stopped. */
const MOST_THEFTS = 4;
const WINDOW_MS = 10_000;

let last: HTMLElement | null = null;
let tabAt = -Infinity;
let usedAt = -Infinity;

let watched = false;
function watch(): void {
  if (watched) return;
  watched = true;
  last = document.activeElement instanceof HTMLElement ? document.activeElement : null;
  addEventListener("focusin", ({ target }) => {
    if (target instanceof HTMLElement && !(target instanceof HTMLIFrameElement)) last = target;
  });
  const used = (event: Event): void => {
    if (!event.isTrusted) return;
    usedAt = performance.now();
    if (event instanceof KeyboardEvent && event.key === "Tab") tabAt = usedAt;
  };
  addEventListener("keydown", used, true);
  addEventListener("pointerdown", used, true);
}

/** Somebody is in the middle of a text of the page. */
export function writing(): boolean {
  const at = document.activeElement;
  return (at instanceof HTMLTextAreaElement || at instanceof HTMLInputElement) && at.value !== "";
}

/** Gives the focus back when the frame takes it; `stop` is called when it does so again and again. */
export function guardFocus(frame: HTMLIFrameElement, stop: () => void): () => void {
  watch();
  const thefts: number[] = [];
  const blurred = (): void => {
    // The element that has the focus is known when this event is over.
    setTimeout(() => {
      if (document.activeElement !== frame) return;
      const now = performance.now();
      const meant = navigator.userActivation.isActive && now - usedAt > BUSY_MS;
      if (frame.matches(":hover") || now - tabAt < TAB_MS || meant) return;
      window.focus();
      if (last !== null && last.isConnected) last.focus();
      else frame.blur();
      while ((thefts[0] ?? now) < now - WINDOW_MS) thefts.shift();
      thefts.push(now);
      if (thefts.length >= MOST_THEFTS) stop();
    });
  };
  addEventListener("blur", blurred);
  return () => removeEventListener("blur", blurred);
}
