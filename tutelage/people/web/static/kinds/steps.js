// The steps of one response: a label for each, or the first wrong one, with which the labels before it follow.

import { begin } from "../rate.js";
import { make } from "../show.js";
import { figure, gettext } from "../words.js";

const WRONG = "-1";
const RIGHT = "1";
const rows = (form) => [...form.element.querySelectorAll("[data-label]")];
const stepOf = (row) => row.closest(".trace-step");
const labelOf = (row) => row.querySelector("input:checked")?.value ?? "";
const asksFirst = (all) => all[0]?.querySelectorAll("input").length === 2;
const firstWrong = (all) => all.findIndex((row) => labelOf(row) === WRONG);
const current = (all) => all.findIndex((row) => stepOf(row).contains(document.activeElement));

let last = null; // the step that was judged last, or moved to

const choose = (row, label) => {
  for (const input of row.querySelectorAll("input")) input.checked = input.value === label;
};

begin({
  missing: gettext("Judge the steps first: 1 is wrong, 0 says that all the others are right."),

  /** Put the inputs of the template into each step. */
  card(article) {
    const title = article.querySelector("h2");
    title.className = "visually-hidden";
    title.textContent = gettext("Response");
    const model = article.querySelector(".step-answer");
    model.remove();
    const steps = [...article.querySelectorAll(".trace-step")];
    steps.forEach((step, place) => step.append(answerOf(model.cloneNode(true), step, place, steps)));
  },

  read(form, choice) {
    if (choice === "skip") return {};
    const all = rows(form);
    const reasons = {};
    for (const [place, row] of all.entries()) {
      const reason = stepOf(row).querySelector("textarea").value.trim();
      if (reason) reasons[place + 1] = reason;
    }
    return { labels: all.map((row) => (labelOf(row) ? Number(labelOf(row)) : null)), reasons };
  },

  fill(form, answer) {
    for (const [place, row] of rows(form).entries()) {
      form.choose(row, answer.labels?.[place]);
      const reason = answer.reasons?.[place + 1] ?? "";
      stepOf(row).querySelector("textarea").value = reason;
      showReason(stepOf(row), Boolean(reason));
    }
  },

  settle(form) {
    const all = rows(form);
    const wrong = asksFirst(all) ? firstWrong(all) : -1;
    const count = all.filter(labelOf).length;
    const complete = all.length > 0 && (wrong >= 0 || count === all.length);
    for (const [place, row] of all.entries()) {
      stepOf(row).dataset.sign = labelOf(row);
      stepOf(row).classList.toggle("after", wrong >= 0 && place > wrong);
      row.toggleAttribute("data-row", wrong < 0 || place <= wrong); // after the first wrong one, there is no next
    }
    const whole = form.element.querySelector("#judged");
    form.completed("#judged", complete);
    if (!complete) whole.checked = false;
    form.element.querySelector("#order").textContent = said(wrong, count, all.length);
  },

  digit(form, key) {
    const all = rows(form);
    if (key === "0") return restRight(form);
    const row = all.find((each) => each.hasAttribute("data-row") && !labelOf(each));
    const input = row?.querySelectorAll("input")[Number(key) - 1];
    if (!input) return;
    input.click();
    const next = all[all.indexOf(row) + 1];
    if (next?.hasAttribute("data-row")) enter(next);
  },

  keys: {
    j: (form) => move(form, 1),
    k: (form) => move(form, -1),
    r(form) {
      const all = rows(form);
      const row = all.find((each) => stepOf(each) === last) ?? all[0];
      showReason(stepOf(row), true);
      stepOf(row).querySelector("textarea").focus();
    },
  },

  taught(form, { expected, right }) {
    const step = rows(form).map(stepOf)[Number(expected) - 1];
    step?.querySelector(".step-name").append(" ", make("span", "mark", gettext("our choice")));
    const number = { number: figure(Number(expected)) };
    if (!step) return right ? gettext("Yes: all steps are right") : gettext("We would say: all steps are right");
    return right
      ? gettext("Yes: step %(number)s is the first wrong one", number)
      : gettext("We would say: step %(number)s is the first wrong one", number);
  },
});

/** The inputs of a step. Where the first wrong step is asked for, its label says those of the steps before it. */
function answerOf(answer, step, place, steps) {
  const number = { number: figure(place + 1), all: figure(steps.length) };
  answer.querySelector("legend").textContent = gettext("Step %(number)s of %(all)s", number);
  for (const input of answer.querySelectorAll("input")) input.name = `step-${place}`;
  answer.querySelector(".why").addEventListener("click", () => {
    const reason = step.querySelector(".step-reason");
    showReason(step, reason.hidden);
    if (!reason.hidden) reason.querySelector("textarea").focus();
  });
  const row = answer.querySelector("fieldset");
  row.addEventListener("input", () => {
    last = step;
    const all = steps.map((each) => each.querySelector("[data-label]"));
    if (!asksFirst(all)) return;
    for (const before of all.slice(0, place)) choose(before, RIGHT);
    if (labelOf(row) === WRONG) for (const after of all.slice(place + 1)) choose(after, "");
  });
  row.addEventListener("focusin", () => {
    const { height } = step.getBoundingClientRect();
    step.scrollIntoView({ block: height < innerHeight * 0.7 ? "nearest" : "start" });
  });
  return answer;
}

function restRight(form) {
  const all = rows(form);
  const first = asksFirst(all);
  for (const row of all) if (first || !labelOf(row)) choose(row, RIGHT);
  form.element.dispatchEvent(new Event("input"));
}

function move(form, by) {
  const all = rows(form);
  const from = current(all);
  const open = all.findIndex((row) => !labelOf(row));
  const to = from < 0 ? Math.max(open, 0) : Math.min(Math.max(from + by, 0), all.length - 1);
  last = stepOf(all[to]);
  enter(all[to]);
}

function enter(row) {
  row.querySelector("input:checked, input").focus({ focusVisible: true });
}

function showReason(step, visible) {
  step.querySelector(".step-reason").hidden = !visible;
  step.querySelector(".why").setAttribute("aria-expanded", String(visible));
}

function said(wrong, count, all) {
  if (wrong >= 0) return gettext("Step %(number)s is the first wrong one.", { number: figure(wrong + 1) });
  if (count === all) return gettext("Every step is judged.");
  return gettext("%(count)s of %(all)s steps judged.", { count: figure(count), all: figure(all) });
}
