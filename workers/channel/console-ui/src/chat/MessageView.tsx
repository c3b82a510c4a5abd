/** One message: what a person wrote, or what the agent answered. */

import { memo, useEffect, useMemo, useState, type ReactNode } from "react";
import type { Bootstrap, Message, Turn } from "../api/types.ts";
import { loadApps, Parts } from "../files/Parts.tsx";
import { answerOf, begun } from "../state/continuations.ts";
import { continuationPath } from "../state/routes.ts";
import { CopyButton } from "../ui/CopyButton.tsx";
import { count, money, size } from "../ui/format.ts";
import { Icon } from "../ui/Icon.tsx";
import { Link } from "../ui/Link.tsx";
import { Name } from "../ui/Name.tsx";
import { Time } from "../ui/Time.tsx";
import { ActivityView } from "./Activity.tsx";
import { Background } from "./Background.tsx";
import { Composer } from "./Composer.tsx";
import { LongText } from "./LongText.tsx";

/** What can be done with a message; stable over drawings. */
export interface Actions {
  edit: (id: string | null) => void;
  resend: (message: Message, turn: Turn) => Promise<void>;
  cancel: (id: string) => void;
  retry: (reply: Message) => void;
}

export const MessageView = memo(function MessageView({
  message,
  bootstrap,
  editing,
  actions,
  target,
}: {
  message: Message;
  bootstrap: Bootstrap;
  editing: boolean;
  actions: Actions;
  /** It is what the address points at. */
  target: boolean;
}): ReactNode {
  // The answer may have an app.
  const apps = bootstrap.capabilities.mcpApps !== false && message.status === "running" && message.activity.some(({ kind }) => kind === "tool");
  useEffect(() => {
    if (apps) void loadApps().catch(() => undefined);
  }, [apps]);
  return (
    <article
      id={`m-${message.id}`}
      className={`message ${message.role}`}
      data-status={message.status}
      data-target={target || undefined}
      aria-labelledby={`h-${message.id}`}
      tabIndex={-1}
    >
      <h2 id={`h-${message.id}`} className="visually-hidden">
        {message.role === "user" ? "You" : bootstrap.agent.label}
      </h2>
      {message.role === "user" ? (
        <Yours message={message} bootstrap={bootstrap} editing={editing} actions={actions} />
      ) : (
        <Answer message={message} actions={actions} />
      )}
    </article>
  );
});

/** Characters of a person's message that are shown before a button shows all. */
const FOLDED = 3000;

function Yours({
  message,
  bootstrap,
  editing,
  actions,
}: {
  message: Message;
  bootstrap: Bootstrap;
  editing: boolean;
  actions: Actions;
}): ReactNode {
  const [unfolded, setUnfolded] = useState(false);
  if (editing) {
    return (
      <div className="editing">
        <Composer
          bootstrap={bootstrap}
          label="Edit the message"
          placeholder=""
          initial={{ text: message.text, attachments: message.attachments }}
          onSend={(turn) => actions.resend(message, turn)}
          onCancel={() => actions.edit(null)}
        />
        <p className="muted small-print">Sending it again drops this message and all after it.</p>
      </div>
    );
  }
  const folded = !unfolded && message.text.length > FOLDED;
  return (
    <>
      {message.attachments.length > 0 && (
        <ul className="pending sent" aria-label="Attached files">
          {message.attachments.map((file) => (
            <li key={file.id} className="chip">
              <Icon name={file.mediaType.startsWith("image/") ? "image" : "file"} />
              <Name className="chip-name">{file.name}</Name>
              <span className="muted">{size(file.bytes)}</span>
            </li>
          ))}
        </ul>
      )}
      {message.text !== "" && (
        <div className="bubble" dir="auto">
          {folded ? `${message.text.slice(0, FOLDED)} …` : message.text}
          {message.text.length > FOLDED && (
            <button type="button" className="button small" onClick={() => setUnfolded(!unfolded)}>
              {folded ? "Show all" : "Show less"}
            </button>
          )}
        </div>
      )}
      <footer className="message-bar">
        <Time at={message.createdAt} />
        <CopyButton text={message.text} label="Copy the message" />
        <button
          type="button"
          className="icon-button"
          aria-label="Edit the message"
          title="Edit and send again"
          onClick={() => actions.edit(message.id)}
        >
          <Icon name="edit" />
        </button>
      </footer>
    </>
  );
}

const ENDINGS: Partial<Record<Message["status"], { title: string; text: string }>> = {
  failed: { title: "The answer failed", text: "Something went wrong on the way." },
  interrupted: {
    title: "The answer was interrupted",
    text: "The service was restarted or lost the worker while it was answering.",
  },
};

function Answer({ message, actions }: { message: Message; actions: Actions }): ReactNode {
  const running = message.status === "running";
  const ending = ENDINGS[message.status];
  const work = useMemo(() => begun(message), [message]);
  const task = answerOf(message);
  if (message.status === "queued") {
    return (
      <div className="waiting">
        <Icon name="clock" />
        <p className="muted">Waits behind the running answer.</p>
        <button type="button" className="button small" onClick={() => actions.cancel(message.id)}>
          Take it back
        </button>
      </div>
    );
  }
  return (
    <>
      <ActivityView activity={message.activity} running={running} />
      {message.text !== "" && <LongText text={message.text} complete={!running} />}
      {message.truncated === true && (
        <p className="muted small-print">The answer was longer than what is kept; its end is missing.</p>
      )}
      {running && (
        <p className="working" aria-hidden="true">
          <span />
          <span />
          <span />
        </p>
      )}
      <Parts parts={message.parts} />
      {work.length > 0 && <Background ids={work} />}
      {ending !== undefined && (
        <div className="card failure">
          <Icon name="alert" />
          <div className="card-body">
            <p className="card-title">{ending.title}</p>
            <p dir="auto">{message.failure?.message ?? ending.text}</p>
            <div className="card-actions">
              <button type="button" className="button" onClick={() => actions.retry(message)}>
                <Icon name="retry" /> Try again
              </button>
              {message.failure !== undefined && <code className="muted">{message.failure.kind}</code>}
            </div>
          </div>
        </div>
      )}
      {message.status === "cancelled" && (
        <p className="stopped muted">
          <Icon name="stop" /> Stopped{message.failure === undefined ? "." : `: ${message.failure.message}`}
        </p>
      )}
      {!running && (
        <footer className="message-bar">
          {message.text !== "" && <CopyButton text={message.text} label="Copy the answer" />}
          <button
            type="button"
            className="icon-button"
            aria-label="Answer again"
            title="Answer again"
            onClick={() => actions.retry(message)}
          >
            <Icon name="retry" />
          </button>
          <Time at={message.createdAt} />
          {message.usage !== undefined && (
            <span className="figures" title="Tokens read and written">
              {count(message.usage.input)} in · {count(message.usage.output)} out
              {typeof message.usage.costUsd === "number" && ` · ${money(message.usage.costUsd)}`}
            </span>
          )}
          {message.runId !== undefined && <Link to={`/runs/${encodeURIComponent(message.runId)}`}>Details</Link>}
          {task !== null && <Link to={continuationPath(task)}>Background work</Link>}
        </footer>
      )}
    </>
  );
}
