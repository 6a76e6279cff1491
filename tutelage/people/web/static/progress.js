// How far the rater is: what the server has counted, and the answers that it has not got yet.

import { make } from "./show.js";
import { figure, gettext, ngettext } from "./words.js";

/** Answers after which a rater who has no quota takes a break, and which the bar counts up to. */
export const GOAL = 25;

export class Progress {
  /**
   * @param {HTMLProgressElement} bar the element that shows it
   * @param {HTMLElement} words the element that says it
   */
  constructor(bar, words) {
    this.bar = bar;
    this.words = words;
    this.counted = null; // as the server told last
    this.sent = new Map(); // by key, what an answer on its way changes
    this.receipts = 0;
  }

  /** An answer is on its way: the answers that it adds, and the questions that it leaves fewer. */
  send(key, answers, questions) {
    this.sent.set(key, { answers, questions });
    this.tell();
  }

  /** The server's count with that answer in it; without a count it was refused. */
  receive(key, counted) {
    this.sent.delete(key);
    this.receipts += 1;
    this.counted = counted ?? this.counted;
    this.tell();
  }

  /** The server's count that came with something else, asked for after so many `receipts`. It is passed over where an
   * answer was on its way meanwhile, which it may hold or not. */
  learn(counted, receipts) {
    if (this.counted && (this.sent.size || receipts !== this.receipts)) return;
    this.counted = counted;
    this.tell();
  }

  /** All answers of the rater, those on their way included. */
  get answered() {
    return this.counted ? Math.max(0, this.counted.answered + this.sum("answers")) : Number.NaN;
  }

  sum(name) {
    return [...this.sent.values()].reduce((total, each) => total + each[name], 0);
  }

  tell() {
    if (!this.counted) return;
    const { quota, practice } = this.counted;
    const { answered } = this;
    const done = answered % GOAL;
    const left = this.counted.left === null ? null : about(Math.max(0, this.counted.left - this.sum("questions")));
    if (practice) this.show(practice.answered, practice.all, practised(practice));
    else if (quota !== null && left === null) this.show(answered, quota, ofQuota(answered, quota));
    else if (!left) this.show(answered, left === null ? null : answered, given(answered));
    else if (done + left > GOAL) this.show(done, GOAL, toBreak(done), `${given(answered)} · `);
    else this.show(answered, answered + left, remaining(left), `${given(answered)} · `);
  }

  /** So much `done` of `all`; no bar where nobody knows how much there is. A phone has no room for what comes `before` the
   * words. */
  show(done, all, words, before = "") {
    this.bar.hidden = all === null;
    this.bar.max = Math.max(1, all ?? 1);
    this.bar.value = done;
    this.bar.ariaValueText = before + words;
    this.words.replaceChildren(make("span", "before", before), words);
  }
}

const practised = ({ answered, all }) =>
  gettext("Practice: %(answered)s of %(all)s", { answered: figure(answered), all: figure(all) });

const ofQuota = (answered, quota) =>
  gettext("%(answered)s of %(quota)s", { answered: figure(answered), quota: figure(quota) });

const given = (answered) => ngettext("%(count)s answered", "%(count)s answered", answered);

const toBreak = (done) =>
  gettext("%(done)s of %(goal)s until a break", { done: figure(done), goal: figure(GOAL) });

const remaining = (left) => ngettext("about %(count)s left", "about %(count)s left", left);

/** A count that others change too, as exactly as it is meant: every one below 20, then by fives, then to two figures. */
export function about(count) {
  if (count < 20) return count;
  const step = count < 100 ? 5 : 10 ** (Math.floor(Math.log10(count)) - 1);
  return Math.round(count / step) * step;
}
