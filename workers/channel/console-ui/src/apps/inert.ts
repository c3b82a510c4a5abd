/** Makes everything beside an element and its ancestors inert; the answer takes that back. */
export function inertOthers(element: Element): () => void {
  const changed: Element[] = [];
  for (let at: Element | null = element; at !== null && at !== document.body; at = at.parentElement) {
    for (const other of at.parentElement?.children ?? []) {
      // Dialogs come after everything, and some of the rest may be inert for its own reasons.
      if (other === at || other.hasAttribute("inert") || other instanceof HTMLDialogElement) continue;
      other.setAttribute("inert", "");
      changed.push(other);
    }
  }
  return () => changed.forEach((other) => other.removeAttribute("inert"));
}
