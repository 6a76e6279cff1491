// The owner's pages: figures that keep themselves up to date, and links that can be copied.

const EVERY = 5_000;

for (const input of document.querySelectorAll("[data-absolute]")) {
  input.value = new URL(input.value, location.origin).href;
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const field = document.getElementById(button.dataset.copy);
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Press Ctrl C";
    }
  });
}

/** Fetch the page again and exchange its live part, unless somebody is using it. */
async function refresh() {
  const old = document.querySelector("[data-live]");
  if (!old || document.visibilityState !== "visible" || old.contains(document.activeElement)) return;
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = page.querySelector("[data-live]");
    if (fresh && fresh.innerHTML !== old.innerHTML) old.replaceWith(fresh);
  } catch {
    // the next time will do
  }
}

if (document.querySelector("[data-live]")) setInterval(refresh, EVERY);
