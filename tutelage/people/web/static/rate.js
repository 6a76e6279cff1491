// The rater's screen: what comes next, what is sent, and what is shown meanwhile.

import { get, post, Refused, root } from "./api.js";
import { Clock, here } from "./clock.js";
import { Corrections } from "./corrections.js";
import { Form } from "./form.js";
import { showImages } from "./images.js";
import { listen } from "./keys.js";
import { left, sendFirst } from "./leaving.js";
import { Talk } from "./live.js";
import { Outbox } from "./outbox.js";
import { GOAL, Progress } from "./progress.js";
import { foldLong, mark, showQuestion, toggleEarlier, toggleRaw, unfoldAll } from "./show.js";
import { Spans } from "./spans.js";
import { drop, durable, keys, put, take } from "./storage.js";
import { gettext, ngettext } from "./words.js";

const find = (selector) => document.querySelector(selector);
const screen = find("#screen");
const { rater, item } = screen.dataset;
const pageVersion = Number(screen.dataset.version);
const RENEW_EVERY = 240_000;
const AHEAD = 3; // questions that lie ready, for trains and slow networks
const FRESH = 600_000; // a reservation that was not renewed for longer may have gone to somebody else
const FETCH_AGAIN = 5_000;
const DRAFT_DAYS = 7;

const clock = new Clock();
let form = null; // made by `begin`
let corrections = null; // where the study asks for them
let spans = null;
const outbox = new Outbox(rater, tellSaved);
const leaving = sendFirst(outbox, find("#leaving"));
const progress = new Progress(find("#progress"), find("#progress-text"));
const talk = find("#talk") && new Talk(rater, { next, key: newKey, fail: pauseForError, moved });

let current = null; // the question on the screen
let aside = null; // the question that waits while an earlier answer is changed
let ahead = []; // {question, at}: what comes next, reserved or renewed at that time
let fetching = null; // a promise of one more of them
let retry = 0; // the timer of the next try
let history = []; // {question, answer}, oldest first
let place = 0; // where in the history we are while changing
let changes = 0;
let stale = false; // the owner has changed the question: load the page again before asking on
let proceed = () => {}; // what the button of the present pause does

// ---- what comes next

async function fetchNext() {
  const unsent = outbox.assignments();
  const onPage = [current, aside, ...ahead.map((each) => each.question)];
  const held = [...unsent, ...onPage.filter(Boolean).map((question) => question.id)];
  const { receipts } = progress;
  const reply = await post("/rate/next", item ? { item } : { besides: held });
  stale ||= reply.version !== pageVersion;
  progress.learn(reply.progress, receipts);
  const again = held.includes(reply.question?.id); // its reservation ran out here, and was made anew
  return { ...reply, question: again ? null : reply.question, unsent: unsent.length };
}

/** Ask for the questions after this one while this one is being read. In training, and where the rater talks to models,
 * they depend on the answer. */
function prefetch() {
  if (!current || current.training || item || talk || fetching || ahead.length >= AHEAD) return;
  fetching = fetchNext().then(
    ({ question, unsent }) => {
      fetching = null;
      if (question) {
        ahead.push({ question, at: Date.now() });
        tellReady();
        prefetch();
      } else if (unsent) prefetchLater(); // to the server, what is answered here and not sent is held
    },
    () => {
      fetching = null;
      prefetchLater();
    },
  );
}

function prefetchLater() {
  clearTimeout(retry);
  retry = setTimeout(prefetch, FETCH_AGAIN);
}

/** The next question: one that lies ready, unless it may have gone to somebody else and the server can be asked. */
async function following() {
  const old = ahead.length > 0 && Date.now() - ahead[0].at > FRESH;
  if (!ahead.length || old) await fetching;
  const ready = ahead.shift();
  tellReady();
  if (!ready) return fetchNext();
  if (!old) return ready;
  const others = ahead;
  ahead = [];
  tellReady();
  try {
    return await fetchNext();
  } catch (error) {
    if (error instanceof Refused) throw error;
    ahead = others;
    tellReady();
    return ready;
  }
}

/** Say how many questions lie ready: for who looks at the page from outside. */
function tellReady() {
  screen.dataset.ready = ahead.length;
}

async function next(how = {}) {
  hidePause();
  current = null;
  if (stale) return location.reload();
  const timer = setTimeout(() => screen.setAttribute("aria-busy", "true"), 150);
  let reply = null;
  try {
    reply = await following();
  } catch (error) {
    return aside || left.aborted ? null : pauseForError(error);
  } finally {
    clearTimeout(timer);
    screen.removeAttribute("aria-busy");
  }
  if (aside) return void (aside = reply.question ?? aside); // an earlier answer is being changed by now
  if (stale) return location.reload();
  if (reply.talk) return converse(reply.talk);
  if (!reply.question && reply.unsent) return pauseForAnswers();
  if (!reply.question) return pauseAtEnd(reply);
  show(reply.question, null, how);
  prefetch();
}

function renewed() {
  for (const each of ahead) each.at = Date.now();
}

// ---- what is shown

/** Show a question; `stay` where the same texts stood there already. */
function show(question, answer = null, { stay = false } = {}) {
  const early = talk?.close() ?? []; // what was pressed since both answers stood there
  current = question;
  const draft = take(draftKey(question));
  showQuestion(question, form.part.card);
  for (const each of form.additions) each.show(question);
  find("#lesson").hidden = true;
  find("#question").classList.remove("taught");
  find("#editing").hidden = answer === null;
  find("#question").hidden = false;
  if (draft) form.fill(draft.answer);
  else if (answer) form.fill(answer);
  else form.clear();
  if (!answer && !stay) foldLong(); // else the rater has read them
  changes = draft?.changes ?? 0;
  clock.start(draft ?? {});
  screen.dataset.question = question.id;
  find("#undo").disabled = !history.length || (aside !== null && place === 0);
  if (!stay) scrollTo(0, 0);
  find("#ask").focus({ preventScroll: true });
  for (const action of early) action();
}

function converse(state) {
  delete screen.dataset.question;
  talk.open(state);
}

function pause(title, text, button, action, more = false) {
  talk?.close();
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
  if (reply.finish) return location.assign(root + reply.finish);
  const title = reply.state === "paused" ? gettext("Stopped for now") : gettext("That is all for now");
  pause(title, reply.why, gettext("Check again"), next, true);
}

/** The server cannot say whether everything is answered before it has every answer. */
function pauseForAnswers() {
  pause(gettext("Your last answers are being sent"), gettext("This takes a moment."), gettext("Check again"), next, true);
  const timer = setInterval(() => {
    const waits = proceed === next && !find("#pause").hidden && !current;
    if (waits && outbox.assignments().length) return;
    clearInterval(timer);
    if (waits) next();
  }, 200);
}

function pauseForError(error) {
  const again = gettext("Try again");
  if (error instanceof Refused) return pause(gettext("That did not work"), error.message, again, () => location.reload());
  const kept = durable
    ? gettext("Everything you answered is kept in this browser and will be sent by itself.")
    : gettext("Keep this page open: everything you answered will be sent by itself.");
  pause(gettext("The server cannot be reached"), kept, again, next, true);
  setTimeout(() => {
    if (proceed === next && !find("#pause").hidden && !current) next();
  }, 3_000);
}

function pauseForBreak() {
  const done = ngettext(
    "You have given %(count)s answer. A short break keeps your judgement fresh.",
    "You have given %(count)s answers. A short break keeps your judgement fresh.",
    progress.answered,
  );
  pause(gettext("Time for a break"), done, gettext("Go on"), next, true);
}

function teach(receipt, answer) {
  find("#question").classList.add("taught");
  find("#lesson").hidden = false;
  const said = receipt.feedback;
  mark(said.expected, gettext("our choice"));
  mark(answer.choice, gettext("your choice"));
  find("#lesson-title").textContent = form.part.taught?.(form, said) ?? verdictOf(said);
  find("#lesson-text").innerHTML = said.html;
  proceed = receipt.state === "training" ? next : () => finishTraining(receipt.state);
  find("#lesson-title").focus();
}

function verdictOf({ expected, right }) {
  if (expected === "left") return right ? gettext("Yes: A is better") : gettext("We would say: A is better");
  if (expected === "right") return right ? gettext("Yes: B is better") : gettext("We would say: B is better");
  return right ? gettext("Yes: They are about equal") : gettext("We would say: They are about equal");
}

function finishTraining(state) {
  find("#lesson").hidden = true;
  if (state !== "active") return next();
  const what = gettext("From here on there are no explanations, and every answer counts.");
  pause(gettext("The practice is over"), what, gettext("Begin"), next);
}

// ---- what is sent

async function submit() {
  if (talk?.soon) return talk.later(submit);
  if (talk?.state) return talk.enter();
  if (!find("#pause").hidden || !find("#lesson").hidden) return proceed();
  if (spans?.active) return spans.stop();
  const missing = form.missing();
  if (missing || !current) {
    find("#hint").textContent = missing;
    find("#hint").hidden = !missing;
    if (missing && form.verdict()) find(".unfold")?.scrollIntoView({ block: "center" });
    return;
  }
  const question = current;
  const answer = form.read();
  const kept = form.draft();
  const { active, wall } = clock.read();
  const sent = { ...answer, assignment: question.id, key: newKey(), active_ms: active, wall_ms: wall, changes };
  const gave = Number(gives(answer) && !question.training) - Number(aside !== null && gives(history[place].answer));
  progress.send(sent.key, gave, Number(!aside && !question.training));
  const receipt = outbox.add({ ...sent, client: "browser 1" });
  receipt.then((reply) => {
    progress.receive(sent.key, reply.progress);
    stale ||= !reply.refused && reply.version !== pageVersion;
    talk?.tellTabs();
  });
  drop(draftKey(question));
  if (talk) await settled(receipt);
  if (aside) return keepChange(question, kept);
  if (item) return afterAdjudication(receipt);
  if (question.training) return afterTraining(receipt, answer);
  history.push({ question, answer: kept });
  if (gave && progress.answered % GOAL === 0) {
    current = null;
    return pauseForBreak();
  }
  await next();
}

/** Whether an answer is one, and not that the question cannot be judged. */
const gives = (answer) => answer.choice !== "skip";

/** Wait for a receipt on which it depends what comes next; nothing can be answered twice meanwhile. */
async function settled(receipt) {
  current = null;
  find("#submit").disabled = true;
  const reply = await receipt;
  find("#submit").disabled = false;
  return reply;
}

async function afterTraining(receipt, answer) {
  const reply = await settled(receipt);
  if (reply.refused) return next();
  if (reply.feedback) teach(reply, answer);
  else next();
}

async function afterAdjudication(receipt) {
  await settled(receipt);
  location.assign(`${root}/owner/items/${encodeURIComponent(item)}`);
}

// ---- another tab, or another device

/** The conversation has moved on elsewhere: show where it is, or do so after the change that is being made here. */
function moved() {
  if (aside) stale = true;
  else location.reload();
}

/** Ask whether the conversation has moved on while nobody looked at this page. */
async function checkPlace() {
  const where = () => Talk.place({ talk: talk.state ? talk.talk : null, question: current });
  const before = where();
  if (document.hidden || aside || !(current || talk.state === "message")) return;
  const reply = await post("/rate/next", { besides: [] });
  if (where() === before && Talk.place(reply) !== before) moved();
}

// ---- changing an earlier answer

async function undo() {
  if (item || !find("#lesson").hidden || (talk?.state && talk.state !== "message")) return;
  const earlier = (aside === null ? history.length : place) - 1;
  if (earlier < 0) return;
  if (current && aside) drop(draftKey(current));
  else if (current) saveDraft();
  aside ??= current ?? { id: 0, nothing: true };
  place = earlier;
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
  if (talk?.state) return talk.escape();
  if (spans?.active) return spans.stop();
  const inside = document.activeElement.closest("[data-row], .step-reason, #flags, #reason-panel, #skip-panel");
  if (inside || form.additions.some((each) => each.inside())) return find("#ask").focus({ preventScroll: true });
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
  put(draftKey(current), { answer: form.draft(), changes, active, wall, at: Date.now() });
}

function dropOldDrafts() {
  for (const key of keys("tutelage.draft.")) {
    if (Date.now() - (take(key)?.at ?? 0) > DRAFT_DAYS * 86_400_000) drop(key);
  }
}

// ---- what is told

function tellSaved({ pending, state, sentence }) {
  if (!pending) leaving.settled();
  const words = {
    saved: gettext("Saved"),
    saving: gettext("Saving…"),
    offline: ngettext("Offline, %(count)s answer kept here", "Offline, %(count)s answers kept here", pending),
    stopped: ngettext("Not sent, %(count)s answer kept here", "Not sent, %(count)s answers kept here", pending),
    refused: gettext("An answer was refused"),
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

function writeBetter() {
  spans?.leave();
  if (corrections.training) return;
  form.show(corrections.panel, true);
  corrections.enter();
}

function openDialog(name) {
  find(name).showModal();
}

/** What acts only while there is something to answer. */
const asked = (action) => (key) => {
  if (talk?.soon) talk.later(() => asked(action)(key));
  else if (current && find("#pause").hidden && find("#lesson").hidden) action(key);
};

const keysOf = (part) =>
  Object.fromEntries(Object.entries(part.keys ?? {}).map(([key, action]) => [key, asked(() => action(form))]));

/**
 * Let the page begin. `part` is what is peculiar to the kind of question:
 *   missing               the sentence for a form without a verdict
 *   card(article, letter, place, question)  puts inputs into the card of a response (optional)
 *   read(form, choice)    the parts of the answer beside choice and strength
 *   fill(form, answer)    the inverse of `read`
 *   better(form)          the place of the better response, where the verdict says one (optional)
 *   settle(form)          shows what belongs to the present state; may return it in words
 *   digit(form, key)      a digit that no group in focus has taken
 *   taught(form, feedback)  marks the known answer of a practice question, and returns the title of the lesson (optional)
 *   keys                  letters and what they do, given the form (optional)
 */
export async function begin(part) {
  form = new Form(find("#answer"), part, () => {
    changes += 1;
    saveDraft();
  });
  if (find("#correction-panel")) form.add((corrections = new Corrections(form)));
  if (find("#palette")) form.add((spans = new Spans(form)));
  wire(part);
  dropOldDrafts();
  outbox.flush();
  get("/rate/recent")
    .then((reply) => {
      const listed = new Set(history.map((each) => each.question.id));
      const older = reply.answers.toReversed().filter((each) => !listed.has(each.question.id));
      history = [...older, ...history];
      place += older.length;
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
      h: toggleEarlier,
      m: asked(() => spans?.active || toggleRaw()),
      i: asked(showImages),
      o: asked(unfoldAll),
      u: undo,
      ...(corrections ? { w: asked(() => writeBetter()) } : {}),
      ...(spans ? { e: asked(() => spans.toggle()) } : {}),
      ...keysOf(part),
    },
    (key) => (talk?.state && !talk.soon ? talk.digit(key) : asked(() => spans?.digit(key) || part.digit(form, key))()),
  );

  find("#answer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  find("#answer").addEventListener("click", (event) => {
    const key = event.target.closest("[data-press]")?.dataset.press;
    if (key) asked(() => part.digit(form, key))();
  });
  find("#undo").addEventListener("click", undo);
  find("#pause-back").addEventListener("click", undo);
  find("#pause-go").addEventListener("click", () => proceed());
  find("#lesson-go").addEventListener("click", () => proceed());
  find("#open-keys").addEventListener("click", () => openDialog("#keys"));
  find("#open-guidelines").addEventListener("click", () => openDialog("#guidelines"));
  const bar = find("#verdict"); // the focus stops above it
  new ResizeObserver(() => {
    document.documentElement.style.scrollPaddingBottom = `${bar.offsetHeight + 16}px`;
  }).observe(bar);
  addEventListener("online", prefetch);
  if (talk) document.addEventListener("visibilitychange", () => void checkPlace().catch(() => {}));
  addEventListener("pagehide", saveDraft);
  addEventListener("beforeunload", (event) => {
    if (outbox.atRisk()) event.preventDefault();
  });
  setInterval(() => {
    if (current && here()) post("/rate/renew", {}).then(renewed, () => {});
  }, RENEW_EVERY);
}
