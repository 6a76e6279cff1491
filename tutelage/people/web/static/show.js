// A question on the page. The HTML of texts comes from the server, which has made it harmless.

import { figure, gettext } from "./words.js";

const WHO = { system: gettext("Instructions"), user: gettext("Person"), assistant: gettext("Model"), tool: gettext("Tool") };

let raw = false;
const written = new WeakMap(); // element: the text in it, as HTML and as it was written
let before = null; // where the rater was when the earlier turns were opened: {focus, scroll}

/**
 * Put the question on the page, with an empty form.
 * @param card called with the card of a response, its letter, its place and the question
 */
export function showQuestion(question, card) {
  raw = false;
  showPrompt(question.messages);
  document.querySelector("#responses").replaceChildren(
    ...question.responses.map((response, place) => {
      const letter = "ABCDEF"[place];
      const article = responseCard(response, letter);
      card?.(article, letter, place, question);
      return article;
    }),
  );
}

/** Put a conversation on the page, and empty cards for the answers that come; returns where their texts go. */
export function showComing(messages, places) {
  raw = false;
  showPrompt(messages);
  const cards = [..."ABCDEF".slice(0, places)].map((letter) => emptyCard(letter));
  document.querySelector("#responses").replaceChildren(...cards);
  return cards.map((card) => card.querySelector(".text"));
}

const MOST_LINES = 100; // of a response that is shown whole

/** Fold the responses that are longer, each with a button that opens it. */
export function foldLong() {
  for (const article of cards(".response")) {
    const text = article.querySelector(":scope > .text");
    if (!text) continue; // a trace, whose long parts are folded one by one
    if (text.scrollHeight <= MOST_LINES * parseFloat(getComputedStyle(text).lineHeight)) continue;
    article.classList.add("folded");
    const { letter } = article.dataset;
    const button = make("button", "unfold", gettext("Show the rest of response %(letter)s", { letter }));
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.append(" ", keyCap("o"));
    button.addEventListener("click", () => unfold(article));
    text.after(button);
    text.addEventListener("focusin", () => unfold(article)); // a link or a table further down
  }
}

/** The letters of the responses of which the end is folded away. */
export const folded = () => cards(".folded").map((article) => article.dataset.letter);

/** Open what is folded, and keep the place of the focus. */
export function unfoldAll() {
  for (const article of cards(".folded")) unfold(article);
}

const cards = (selector) =>
  /** @type {HTMLElement[]} */ ([...document.querySelectorAll(`#responses ${selector}`)]);

function unfold(article) {
  const button = article.querySelector(".unfold");
  const text = article.querySelector(".text");
  article.classList.remove("folded");
  if (button && document.activeElement === button) {
    text.tabIndex = -1;
    text.focus({ preventScroll: true });
  }
  button?.remove();
}

/** A conversation, every message with who wrote it. */
export const turns = (messages) => messages.map((message) => turn(message, true));

function showPrompt(messages) {
  before = null;
  const earlier = messages.slice(0, -1);
  const last = messages.at(-1);
  /** @type {HTMLElement} */
  const prompt = document.querySelector("#prompt");
  prompt.replaceChildren(...(earlier.length ? [fold(earlier)] : []), turn(last, earlier.length > 0));
  prompt.tabIndex = prompt.scrollHeight > prompt.clientHeight ? 0 : -1;
}

/** Open the earlier turns of the conversation and go to the first of them, or close them and go back. */
export function toggleEarlier() {
  /** @type {HTMLElement} */
  const prompt = document.querySelector("#prompt");
  const details = prompt.querySelector("details");
  if (!details?.checkVisibility()) return;
  const here = { focus: document.activeElement, scroll: scrollY };
  details.open = !details.open;
  if (details.open) {
    before = here;
    prompt.focus({ preventScroll: true });
    details.scrollIntoView();
  } else if (before) {
    before.focus.focus({ preventScroll: true });
    scrollTo(0, before.scroll);
    before = null;
  }
}

/** Show the texts as they were written, or formatted again. */
export function toggleRaw() {
  raw = !raw;
  redraw();
}

/** Fill in the texts again, whatever has taken their place. */
export function redraw() {
  for (const element of document.querySelectorAll("#prompt .text, #responses .text")) {
    if (written.has(element)) fill(element, written.get(element));
  }
}

/** Say beside the letter of a side (left, right; of any other there is none) what it was. */
export function mark(side, words) {
  const place = ["left", "right"].indexOf(side);
  const title = document.querySelectorAll("#responses h2")[place];
  title?.append(" ", make("span", "mark", words));
}

function fill(element, text) {
  written.set(element, text);
  if (!raw) {
    element.innerHTML = text.html;
    return;
  }
  const pre = make("pre", "plain");
  pre.append(...reveal(text.text));
  element.replaceChildren(pre);
}

const REVEALED =
  // oxlint-disable-next-line no-control-regex, no-misleading-character-class
  /[\u0590-\u08ff\u0900-\u109f\u1780-\u18af\u2600-\u27bf\ufe0f\u{1f000}-\u{1faff}][\u200c\u200d]|\u{1f3f4}[\u{e0020}-\u{e007f}]+|([\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}])/gu;

/** A text as nodes, each invisible character shown by its number, as in the HTML of the server (see render.py). */
export function reveal(text) {
  const nodes = [];
  let seen = 0;
  for (const match of text.matchAll(REVEALED)) {
    if (!match[1]) continue;
    const number = match[1].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    nodes.push(text.slice(seen, match.index), make("span", "invisible", `U+${number}`));
    seen = match.index + match[1].length;
  }
  return [...nodes, text.slice(seen)];
}

function turn(message, named) {
  const element = make("div", `turn${message.text.length > 400 ? " long" : ""}`);
  if (named) element.append(make("p", "who", WHO[message.role]));
  const text = make("div", "text");
  text.dir = "auto";
  fill(text, message);
  element.append(text);
  return element;
}

function fold(messages) {
  const details = make("details", "");
  details.open = messages.length <= 2;
  const words = gettext("Earlier in this conversation (%(count)s)", { count: figure(messages.length) });
  const summary = make("summary", "", words);
  summary.append(" ", keyCap("h"));
  details.append(summary);
  for (const message of messages) {
    const element = turn(message, true);
    element.classList.add("earlier");
    details.append(element);
  }
  return details;
}

function responseCard(response, letter) {
  const article = emptyCard(letter);
  const text = article.querySelector(".text");
  if (response.steps) text.replaceWith(trace(response.steps));
  else fill(text, response);
  if (!response.text.trim()) text.append(make("p", "not-shown", gettext("(an empty response)")));
  return article;
}

/** The steps of a response, each in a place of its own. */
function trace(steps) {
  const list = make("ol", "trace");
  list.append(
    ...steps.map((step, place) => {
      const item = make("li", "trace-step");
      const text = make("div", "text");
      text.dir = "auto";
      fill(text, step);
      item.append(make("h3", "step-name", gettext("Step %(number)s", { number: figure(place + 1) })), text);
      return item;
    }),
  );
  return list;
}

function emptyCard(letter) {
  /** @type {HTMLTemplateElement} */
  const template = document.querySelector("#response-template");
  const article = /** @type {HTMLElement} */ (template.content.firstElementChild.cloneNode(true));
  const title = article.querySelector("h2");
  title.id = `response-${letter}`;
  article.dataset.letter = letter;
  title.append(...lettered(letter));
  article.setAttribute("aria-labelledby", title.id);
  article.querySelector(".text").setAttribute("dir", "auto");
  return article;
}

/** The name of a response, of which only the letter is seen. */
function lettered(letter) {
  const [lead, tail] = gettext("Response %(letter)s").split("%(letter)s");
  return [make("span", "visually-hidden", lead), make("b", "", letter), make("span", "visually-hidden", tail)];
}

/** A key as it stands beside what it does. */
export function keyCap(name) {
  const key = make("kbd", "", name);
  key.setAttribute("aria-hidden", "true");
  return key;
}

export function make(tag, className, text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}
