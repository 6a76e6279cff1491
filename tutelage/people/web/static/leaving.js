// Leaving: what waits in the outbox is sent first, and once the session ends nothing more is asked of the server.

import { durable } from "./storage.js";
import { gettext, ngettext } from "./words.js";

const ending = new AbortController();
/** Aborted when the session ends with Leave: what is under way is worth nothing then. */
export const left = ending.signal;

let guard = null;

for (const form of document.querySelectorAll('form[action$="/leave"]')) {
  form.addEventListener("submit", (event) => (guard?.holds(form) ? event.preventDefault() : ending.abort()));
}

/** Let the answers in this outbox be sent before the session ends; `notice` says what becomes of them. */
export function sendFirst(outbox, notice) {
  guard = new Guard(outbox, notice);
  return guard;
}

class Guard {
  /**
   * @param {import("./outbox.js").Outbox} outbox
   * @param {HTMLElement} notice
   */
  constructor(outbox, notice) {
    this.outbox = outbox;
    this.notice = notice;
    this.busy = false;
    this.told = false; // that answers stay here, whatever is done: whoever presses Leave again means it
  }

  /** Whether the form has to wait; it is sent when nothing waits any more. */
  holds(form) {
    if (this.busy) return true;
    if (!this.outbox.pending().length || this.told) return false;
    this.send(form);
    return true;
  }

  async send(form) {
    this.busy = true;
    const { refused } = this.outbox;
    this.say(gettext("Your answers are being sent first; then you leave."));
    const sent = await this.outbox.empty();
    this.busy = false;
    if (!sent) this.stay();
    else if (this.outbox.refused !== refused) this.say(gettext("You have not left yet, because an answer was refused."), true);
    else {
      ending.abort();
      form.submit();
    }
  }

  /** Say that answers are still here, and what becomes of them. */
  stay() {
    const { length } = this.outbox.pending();
    const waits = ngettext(
      "You have not left yet: %(count)s answer could not be sent.",
      "You have not left yet: %(count)s answers could not be sent.",
      length,
    );
    this.told = Boolean(this.outbox.stopped);
    this.say(`${waits} ${this.told ? kept() : patience()}`, true);
  }

  /** Everything that waited is with the server. */
  settled() {
    this.told = false;
    if (!this.busy && !this.notice.hidden) this.say(gettext("Everything is sent now: you can leave."));
  }

  say(words, failed = false) {
    this.notice.hidden = false;
    this.notice.classList.toggle("failed", failed);
    this.notice.textContent = words;
  }
}

const kept = () =>
  durable
    ? gettext("What was not sent is kept in this browser for when you come back. Press Leave again to go.")
    : gettext("What was not sent is lost with this page. Press Leave again to go all the same.");

const patience = () =>
  durable
    ? gettext("Everything you answered is kept in this browser and will be sent by itself.")
    : gettext("Keep this page open: everything you answered will be sent by itself.");
