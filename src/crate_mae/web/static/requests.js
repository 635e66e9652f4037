// Requests to the server: one sentence where there is no answer, one request at a time of each kind.

export class Problem extends Error {
  constructor(message, { retryAfter = null, outage = false, again = false } = {}) {
    super(message);
    this.retryAfter = retryAfter;  // seconds, where the server was busy
    this.outage = outage;  // whether there was no server
    this.again = again;  // whether the same question may get an answer the next time
  }
}

/** The server's answer to a POST with a picture as its body (null where params name a sample). */
export async function ask(path, params, body, signal) {
  let response;
  try {
    response = await fetch(`${path}?${new URLSearchParams(params)}`, { method: "POST", body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("the server does not answer; check that crate-mae serve is still running.", { outage: true });
  }
  if (response.ok) return response;
  const message = await response.json().then((problem) => problem.error, () => `the server answered ${response.status}.`);
  const retryAfter = response.status === 503 ? Number(response.headers.get("Retry-After")) || 2 : null;
  throw new Problem(message, { retryAfter, again: response.status >= 500 || response.status === 408 });
}

/**
 * Asks one question at a time. Of those asked meanwhile only the latest waits: so a slow model still shows something
 * while a person paints, and no answer comes after a later one.
 */
export class Latest {
  #run; #onBusy; #onIdle; #onProblem;
  #abort = null; #next = null; #timer = null;

  constructor(run, { onBusy, onIdle, onProblem }) {
    this.#run = run; this.#onBusy = onBusy; this.#onIdle = onIdle; this.#onProblem = onProblem;
  }

  ask(question) {
    this.#next = { question };
    clearTimeout(this.#timer);
    this.#timer = null;
    if (!this.#abort) this.#go();
  }

  /** What is under way no longer matters; the server is told, too. */
  cancel() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#next = null;
    this.#abort?.abort();
    this.#abort = null;
    this.#onIdle();
  }

  async #go() {
    const { question } = this.#next;
    this.#next = null;
    const own = this.#abort = new AbortController();
    this.#onBusy();
    let problem = null;
    try {
      await this.#run(question, own.signal);
    } catch (error) {
      problem = error;
    }
    if (this.#abort !== own) return;  // cancelled: a later question has taken over
    this.#abort = null;
    if (problem) this.#onProblem(problem, question);
    if (this.#next) return this.#go();
    this.#onIdle();
    if (problem?.retryAfter) {
      this.#timer = setTimeout(() => { this.#next ??= { question }; this.#go(); }, 1000 * problem.retryAfter);
    }
  }
}
