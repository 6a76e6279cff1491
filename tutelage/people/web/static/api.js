// Talking to the server. A request either comes back, is refused (with a sentence), or may be tried again.

const token = document.querySelector('meta[name="csrf-token"]')?.content ?? "";

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

async function call(path, options) {
  let response;
  let body;
  try {
    response = await fetch(path, { ...options, signal: AbortSignal.timeout(30_000) });
    body = await response.json();
  } catch (error) {
    throw new Unreachable(error.message);
  }
  if (response.ok) return body;
  const sentence = body?.error ?? `The server answered ${response.status}.`;
  if (response.status >= 500 || response.status === 429) throw new Unreachable(sentence);
  throw new Refused(response.status, sentence);
}
