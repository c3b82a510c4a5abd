/** A question that an app raised. Nothing is done until it is answered, and no is what is chosen. */

import { useEffect, useId, useRef, useState, type ReactNode } from "react";
import type { Confirmation } from "../api/types.ts";
import { Dialog } from "../ui/Dialog.tsx";
import { size } from "../ui/format.ts";
import { Name } from "../ui/Name.tsx";
import type { Question } from "./decisions.ts";
import { cut } from "./preview.ts";

/** So long nothing can be allowed: a click that was meant for what was there before is none. */
const ARMED_MS = 500;

const TITLES: Record<Confirmation["kind"], string> = {
  tool: "Let the app call a tool?",
  link: "Open this address?",
  context: "Let the app tell the agent something?",
  download: "Save files of the app?",
};
const ACTIONS: Record<Confirmation["kind"], string> = {
  tool: "Allow once",
  link: "Open in a new tab",
  context: "Allow",
  download: "Save",
};

export function DecisionDialog({ question }: { question: Question }): ReactNode {
  const { confirmation, app, answer } = question;
  const [armed, setArmed] = useState(false);
  const no = useRef<HTMLButtonElement>(null);
  const what = useId();
  useEffect(() => {
    no.current?.focus();
    const timer = setTimeout(() => setArmed(true), ARMED_MS);
    return () => clearTimeout(timer);
  }, []);
  const shown = cut(confirmation.preview);
  return (
    <Dialog title={TITLES[confirmation.kind] ?? TITLES.tool} onClose={() => answer("deny")} about={what}>
      <p id={what}>
        <What confirmation={confirmation} app={app} />
      </p>
      {confirmation.kind === "link" && confirmation.url !== undefined && (
        <p className="address" dir="ltr">
          {confirmation.url}
        </p>
      )}
      {confirmation.files !== undefined && (
        <ul className="pending">
          {confirmation.files.map((file, at) => (
            <li key={at} className="chip">
              <Name className="chip-name">{file.name}</Name>
              <span className="muted">{size(file.bytes)}</span>
            </li>
          ))}
        </ul>
      )}
      {confirmation.kind !== "link" && shown.text !== "" && (
        <pre className="app-preview" tabIndex={0} aria-label={confirmation.kind === "tool" ? "Arguments" : "Content"}>
          {shown.text}
        </pre>
      )}
      {(confirmation.truncated === true || shown.truncated) && <p className="muted small-print">More follows that isn't shown.</p>}
      <div className="dialog-actions">
        <button type="button" className="button" ref={no} onClick={() => answer("deny")}>
          Don't allow
        </button>
        {confirmation.kind === "tool" && confirmation.mayRemember === true && (
          <button type="button" className="button" disabled={!armed} onClick={() => answer("view")}>
            Allow this tool until the app closes
          </button>
        )}
        <button
          type="button"
          className="button primary"
          disabled={!armed}
          onClick={() => answer(confirmation.kind === "context" && confirmation.mayRemember === true ? "view" : "once")}
        >
          {ACTIONS[confirmation.kind] ?? ACTIONS.tool}
        </button>
      </div>
    </Dialog>
  );
}

function What({ confirmation, app }: { confirmation: Confirmation; app: string }): ReactNode {
  const who = (
    <>
      The app <Name>{app}</Name> of the server <Name>{confirmation.server}</Name>
    </>
  );
  switch (confirmation.kind) {
    case "link":
      return (
        <>
          {who} wants to open <strong dir="ltr">{confirmation.host}</strong>.
        </>
      );
    case "context":
      return <>{who} wants to add to what the agent reads with your next messages, until the app closes. You see it above the message.</>;
    case "download":
      return <>{who} wants to save this on your device. It is kept with the app, too.</>;
    default:
      return (
        <>
          {who} wants to call <strong><Name>{confirmation.tool ?? ""}</Name></strong> with:
        </>
      );
  }
}
