// The rater's screen: what comes next, what is sent, and what is shown meanwhile.

import { get, post, Refused } from "./api.js";
import { Clock, here } from "./clock.js";
import { Form } from "./form.js";
import { listen, onward } from "./keys.js";
import { Outbox } from "./outbox.js";
import { mark, showQuestion, toggleRaw } from "./show.js";
import { drop, durable, keys, put, take } from "./storage.js";

const find = (selector) => document.querySelector(selector);
const screen = find("#screen");
const { rater, item } = screen.dataset;
const pageVersion = Number(screen.dataset.version);
const BLOCK = 25;
const RENEW_EVERY = 240_000;
const DRAFT_DAYS = 7;

const clock = new Clock();
let form = null; // made by `begin`
const outbox = new Outbox(rater, tellSaved);

let current = null; // the question on the screen
let aside = null; // the question that waits while an earlier answer is changed
let ahead = null; // a promise of the question after this one
let history = []; // {question, answer}, oldest first
let place = 0; // where in the history we are while changing
let changes = 0;
let answered = 0;
let quota = null;
let sinceBreak = 0;
let stale = false; // the owner has changed the question: load the page again before asking on
let proceed = () => {}; // what the button of the present pause does

// ---- what comes next

async function fetchNext() {
  const held = [...outbox.assignments(), ...[current, aside].filter(Boolean).map((question) => question.id)];
  const reply = await post("/rate/next", item ? { item } : { besides: held });
  learn(reply);
  return reply;
}

function learn(reply) {
  stale ||= reply.version !== pageVersion;
  quota = reply.progress.quota;
  answered = Math.max(answered, reply.progress.answered);
  tellProgress();
}

/** Ask for the question after this one while this one is being read. In training it depends on the answer. */
function prefetch() {
  ahead = current.training || item ? null : fetchNext().catch(() => null);
}

async function next() {
  hidePause();
  const waiting = ahead;
  ahead = null;
  current = null;
  if (stale) return location.reload();
  const timer = setTimeout(() => screen.setAttribute("aria-busy", "true"), 150);
  let reply = null;
  try {
    reply = (await waiting) ?? (await fetchNext());
    if (!reply.question && waiting) reply = await fetchNext();
  } catch (error) {
    return pauseForError(error);
  } finally {
    clearTimeout(timer);
    screen.removeAttribute("aria-busy");
  }
  if (stale) return location.reload();
  if (!reply.question) return pauseAtEnd(reply);
  show(reply.question);
  prefetch();
}

// ---- what is shown

function show(question, answer = null) {
  current = question;
  const draft = take(draftKey(question));
  showQuestion(question, form.part.card);
  find("#lesson").hidden = true;
  find("#question").classList.remove("taught");
  find("#editing").hidden = answer === null;
  find("#question").hidden = false;
  if (draft) form.fill(draft.answer);
  else if (answer) form.fill(answer);
  else form.clear();
  changes = draft?.changes ?? 0;
  clock.start(draft ?? {});
  screen.dataset.question = question.id;
  find("#undo").disabled = !history.length || (aside !== null && place === 0);
  scrollTo(0, 0);
  find("#ask").focus({ preventScroll: true });
}

function pause(title, text, button, action, more = false) {
  find("#question").hidden = true;
  find("#pause").hidden = false;
  find("#pause-title").textContent = title;
  find("#pause-text").textContent = text;
  find("#pause-go").textContent = button;
  find("#pause-back").hidden = !more || !history.length;
  delete screen.dataset.question;
  proceed = action;
  find("#pause-title").focus();
}

function hidePause() {
  find("#pause").hidden = true;
  proceed = () => {};
}

function pauseAtEnd(reply) {
  const title = reply.state === "paused" ? "Stopped for now" : "That is all for now";
  pause(title, reply.why, "Look again", next, true);
}

function pauseForError(error) {
  if (error instanceof Refused) return pause("That did not work", error.message, "Try again", () => location.reload());
  const kept = durable ? "Everything you answered is kept in this browser" : "Keep this page open";
  pause("The server cannot be reached", `${kept} and will be sent by itself.`, "Try again", next, true);
  setTimeout(() => {
    if (proceed === next && !find("#pause").hidden && !current) next();
  }, 3_000);
}

function pauseForBreak() {
  pause("Time for a moment away", `${BLOCK} more answers are done. Look out of a window for a while.`, "Go on", next, true);
}

function teach(receipt, answer) {
  find("#question").classList.add("taught");
  find("#lesson").hidden = false;
  const said = receipt.feedback;
  mark(said.expected, "our choice");
  mark(answer.choice, "your choice");
  const expected = { left: "A is better", right: "B is better", tie: "They are about equal" }[said.expected];
  find("#lesson-title").textContent = said.right ? `Yes: ${expected}` : `We would say: ${expected}`;
  find("#lesson-text").innerHTML = said.html;
  proceed = receipt.state === "training" ? next : () => finishTraining(receipt.state);
  find("#lesson-title").focus();
}

function finishTraining(state) {
  find("#lesson").hidden = true;
  if (state !== "active") return next();
  pause("The practice is over", "From here on there are no explanations, and every answer counts.", "Begin", next);
}

// ---- what is sent

async function submit() {
  if (!find("#pause").hidden || !find("#lesson").hidden) return proceed();
  const missing = form.missing();
  if (missing || !current) {
    find("#hint").textContent = missing;
    find("#hint").hidden = !missing;
    return;
  }
  const question = current;
  const answer = form.read();
  const { active, wall } = clock.read();
  const sent = { ...answer, assignment: question.id, key: newKey(), active_ms: active, wall_ms: wall, changes };
  const receipt = outbox.add({ ...sent, client: "browser 1" });
  drop(draftKey(question));
  if (aside) return keepChange(question, answer);
  answered += 1;
  sinceBreak += 1;
  tellProgress();
  if (item) return afterAdjudication(receipt);
  if (question.training) return afterTraining(receipt, answer);
  history.push({ question, answer });
  if (sinceBreak >= BLOCK) {
    sinceBreak = 0;
    current = null;
    return pauseForBreak();
  }
  await next();
}

async function afterTraining(receipt, answer) {
  find("#submit").disabled = true;
  const reply = await receipt;
  find("#submit").disabled = false;
  if (reply.refused) return next();
  learn(reply);
  if (reply.feedback) teach(reply, answer);
  else next();
}

async function afterAdjudication(receipt) {
  await receipt;
  location.assign(`/owner/items/${encodeURIComponent(item)}`);
}

// ---- changing an earlier answer

async function undo() {
  if (item || !find("#lesson").hidden) return;
  if (current && aside) drop(draftKey(current));
  else if (current) saveDraft();
  if (aside === null) {
    place = history.length;
    aside = current ?? { id: 0, nothing: true };
  }
  if (place === 0) return;
  place -= 1;
  hidePause();
  show(history[place].question, history[place].answer);
}

function keepChange(question, answer) {
  history[place] = { question, answer };
  back();
}

/** Return from changing to where we were. */
function back() {
  const waiting = aside;
  aside = null;
  if (waiting.nothing) return next();
  show(waiting);
}

function cancel() {
  const inside = document.activeElement.closest("[data-row], #flags, #reason-panel, #skip-panel");
  if (inside) return find("#ask").focus({ preventScroll: true });
  if (aside) {
    drop(draftKey(current));
    back();
  }
}

// ---- drafts

function draftKey(question) {
  return `tutelage.draft.${rater}.${question.id}${aside ? ".change" : ""}`;
}

function saveDraft() {
  if (!current) return;
  const { active, wall } = clock.read();
  put(draftKey(current), { answer: form.read(), changes, active, wall, at: Date.now() });
}

function dropOldDrafts() {
  for (const key of keys("tutelage.draft.")) {
    if (Date.now() - (take(key)?.at ?? 0) > DRAFT_DAYS * 86_400_000) drop(key);
  }
}

// ---- what is told

function tellProgress() {
  const bar = find("#progress");
  bar.max = quota ?? BLOCK;
  bar.value = quota ? answered : sinceBreak;
  find("#progress-text").textContent = quota ? `${answered} of ${quota}` : `${answered} answered`;
}

function tellSaved({ pending, state, sentence }) {
  const count = pending === 1 ? "1 answer" : `${pending} answers`;
  const words = {
    saved: "Saved",
    saving: "Saving…",
    offline: `Offline, ${count} kept here`,
    stopped: `Not sent, ${count} kept here`,
    refused: "An answer was refused",
  };
  const save = find("#save");
  save.dataset.state = state === "stopped" ? "refused" : state;
  if (save.textContent !== words[state]) save.textContent = words[state];
  const notice = find("#notice");
  notice.hidden = !sentence;
  if (sentence && notice.textContent !== sentence) notice.textContent = sentence;
}

function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// ---- wiring

const choose = (key) => find(`#choices [data-key="${key}"]`)?.click();

function openDialog(name) {
  find(name).showModal();
}

/** What acts only while there is something to answer. */
const asked = (action) => (key) => {
  if (current && find("#pause").hidden && find("#lesson").hidden) action(key);
};

const keysOf = (part) =>
  Object.fromEntries(Object.entries(part.keys ?? {}).map(([key, action]) => [key, asked(() => action(form))]));

/**
 * Let the page begin. `part` is what is peculiar to the kind of question:
 *   missing               the sentence for a form without a verdict
 *   card(article, letter, place, places)  puts inputs into the card of a response (optional)
 *   read(form, choice)    the parts of the answer beside choice and strength
 *   fill(form, answer)    the inverse of `read`
 *   settle(form)          shows what belongs to the present state; may return it in words
 *   digit(form, key)      a digit that no group in focus has taken
 *   keys                  letters and what they do, given the form (optional)
 */
export async function begin(part) {
  form = new Form(find("#answer"), part, () => {
    changes += 1;
    saveDraft();
  });
  wire(part);
  dropOldDrafts();
  outbox.flush();
  get("/rate/recent")
    .then((reply) => {
      const here = new Set(history.map((each) => each.question.id));
      history = [...reply.answers.reverse().filter((each) => !here.has(each.question.id)), ...history];
      find("#undo").disabled = !history.length;
    })
    .catch(() => {});
  await next();
}

function wire(part) {
  listen(
    {
      Enter: submit,
      Escape: cancel,
      "?": () => openDialog("#keys"),
      g: () => openDialog("#guidelines"),
      x: asked(() => choose("x")),
      s: asked(() => {
        choose("s");
        form.enter(form.skipPanel);
      }),
      f: asked(() => form.enter(form.flags)),
      n: asked(() => form.enter(form.reasonPanel)),
      m: asked(() => toggleRaw()),
      u: undo,
      ...keysOf(part),
    },
    asked((key) => part.digit(form, key)),
  );

  find("#answer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  find("#undo").addEventListener("click", undo);
  find("#pause-back").addEventListener("click", undo);
  find("#pause-go").addEventListener("click", () => proceed());
  find("#lesson-go").addEventListener("click", () => proceed());
  find("#open-keys").addEventListener("click", () => openDialog("#keys"));
  find("#open-guidelines").addEventListener("click", () => openDialog("#guidelines"));
  addEventListener("pagehide", saveDraft);
  addEventListener("beforeunload", (event) => {
    if (outbox.atRisk()) event.preventDefault();
  });
  setInterval(() => {
    if (current && here()) post("/rate/renew", {}).catch(() => {});
  }, RENEW_EVERY);
}
