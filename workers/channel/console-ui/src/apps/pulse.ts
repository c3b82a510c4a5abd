/** When an app that doesn't answer is given up: pure. */

import { MISSED_PULSES } from "./limits.ts";

export class Pulse {
  private missed = 0;

  /**
   * True when it is to be stopped. Called every three seconds with whether the last question was
   * answered, whether the page is looked at, and whether the app has started: a page that isn't
   * looked at may be slow for reasons of its own, and a start may take twice as long.
   */
  over(answered: boolean, hidden: boolean, started: boolean): boolean {
    this.missed = answered || hidden ? 0 : this.missed + 1;
    return this.missed >= (started ? MISSED_PULSES : 2 * MISSED_PULSES);
  }
}
