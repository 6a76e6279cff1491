// Sending a table of votes, and looking again whenever a column or a word is given another meaning.

import { root, token } from "./api.js";
import { gettext } from "./words.js";

/** @type {HTMLInputElement | null} */
const file = document.querySelector("#file");
const said = document.querySelector("#file-said");

if (file) file.disabled = false; // the page is sent with it disabled: without this script a file would go nowhere

file?.addEventListener("change", async () => {
  const chosen = file.files[0];
  if (!chosen) return;
  said.textContent = gettext("Sending %(name)s…", { name: chosen.name });
  try {
    const response = await fetch(`${root}/owner/import/file?name=${encodeURIComponent(chosen.name)}`, {
      method: "POST",
      body: chosen,
      headers: { "content-type": "application/octet-stream", accept: "application/json", "x-csrf-token": token },
    });
    const reply = await response.json();
    if (response.ok) return location.assign(root + reply.address);
    said.textContent = reply.error;
  } catch {
    said.textContent = gettext("The file could not be sent; is the server there?");
  }
  file.value = "";
});
