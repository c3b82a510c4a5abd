/** The title of a thread and what can be done with it. */

import { useState, type ReactNode } from "react";
import type { Thread } from "../api/types.ts";
import { navigate } from "../state/route.ts";
import { remove, rename, setArchived, setRead } from "../state/threads.ts";
import { Confirm, Dialog } from "../ui/Dialog.tsx";
import { Name } from "../ui/Name.tsx";
import { MenuButton, type MenuItem } from "../ui/Menu.tsx";

export function ThreadHeader({ thread, id }: { thread: Thread | null; id: string }): ReactNode {
  const title = thread === null ? "" : thread.title || "New thread";
  return (
    <header className="page-bar">
      <h1 className="thread-title">
        <Name>{title || " "}</Name>
      </h1>
      {thread !== null && <ThreadMenu thread={thread} current={id} />}
    </header>
  );
}

/** The menu of a thread; `current` is the one that is open. */
export function ThreadMenu({
  thread,
  current,
  tabIndex,
}: {
  thread: Thread;
  current: string | null;
  tabIndex?: number;
}): ReactNode {
  const [asking, setAsking] = useState<"rename" | "delete" | null>(null);
  const name = thread.title || "New thread";
  const items: MenuItem[] = [
    { label: "Rename", icon: "edit", onSelect: () => setAsking("rename") },
    ...(thread.id === current
      ? []
      : [
          {
            label: thread.unread ? "Mark as read" : "Mark as unread",
            icon: "check" as const,
            onSelect: () => void setRead(thread.id, thread.unread),
          },
        ]),
    {
      label: thread.archived ? "Take out of the archive" : "Archive",
      icon: "archive",
      onSelect: () => void setArchived(thread.id, !thread.archived),
    },
    {
      label: "Delete",
      icon: "trash",
      danger: true,
      disabled: thread.running,
      onSelect: () => setAsking("delete"),
    },
  ];
  return (
    <>
      <MenuButton label={`Actions for ${name}`} items={items} {...(tabIndex === undefined ? {} : { tabIndex })} />
      {asking === "rename" && <Rename thread={thread} onClose={() => setAsking(null)} />}
      {asking === "delete" && (
        <Confirm
          title="Delete this thread?"
          action="Delete"
          onClose={() => setAsking(null)}
          onConfirm={() =>
            void remove(thread.id).then((done) => {
              if (done && thread.id === current) navigate("/");
            })
          }
        >
          <p>
            <strong>
              <Name>{name}</Name>
            </strong>{" "}
            and its messages are deleted for good.
          </p>
        </Confirm>
      )}
    </>
  );
}

function Rename({ thread, onClose }: { thread: Thread; onClose: () => void }): ReactNode {
  const [title, setTitle] = useState(thread.title);
  return (
    <Dialog title="Rename the thread" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const wanted = title.trim();
          onClose();
          if (wanted !== "" && wanted !== thread.title) void rename(thread.id, wanted);
        }}
      >
        <label className="field">
          Title
          <input
            type="text"
            dir="auto"
            maxLength={80}
            value={title}
            autoFocus
            onFocus={(event) => event.target.select()}
            onChange={(event) => setTitle(event.target.value)}
          />
        </label>
        <p className="muted small-print">A title of your own is never replaced by another.</p>
        <div className="dialog-actions">
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="button primary">
            Rename
          </button>
        </div>
      </form>
    </Dialog>
  );
}
