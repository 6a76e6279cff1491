// Links that are shown once, and their button to copy them.

import { gettext } from "./words.js";

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const field = document.getElementById(button.dataset.copy);
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      button.textContent = gettext("Copied");
    } catch {
      button.textContent = gettext("Press Ctrl C");
    }
  });
}
