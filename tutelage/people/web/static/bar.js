// A bar from A to B between two responses, and a row for each criterion: what `begin` in rate.js takes.

import { gettext } from "./words.js";

const rows = (form) => [...form.element.querySelectorAll("[data-criterion]")];

export const bar = {
  missing: gettext("Choose a verdict first: the digits go from A to B."),

  read(form) {
    const sides = rows(form).map((row) => [row.dataset.criterion, row.querySelector("input:checked")?.value]);
    return { criteria: Object.fromEntries(sides.filter(([, side]) => side)) };
  },

  fill(form, answer) {
    const sides = new Map(Object.entries(answer.criteria ?? {}));
    for (const row of rows(form)) form.choose(row, sides.get(row.dataset.criterion));
  },

  better: (form) => ({ left: "0", right: "1" })[form.verdict().split("-")[0]],

  /** The card of the better response stands out. */
  settle(form) {
    const verdict = form.verdict();
    form.element.querySelectorAll(".response").forEach((card, place) => {
      card.classList.toggle("better", verdict.startsWith(["left", "right"][place]));
    });
    return form.element.querySelector(".point input:checked + .face .words")?.textContent;
  },

  digit(form, key) {
    const points = [...form.element.querySelectorAll(".scale input:enabled")];
    const input = key === "0" ? points[(points.length - 1) / 2] : points.find((each) => each.dataset.key === key);
    input?.click();
  },

  keys: {
    c: (form) =>
      form.element
        .querySelector("#criteria")
        ?.querySelector("fieldset:not(:has(:checked)) input, input")
        .focus({ focusVisible: true }),
  },
};
