// The page: what a person does, and what follows from it.

import { announceCompletions, Completion, showOriginal, showScale } from "./completion.js";
import { element } from "./drawing.js";
import { History } from "./history.js";
import { explain } from "./formulas.js";
import { Inside, showNumbers } from "./inside.js";
import { MaskGrid } from "./mask.js";
import { complain, settle } from "./messages.js";
import { listenForPictures, setUpSamples } from "./pictures.js";
import { ask } from "./requests.js";
import { $, about, announce, short, state, title } from "./state.js";
import { sentence } from "./words.js";

const paint = document.querySelector(".paint");
const total = about.models[0].grid[0] * about.models[0].grid[1];
const shown = (all) => all.filter((one) => state.shown.includes(one.index));

// --- the mask: painted, or drawn at random ---

const history = new History((undo, redo) => { $("undo").disabled = !undo; $("redo").disabled = !redo; });
const grid = new MaskGrid($("mask"), painted, () => history.push({ mask: grid.value }));

function painted() {
  state.drawn = null;
  changed();
}

/** Show a mask of the history: {mask}, or {drawn: {count, seed}}, whose mask is there once the server has drawn it. */
function restore({ mask, drawn }) {
  state.drawn = drawn ?? null;
  if (mask) grid.value = mask;
  if (drawn) [$("count").value, $("seed").value] = [drawn.count, drawn.seed];
  changed(!mask);
}

function setMask(mask) {
  grid.value = mask;
  painted();
  history.push({ mask });
}

/** A random mask with the count and seed on the page. */
function draw(keep = true) {
  const drawn = { count: Number($("count").value), seed: Math.min(Math.max(Math.floor(Number($("seed").value)) || 0, 0), 2 ** 32 - 1) };
  $("seed").value = drawn.seed;
  state.drawn = drawn;
  if (keep) history.push({ drawn });
  changed();
}

/** The button: a painting can be had back by Undo, and a second press draws another. */
function drawAnother() {
  if (state.drawn) $("seed").value = (state.drawn.seed + 1) % 2 ** 32;
  draw();
}

/** Count and seed change a random mask at once; a painted one waits for the button. */
function adjust(keep) {
  showMaskWords();
  if (state.drawn) draw(keep);
}

/** `awaited` is whether the server draws the mask. */
function changed(awaited = Boolean(state.drawn)) {
  state.revision += 1;
  paint.ariaBusy = String(awaited);
  paint.classList.remove("stale");
  showMaskWords();
  askCompletions();
}

const maskParams = () => (state.drawn ? { ratio: state.drawn.count / total, seed: state.drawn.seed } : { mask: grid.value });

function showMaskWords() {
  const masked = state.drawn?.count ?? [...grid.value].filter((entry) => entry === "1").length;
  $("mask-words").textContent = `${masked} of ${total} patches, ${state.drawn ? `seed\u00a0${state.drawn.seed}` : "painted"}`;
  const count = Number($("count").value);
  $("count-out").textContent = `${count} of ${total} (${Math.round((100 * count) / total)} %)`;
  $("count").ariaValueText = `${count} of ${total} patches`;
}

// --- the models ---

const completions = about.models.map((_, index) => new Completion(index, (answer, revision) => {
  showErrors();
  if (revision !== state.revision) return;
  if (state.drawn) {
    grid.value = answer.mask;
    if (history.current.drawn === state.drawn) history.current.mask = answer.mask;  // Undo finds it without the server
  }
  paint.ariaBusy = "false";
  paint.classList.remove("stale");
  announceCompletions(shown(completions), answer);
}, () => {
  if (paint.ariaBusy === "true") paint.classList.add("stale");
  paint.ariaBusy = "false";
}));
const insides = about.models.map((_, index) => new Inside(index, () => showNumbers(insides, chooseLayer)));

function askCompletions() {
  if (!state.picture) return;
  shown(completions).forEach((one) => one.ask(maskParams()));
}

function showErrors() {
  const largest = Math.max(...shown(completions).map((one) => one.largestError));
  completions.forEach((one) => one.showErrors($("errors").checked, largest));
  showScale($("errors").checked && largest > 0, largest);
}

function showLayer() {
  $("layer-out").textContent = `${$("layer").value} of ${$("layer").max}`;
  $("layer").ariaValueText = `layer ${$("layer-out").textContent}`;
  $("threshold-out").textContent = `below ${Number($("threshold").value).toFixed(1)}`;
  insides.forEach((one) => one.showLayer());
  showNumbers(insides, chooseLayer);
}

function askLayer() {
  showLayer();
  if (state.picture) shown(insides).forEach((one) => one.askLayer());
}

function chooseLayer(layer) {
  $("layer").value = layer;
  askLayer();
}

/** Everything anew: another picture, or other models. */
function refresh() {
  for (const one of [...completions, ...insides]) one.shape(state.shown.includes(one.index));
  for (const part of [$("stage"), $("insides"), $("map-controls")]) part.classList.toggle("pair", state.shown.length > 1);
  $("layer").max = Math.max(...state.shown.map((index) => about.models[index].layers));
  showLayer();
  askCompletions();
  for (const one of shown(insides)) {
    one.askLayers();
    one.askLayer();
  }
}

// --- pictures ---

let loading = null;
let lifted = null;  // the address of a picture in memory, released when replaced
/** Show another picture; the one before stays where the new one can't be read. */
async function openPicture(picture) {
  loading?.abort();
  const own = loading = new AbortController();
  try {
    const originals = await Promise.all(about.models.map(async (_, model) => {
      const params = picture.sample ? { model, sample: picture.sample } : { model, fit: picture.fit };
      return (await ask("/api/original", params, picture.file ?? null, own.signal)).blob();
    }));
    if (own.signal.aborted) return;
    for (const one of [...completions, ...insides]) {
      one.cancel();
      one.age();
    }
    Object.assign(state, { picture, originals });
  } catch (error) {
    if (error.name === "AbortError") return;
    complain($("picture-section"), error, { retry: () => openPicture(picture) });
    if (error.retryAfter) setTimeout(() => { if (loading === own) openPicture(picture); }, 1000 * error.retryAfter);
    return;
  }
  settle($("picture-section"));
  $("save").disabled = false;
  for (const button of $("samples").children) button.setAttribute("aria-pressed", button.dataset.name === picture.sample);
  showOriginals();
  refresh();
}

function showOriginals() {
  if (lifted) URL.revokeObjectURL(lifted);
  lifted = URL.createObjectURL(state.originals[state.shown[0]]);
  showOriginal(lifted);
}

async function save() {
  const { sample, file, fit } = state.picture;
  const params = { ...(sample ? { sample } : { fit }), ...(state.shown.length < about.models.length && { model: state.shown[0] }), ...maskParams() };
  $("save").disabled = true;
  try {
    const response = await ask("/api/sheet", params, file ?? null);
    const [, name] = response.headers.get("Content-Disposition").match(/filename="(.*)"/);
    const address = URL.createObjectURL(await response.blob());
    element("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
    settle($("completion-section"));
    announce("The picture was saved.");
  } catch (error) {
    complain($("completion-section"), error, { retry: save });
  } finally {
    $("save").disabled = false;
  }
}

// --- set up ---

$("models").append(...about.models.map((model, index) => element("li", {},
  `${title(index)}: ${model.parameters.toLocaleString("en")} parameters, ${model.layers} encoder layers of ${model.heads} heads, ${model.grid.join("\u00a0×\u00a0")} patches`)));
explain($("error-formula"), "error");
explain($("layer-formula"), "layer");
grid.shape(...about.models[0].grid);
[$("count").max, $("count").value] = [total - 1, Math.round(0.75 * total)];

if (about.models.length > 1) {
  const views = [...about.models.map((_, index) => [short(index), [index]]), ["Side by side", [0, 1]]];
  views.forEach(([words, indices], place) => {
    const radio = element("input", { type: "radio", name: "view", value: place });
    radio.checked = indices.length > 1;
    radio.addEventListener("change", () => {
      state.shown = indices;
      [...completions, ...insides].forEach((one) => one.cancel());
      if (state.picture) { showOriginals(); refresh(); }
    });
    $("views").append(element("label", {}, radio, element("span", {}, words)));
  });
  $("views").hidden = false;
}

const on = (id, event, act) => $(id).addEventListener(event, act);
on("count", "input", () => adjust(false));
on("count", "change", () => adjust(true));
on("seed", "change", () => adjust(true));
on("random", "click", drawAnother);
on("clear", "click", () => setMask("0".repeat(total)));
on("invert", "click", () => setMask([...grid.value].map((entry) => (entry === "1" ? "0" : "1")).join("")));
on("errors", "change", showErrors);
on("save", "click", save);
for (const id of ["layer", "threshold", "convention"]) on(id, "input", askLayer);
const go = (step) => { const found = history.go(step); if (found) restore(found); };
on("undo", "click", () => go(-1));
on("redo", "click", () => go(1));
addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.altKey || event.target.matches("input[type=number]")) return;
  const step = { z: event.shiftKey ? 1 : -1, y: 1 }[event.key.toLowerCase()];
  if (!step) return;
  event.preventDefault();
  go(step);
});

$("layer").max = Math.max(...about.models.map((model) => model.layers));
$("layer").value = Math.max($("layer").max - 1, 1);  // the paper's choice
setUpSamples(openPicture);
listenForPictures(openPicture);
draw();
openPicture({ title: sentence(about.samples[0].title), sample: about.samples[0].name });
