// The images of a question in full size, one after the other.

import { figure, gettext } from "./words.js";

/** @type {HTMLDialogElement} */
const dialog = document.querySelector("#viewer");
const frame = dialog.querySelector("#viewer-frame");
const picture = frame.querySelector("img");
const size = dialog.querySelector("#viewer-size");
const links = () => /** @type {HTMLAnchorElement[]} */ ([...document.querySelectorAll("#prompt a.image, #responses a.image")]);
let shown = 0;

/** Open the dialog with the image in focus, else with the first. */
export function showImages() {
  const every = links().filter((link) => link.checkVisibility());
  if (!every.length) return;
  const focused = /** @type {HTMLAnchorElement} */ (document.activeElement);
  open(every.includes(focused) ? focused : every[0]);
}

function open(link) {
  whole(false);
  show(links().indexOf(link));
  dialog.showModal();
}

/** Show the image with this number, before the first the last. */
function show(number) {
  const every = links();
  shown = (number + every.length) % every.length;
  const link = every[shown];
  picture.src = link.href;
  picture.alt = link.querySelector("img").alt;
  const letter = link.closest("article")?.dataset.letter;
  const place = letter ? gettext("Response %(letter)s", { letter }) : gettext("Prompt");
  dialog.querySelector("#viewer-title").textContent = `${place}: ${picture.alt}`;
  const numbers = { number: figure(shown + 1), total: figure(every.length) };
  dialog.querySelector("#viewer-place").textContent = gettext("%(number)s of %(total)s", numbers);
  for (const button of dialog.querySelectorAll("[data-step]")) button.toggleAttribute("hidden", every.length === 1);
}

/** Show the image with all its pixels, or as large as the window. */
function whole(is) {
  dialog.classList.toggle("whole", is);
  size.setAttribute("aria-pressed", String(is));
}

const question = /** @type {HTMLElement} */ (document.querySelector("#question"));
question.addEventListener("click", (event) => {
  const link = /** @type {HTMLElement} */ (event.target).closest("a.image");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return; // a tab of its own
  event.preventDefault();
  open(link);
});
picture.addEventListener("click", () => whole(!dialog.classList.contains("whole")));
size.addEventListener("click", () => whole(!dialog.classList.contains("whole")));
for (const button of dialog.querySelectorAll("[data-step]")) {
  button.addEventListener("click", () => show(shown + Number(/** @type {HTMLElement} */ (button).dataset.step)));
}
dialog.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || (dialog.classList.contains("whole") && event.target === frame)) return; // there the arrows scroll
  event.preventDefault();
  show(shown + (getComputedStyle(dialog).direction === "rtl" ? -step : step));
});
dialog.addEventListener("close", () => picture.removeAttribute("src"));
