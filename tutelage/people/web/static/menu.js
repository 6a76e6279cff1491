// The menu of the owner's pages. Its headings open and close without any script; this closes them when the reader goes
// elsewhere, and lets the arrow keys go through their pages.

/** @type {() => NodeListOf<HTMLDetailsElement>} */
const menus = () => document.querySelectorAll("[data-menu]");

function close(menu, { back = false } = {}) {
  menu.open = false;
  if (back) menu.querySelector("summary").focus();
}

function stops(menu) {
  return [...menu.querySelectorAll("a, button")];
}

document.addEventListener("click", (event) => {
  const target = /** @type {Node} */ (event.target);
  for (const menu of menus()) if (menu.open && !menu.contains(target)) close(menu);
});

for (const menu of menus()) {
  menu.addEventListener("toggle", () => {
    if (!menu.open) return;
    for (const other of menus()) if (other.open && other !== menu) close(other);
  });
  menu.addEventListener("focusout", (event) => {
    const to = /** @type {Node | null} */ (event.relatedTarget);
    if (to && !menu.contains(to)) close(menu);
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && menu.open) return close(menu, { back: true });
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    menu.open = true;
    const all = stops(menu);
    const step = event.key === "ArrowDown" ? 1 : -1;
    const at = all.indexOf(document.activeElement);
    all[at < 0 ? (step > 0 ? 0 : all.length - 1) : (at + step + all.length) % all.length]?.focus();
  });
}
