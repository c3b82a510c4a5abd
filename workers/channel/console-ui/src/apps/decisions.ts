/** What people are asked for apps: one question at a time in a page. */

import type { Confirmation, Decision } from "../api/types.ts";
import { Store } from "../state/store.ts";

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
    const one: Question = {
      view,
      app,
      confirmation,
      answer: (decision) => {
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
