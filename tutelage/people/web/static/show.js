// A question on the page. The HTML of texts comes from the server, which has made it harmless.

const WHO = { system: "Instructions", user: "Person", assistant: "Model" };

let raw = false;
let shown = null;

/** Put the question on the page, with an empty form. */
export function showQuestion(question) {
  shown = question;
  raw = false;
  const earlier = question.messages.slice(0, -1);
  const last = question.messages.at(-1);
  const prompt = document.querySelector("#prompt");
  prompt.replaceChildren(...(earlier.length ? [fold(earlier)] : []), turn(last, earlier.length > 0));
  prompt.tabIndex = prompt.scrollHeight > prompt.clientHeight ? 0 : -1;
  document.querySelector("#responses").replaceChildren(
    ...question.responses.map((response, place) => card(response, place, question.responses.length)),
  );
}

/** Show the texts as they were written, or formatted again. */
export function toggleRaw() {
  raw = !raw;
  const texts = [...shown.messages, ...shown.responses];
  document.querySelectorAll("#prompt .text, #responses .text").forEach((element, index) => fill(element, texts[index]));
  return raw;
}

/** Say beside the letter of a side (left, right; of any other there is none) what it was. */
export function mark(side, words) {
  const place = ["left", "right"].indexOf(side);
  const title = document.querySelectorAll("#responses h2")[place];
  title?.append(" ", make("span", "mark", words));
}

function fill(element, text) {
  if (!raw) {
    element.innerHTML = text.html;
    return;
  }
  const pre = document.createElement("pre");
  pre.className = "plain";
  pre.textContent = text.text;
  element.replaceChildren(pre);
}

function turn(message, named) {
  const element = make("div", `turn${message.text.length > 400 ? " long" : ""}`);
  if (named) element.append(make("p", "who", WHO[message.role]));
  const text = make("div", "text");
  text.dir = "auto";
  fill(text, message);
  element.append(text);
  return element;
}

function fold(messages) {
  const details = make("details", "");
  details.open = messages.length <= 2;
  details.append(make("summary", "", `Earlier in this conversation (${messages.length})`));
  for (const message of messages) {
    const element = turn(message, true);
    element.classList.add("earlier");
    details.append(element);
  }
  return details;
}

function card(response, place, places) {
  const article = document.querySelector("#response-template").content.firstElementChild.cloneNode(true);
  const letter = "ABCDEF"[place];
  const title = article.querySelector("h2");
  title.id = `response-${letter}`;
  title.append(make("span", "visually-hidden", "Response "), make("b", "", letter));
  article.setAttribute("aria-labelledby", title.id);
  const text = article.querySelector(".text");
  text.dir = "auto";
  fill(text, response);
  if (!response.text.trim()) text.append(make("p", "not-shown", "(an empty response)"));
  const ranks = article.querySelector("[data-rank]");
  if (ranks) fillRanks(ranks, letter, place, places);
  return article;
}

function fillRanks(row, letter, place, places) {
  row.querySelector("legend").textContent = `Rank of response ${letter}`;
  const chips = row.querySelector(".chips");
  for (let rank = 1; rank <= places; rank += 1) {
    const label = make("label", "chip");
    const input = make("input", "");
    Object.assign(input, { type: "radio", name: `rank-${place}`, value: String(rank) });
    label.append(input, make("span", "", String(rank)));
    chips.append(label);
  }
}

function make(tag, className, text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}
