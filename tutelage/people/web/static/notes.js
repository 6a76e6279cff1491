// A note to the people who run the study.

import { post } from "./api.js";
import { gettext } from "./words.js";

/** @type {HTMLFormElement} */
const form = document.querySelector("#note-form");
/** @type {HTMLTextAreaElement} */
const text = document.querySelector("#note-text");
const said = document.querySelector("#note-said");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await post("/rate/notes", { text: text.value });
    form.reset();
    said.textContent = gettext("Sent. Thank you!");
  } catch (error) {
    said.textContent = gettext("Not sent: %(why)s", { why: error.message });
  }
});
