import type { ReactNode } from "react";
import { Dialog } from "./Dialog.tsx";
import { SHORTCUTS } from "./shortcuts.ts";

const MORE = [
  { keys: ["Enter"], does: "Send the message" },
  { keys: ["Shift", "Enter"], does: "New line" },
  { keys: ["↑"], does: "Edit your last message, in an empty field" },
  { keys: ["↑", "↓"], does: "Move in the list of threads and in menus" },
];

export function ShortcutsDialog({ onClose }: { onClose: () => void }): ReactNode {
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl className="shortcuts">
        {[...Object.values(SHORTCUTS), ...MORE].map(({ keys, does }) => (
          <div key={does}>
            <dt>{does}</dt>
            <dd>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
