// A live conversation, as long as there is no question: the rater writes, or both models do. What models write goes into
// text nodes as it comes; HTML comes from the server, which has made it harmless, when an answer is complete.

import { follow, post, Refused, Unreachable } from "./api.js";
import { keyCap, make, showComing, turns } from "./show.js";
import { drop, put, take } from "./storage.js";
import { figure, gettext } from "./words.js";

const find = (selector) => document.querySelector(selector);
const LONGEST_WAIT = 15_000;

export class Talk {
  /**
   * @param rater whose conversation it is
   * @param next called when something else comes next
   * @param key makes an idempotency key
   * @param fail called with an error that ends the work of the page
   * @param moved called when another tab has moved the conversation on
   */
  constructor(rater, { next, key, fail, moved }) {
    this.draft = `tutelage.draft.message.${rater}`;
    this.tabs = new BroadcastChannel(`tutelage.talk.${rater}`);
    this.tabs.addEventListener("message", ({ data }) => {
      this.rescue(data);
      moved();
    });
    this.next = next;
    this.key = key;
    this.fail = fail;
    this.state = ""; // "message", "sending", "writing" or "failed", while this is on the screen
    this.sent = ""; // the key of the message that was sent last
    this.early = []; // actions on the question that is about to be asked
    find("#message-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    find("#message").addEventListener("keydown", (event) => this.typed(event));
    find("#message").addEventListener("input", () => this.keep());
    for (const button of document.querySelectorAll(".end-talk")) button.addEventListener("click", () => this.end());
    find("#again").addEventListener("click", () => this.again());
  }

  /** Show what the server says about the conversation. */
  open(talk) {
    this.talk = talk;
    if (talk.writing === null) this.ask();
    else this.listen();
  }

  /** Leave the screen to something else; returns the actions that came early for it. */
  close() {
    const { early } = this;
    this.state = "";
    this.cards = null;
    this.early = [];
    find("#talk").hidden = true;
    find("#writing").hidden = true;
    find("#question").classList.remove("coming");
    return early;
  }

  /** Whether both answers stand there, and the question about them is on its way: a rater who has read them may press
   * keys already. */
  get soon() {
    return this.state === "writing" && this.cards.every((card) => card.complete);
  }

  /** Tell the other tabs of this rater that the conversation has moved on, by a message or without one. */
  tellTabs(conversation = null, text = "") {
    // oxlint-disable-next-line require-post-message-target-origin -- a channel has none
    this.tabs.postMessage({ conversation, text });
  }

  /** Keep what is written here for the next turn, since another tab has sent its own message: also what is being sent,
   * which the server then refuses. */
  rescue({ conversation, text }) {
    const mine = ["message", "sending"].includes(this.state) ? find("#message").value : "";
    const key = this.state === "sending" ? this.sent : this.key(); // under its own key no message is said twice
    if (mine.trim() && mine !== text) put(this.draft, { conversation, text: mine, key, at: Date.now() });
  }

  /** Where a reply of the server says that the conversation is, or where this page shows it. */
  static place = ({ talk, question }) =>
    talk ? [talk.conversation, talk.turn, talk.writing].join(" ") : `question ${question?.id}`;

  /** Do it as soon as the question is there. */
  later(action) {
    this.early.push(action);
  }

  // ---- the rater writes

  ask() {
    const { conversation, messages, openings } = this.talk;
    this.close();
    this.state = "message";
    find("#question").hidden = true;
    find("#talk").hidden = false;
    find("#talk-step").textContent = conversation === null ? "" : this.step();
    find("#talk-title").textContent = conversation === null ? gettext("Begin a conversation") : gettext("What do you say next?");
    find("#talk-messages").replaceChildren(...turns(messages));
    find("#talk-messages").hidden = !messages.length;
    find("#openings").hidden = !openings.length;
    find("#openings-list").replaceChildren(...openings.map((text, place) => this.opening(text, place)));
    find("#talk .end-talk").hidden = conversation === null;
    const draft = take(this.draft); // one that began a conversation while another page did belongs to that one
    find("#message").value = [conversation, null].includes(draft?.conversation) ? draft.text : "";
    this.hint("");
    this.lock(false);
    find("#message").focus({ preventScroll: true });
    scrollTo(0, document.body.scrollHeight);
  }

  step() {
    const { turn, turns: most } = this.talk;
    return gettext("Turn %(turn)s of %(most)s", { turn: figure(turn), most: figure(most) });
  }

  opening(text, place) {
    const button = make("button", "opening", text);
    button.type = "button";
    button.append(" ", keyCap(String(place + 1)));
    button.addEventListener("click", () => this.take(text));
    return button;
  }

  /** Put a suggestion into the field, where it can be changed. */
  take(text) {
    find("#message").value = text;
    this.keep();
    find("#message").focus();
  }

  digit(key) {
    if (this.state === "message") find("#openings-list").children[Number(key) - 1]?.click();
  }

  /** Enter sends where there is a keyboard; on a touch screen it begins a new line, as everywhere there. */
  typed(event) {
    const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing;
    if (!sends || event.ctrlKey || event.metaKey || matchMedia("(pointer: coarse)").matches) return;
    event.preventDefault();
    this.send();
  }

  /** Remember the message as it stands, under the key that it is sent with. */
  keep() {
    const text = find("#message").value;
    const { conversation } = this.talk;
    const known = take(this.draft);
    const same = known?.text === text && known.conversation === conversation;
    if (!same) put(this.draft, { conversation, text, key: this.key(), at: Date.now() });
    return take(this.draft);
  }

  async send() {
    if (this.state !== "message") return;
    const { conversation, text, key } = this.keep();
    const message = { conversation, text, key };
    this.sent = key;
    if (!message.text.trim()) {
      this.hint(gettext("Write a message first."));
      return find("#message").focus();
    }
    this.hint("");
    this.lock(true);
    try {
      const turn = await patiently(() => post("/rate/messages", message), (sentence) => this.hint(sentence));
      drop(this.draft);
      this.tellTabs(turn.conversation, text);
      this.talk = {
        ...this.talk,
        conversation: turn.conversation,
        turn: turn.number,
        messages: turn.messages,
        writing: turn.turn,
      };
      this.listen();
    } catch (error) {
      this.lock(false);
      this.hint(error.message);
    }
  }

  lock(sending) {
    this.state = sending ? "sending" : "message";
    find("#message").readOnly = sending;
    find("#send").disabled = sending;
  }

  hint(sentence) {
    find("#message-hint").textContent = sentence;
    find("#message-hint").hidden = !sentence;
  }

  // ---- the models write

  async listen() {
    this.close();
    this.state = "writing";
    find("#editing").hidden = true;
    find("#lesson").hidden = true;
    find("#question").hidden = false;
    find("#question").classList.add("coming");
    find("#writing").hidden = false;
    find("#again").hidden = true;
    const places = showComing(this.talk.messages, 2);
    this.cards = places.map((place) => ({ place, node: begin(place), complete: false }));
    this.tell(gettext("Both answers are being written."));
    scrollTo(0, 0);
    find("#ask").focus({ preventScroll: true });
    const cards = this.cards;
    const wanted = () => this.cards === cards; // the conversation was not ended meanwhile
    const hear = (event) => {
      last = event;
      if (wanted()) heard(cards, event, (sentence) => this.tell(sentence));
    };
    let last = {};
    try {
      await patiently(
        async () => {
          await follow(`/rate/turns/${this.talk.writing}`, hear);
          if (!last.ready && !last.failed) throw new Unreachable("The stream has no end.");
        },
        () => this.tell(gettext("The server cannot be reached. Nothing is lost; the answers go on when it is back.")),
        wanted,
      );
    } catch (error) {
      return this.fail(error);
    }
    if (!wanted()) return;
    if (last.failed) this.failed(last.failed);
    else this.next({ stay: true });
  }

  failed(sentence) {
    this.state = "failed";
    this.tell(sentence);
    find("#again").hidden = false;
    find("#again").focus();
  }

  again() {
    if (this.state === "failed") this.listen();
  }

  tell(sentence) {
    find("#writing-said").textContent = sentence;
  }

  // ---- both

  enter() {
    if (this.state === "failed") this.again();
    else if (this.state === "message") this.send();
  }

  /** Out of the field, so that single keys act. */
  escape() {
    find(this.state === "message" ? "#talk-title" : "#ask").focus({ preventScroll: true });
  }

  async end() {
    const { conversation } = this.talk;
    try {
      await post(`/rate/conversations/${conversation}/end`, {});
    } catch (error) {
      return this.fail(error);
    }
    this.tellTabs();
    this.close();
    this.next();
  }
}

/** Show what has come of an answer. */
function heard(cards, { side, whole, text, message, html }, tell) {
  const card = cards[side];
  if (!card) return;
  if (html !== undefined) {
    card.complete = true;
    card.place.classList.remove("writing");
    card.place.innerHTML = html;
    card.place.removeAttribute("aria-busy");
    const waiting = cards.findIndex((each) => !each.complete);
    if (waiting < 0) return;
    const letters = { complete: "AB"[side], other: "AB"[waiting] };
    tell(gettext("%(complete)s is complete, %(other)s is being written.", letters));
  } else if (whole !== undefined) {
    card.node = begin(card.place);
    card.node.data = whole;
  } else if (message !== undefined) {
    const shown = make("div", "message");
    shown.innerHTML = message;
    card.node.before(shown);
    card.node.data = "";
  } else {
    card.node.appendData(text);
  }
}

/** An empty text node in a card, into which an answer is written. */
function begin(place) {
  const node = document.createTextNode("");
  place.classList.add("writing");
  place.setAttribute("aria-busy", "true");
  place.replaceChildren(node);
  return node;
}

/** Do it again for as long as the server cannot be reached and it is `wanted`; a refusal ends that. */
async function patiently(action, tell, wanted = () => true) {
  for (let wait = 1_000; wanted(); wait = Math.min(2 * wait, LONGEST_WAIT)) {
    try {
      return await action();
    } catch (error) {
      if (!wanted()) return null;
      if (error instanceof Refused) throw error;
      tell(gettext("The server cannot be reached. Your message is kept here, and is sent again by itself."));
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
  return null;
}
