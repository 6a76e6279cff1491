// Answers on their way. Each is written down before it is sent and forgotten only when the server has acknowledged it;
// it carries a key, so that sending it twice is sending it once. They are sent in order, one at a time.

import { post, Refused } from "./api.js";
import { drop, keys, put, take } from "./storage.js";

const LONGEST_WAIT = 15_000;

export class Outbox {
  /**
   * @param rater whose answers these are: another rater in the same browser has an outbox of their own
   * @param tell called with {pending, state, sentence} whenever something changed
   */
  constructor(rater, tell) {
    this.prefix = `tutelage.answer.${rater}.`;
    this.tell = tell;
    this.receipts = new Map();
    this.running = null; // a promise of the answers that are being sent
    this.wait = 1_000;
    this.stopped = "";
    this.refused = "";
    addEventListener("online", () => this.flush());
    this.state = "saved";
    addEventListener("storage", () => this.report(this.state)); // another tab has written an answer down, or sent one
  }

  pending() {
    return keys(this.prefix)
      .map((key) => take(key))
      .filter((entry) => entry !== null)
      .toSorted((one, other) => one.at - other.at || one.number - other.number);
  }

  /** The questions whose answers are still here. */
  assignments() {
    return this.pending().map((entry) => entry.answer.assignment);
  }

  /** Write an answer down and send it; resolves with the receipt, whenever that is. */
  add(answer) {
    const receipt = new Promise((resolve) => this.receipts.set(answer.key, resolve));
    this.number = (this.number ?? 0) + 1;
    this.kept = put(this.prefix + answer.key, { at: Date.now(), number: this.number, answer });
    this.report("saving");
    this.flush();
    return receipt;
  }

  /** Send what is here; resolves when that is done, or cannot be done at present. */
  flush() {
    if (!this.stopped) this.running ??= this.sendAll().finally(() => (this.running = null));
    return this.running ?? Promise.resolve();
  }

  /** Send what is here without waiting for the time of the next try; resolves with whether nothing is left. */
  async empty() {
    await this.flush();
    return this.pending().length === 0;
  }

  async sendAll() {
    clearTimeout(this.timer);
    try {
      for (let entry = this.pending()[0]; entry; entry = this.pending()[0]) {
        this.report("saving");
        await this.send(entry.answer);
      }
      this.wait = 1_000;
      this.report("saved");
    } catch (error) {
      this.later(error);
    }
  }

  async send(answer) {
    try {
      const receipt = await post("/rate/answers", answer);
      drop(this.prefix + answer.key);
      this.receipts.get(answer.key)?.(receipt);
      this.receipts.delete(answer.key);
    } catch (error) {
      const forGood = error instanceof Refused && ![401, 403].includes(error.status);
      if (!forGood) throw error;
      put(`tutelage.refused.${answer.key}`, answer);
      drop(this.prefix + answer.key);
      this.refused = error.message;
      this.receipts.get(answer.key)?.({ refused: error.message });
    }
  }

  later(error) {
    if (error instanceof Refused) {
      this.stopped = error.message;
      this.report("stopped");
      return;
    }
    this.report("offline");
    this.timer = setTimeout(() => this.flush(), this.wait);
    this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
  }

  report(state) {
    this.state = state;
    const pending = this.pending().length;
    if (this.stopped) this.tell({ pending, state: "stopped", sentence: this.stopped });
    else if (this.refused) this.tell({ pending, state: "refused", sentence: this.refused });
    else this.tell({ pending, state: pending ? (state === "saved" ? "saving" : state) : "saved", sentence: "" });
  }

  /** Whether closing the page now would lose an answer. */
  atRisk() {
    return this.pending().length > 0 && this.kept === false;
  }
}
