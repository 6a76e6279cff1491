// The page to chat on: answers as they are written, and what the user thinks of them.

import { drop, put, take } from "./storage.js";
import { gettext } from "./words.js";

const find = (selector) => document.querySelector(selector);
const USER = "tutelage.chat.user";
const CONSENT = "tutelage.chat.consent"; // the hash of the text that was agreed to, or "" for a refusal
const KEY = "tutelage.chat.key";

let key = sessionKey();
let terms = null; // {sha256, html}: the text in force
let messages = []; // the conversation, as it is sent
let busy = null; // the controller of the answer that is being written

class Refused extends Error {
  constructor(status, body) {
    super(body?.error?.message ?? gettext("The server answered %(status)s.", { status }));
    this.status = status;
    this.code = body?.error?.code;
  }
}

function sessionKey() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

function user() {
  const known = take(USER);
  if (known) return known;
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const id = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  put(USER, id);
  return id;
}

const agreed = () => terms !== null && take(CONSENT) === terms.sha256;

// ---- the server

async function call(path, method, data, signal) {
  const headers = { "content-type": "application/json" };
  if (key) headers.authorization = ["Bearer", key].join(" ");
  const options = { method, headers, signal };
  if (data !== undefined) options.body = JSON.stringify(data);
  const response = await fetch(path, options);
  if (response.ok) return response;
  throw new Refused(response.status, await response.json().catch(() => null));
}

const tell = (data) => call("/v1/feedback", "POST", { user: user(), ...data });

/** Ask for an answer and call `heard` with every piece of it; returns its id, which is empty unless it was kept. */
async function stream(asked, heard, signal) {
  const body = { messages: asked, stream: true, user: user() };
  if (agreed()) Object.assign(body, { store: true, metadata: { consent: terms.sha256 } });
  const response = await call("/v1/chat/completions", "POST", body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let kept = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const text = event.replace(/^data: /, "");
      if (text === "[DONE]") return kept;
      const data = JSON.parse(text);
      if (data.error) throw new Refused(503, data);
      if (data.feedback) kept = data.id;
      const said = data.choices?.[0]?.delta?.content;
      if (said) heard(said);
    }
  }
  throw new Refused(503, null);
}

// ---- what is shown

function say(sentence) {
  find("#status").textContent = sentence;
}

function showMessage(text) {
  const turn = document.createElement("div");
  turn.className = "turn user";
  const who = document.createElement("p");
  who.className = "who";
  who.textContent = gettext("You");
  const words = document.createElement("div");
  words.className = "text plain";
  words.dir = "auto";
  words.textContent = text;
  turn.append(who, words);
  find("#log").append(turn);
}

/** The text as the model wrote it becomes formatted, unless the server cannot be asked. */
async function format(place, text) {
  try {
    const { html } = await (await call("/v1/feedback/html", "POST", { text, user: user() })).json();
    place.classList.remove("plain");
    place.innerHTML = html;
  } catch {
    place.textContent = text;
  }
}

/** Write an answer into a card; returns {text, id}, or null where it failed or was stopped before anything came. */
async function write(card, asked) {
  const place = card.querySelector(".text");
  const controller = new AbortController();
  let text = "";
  let id = "";
  let failed = false;
  busy = controller;
  card.classList.add("writing");
  place.classList.add("plain");
  find("#send").hidden = true;
  find("#stop").hidden = false;
  find("#log").setAttribute("aria-busy", "true");
  say("");
  try {
    id = await stream(
      asked,
      (piece) => {
        text += piece;
        place.textContent = text;
        follow();
      },
      controller.signal,
    );
  } catch (error) {
    failed = true;
    if (error.name !== "AbortError") fail(error);
  }
  card.classList.remove("writing");
  if (text.trim()) await format(place, text);
  else place.textContent = gettext("(an empty response)");
  if (busy === controller) showIdle();
  return failed && !text ? null : { text, id };
}

/** No answer is being written: the user can send. */
function showIdle() {
  busy = null;
  find("#send").hidden = false;
  find("#stop").hidden = true;
  find("#log").removeAttribute("aria-busy");
}

/** Keep the end in sight while it was in sight. */
function follow() {
  const page = document.documentElement;
  if (page.scrollHeight - innerHeight - scrollY < 160) scrollTo(0, page.scrollHeight);
}

function fail(error) {
  if (error.status === 401) return openGate(true);
  if (error.code === "consent_outdated") return loadTerms();
  say(error instanceof Refused ? error.message : gettext("The server cannot be reached"));
}

// ---- a turn

async function send(event) {
  event.preventDefault();
  const field = find("#message");
  const text = field.value.trim();
  if (busy || !text || !find("#gate").hidden) return;
  find("#empty").hidden = true;
  field.value = "";
  showMessage(text);
  messages.push({ role: "user", content: text });
  const turn = new Turn([...messages]);
  scrollTo(0, document.documentElement.scrollHeight);
  if (await turn.begin()) return;
  messages.pop();
  turn.element.previousElementSibling.remove();
  turn.element.remove();
  field.value = text;
  field.focus();
}

class Turn {
  constructor(asked) {
    this.asked = asked;
    this.element = find("#answer").content.firstElementChild.cloneNode(true);
    this.tools = this.element.querySelector(".tools");
    this.first = null;
    find("#log").append(this.element);
    const on = (name, action) => this.element.querySelector(name).addEventListener("click", () => action.call(this));
    on(".up", () => this.rate("up"));
    on(".down", () => this.rate("down"));
    on(".improve", this.improve);
    on(".again", this.again);
    on(".cancel", this.endImproving);
    const edit = this.element.querySelector(".edit");
    edit.addEventListener("submit", (event) => this.save(event));
    edit.addEventListener("keydown", (event) => event.key === "Escape" && this.endImproving());
  }

  get card() {
    return this.element.querySelector(".answer");
  }

  async begin() {
    this.first = await write(this.card, this.asked);
    if (!this.element.isConnected) return true; // another conversation has begun
    if (!this.first) return false;
    messages.push({ role: "assistant", content: this.first.text });
    this.place = messages.length - 1;
    this.settle();
    return true;
  }

  /** Buttons for what can be said; other answers only to the last message. */
  settle() {
    this.tools.hidden = !this.first.id;
    const own = this.element.querySelector(".again");
    for (const each of document.querySelectorAll(".again")) each.toggleAttribute("hidden", each !== own);
  }

  thank(sentence) {
    this.element.querySelector(".said").textContent = sentence;
  }

  /** Send what the user says; whether it was stored. */
  async tell(data) {
    try {
      await tell({ completion: this.first.id, ...data });
      return true;
    } catch (error) {
      if (error instanceof Refused && error.status !== 401) this.thank(error.message);
      else fail(error);
      return false;
    }
  }

  async rate(thumb) {
    if (!(await this.tell({ thumb }))) return;
    for (const name of ["up", "down"]) {
      this.element.querySelector(`.${name}`).setAttribute("aria-pressed", String(name === thumb));
    }
    this.thank(gettext("Thank you, that is noted."));
  }

  improve() {
    const edit = this.card.querySelector(".edit");
    edit.hidden = false;
    const field = edit.querySelector("textarea");
    field.value ||= this.first.text;
    field.focus();
  }

  endImproving() {
    this.card.querySelector(".edit").hidden = true;
    this.element.querySelector(".improve").focus();
  }

  async save(event) {
    event.preventDefault();
    const better = this.card.querySelector("textarea").value;
    if (!(await this.tell({ better })) || !this.element.isConnected) return;
    messages[this.place] = { role: "assistant", content: better };
    await format(this.card.querySelector(".text"), better);
    this.thank(gettext("Thank you: the conversation goes on with your version."));
    this.endImproving();
  }

  /** A second answer beside the first one, and the choice between them. */
  async again() {
    if (busy) return;
    this.thank("");
    const answers = this.element.querySelector(".answers");
    const other = this.card.cloneNode(true);
    other.querySelector(".text").textContent = "";
    other.querySelector(".edit").remove();
    this.card.querySelector(".edit").hidden = true;
    answers.append(other);
    answers.classList.add("two");
    this.tools.hidden = true;
    const second = await write(other, this.asked);
    if (!this.element.isConnected) return;
    if (!second?.id || second.text === this.first.text) {
      if (second) this.thank(gettext("The model gives the same answer again, or it cannot be compared."));
      return this.close(other);
    }
    const sides = [this.card, other].map((card) => card.querySelector(".prefer"));
    for (const [place, button] of sides.entries()) {
      button.hidden = false;
      button.addEventListener("click", () => this.prefer(place ? second : null, second, other));
    }
    sides[0].focus({ preventScroll: true });
    follow();
  }

  async prefer(chosen, second, other) {
    const said = chosen
      ? await this.tell({ preferred: second.id })
      : await tell({ completion: second.id, preferred: this.first.id }).then(
          () => true,
          (error) => fail(error),
        );
    if (!said || !this.element.isConnected) return;
    if (chosen) {
      this.first = second;
      messages[this.place] = { role: "assistant", content: second.text };
      await format(this.card.querySelector(".text"), second.text);
      for (const each of this.tools.querySelectorAll("[aria-pressed]")) each.setAttribute("aria-pressed", "false");
    }
    this.thank(gettext("Thank you: the conversation goes on with the better answer."));
    this.close(other);
  }

  close(other) {
    other.remove();
    this.card.querySelector(".prefer").replaceWith(this.card.querySelector(".prefer").cloneNode(true));
    this.card.querySelector(".prefer").hidden = true;
    this.element.querySelector(".answers").classList.remove("two");
    this.settle();
    find("#message").focus();
  }
}

// ---- agreement and access

async function loadTerms() {
  try {
    const told = await (await call("/v1/feedback", "GET")).json();
    terms = told.consent;
  } catch (error) {
    return fail(error);
  }
  find("#gate").hidden = true;
  for (const place of ["#ask-text", "#terms-text"]) find(place).innerHTML = terms.html;
  find("#ask").hidden = agreed() || take(CONSENT) === "";
  tellState();
}

function tellState() {
  find("#terms-state").textContent = agreed()
    ? gettext("You have agreed that your conversations are kept.")
    : gettext("Nothing of what you write is kept.");
  find("#change").textContent = agreed() ? gettext("Keep nothing from now on") : gettext("I have read this and agree");
  find("#terms-said").textContent = "";
}

function decide(consent) {
  put(CONSENT, consent ? terms.sha256 : "");
  find("#ask").hidden = true;
  tellState();
  if (!find("#terms").open) find("#message").focus();
}

async function forget() {
  try {
    await call("/v1/feedback", "DELETE", { user: user() });
  } catch (error) {
    if (error.status !== 404) return void (find("#terms-said").textContent = error.message);
  }
  drop(USER);
  put(CONSENT, "");
  tellState();
  find("#terms-said").textContent = gettext("It is deleted.");
  for (const each of document.querySelectorAll(".tools")) each.toggleAttribute("hidden", true);
}

function openGate(wrong) {
  find("#gate").hidden = false;
  find("#ask").hidden = true;
  find("#gate-problem").hidden = !(wrong && key);
  find("#gate-problem").textContent = gettext("This key is not accepted.");
  find("#key").focus();
}

function restart() {
  busy?.abort();
  showIdle();
  messages = [];
  find("#log").replaceChildren();
  find("#empty").hidden = false;
  say("");
  find("#message").focus();
}

find("#gate").addEventListener("submit", (event) => {
  event.preventDefault();
  key = find("#key").value;
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // only this page remembers it
  }
  loadTerms();
});
find("#compose").addEventListener("submit", send);
find("#message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
});
find("#stop").addEventListener("click", () => busy?.abort());
find("#agree").addEventListener("click", () => decide(true));
find("#decline").addEventListener("click", () => decide(false));
find("#change").addEventListener("click", () => decide(!agreed()));
find("#forget").addEventListener("click", forget);
find("#open-terms").addEventListener("click", () => find("#terms").showModal());
find("#restart").addEventListener("click", restart);
loadTerms();
