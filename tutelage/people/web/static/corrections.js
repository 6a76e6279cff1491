// A better response, made from one of those shown or written anew. An addition to the form (see form.js); it is there
// where the study asks for it.

import { keyCap, make } from "./show.js";
import { figure, gettext } from "./words.js";

const NEW = "new";
const plain = (text) => text.replaceAll("\r\n", "\n").replaceAll("\r", "\n").trim();

/** The name of what a correction was made from. */
const valueOf = ({ response, step }) => (response === null ? NEW : step === undefined ? String(response) : `${response}.${step}`);

/** What can be begun with in a response: the whole of it, or what the model wrote in each step of a trace. */
function startsOf({ text, steps }, response) {
  const letter = "ABCDEF"[response];
  if (steps?.[0]?.own === undefined) {
    return [{ value: String(response), words: gettext("Edit %(letter)s", { letter }), text, response }];
  }
  return steps.map(({ own }, step) => ({
    value: valueOf({ response, step }),
    words: gettext("Edit %(letter)s, step %(number)s", { letter, number: figure(step + 1) }),
    text: own,
    response,
    step,
  }));
}

export class Corrections {
  constructor(form) {
    this.form = form;
    this.panel = form.element.querySelector("#correction-panel");
    this.opener = form.element.querySelector("#open-correction");
    this.starts = this.panel.querySelector("#correction-starts");
    this.text = this.panel.querySelector("#correction");
    this.said = this.panel.querySelector("#correction-said");
    this.options = []; // what can be begun with
    this.texts = {}; // what was written, by what it was made from: nothing is lost in changing one's mind
    this.training = false;
    form.addPanel(this.panel, this.opener, () => this.enter());
    this.starts.addEventListener("change", () => this.begin(this.start()));
    this.text.addEventListener("input", () => (this.texts[this.start()] = this.text.value));
  }

  /** A new question on the page. */
  show(question) {
    this.training = question.training;
    this.opener.hidden = question.training;
    this.options = [...question.responses.flatMap(startsOf), { value: NEW, words: gettext("Write anew"), text: "", response: null }];
    this.starts.replaceChildren(
      ...this.options.map(({ value, words }, number) => {
        const label = make("label", "chip");
        const input = make("input", "");
        Object.assign(input, { type: "radio", name: "correction-start", value });
        const span = make("span", "", `${words} `);
        if (number < 9) span.append(keyCap(String(number + 1)));
        label.append(input, span);
        return label;
      }),
    );
  }

  start() {
    return this.starts.querySelector("input:checked")?.value ?? "";
  }

  option(start) {
    return this.options.find(({ value }) => value === start);
  }

  original(start) {
    return this.option(start)?.text ?? "";
  }

  /** Where to begin with the response in a place: with the last step of a trace. */
  startOf(place) {
    return this.options.findLast(({ response }) => String(response) === place)?.value ?? place;
  }

  /** Put what was written from this start, else the response itself, into the field. */
  begin(start) {
    const input = [...this.starts.querySelectorAll("input")].find((each) => each.value === start);
    if (input) input.checked = true;
    this.text.value = this.texts[start] ?? this.original(start);
    this.text.disabled = !start;
    this.settle(this.form.verdict());
  }

  /** Into the panel: with a verdict for a side, into the text of the better response. */
  enter() {
    if (!this.start()) {
      const better = this.form.part.better?.(this.form) ?? "";
      const nothing = this.form.verdict().startsWith("both_bad");
      if (better || nothing) this.begin(better ? this.startOf(better) : NEW);
    }
    const field = this.start() ? this.text : this.starts.querySelector("input");
    field.focus({ focusVisible: true });
    this.panel.scrollIntoView({ block: "nearest" });
  }

  /** The better response, or null: one without a change is none. */
  correction() {
    const start = this.start();
    const text = this.text.value.trim();
    if (!start || !text || plain(text) === plain(this.original(start))) return null;
    const { response, step } = this.option(start);
    return step === undefined ? { text, response } : { text, response, step };
  }

  /** The place of the response that was written again without a change. */
  same() {
    const correction = this.correction();
    if (correction === null) return -1;
    const same = this.options.find(({ text, step }) => step === undefined && text && plain(text) === plain(correction.text));
    return same?.response ?? -1;
  }

  missing() {
    const place = this.same();
    if (place < 0) return "";
    const letter = "ABCDEF"[place];
    return gettext("Your better response is %(letter)s without a change: change it, or delete it.", { letter });
  }

  read(choice) {
    return { correction: choice === "skip" || this.training ? null : this.correction() };
  }

  draft() {
    return { start: this.start(), texts: this.texts };
  }

  fill(answer) {
    const { correction } = answer;
    const given = correction ? valueOf(correction) : "";
    this.texts = { ...(answer.texts ?? (correction ? { [given]: correction.text } : {})) };
    this.begin(answer.start ?? given);
    this.form.show(this.panel, !this.training && Boolean(this.start()));
  }

  settle(verdict) {
    const words = this.words(verdict);
    if (this.said.textContent !== words) this.said.textContent = words;
  }

  words(verdict) {
    if (!this.start()) return gettext("Choose what to begin with.");
    if (this.missing()) return this.missing();
    if (!this.text.value.trim()) return gettext("Write the response that you would want to read.");
    const { response, step } = this.option(this.start());
    const letter = "ABCDEF"[response];
    if (!this.correction() && step !== undefined)
      return gettext("It takes the place of what the model wrote in this step; the steps after it are left out.");
    if (!this.correction()) return gettext("This is response %(letter)s without a change so far.", { letter });
    if (verdict.startsWith("skip")) return gettext("It is not sent with “Can’t judge”.");
    return gettext("It is sent with your verdict.");
  }

  /** Whether the focus was in the panel. */
  inside() {
    return this.panel.contains(document.activeElement);
  }
}
