// The answer as it stands in the form, and the form as an answer says.

import { onward } from "./keys.js";
import { folded } from "./show.js";
import { gettext } from "./words.js";

const SEPARATOR = " — ";

export class Form {
  /**
   * @param part what is peculiar to the kind of question (see `begin` in rate.js)
   * @param changed called after every change that the rater makes
   *
   * `add` takes what is on the page beside that, an addition:
   *   show(question)        a new question is on the page
   *   read(choice)          its parts of an answer with that choice
   *   draft()               what a draft keeps beside that
   *   fill(answer)          the inverse, of an answer or a draft; nothing where it has none
   *   missing()             the sentence for what cannot be sent, if anything
   *   settle(verdict)       shows what belongs to the present state
   *   inside()              whether the focus is in it, for Escape to leave
   */
  constructor(element, part, changed) {
    this.element = element;
    this.part = part;
    this.changed = changed;
    this.additions = [];
    this.flags = element.querySelector("#flags");
    this.reasonPanel = element.querySelector("#reason-panel");
    this.reason = element.querySelector("#reason");
    this.skipPanel = element.querySelector("#skip-panel");
    this.openers = new Map();
    this.addPanel(this.flags, element.querySelector("#open-flags"), () => this.enter(this.flags));
    this.addPanel(this.reasonPanel, element.querySelector("#open-reason"), () => this.enter(this.reasonPanel));
    element.addEventListener("input", () => {
      this.settle();
      changed();
    });
  }

  add(addition) {
    this.additions.push(addition);
  }

  /** A panel that its button opens, and then `enter` moves the focus into it. */
  addPanel(panel, opener, enter) {
    this.openers.set(panel, opener);
    opener.addEventListener("click", () => {
      this.show(panel, panel.hidden);
      if (!panel.hidden) enter();
    });
  }

  verdict() {
    return this.element.querySelector('[name="verdict"]:checked')?.value ?? "";
  }

  read() {
    const [choice, strength] = this.verdict().split("-");
    const why = choice === "skip" ? checked(this.element, "skip-reason") : [];
    return {
      choice: choice ?? "",
      strength: Number(strength ?? 0),
      ...this.part.read(this, choice),
      flags: checked(this.element, "flag"),
      reason: [...why, this.reason.value.trim()].filter(Boolean).join(SEPARATOR),
      ...Object.assign({}, ...this.additions.map((each) => each.read(choice))),
    };
  }

  /** The answer with all that must survive a reload, though it would not be sent. */
  draft() {
    return { ...this.read(), ...Object.assign({}, ...this.additions.map((each) => each.draft())) };
  }

  /** What is still missing, as a sentence; nothing if the answer can be sent. */
  missing() {
    const answer = this.read();
    if (!answer.choice) return this.part.missing;
    if (answer.choice === "skip" && !answer.reason && !answer.flags.length) {
      return gettext("Say why it cannot be judged: choose a reason above, or write one.");
    }
    const [letter] = answer.choice === "skip" ? [] : folded();
    if (letter) return gettext("Show the rest of response %(letter)s first: the end counts too.", { letter });
    return this.additions.map((each) => each.missing()).find(Boolean) ?? "";
  }

  fill(answer) {
    this.element.reset();
    this.check("verdict", `${answer.choice}-${answer.strength}`);
    this.part.fill(this, answer);
    for (const flag of answer.flags ?? []) this.check("flag", flag);
    this.fillReason(answer);
    this.show(this.flags, Boolean(answer.flags?.length));
    this.show(this.reasonPanel, Boolean(this.reason.value));
    for (const each of this.additions) each.fill(answer);
    this.settle();
  }

  fillReason(answer) {
    const parts = (answer.reason ?? "").split(SEPARATOR);
    const known = answer.choice === "skip" && this.check("skip-reason", parts[0]);
    this.reason.value = known ? parts.slice(1).join(SEPARATOR) : (answer.reason ?? "");
  }

  clear() {
    this.fill({ choice: "", strength: 0 });
  }

  check(name, value) {
    const inputs = [...this.element.querySelectorAll(`[name="${name}"]`)];
    const input = inputs.find((each) => each.value === value);
    if (input) input.checked = true;
    return Boolean(input);
  }

  /** Show what belongs to the present state: what the kind shows of it, and the reasons for skipping. */
  settle() {
    this.element.querySelector("#said").textContent = this.part.settle(this) ?? "";
    this.skipPanel.hidden = !this.verdict().startsWith("skip");
    for (const each of this.additions) each.settle(this.verdict());
    this.element.querySelector("#hint").hidden = true;
  }

  /** Choose what a row of radio buttons says; nothing where none has the value. */
  choose(row, value) {
    for (const input of row.querySelectorAll("input")) input.checked = input.value === String(value ?? "");
  }

  /** The values that rows of radio buttons say, 0 where one says nothing yet. */
  numbers(rows) {
    return rows.map((row) => Number(row.querySelector("input:checked")?.value ?? 0));
  }

  /** What rows say, in a list for each name in their attribute. A name may be one that every object has. */
  byName(rows, attribute, say) {
    const lists = new Map();
    for (const row of rows) {
      const name = row.dataset[attribute];
      lists.set(name, [...(lists.get(name) ?? []), say(row)]);
    }
    return Object.fromEntries(lists);
  }

  /** Choose what the lists say, the inverse of `byName`. */
  chooseByName(rows, attribute, lists) {
    const left = new Map(Object.entries(lists ?? {}).map(([name, values]) => [name, [...values]]));
    for (const row of rows) this.choose(row, left.get(row.dataset[attribute])?.shift());
  }

  /** Choose the verdict that says "as in the rows above" once they are all filled in, unless another was chosen. */
  completed(id, complete) {
    const whole = this.element.querySelector(id);
    const elsewhere = this.verdict() && !whole.checked;
    if (complete && !elsewhere) whole.checked = true;
  }

  /** A digit goes to the first row that says nothing yet, else to the first one. */
  digit(rows, key) {
    const open = rows.find((row) => !row.querySelector("input:checked")) ?? rows[0];
    const input = open.querySelectorAll("input")[Number(key) - 1];
    if (!input) return;
    input.click();
    onward(open);
  }

  show(panel, visible) {
    panel.hidden = !visible;
    this.openers.get(panel)?.setAttribute("aria-expanded", String(visible));
  }

  /** Open a panel and put the focus into it. */
  enter(panel) {
    this.show(panel, true);
    const field = panel.querySelector("input:checked, input, textarea");
    field?.focus({ focusVisible: true });
    panel.scrollIntoView({ block: "nearest" });
  }
}

/** The values of the boxes of this name that are ticked. */
function checked(scope, name) {
  return [...scope.querySelectorAll(`[name="${name}"]:checked`)].map((input) => input.value);
}
