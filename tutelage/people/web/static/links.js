// Links that are shown once: in full, to be copied, and to be mailed.

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

for (const anchor of document.querySelectorAll("[data-mail]")) {
  const link = document.getElementById(anchor.dataset.mail).value;
  const { subject, greeting = "" } = anchor.dataset;
  const body = `${greeting}${greeting ? "\n\n" : ""}${link}\n`;
  anchor.href = `mailto:?subject=${encodeURIComponent(subject)}&body=${encodeURIComponent(body)}`;
}
