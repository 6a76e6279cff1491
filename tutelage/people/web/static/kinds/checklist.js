// Several responses, each with the criteria of its prompt: a row for every criterion, in its card.

import { begin } from "../rate.js";
import { make } from "../show.js";
import { figure, gettext } from "../words.js";

const DECISIONS = { met: gettext("met"), unmet: gettext("not met"), unsure: gettext("not sure") };
const rows = (form) => [...form.element.querySelectorAll("[data-criterion]")];
const decision = (row) => row.querySelector("input:checked")?.value ?? "";

function criterionRow(criterion, letter, name) {
  const row = make("fieldset", "");
  row.dataset.row = "";
  row.dataset.criterion = criterion;
  const legend = make("legend", "");
  const text = make("span", "", criterion);
  text.dir = "auto";
  legend.append(text, make("span", "visually-hidden", ` ${gettext("Response %(letter)s", { letter })}`));
  const chips = make("div", "chips steps");
  chips.dataset.digits = "";
  for (const [value, words] of Object.entries(DECISIONS)) {
    const label = make("label", "chip");
    const input = /** @type {HTMLInputElement} */ (make("input", ""));
    Object.assign(input, { type: "radio", name, value });
    label.append(input, make("span", "", words));
    chips.append(label);
  }
  row.append(legend, chips);
  return row;
}

begin({
  missing: gettext("Decide about every criterion of every response first, or say that you cannot judge."),

  card(article, letter, place, question) {
    const rowsHere = question.criteria.map((criterion, index) => criterionRow(criterion, letter, `met-${place}-${index}`));
    article.querySelector(".ratings").replaceChildren(...rowsHere);
  },

  read(form, choice) {
    if (choice !== "judged") return {};
    return { verdicts: form.byName(rows(form), "criterion", decision) };
  },

  fill: (form, answer) => form.chooseByName(rows(form), "criterion", answer.verdicts),

  settle(form) {
    const all = rows(form);
    const count = all.filter(decision).length;
    const complete = all.length > 0 && count === all.length;
    form.completed("#judged", complete);
    form.element.querySelector("#order").textContent = complete
      ? gettext("Everything is decided.")
      : gettext("%(count)s of %(all)s criteria decided.", { count: figure(count), all: figure(all.length) });
  },

  digit: (form, key) => form.digit(rows(form), key),
});
