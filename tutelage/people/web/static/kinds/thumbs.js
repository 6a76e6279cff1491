// One response, good or bad, or two, with a bar from A to B: what is about the other number is out of the way.

import { bar } from "../bar.js";
import { begin } from "../rate.js";
import { gettext } from "../words.js";

let places = 2; // responses on the screen

begin({
  ...bar,
  missing: gettext("Choose a verdict first: one of the digits."),

  card(article, letter, place, question) {
    if (place > 0) return;
    places = question.responses.length;
    const parts = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-places]"));
    for (const part of parts) {
      const hidden = Number(part.dataset.places) !== places;
      part.hidden = hidden;
      for (const input of part.querySelectorAll("input")) input.disabled = hidden;
    }
    document.querySelector("#criteria")?.toggleAttribute("hidden", places === 1);
    document.querySelector("#responses").className = places === 1 ? "single" : "pair";
    if (places === 1) article.querySelector("h2").classList.add("visually-hidden"); // nothing else to tell it from
  },

  read: (form) => (places === 1 ? {} : bar.read(form)),
});
