import type { ReactNode } from "react";
import { dismiss, notices, spoken } from "../state/notices.ts";
import { useStore } from "../state/store.ts";
import { Icon } from "./Icon.tsx";

export function Notices(): ReactNode {
  const all = useStore(notices);
  const said = useStore(spoken);
  return (
    <>
      <div className="visually-hidden" role="status">
        {said}
      </div>
      <section aria-label="Notices">
        <div className="notices" role="log" aria-label="Notices">
        {all.map((notice) => (
          <div key={notice.id} className="notice" data-tone={notice.tone}>
            <Icon name={notice.tone === "bad" ? "alert" : "check"} />
            <p dir="auto">{notice.text}</p>
            <button type="button" className="icon-button" aria-label="Dismiss" onClick={() => dismiss(notice.id)}>
              <Icon name="close" />
            </button>
          </div>
        ))}
        </div>
      </section>
    </>
  );
}
