/** Where a message is written, with its files. */

import { useEffect, useLayoutEffect, useRef, useState, type ReactNode, type RefObject } from "react";
import { ApiError, sentence } from "../api/client.ts";
import type { Attachment, Bootstrap, Turn } from "../api/types.ts";
import { consumed, contexts, forget } from "../state/appTexts.ts";
import { notify } from "../state/notices.ts";
import { Icon } from "../ui/Icon.tsx";
import { count } from "../ui/format.ts";
import { AppTexts } from "./AppTexts.tsx";
import { PendingFiles } from "./PendingFiles.tsx";
import { useUploads } from "./uploads.ts";

export interface ComposerProps {
  bootstrap: Bootstrap;
  label: string;
  placeholder: string;
  /** Drafts are kept under this key for the visit. */
  draft?: string;
  /** For an edit: what stands there at first. */
  initial?: { text: string; attachments: Attachment[] };
  /** An answer is being written: the message will wait. */
  running?: boolean;
  onSend: (turn: Turn) => Promise<void>;
  onStop?: () => void;
  onCancel?: () => void;
  /** Arrow up in an empty field. */
  onEditLast?: () => void;
  field?: RefObject<HTMLTextAreaElement | null>;
}

/** Apps whose context goes with one message. */
const MOST_CONTEXTS = 8;

function stored(draft: string | undefined): string {
  try {
    return draft === undefined ? "" : (sessionStorage.getItem(`draft:${draft}`) ?? "");
  } catch {
    return "";
  }
}

function keep(draft: string | undefined, text: string): void {
  if (draft === undefined) return;
  try {
    if (text === "") sessionStorage.removeItem(`draft:${draft}`);
    else sessionStorage.setItem(`draft:${draft}`, text.slice(0, 100_000));
  } catch {
    // Storage is closed or full: the draft lives as long as the field.
  }
}

export function Composer(props: ComposerProps): ReactNode {
  const { bootstrap, draft, initial, running = false } = props;
  const [text, setText] = useState(() => initial?.text ?? stored(draft));
  const [sending, setSending] = useState(false);
  const [model, setModel] = useState("");
  const uploads = useUploads(bootstrap.limits, initial?.attachments);
  const ownField = useRef<HTMLTextAreaElement>(null);
  const field = props.field ?? ownField;
  const picker = useRef<HTMLInputElement>(null);
  const models = bootstrap.agent.models ?? [];
  const tooLong = text.length > bootstrap.limits.messageChars;
  const ready = (text.trim() !== "" || uploads.ids.length > 0) && !uploads.busy && !sending && !tooLong;

  useEffect(() => keep(draft, text), [draft, text]);
  useLayoutEffect(() => {
    const element = field.current;
    if (element === null) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, Math.round(innerHeight * 0.4))}px`;
  }, [text, field]);
  useEffect(() => {
    if (initial === undefined) return;
    field.current?.focus();
    field.current?.setSelectionRange(text.length, text.length);
    // Only when the edit begins.
  }, []);

  const send = async (): Promise<void> => {
    if (!ready) {
      if (uploads.busy) notify("The files are still on their way.", "bad");
      return;
    }
    setSending(true);
    const kept = initial === undefined ? contexts.get().filter((one) => one.thread === draft) : [];
    const views = kept.slice(-MOST_CONTEXTS).map((one) => one.view);
    // At once: what is written from now on is the next message.
    setText("");
    try {
      await props.onSend({
        text,
        attachments: uploads.ids,
        ...(model === "" ? {} : { model }),
        ...(views.length === 0 ? {} : { apps: views }),
      });
      uploads.clear();
      if (draft !== undefined && initial === undefined) consumed(draft, views);
    } catch (error) {
      // What is shown beside the message is what goes along.
      if (error instanceof ApiError && error.code === "app_context_gone") views.forEach(forget);
      // Nothing that was written is lost.
      setText((since) => (since === "" ? text : `${text}\n${since}`));
      notify(sentence(error), "bad");
    } finally {
      setSending(false);
      field.current?.focus();
    }
  };

  return (
    <form
      className="composer"
      aria-label={props.label}
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <PendingFiles uploads={uploads} />
      {draft !== undefined && initial === undefined && (
        <AppTexts
          thread={draft}
          text={text}
          // What somebody is writing isn't changed under their hands.
          free={() => document.activeElement !== field.current}
          onText={setText}
        />
      )}
      <textarea
        ref={field}
        data-first={(initial === undefined && !touch()) || undefined}
        value={text}
        rows={1}
        dir="auto"
        aria-label={props.label}
        aria-invalid={tooLong || undefined}
        placeholder={props.placeholder}
        enterKeyHint="enter"
        onChange={(event) => setText(event.target.value)}
        onPaste={(event) => {
          if (event.clipboardData.files.length === 0 || !bootstrap.capabilities.attachments) return;
          event.preventDefault();
          uploads.add(event.clipboardData.files);
        }}
        onKeyDown={(event) => {
          // While an input method composes, the key belongs to it.
          if (event.nativeEvent.isComposing) return;
          if (event.key === "Enter" && !event.shiftKey && !event.altKey && !touch()) {
            event.preventDefault();
            void send();
          } else if (event.key === "Escape" && props.onCancel !== undefined) {
            event.preventDefault();
            props.onCancel();
          } else if (event.key === "ArrowUp" && text === "" && props.onEditLast !== undefined) {
            event.preventDefault();
            props.onEditLast();
          }
        }}
      />
      <div className="composer-bar">
        {bootstrap.capabilities.attachments && (
          <>
            <button
              type="button"
              className="icon-button"
              aria-label="Attach files"
              title="Attach files"
              onClick={() => picker.current?.click()}
            >
              <Icon name="attach" />
            </button>
            <input
              ref={picker}
              type="file"
              multiple
              hidden
              onChange={(event) => {
                uploads.add(event.target.files ?? []);
                event.target.value = "";
              }}
            />
          </>
        )}
        {models.length > 1 && (
          <select aria-label="Model" className="quiet-select" value={model} onChange={(e) => setModel(e.target.value)}>
            <option value="">{bootstrap.agent.model}</option>
            {models
              .filter((name) => name !== bootstrap.agent.model)
              .map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
          </select>
        )}
        <span className="composer-note muted" role={tooLong ? "alert" : undefined}>
          {tooLong
            ? `${count(text.length)} characters; a message takes ${count(bootstrap.limits.messageChars)}.`
            : running && text !== ""
              ? "Waits until the running answer is done."
              : ""}
        </span>
        {props.onCancel !== undefined && (
          <button type="button" className="button" onClick={props.onCancel}>
            Cancel
          </button>
        )}
        {running && props.onStop !== undefined && (
          <button type="button" className="round-button stop" aria-label="Stop the answer" title="Stop (Ctrl + .)" onClick={props.onStop}>
            <Icon name="stop" />
          </button>
        )}
        {(!running || text.trim() !== "" || uploads.pending.length > 0 || props.onCancel !== undefined) && (
          <button
            type="submit"
            className="round-button"
            aria-label={running && props.onCancel === undefined ? "Queue the message" : "Send"}
            title={running ? "Queue the message" : "Send"}
            aria-disabled={!ready}
          >
            <Icon name="send" />
          </button>
        )}
      </div>
      <DropTarget enabled={bootstrap.capabilities.attachments && initial === undefined} onFiles={uploads.add} />
    </form>
  );
}

/** On a touch keyboard the enter key makes a new line; the button sends. */
function touch(): boolean {
  return matchMedia("(pointer: coarse)").matches && !matchMedia("(any-pointer: fine)").matches;
}

/** Files may be dropped anywhere on the page. */
function DropTarget({ enabled, onFiles }: { enabled: boolean; onFiles: (files: Iterable<File>) => void }): ReactNode {
  const [over, setOver] = useState(false);
  useEffect(() => {
    const carries = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
    const drag = (event: DragEvent): void => {
      if (!carries(event)) return;
      // Without this the browser would open the file in place of the page.
      event.preventDefault();
      if (enabled) setOver(true);
    };
    const leave = (event: DragEvent): void => {
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent): void => {
      setOver(false);
      if (!carries(event)) return;
      event.preventDefault();
      if (enabled && event.dataTransfer !== null) onFiles(event.dataTransfer.files);
    };
    addEventListener("dragover", drag);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", drag);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, [enabled, onFiles]);
  if (!over) return null;
  return (
    <div className="drop-veil" aria-hidden="true">
      <p>
        <Icon name="attach" /> Drop to attach
      </p>
    </div>
  );
}
