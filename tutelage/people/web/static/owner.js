// The owner's pages: figures that keep themselves up to date, and boxes that are ticked together.

import { left } from "./leaving.js";
import "./links.js";
import "./menu.js";

const EVERY = 5_000;

/** Enable the buttons that need this script; pages are sent with them disabled. */
function enable(part) {
  for (const button of part.querySelectorAll("[data-tick-all]")) button.disabled = false;
}

document.addEventListener("click", (event) => {
  /** @type {HTMLButtonElement | null} */
  const button = /** @type {Element} */ (event.target).closest("[data-tick-all]");
  const name = button?.dataset.tickAll;
  if (!name) return;
  /** @type {NodeListOf<HTMLInputElement>} */
  const boxes = document.querySelectorAll(`input[type=checkbox][name="${name}"]`);
  const all = [...boxes].every((box) => box.checked);
  for (const box of boxes) box.checked = !all;
});

/** Whether somebody is using this part of the page: the focus is in it, or a box is ticked. */
function inUse(part) {
  return part.contains(document.activeElement) || part.querySelector("input[type=checkbox]:checked") !== null;
}

/** Fetch the page again and exchange its live part, unless somebody is using it. */
async function refresh() {
  const old = document.querySelector("[data-live]");
  if (document.visibilityState !== "visible" || inUse(old) || left.aborted) return;
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html" }, signal: left });
    if (response.status === 401) return location.reload(); // the session is over, and the page says what to do
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = page.querySelector("[data-live]");
    if (!fresh || inUse(old)) return; // the use may have begun since the request
    enable(fresh);
    if (fresh.innerHTML !== old.innerHTML) old.replaceWith(fresh);
  } catch {
    // the next time will do
  }
}

enable(document);
if (document.querySelector("[data-live]")) setInterval(refresh, EVERY);
