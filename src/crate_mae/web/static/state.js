// What the server offers, and what the page shows of it.

import { element } from "./drawing.js";
import { ask, Latest } from "./requests.js";
import { complain, settle } from "./messages.js";

export const $ = (id) => document.getElementById(id);

export const about = await fetch("/api/about").then((response) => response.json()).catch((error) => {
  const again = element("button", { type: "button" }, "Try again");
  again.addEventListener("click", () => location.reload());
  $("outage").append(element("div", { class: "message" }, element("p", {}, "The server does not answer."), again));
  throw error;
});

export const state = {
  picture: null,  // {title, sample} or {title, file, fit}
  originals: [],  // for each model, the picture as it takes it
  revision: 0,  // of the mask
  drawn: null,  // {count, seed} of a random mask; null where the mask was painted
  shown: about.models.map((_, index) => index),  // models on the page
};

// A family is name enough where each model has its own.
const families = new Set(about.models.map((model) => model.family));
export const short = (index) => (families.size === about.models.length ? about.models[index].family : about.models[index].name);
/** Whose answer is missing, where there is a choice. */
export const whose = (index) => (about.models.length > 1 ? short(index) : "");
export const title = (index) => `${about.models[index].family} ${about.models[index].name}`;

const parts = new Map();  // element -> {busy, outdated}: who waits for an answer that is shown there, whose is no longer right

/**
 * Asks about the picture, one question at a time. `part` of the page shows the answer: it is pale while that is no longer
 * right. Problems are told in `section`.
 */
export function latest({ part, section, who }, run, onFailure = () => {}) {
  if (!parts.has(part)) parts.set(part, { busy: new Set(), outdated: new Set() });
  const mark = (name, on) => {
    parts.get(part)[name][on ? "add" : "delete"](asked);
    part.setAttribute("aria-busy", String(parts.get(part).busy.size > 0));
    part.classList.toggle("stale", parts.get(part).outdated.size > 0);
  };
  const asked = new Latest(async (question, signal) => {
    await run(question, signal);
    mark("outdated", false);
    settle(section, asked);
  }, {
    onBusy: () => mark("busy", true),
    onIdle: () => mark("busy", false),
    onProblem: (problem, question) => {
      if (problem.name === "AbortError") return;
      mark("outdated", true);
      onFailure();
      complain(section, problem, { retry: () => asked.ask(question), asker: asked, who });
    },
  });
  return {
    ask: (question) => asked.ask(question),
    /** What is shown belongs to another picture. */
    age: () => mark("outdated", true),
    cancel: () => {
      asked.cancel();
      settle(section, asked);
    },
  };
}

/** The server's answer about the picture: by its sample's name, or by the picture as the model takes it. */
export async function query(path, index, params, signal) {
  const { sample } = state.picture;
  const response = await ask(path, { model: index, ...(sample && { sample }), ...params }, sample ? null : state.originals[index], signal);
  return response.json();
}

let announcing;
/** Say something to those who listen, when it has settled. */
export function announce(text) {
  clearTimeout(announcing);
  announcing = setTimeout(() => { $("status").textContent = text; }, 500);  // not at every patch of a stroke
}
