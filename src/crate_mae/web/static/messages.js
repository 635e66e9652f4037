// Problems, told once and where they belong, with a way to try again.

import { element } from "./drawing.js";
import { Problem } from "./requests.js";
import { sentence } from "./words.js";

const outage = document.getElementById("outage");
const lost = new Map();  // who asked -> what to ask again once the server answers

function message(text, kind, actions) {
  const buttons = actions.map(([words, label, act]) => {
    const button = element("button", { type: "button", ...(label && { "aria-label": label }) }, words);
    button.addEventListener("click", act);
    return button;
  });
  return element("div", { class: `message ${kind}` }, element("p", {}, text), ...buttons);
}

/** Tell in `place` what went wrong. A server that does not answer is told once, above everything. */
export function complain(place, problem, retry = null, asker = place) {
  if (problem?.name === "AbortError") return;
  if (!(problem instanceof Problem)) console.error(problem);
  place.classList.add("stale");
  if (problem.outage) {
    lost.set(asker, retry);
    const again = () => {
      outage.replaceChildren();
      const all = [...lost.values()];
      lost.clear();
      all.forEach((one) => one?.());
    };
    outage.replaceChildren(message(sentence(problem.message), "", [["Try again", "", again]]));
    return;
  }
  const box = place.querySelector(":scope > .problem, :scope > .note > .problem");
  const close = ["×", "Close this message", () => box.replaceChildren()];
  const busy = problem.retryAfter;
  const text = sentence(problem.message) + (busy ? ` This page tries again in ${busy} s.` : "");
  box.replaceChildren(message(text, busy ? "busy" : "", retry && !busy && problem.again ? [["Try again", "", retry], close] : [close]));
}

/** What `place` shows is right again. */
export function settle(place, asker = place) {
  place.classList.remove("stale");
  place.querySelector(":scope > .problem, :scope > .note > .problem").replaceChildren();
  lost.delete(asker);
  if (!lost.size) outage.replaceChildren();
}
