/** The first page: a thread comes to be with its first message. */

import { useRef, type ReactNode } from "react";
import { api } from "../api/client.ts";
import type { Bootstrap, Turn } from "../api/types.ts";
import { navigate } from "../state/route.ts";
import { threadPath } from "../state/routes.ts";
import { useShortcut } from "../ui/shortcuts.ts";
import { Composer } from "./Composer.tsx";

export function NewThread({ bootstrap }: { bootstrap: Bootstrap }): ReactNode {
  const field = useRef<HTMLTextAreaElement>(null);
  // A thread that was made for a message which was then refused is used for the next try.
  const made = useRef<string | null>(null);
  useShortcut("compose", () => field.current?.focus());
  const send = async (turn: Turn): Promise<void> => {
    made.current ??= (await api.createThread()).id;
    await api.send(made.current, turn);
    navigate(threadPath(made.current));
  };
  return (
    <div className="welcome">
      <div className="column">
        <h1>What shall we do?</h1>
        <p className="muted">
          You are writing to <bdi>{bootstrap.agent.label}</bdi>
          {bootstrap.agent.model !== "" && <> on {bootstrap.agent.model}</>}.
        </p>
        <Composer
          field={field}
          bootstrap={bootstrap}
          draft="new"
          label="Message"
          placeholder={`Write to ${bootstrap.agent.label}`}
          onSend={send}
        />
      </div>
    </div>
  );
}
