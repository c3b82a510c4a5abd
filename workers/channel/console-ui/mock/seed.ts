/** Threads to look at. */

import { TOUR } from "./replies.ts";
import type { Mock } from "./server.ts";

const TITLES = [
  "Orders by region and week",
  "Why is the build slow on the old machines?",
  "Draft the note to the team",
  "Rename the columns of the export",
  "סיכום הישיבה של יום שלישי",
  "A very long title that goes on and on and has to be cut somewhere near its end",
  "Compare two retention policies",
  "Find the flaky test",
  "Summarise the incident of Friday",
  "Colours of the new chart",
  "<b>markup</b> in a title",
  "Translate the handbook",
];

export function seed(mock: Mock): void {
  const day = 86_400_000;
  TITLES.forEach((title, n) => {
    const at = Date.now() - (n < 4 ? n * 3_600_000 : (n - 3) * 2 * day) - 5 * 60_000;
    const thread = mock.addThread({ title, titleLocked: n % 3 === 0, createdAt: at, updatedAt: at, unread: n === 2 });
    mock.addTurn(thread.id, `About "${title}": what do you think?`, n === 0 ? TOUR : "It depends on what is measured. Let us look at the figures first.", at);
  });
  const old = mock.addThread({ title: "Something of last year", archived: true, updatedAt: Date.now() - 200 * day });
  mock.addTurn(old.id, "Keep this.", "Kept.");
  const many = mock.addThread({ title: "A thread with a long history", updatedAt: Date.now() - 40 * day });
  for (let n = 1; n <= 60; n += 1) mock.addTurn(many.id, `Question ${n}`, `Answer ${n}.`);
  mock.continuations.seed();
}
