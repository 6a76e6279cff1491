// Talking to the server. A request either comes back, is refused (with a sentence), or may be tried again.

import { left } from "./leaving.js";
import { gettext } from "./words.js";

/** The path that the site stands below: empty at the root of a host. */
export const root = new URL("..", import.meta.url).pathname.replace(/\/$/, "");

/** @type {HTMLMetaElement | null} */
const meta = document.querySelector('meta[name="csrf-token"]');
/** The token against forged requests, sent with each that changes something. */
export const token = meta?.content ?? "";

/** The server read the request and will never accept it as it is. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** The server could not be reached, or cannot do it just now: the same request may be sent again. */
export class Unreachable extends Error {}

export const post = (path, data) =>
  call(path, {
    method: "POST",
    body: JSON.stringify(data),
    headers: { "content-type": "application/json", accept: "application/json", "x-csrf-token": token },
  });

export const get = (path) => call(path, { headers: { accept: "application/json" } });

const SILENCE = 30_000; // the server gives a sign of life every ten seconds

/** Read server-sent events until the stream ends, and call `heard` with the data of each. */
export async function follow(path, heard) {
  const stop = new AbortController();
  left.addEventListener("abort", () => stop.abort(), { signal: stop.signal });
  let timer;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => stop.abort(), SILENCE);
  };
  try {
    wait();
    const response = await fetch(root + path, { headers: { accept: "text/event-stream" }, signal: stop.signal });
    if (!response.ok) throw refusal(response.status, await response.json());
    let rest = "";
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      wait();
      const events = (rest + part.value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        if (event.startsWith("data: ")) heard(JSON.parse(event.slice("data: ".length)));
      }
    }
  } catch (error) {
    throw error instanceof Refused ? error : new Unreachable(error.message);
  } finally {
    clearTimeout(timer);
  }
}

function refusal(status, body) {
  const sentence = body?.error ?? gettext("The server answered %(status)s.", { status });
  return status >= 500 || status === 429 ? new Unreachable(sentence) : new Refused(status, sentence);
}

async function call(path, options) {
  let response;
  let body;
  try {
    response = await fetch(root + path, { ...options, signal: AbortSignal.any([left, AbortSignal.timeout(30_000)]) });
    body = await response.json();
  } catch (error) {
    throw new Unreachable(error.message);
  }
  if (response.ok) return body;
  throw refusal(response.status, body);
}
