// Words of the responses that are marked as wrong, each with a category. An addition to the form (see form.js); it is
// there where the study asks for it.
//
// Marking is a mode: the cards show their texts as they were written, word by word, and the bar shows the categories.
// Positions count code points, as the server does; a string of this language counts UTF-16 units.

import { make, redraw, reveal, unfoldAll } from "./show.js";
import { figure, gettext } from "./words.js";

const segmenter = "Segmenter" in Intl ? new Intl.Segmenter(undefined, { granularity: "word" }) : null;
const MOST = 100;

/** The words of a text as {start, end} in UTF-16 units: what is no space. */
function wordsOf(text) {
  const found = segmenter
    ? [...segmenter.segment(text)].map(({ index, segment }) => ({ start: index, end: index + segment.length, segment }))
    : [...text.matchAll(/\S+/g)].map((match) => ({ start: match.index, end: match.index + match[0].length, segment: match[0] }));
  return found.filter(({ segment }) => segment.trim());
}

const points = (text, index) => [...text.slice(0, index)].length;
const units = (text, count) => [...text].slice(0, count).join("").length;

export class Spans {
  constructor(form) {
    this.form = form;
    this.panel = form.element.querySelector("#spans-panel");
    this.opener = form.element.querySelector("#open-spans");
    this.list = this.panel.querySelector("#spans");
    this.note = this.panel.querySelector("#spans-said");
    this.palette = form.element.querySelector("#palette");
    this.hint = this.palette.querySelector("#palette-hint");
    this.asked = this.hint.textContent;
    this.categories = [...this.palette.querySelectorAll("[data-category]")];
    this.active = false;
    this.responses = [];
    this.spans = []; // as they are sent, in the order in which they were marked
    this.boxes = []; // by place: the words and their elements
    this.chosen = null; // {place, anchor, focus, open}: words from the anchor to the focus
    this.training = false;
    this.opener.addEventListener("click", () => this.toggle());
    this.palette.querySelector("#palette-done").addEventListener("click", () => this.stop());
    this.palette.querySelector("#palette-unmark").addEventListener("click", () => this.unmark());
    for (const button of this.categories) button.addEventListener("click", () => this.mark(button.dataset.category));
  }

  // ---- as an addition to the form

  show(question) {
    this.leave();
    this.training = question.training;
    this.opener.hidden = question.training;
    this.responses = question.responses.map((response) => response.text);
  }

  read(choice) {
    return { spans: choice === "skip" || this.training ? [] : this.spans };
  }

  draft() {
    return { spans: this.spans };
  }

  fill(answer) {
    this.leave();
    this.spans = [...(answer.spans ?? [])];
    this.tell();
  }

  settle(verdict) {
    this.note.hidden = !verdict.startsWith("skip");
  }

  missing() {
    return "";
  }

  inside() {
    return false;
  }

  // ---- the mode

  toggle() {
    if (this.active) this.stop();
    else this.begin();
  }

  begin() {
    if (this.training) return;
    this.active = true;
    unfoldAll();
    this.form.element.classList.add("marking");
    this.palette.hidden = false;
    this.opener.setAttribute("aria-expanded", "true");
    const cards = [...document.querySelectorAll("#responses .response")];
    this.boxes = cards.map((card, place) => this.box(card.querySelector(".trace") ?? card.querySelector(".text"), place));
    this.say(this.asked);
    this.draw();
    const first = this.boxes.find((box) => box.words.length);
    first?.elements[0].focus({ focusVisible: true });
  }

  /** Leave the mode; the texts are formatted again. */
  stop() {
    this.leave();
    /** @type {HTMLElement} */
    const ask = document.querySelector("#ask");
    ask.focus({ preventScroll: true });
  }

  leave() {
    if (!this.active) return;
    this.active = false;
    this.chosen = null;
    for (const { whole } of this.boxes.filter((box) => box.whole)) {
      whole.nextElementSibling.remove();
      whole.hidden = false;
    }
    this.boxes = [];
    this.form.element.classList.remove("marking");
    this.palette.hidden = true;
    this.opener.setAttribute("aria-expanded", "false");
    redraw();
  }

  box(element, place) {
    const text = this.responses[place];
    const words = wordsOf(text);
    const list = make("div", "words");
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-multiselectable", "true");
    list.setAttribute("aria-label", gettext("Words of response %(letter)s", { letter: "ABCDEF"[place] }));
    list.dir = "auto";
    let seen = 0;
    const elements = words.map(({ start, end }, number) => {
      list.append(...reveal(text.slice(seen, start)));
      seen = end;
      const word = make("span", "word");
      word.append(...reveal(text.slice(start, end)));
      word.setAttribute("role", "option");
      word.tabIndex = number === 0 ? 0 : -1;
      word.dataset.word = String(number);
      list.append(word);
      return word;
    });
    const whole = words.length && element.matches(".trace") ? element : null; // its steps return afterwards
    const box = { place, text, words, elements, list, whole };
    if (whole) {
      whole.hidden = true;
      whole.after(list);
    } else if (words.length) element.replaceChildren(list);
    list.addEventListener("keydown", (event) => this.key(event, box));
    this.listenToPointer(box);
    return box;
  }

  // ---- choosing words

  listenToPointer(box) {
    const number = (event) => {
      /** @type {HTMLElement | null} */
      const word = document.elementFromPoint(event.clientX, event.clientY)?.closest("[data-word]");
      return word && box.list.contains(word) ? Number(word.dataset.word) : null;
    };
    let from = null;
    let dragged = false;
    box.list.addEventListener("pointerdown", (event) => {
      dragged = false;
      from = event.pointerType === "mouse" && event.button === 0 ? number(event) : null;
    });
    box.list.addEventListener("pointermove", (event) => {
      const here = event.buttons === 1 && from !== null ? number(event) : null;
      if (here === null || (here === from && !dragged)) return;
      dragged = true;
      this.choose({ place: box.place, anchor: from, focus: here, open: false });
    });
    box.list.addEventListener("click", (event) => {
      const here = dragged ? null : number(event);
      dragged = false;
      if (here !== null) this.tap(box, here, event.shiftKey);
    });
  }

  /** The first tap is one end, the next the other; a second tap on the same word takes it back. */
  tap(box, here, extending) {
    const before = this.chosen;
    const same = before !== null && before.place === box.place;
    if (same && (before.open || extending)) {
      if (before.anchor === here && !extending) this.choose(null);
      else this.choose({ ...before, focus: here, open: false });
    } else {
      this.choose({ place: box.place, anchor: here, focus: here, open: true });
    }
    this.focus(box, here);
  }

  key(event, box) {
    const here = box.elements.indexOf(document.activeElement);
    if (here < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const ahead = getComputedStyle(box.list).direction === "rtl" ? -1 : 1;
    const moves = {
      ArrowRight: () => here + ahead,
      ArrowLeft: () => here - ahead,
      ArrowDown: () => this.inLine(box, here, 1),
      ArrowUp: () => this.inLine(box, here, -1),
      Home: () => 0,
      End: () => box.words.length - 1,
    };
    if (event.key in moves) {
      const to = Math.min(Math.max(moves[event.key](), 0), box.words.length - 1);
      const mine = this.chosen?.place === box.place ? this.chosen : null;
      if (event.shiftKey) this.choose({ place: box.place, anchor: mine?.anchor ?? here, focus: to, open: false });
      else this.choose(mine?.open ? { ...mine, focus: to } : null);
      this.focus(box, to);
    } else if (event.key === " ") {
      const open = this.chosen?.place === box.place && this.chosen.open;
      this.choose(open ? { ...this.chosen, open: false } : { place: box.place, anchor: here, focus: here, open: true });
    } else if (event.key === "Backspace" || event.key === "Delete") {
      this.unmark();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** The nearest word of the next line, or of the one before. */
  inLine(box, here, step) {
    const middle = (number) => {
      const rect = box.elements[number].getClientRects()[0];
      return { x: rect.left + rect.width / 2, y: rect.top + rect.height / 2, half: rect.height / 2 };
    };
    const from = middle(here);
    let line = null;
    let best = here;
    for (let number = here + step; number >= 0 && number < box.words.length; number += step) {
      const at = middle(number);
      if (Math.abs(at.y - from.y) < at.half) continue;
      line ??= at.y;
      if (Math.abs(at.y - line) >= at.half) break;
      if (best === here || Math.abs(at.x - from.x) < Math.abs(middle(best).x - from.x)) best = number;
    }
    return best;
  }

  focus(box, number) {
    for (const word of box.elements) word.tabIndex = -1;
    box.elements[number].tabIndex = 0;
    box.elements[number].focus({ focusVisible: true });
  }

  choose(chosen) {
    this.chosen = chosen;
    this.draw();
  }

  /** The words that are chosen, else the one in focus. */
  range() {
    if (this.chosen) {
      const { place, anchor, focus } = this.chosen;
      return { box: this.boxes[place], low: Math.min(anchor, focus), high: Math.max(anchor, focus) };
    }
    for (const box of this.boxes) {
      const here = box.elements.indexOf(document.activeElement);
      if (here >= 0) return { box, low: here, high: here };
    }
    return null;
  }

  // ---- marking

  /** A digit marks with the category of that number; whether the mode has taken it. */
  digit(key) {
    if (!this.active) return false;
    const button = this.categories[Number(key) - 1];
    if (button) this.mark(button.dataset.category);
    return true;
  }

  mark(category) {
    const range = this.range();
    if (!range) return this.say(gettext("Choose the words first."));
    const { box, low, high } = range;
    const span = {
      response: box.place,
      start: points(box.text, box.words[low].start),
      end: points(box.text, box.words[high].end),
      category,
    };
    const known = this.spans.some((each) => JSON.stringify(each) === JSON.stringify(span));
    if (!known && this.spans.length >= MOST) return this.say(gettext("At most %(most)s places can be marked.", { most: figure(MOST) }));
    if (!known) this.spans = [...this.spans, span];
    const words = box.text.slice(box.words[low].start, box.words[high].end);
    this.say(gettext("“%(words)s” is marked: %(category)s.", { words, category }));
    this.after(box, this.chosen?.focus ?? high);
  }

  unmark() {
    const range = this.range();
    if (!range) return this.say(gettext("Choose the words first."));
    const { box, low, high } = range;
    const [from, to] = [points(box.text, box.words[low].start), points(box.text, box.words[high].end)];
    const left = this.spans.filter((each) => each.response !== box.place || each.end <= from || each.start >= to);
    const nothing = left.length === this.spans.length;
    this.say(nothing ? gettext("Nothing is marked there.") : gettext("The mark is taken off."));
    this.spans = left;
    this.after(box, this.chosen?.focus ?? high);
  }

  after(box, number) {
    this.choose(null);
    this.focus(box, number);
    this.tell();
    this.form.changed();
  }

  remove(span) {
    this.spans = this.spans.filter((each) => each !== span);
    this.draw();
    this.tell();
    this.form.changed();
    (this.list.querySelector("button") ?? this.opener).focus({ focusVisible: true });
  }

  // ---- what is shown

  draw() {
    for (const box of this.boxes) {
      const mine = this.spans
        .filter((each) => each.response === box.place)
        .map((each) => ({ ...each, start: units(box.text, each.start), end: units(box.text, each.end) }));
      const range = this.chosen?.place === box.place ? this.range() : null;
      box.words.forEach(({ start, end }, number) => {
        const word = box.elements[number];
        const said = mine.filter((each) => each.start < end && start < each.end).map((each) => each.category);
        const chosen = range !== null && range.low <= number && number <= range.high;
        word.classList.toggle("marked", said.length > 0);
        word.setAttribute("aria-selected", String(chosen));
        if (said.length) word.title = said.join(", ");
        else word.removeAttribute("title");
      });
    }
  }

  say(sentence) {
    if (this.hint.textContent !== sentence) this.hint.textContent = sentence;
  }

  /** The list of what is marked, with a button beside each. */
  tell() {
    this.panel.hidden = !this.spans.length;
    this.list.replaceChildren(
      ...this.spans.map((span) => {
        const letter = "ABCDEF"[span.response];
        const words = [...(this.responses[span.response] ?? "")].slice(span.start, span.end).join("");
        const line = make("li", "");
        const quoted = make("q", "");
        quoted.append(...reveal(words.length > 60 ? `${words.slice(0, 60)}…` : words));
        quoted.dir = "auto";
        const button = make("button", "", gettext("Take off"));
        button.type = "button";
        button.setAttribute("aria-label", gettext("Take off the mark on “%(words)s”", { words: words.slice(0, 60) }));
        button.addEventListener("click", () => this.remove(span));
        line.append(make("b", "", letter), " ", quoted, " ", make("span", "mark", span.category), " ", button);
        return line;
      }),
    );
  }
}
