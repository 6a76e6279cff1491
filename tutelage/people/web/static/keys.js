// The keyboard. Digits act on the group in focus (a criterion, a rank, flags, reasons) and else on the verdict.

import { put, take } from "./storage.js";

const SWITCH = "tutelage.keys";

/**
 * @param actions what letters do: {u: () => …}; `Enter` and `Escape` work even where single keys are switched off
 * @param digit called with a digit that no group in focus has taken
 */
export function listen(actions, digit) {
  /** @type {HTMLInputElement} */
  const box = document.querySelector("#keys-on");
  box.checked = take(SWITCH) !== false;
  box.addEventListener("change", () => put(SWITCH, box.checked));

  document.addEventListener("keydown", (event) => {
    if (event.isComposing || document.querySelector("dialog[open]")) return;
    const target = /** @type {HTMLElement} */ (event.target);
    const writing = target.matches("textarea, input:not([type=radio], [type=checkbox])");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return act(event, actions.Enter);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (mirrored(event)) return;
    if (event.key === "Escape") return act(event, actions.Escape);
    if (writing) return;
    if (event.key === "Enter") {
      if (!target.closest("button, a, summary")) act(event, actions.Enter);
      return;
    }
    if (!box.checked || event.repeat) return;
    if (/^[0-9]$/.test(event.key)) {
      if (!inGroup(event)) act(event, () => digit(event.key));
    } else if (actions[event.key]) {
      act(event, actions[event.key]);
    }
  });
}

/** Where pages are read from right to left, the arrows among radio buttons go the way that is seen; browsers let the left
 * arrow go to the one before, which stands on the right there. */
function mirrored(event) {
  const ahead = { ArrowLeft: 1, ArrowRight: -1 }[event.key];
  if (!ahead || !event.target.matches("input[type=radio]")) return false;
  if (getComputedStyle(event.target).direction !== "rtl") return false;
  /** @type {NodeListOf<HTMLInputElement>} */
  const buttons = document.querySelectorAll("input[type=radio]");
  const group = [...buttons].filter(
    (each) => each.name === event.target.name && each.form === event.target.form && !each.disabled && each.checkVisibility(),
  );
  const to = group.at((group.indexOf(event.target) + ahead) % group.length);
  act(event, () => {
    to.focus({ focusVisible: true });
    to.click();
  });
  return true;
}

function act(event, action) {
  event.preventDefault();
  action();
}

function inGroup(event) {
  const group = event.target.closest("[data-digits]");
  if (!group || !event.target.matches(":focus-visible")) return false;
  const input = [...group.querySelectorAll("input")][Number(event.key) - 1];
  if (!input) return false;
  event.preventDefault();
  input.focus({ focusVisible: true });
  input.click();
  const row = group.closest("[data-row]");
  if (row) onward(row);
  return true;
}

/** To the next row of the same kind, or out of the rows after the last one. */
export function onward(row) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const next = rows[rows.indexOf(row) + 1];
  /** @type {HTMLElement} */
  const target = next ? next.querySelector("input:checked, input") : document.querySelector("#ask");
  target.focus(next ? { focusVisible: true } : { preventScroll: true });
  next?.scrollIntoView({ block: "nearest" });
}
