// Problems, told once and where they belong, with a way to try again.

import { element } from "./drawing.js";
import { Problem } from "./requests.js";
import { sentence } from "./words.js";

const PATIENCE = 5;  // seconds between two looks whether the server is there again
const outage = document.getElementById("outage");
const lost = new Map();  // who asked -> what to ask again once the server answers
const told = new Map();  // section -> Map from who asked to their problem
let looking = null;

function message(text, kind, actions) {
  const buttons = actions.map(([words, label, act]) => {
    const button = element("button", { type: "button", ...(label && { "aria-label": label }) }, words);
    button.addEventListener("click", act);
    return button;
  });
  return element("div", { class: `message ${kind}` }, element("p", {}, text), ...buttons);
}

/**
 * Tell in `section` what went wrong, once where several askers met the same; `who` says whose answer is missing.
 * A server that does not answer is told once for the whole page.
 */
export function complain(section, problem, { retry = null, asker = section, who = "" } = {}) {
  if (!(problem instanceof Problem)) console.error(problem);
  if (problem.outage) {
    lost.set(asker, retry);
    if (!outage.hasChildNodes()) outage.append(message(sentence(problem.message), "", [["Try again", "", askAgain]]));
    looking ??= setTimeout(look, 1000 * PATIENCE);
    return;
  }
  if (!told.has(section)) told.set(section, new Map());
  told.get(section).set(asker, { problem, retry, who });
  show(section);
}

/** `asker` has its answer. */
export function settle(section, asker = section) {
  told.get(section)?.delete(asker);
  show(section);
  lost.delete(asker);
  if (!lost.size) recovered();
}

function show(section) {
  const all = told.get(section) ?? new Map();
  const alike = Map.groupBy(all.keys(), (asker) => all.get(asker).problem.message);
  const messages = [...alike].map(([words, askers]) => {
    const { problem, retry } = all.get(askers[0]);
    const names = askers.map((asker) => all.get(asker).who).filter(Boolean).join(" and ");
    const close = ["×", "Close this message", () => { askers.forEach((asker) => all.delete(asker)); show(section); }];
    const again = ["Try again", "", () => askers.map((asker) => all.get(asker).retry).forEach((one) => one())];
    const busy = problem.retryAfter;
    const text = sentence(names ? `${names}: ${words}` : words) + (busy ? ` This page tries again in ${busy} s.` : "");
    return message(text, busy ? "busy" : "", retry && !busy && problem.again ? [again, close] : [close]);
  });
  section.querySelector(":scope > .problem").replaceChildren(...messages);
}

function recovered() {
  clearTimeout(looking);
  looking = null;
  outage.replaceChildren();
}

function askAgain() {
  const all = [...lost.values()];
  lost.clear();
  recovered();
  all.forEach((one) => one?.());
}

/** Look whether the server is there again, without being asked. */
async function look() {
  const answers = await fetch("/icon.svg", { cache: "no-store" }).then((response) => response.ok, () => false);
  looking = null;
  if (answers) askAgain();
  else if (lost.size) looking = setTimeout(look, 1000 * PATIENCE);
}
