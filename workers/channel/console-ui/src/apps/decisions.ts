/** What people are asked for apps: one question at a time in a page. */

import type { Confirmation, Decision } from "../api/types.ts";
import { notify } from "../state/notices.ts";
import { Store } from "../state/store.ts";

/** How long the server keeps a question, where it doesn't say so. */
const STANDS_MS = 120_000;
/** So long before that it is closed: what is allowed then would come too late. */
const BEFORE_MS = 1000;

export interface Question {
  /** Whose view asks. */
  view: string;
  app: string;
  confirmation: Confirmation;
  answer: (decision: Decision) => void;
}

/** The first is shown. */
export const questions = new Store<Question[]>([]);

export function question(view: string, app: string, confirmation: Confirmation): Promise<Decision> {
  return new Promise((resolve) => {
    const late = setTimeout(() => {
      one.answer("deny");
      notify(`A question of the app ${app} was closed: it was not answered in time.`, "bad");
    }, Math.max(0, (confirmation.expiresInMs ?? STANDS_MS) - BEFORE_MS));
    const one: Question = {
      view,
      app,
      confirmation,
      answer: (decision) => {
        clearTimeout(late);
        questions.update((all) => all.filter((other) => other !== one));
        resolve(decision);
      },
    };
    questions.update((all) => [...all, one]);
  });
}

/** A view is gone: what it still asks is answered with no. */
export function withdraw(view: string): void {
  for (const one of questions.get().filter((question) => question.view === view)) one.answer("deny");
}
