/** What an operator does with a continuation, each behind a question that says what follows. */

import { useState, type ReactNode } from "react";
import { api, sentence } from "../api/client.ts";
import type { Continuation } from "../api/types.ts";
import { remedy, type Possible } from "../state/continuations.ts";
import { notify } from "../state/notices.ts";
import { Dialog } from "../ui/Dialog.tsx";
import { Name } from "../ui/Name.tsx";
import { Failed } from "../ui/States.tsx";

/** Longest id of a delivery, as the service takes it. */
const MAX_DELIVERY_ID = 256;

type Question = "delivered" | "not_delivered" | "dead_lettered" | "again" | "unsafe" | "sooner" | "cancel";

interface Asked {
  title: string;
  /** What follows, a paragraph each. */
  consequences: string[];
  action: string;
  dangerous: boolean;
  /** What has to be ticked before. */
  accept?: string;
  done: string;
  act: (id: string, deliveryId: string) => Promise<Continuation>;
}

const ASKED: Record<Question, Asked> = {
  delivered: {
    title: "It was delivered?",
    consequences: [
      "You have seen the answer in the channel. It is entered into the agent's memory of that conversation. Nothing is posted.",
      "This can't be taken back.",
    ],
    action: "It was delivered",
    dangerous: false,
    done: "It stands as delivered.",
    act: (id, delivery) => api.resolveContinuation(id, "delivered", delivery === "" ? undefined : delivery),
  },
  not_delivered: {
    title: "It was not delivered?",
    consequences: [
      "You have looked into the channel, and the answer is not there. It is sent now, with all attempts again; after its deadline it is given up instead.",
      "If it is there after all, the person reads it twice.",
    ],
    action: "It was not delivered: send it",
    dangerous: true,
    done: "It is sent.",
    act: (id) => api.resolveContinuation(id, "not_delivered"),
  },
  dead_lettered: {
    title: "Leave it?",
    consequences: [
      "It stays unknown whether the person has read it. Nothing is posted, and the agent doesn't remember the answer.",
      "Health stays unhealthy as long as the record is kept. Until its deadline, and as long as its text is kept, it can still be sent again, and is as unknown as now.",
    ],
    action: "Leave it as a dead letter",
    dangerous: true,
    done: "It is a dead letter.",
    act: (id) => api.resolveContinuation(id, "dead_lettered"),
  },
  again: {
    title: "Send it again?",
    consequences: [
      "The answer that is kept is sent to the place where it was asked for, with all attempts again. No model is asked.",
      "The channel said that it posted nothing, so it is read once.",
    ],
    action: "Send it again",
    dangerous: false,
    done: "It is sent again.",
    act: (id) => api.retryContinuation(id, false),
  },
  unsafe: {
    title: "Send it again, though it may have been posted?",
    consequences: [
      "Nobody knows whether this answer was posted. Sending it again may post it twice.",
      "If you can look into the channel, do that instead, and say what you found.",
    ],
    action: "Send it again",
    dangerous: true,
    accept: "I know that it may be posted twice.",
    done: "It is sent again.",
    act: (id) => api.retryContinuation(id, true),
  },
  sooner: {
    title: "Try it now?",
    consequences: ["It is tried now and not when its wait is over. Nothing of it was posted so far."],
    action: "Try it now",
    dangerous: false,
    done: "It is tried.",
    act: (id) => api.retryContinuation(id, false),
  },
  cancel: {
    title: "Give it up?",
    consequences: [
      "Nothing is posted, now or later, and a result that still comes is refused. The service is not told to stop its work.",
      "This can't be taken back.",
    ],
    action: "Give it up",
    dangerous: true,
    done: "It is cancelled.",
    act: (id) => api.cancelContinuation(id),
  },
};

const RETRY: Record<NonNullable<Possible["retry"]>, string> = { again: "Send it again", unsafe: "Send it again …", sooner: "Try it now" };

export function Actions({
  record,
  can,
  onChanged,
  onRefused,
}: {
  record: Continuation;
  can: Possible;
  onChanged: (next: Continuation) => void;
  /** How it stands may be other than what is shown. */
  onRefused: () => void;
}): ReactNode {
  const [question, setQuestion] = useState<Question | null>(null);
  const { retry } = can;
  const open = (what: Question, label: string, kind = ""): ReactNode => (
    <button type="button" className={`button ${kind}`} onClick={() => setQuestion(what)}>
      {label}
    </button>
  );
  return (
    <>
      {(can.resolve || retry !== null || can.cancel) && (
        <div className="card-actions" role="group" aria-label="What you can do">
          {can.resolve && open("delivered", "It was delivered", "primary")}
          {can.resolve && open("not_delivered", "It was not delivered")}
          {can.resolve && open("dead_lettered", "Leave it")}
          {retry !== null && open(retry, RETRY[retry])}
          {can.cancel && open("cancel", "Give it up")}
        </div>
      )}
      {question !== null && (
        <Ask
          key={question}
          record={record}
          asked={ASKED[question]}
          takesId={question === "delivered"}
          onClose={() => setQuestion(null)}
          onDone={(next) => {
            setQuestion(null);
            notify(ASKED[question].done);
            onChanged(next);
          }}
          onRefused={onRefused}
        />
      )}
    </>
  );
}

function Ask({
  record,
  asked,
  takesId,
  onClose,
  onDone,
  onRefused,
}: {
  record: Continuation;
  asked: Asked;
  takesId: boolean;
  onClose: () => void;
  onDone: (next: Continuation) => void;
  onRefused: () => void;
}): ReactNode {
  const [accepted, setAccepted] = useState(false);
  const [delivery, setDelivery] = useState("");
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState<string | null>(null);
  const act = (): void => {
    setBusy(true);
    setRefused(null);
    asked.act(record.continuationId, delivery.trim()).then(onDone, (error: unknown) => {
      setBusy(false);
      setRefused([sentence(error), remedy(error)].filter(Boolean).join(" "));
      onRefused();
    });
  };
  const open = asked.accept === undefined || accepted;
  return (
    <Dialog title={asked.title} onClose={onClose}>
      <p>
        Task: <Name>{record.taskKey}</Name>
      </p>
      {asked.consequences.map((text) => (
        <p key={text}>{text}</p>
      ))}
      {takesId && (
        <label className="field">
          Id of the message in the channel, if you know it
          <input type="text" dir="auto" value={delivery} maxLength={MAX_DELIVERY_ID} onChange={(event) => setDelivery(event.target.value)} />
        </label>
      )}
      {asked.accept !== undefined && (
        <label className="check">
          <input type="checkbox" checked={accepted} onChange={(event) => setAccepted(event.target.checked)} />
          {asked.accept}
        </label>
      )}
      {refused !== null && <Failed message={refused} />}
      <div className="dialog-actions">
        <button type="button" className="button" onClick={onClose}>
          Go back
        </button>
        <button type="button" className={asked.dangerous ? "button danger" : "button primary"} disabled={busy || !open} onClick={act}>
          {busy ? "Doing it …" : asked.action}
        </button>
      </div>
    </Dialog>
  );
}
