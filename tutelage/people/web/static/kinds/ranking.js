// Several responses: a rank for each, in its card.

import { begin } from "../rate.js";
import { make } from "../show.js";
import { gettext } from "../words.js";

const rows = (form) => [...form.element.querySelectorAll("[data-rank]")];

begin({
  missing: gettext("Give every response a rank first, or say that all are bad."),

  card(article, letter, place, question) {
    const row = article.querySelector("[data-rank]");
    row.querySelector("legend").textContent = gettext("Rank of response %(letter)s", { letter });
    for (let rank = 1; rank <= question.responses.length; rank += 1) {
      const label = make("label", "chip");
      const input = make("input", "");
      Object.assign(input, { type: "radio", name: `rank-${place}`, value: String(rank) });
      label.append(input, make("span", "", String(rank)));
      row.querySelector(".chips").append(label);
    }
  },

  read(form, choice) {
    return choice === "ranked" ? { ranking: form.numbers(rows(form)) } : {};
  },

  fill(form, answer) {
    rows(form).forEach((row, place) => form.choose(row, answer.ranking?.[place]));
  },

  better(form) {
    const ranks = form.numbers(rows(form));
    return ranks.filter((rank) => rank === 1).length === 1 ? String(ranks.indexOf(1)) : "";
  },

  settle(form) {
    const ranks = form.numbers(rows(form));
    form.completed("#ranked", ranks.length > 0 && ranks.every(Boolean));
    form.element.querySelector("#order").textContent = ranks.some(Boolean)
      ? inOrder(ranks)
      : gettext("Give each response a rank; equal ranks are ties.");
  },

  digit: (form, key) => form.digit(rows(form), key),
});

/** Ranks by place as "B > A = C", with what has none yet at the end. */
function inOrder(ranks) {
  const letters = [...ranks.keys()].map((place) => "ABCDEF"[place]);
  const steps = [...new Set(ranks.filter(Boolean))].toSorted((one, other) => one - other);
  const said = steps.map((step) => letters.filter((_, place) => ranks[place] === step).join(" = ")).join("  >  ");
  const open = letters.filter((_, place) => !ranks[place]);
  return open.length ? gettext("%(order)s   (open: %(letters)s)", { order: said, letters: open.join(", ") }) : said;
}
