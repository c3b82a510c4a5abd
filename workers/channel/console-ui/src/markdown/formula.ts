/** Formulas; loaded with the first one. */

import katex from "katex";

/** Builds elements one by one, so no markup is parsed. Throws for a formula with errors. */
export function draw(source: string, target: HTMLElement, display: boolean): void {
  katex.render(source, target, {
    displayMode: display,
    output: "mathml",
    throwOnError: true,
    // No links, images, classes or styles of the answer's choice.
    trust: false,
    strict: "ignore",
    maxExpand: 200,
    maxSize: 20,
  });
}
