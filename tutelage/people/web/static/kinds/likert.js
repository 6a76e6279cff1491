// Several responses, each rated by itself: a row of points for every criterion, in its card.

import { begin } from "../rate.js";
import { figure, gettext } from "../words.js";

const rows = (form) => [...form.element.querySelectorAll("[data-rating]")];
const steps = (form) => form.element.querySelector("[data-steps]")?.dataset.steps ?? "";

begin({
  missing: gettext("Give every response a rating on every criterion first, or say that you cannot judge."),

  card(article, letter, place) {
    article.querySelectorAll("[data-rating]").forEach((row, index) => {
      const inputs = [...row.querySelectorAll("input")];
      for (const input of inputs) input.name = `rating-${place}-${index}`;
      row.querySelector("legend .visually-hidden").textContent =
        gettext("%(criterion)s of response %(letter)s, 1 is worst and %(best)s is best", {
          criterion: row.dataset.name,
          letter,
          best: figure(inputs.length),
        });
    });
  },

  read(form, choice) {
    if (choice !== "rated") return {};
    return { ratings: form.byName(rows(form), "rating", (row) => form.numbers([row])[0]) };
  },

  fill: (form, answer) => form.chooseByName(rows(form), "rating", answer.ratings),

  settle(form) {
    const given = form.numbers(rows(form));
    const count = given.filter(Boolean).length;
    const complete = given.length > 0 && count === given.length;
    form.completed("#rated", complete);
    form.element.querySelector("#order").textContent = complete
      ? gettext("Everything is rated.")
      : gettext("%(count)s of %(all)s ratings given; 1 is worst, %(best)s is best.", {
          count: figure(count),
          all: figure(given.length),
          best: steps(form),
        });
  },

  digit: (form, key) => form.digit(rows(form), key),
});
