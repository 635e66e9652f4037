// The page: one state, and what is shown of it.

import { curve, element, patches, ramp } from "./drawing.js";
import { MaskGrid } from "./mask.js";
import { ask, Latest, Problem } from "./requests.js";

const $ = (id) => document.getElementById(id);
const about = await fetch("/api/about").then((response) => response.json()).catch((error) => {
  $("messages").append(element("p", { class: "message" }, "The server does not answer; start it again, then load this page anew."));
  throw error;
});
const PIXELATED = 64;  // pictures up to this side are shown pixel by pixel
const SYMBOLS = { compression: ["R", "c"], rate: ["R", ""], sparsity: ["Sparsity", ""] };

const state = {
  picture: null,  // {title, sample} or {title, file}
  originals: [],  // for each model, the picture as it takes it
  revision: 0,  // of the mask
  drawn: true,  // whether ratio and seed have made the mask, and not a hand
  shown: about.models.map((_, index) => index),  // models on the page
};

// --- words ---

// A family is name enough where each model has its own.
const families = new Set(about.models.map((model) => model.family));
const short = (index) => (families.size === about.models.length ? about.models[index].family : about.models[index].name);
const title = (index) => `${about.models[index].family} ${about.models[index].name}`;
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const number = (value, digits = 4) => value.toLocaleString("en", { maximumSignificantDigits: digits });
const percent = (share) => `${(100 * share).toLocaleString("en", { maximumFractionDigits: 1 })} %`;

/** One message for each source of trouble; it goes when that source has an answer, or when it is closed. */
function complain(source, problem) {
  if (problem?.name === "AbortError") return;
  clear(source);
  if (!(problem instanceof Problem)) console.error(problem);
  const busy = problem.retryAfter;
  const words = sentence(problem.message) + (busy ? ` This page does so in ${busy} s.` : "");
  const close = element("button", { type: "button", "aria-label": "Close this message" }, "×");
  const line = element("div", { class: busy ? "message busy" : "message", "data-source": source }, element("p", {}, words), close);
  close.addEventListener("click", () => line.remove());
  $("messages").append(line);
}

function clear(source, figure = null) {
  figure?.classList.remove("stale");
  $("messages").querySelector(`[data-source="${source}"]`)?.remove();
}

let announcing;
function announce(text) {
  clearTimeout(announcing);
  announcing = setTimeout(() => { $("status").textContent = text; }, 500);  // not at every patch of a stroke
}

// --- questions ---

function latest(source, figure, run) {
  return new Latest(run, {
    onBusy: () => figure.setAttribute("aria-busy", "true"),
    onIdle: () => figure.setAttribute("aria-busy", "false"),
    onProblem: (problem) => {
      figure.classList.add("stale");  // what stands there is the answer to an earlier question
      complain(source, problem);
    },
  });
}

/** What a question about the picture takes: its sample's name, or the picture as the model takes it. */
function about_picture(index) {
  return state.picture.sample ? [{ sample: state.picture.sample }, null] : [{}, state.originals[index]];
}

function query(path, index, params, signal) {
  const [named, body] = about_picture(index);
  return ask(path, { model: index, ...named, ...params }, body, signal);
}

// --- a panel for each model: its completion, and its inside ---

class ModelPanel {
  constructor(index) {
    this.index = index;
    this.model = about.models[index];
    this.completion = $("completion-template").content.cloneNode(true).firstElementChild;
    this.inside = $("inside-template").content.cloneNode(true).firstElementChild;
    this.completion.querySelector(".by").textContent = `by ${short(index)}`;
    this.inside.querySelector("h3").textContent = short(index);
    $("stage").insertBefore(this.completion, $("stage").querySelector(".original"));
    $("insides").append(this.inside);
    this.layers = null;
    this.asks = {
      complete: latest(`complete-${index}`, this.completion, (...given) => this.#complete(...given)),
      layers: latest(`layers-${index}`, this.inside.querySelector(".numbers"), (...given) => this.#layers(...given)),
      layer: latest(`layer-${index}`, this.inside.querySelector(".heads"), (...given) => this.#layer(...given)),
    };
  }

  get on() { return state.shown.includes(this.index); }

  cancel() {
    for (const [kind, one] of Object.entries(this.asks)) {
      one.cancel();
      clear(`${kind}-${this.index}`);
    }
  }

  askCompletion() {
    const { revision } = state;
    const made = state.drawn ? { ratio: $("ratio").value / 100, seed: $("seed").value } : { mask: grid.value };
    this.asks.complete.ask({ revision, made });
  }

  async #complete({ revision, made }, signal) {
    const answer = await query("/api/complete", this.index, made, signal).then((response) => response.json());
    clear(`complete-${this.index}`, this.completion);
    if (state.drawn && revision === state.revision) {
      grid.value = answer.mask;
    }
    const image = this.completion.querySelector("img");
    image.src = answer.completed;
    const error = answer.error === null ? "nothing is masked" : `error ${number(answer.error)}`;
    image.alt = `${sentence(state.picture.title)}, completed by ${short(this.index)}: ${error}`;
    this.completion.querySelector(".number").textContent = sentence(error);
    const meaning = answer.error === null ? "" : "mean squared, over the masked patches, in normalised units";
    this.completion.querySelector(".words").textContent = answer.caption ? `${meaning}; ${answer.caption}` : meaning;
    this.words = `${short(this.index)}: ${error}`;
    if (revision !== state.revision) return;
    show_ratio(answer.masked_patches, answer.patches);
    const parts = panels.filter((panel) => panel.on && panel.words).map((panel) => panel.words);
    announce(`${answer.masked_patches} of ${answer.patches} patches masked. ${parts.join(". ")}.`);
  }

  askLayers() { this.asks.layers.ask({}); }

  async #layers(_, signal) {
    this.layers = await query("/api/layers", this.index, {}, signal).then((response) => response.json());
    clear(`layers-${this.index}`, this.inside.querySelector(".numbers"));
    this.showNumbers();
  }

  get layer() { return Math.min(Number($("layer").value), this.model.layers); }

  askLayer() {
    this.asks.layer.ask({ layer: this.layer, convention: $("convention").value, threshold: $("threshold").value });
  }

  async #layer(params, signal) {
    const answer = await query("/api/layer", this.index, params, signal).then((response) => response.json());
    clear(`layer-${this.index}`, this.inside.querySelector(".heads"));
    this.showComponents(answer);
    this.showAttention(answer);
  }

  showNumbers() {
    const { family, layers } = this.model;
    this.inside.querySelector(".note").textContent = this.layer < Number($("layer").value)
      ? `${title(this.index)} has only ${layers} layers: its last is shown.`
      : `${title(this.index)}, layer ${this.layer} of ${layers}.`;
    if (!this.layers) return;
    const rows = Object.entries(about.quantities).map(([name, words]) => {
      const [symbol, raised] = SYMBOLS[name];
      const head = element("h4", {}, symbol, element("sup", {}, raised), element("span", { class: "quiet" }, name === words.title ? "" : ` ${words.title}`));
      const values = this.layers.curves[name];
      if (!values) {
        return element("div", { class: "quantity" }, head,
          element("p", { class: "missing" }, `Does not exist for a ${family}: ${this.layers.left_out[name]}.`));
      }
      const plain = (value) => (name === "sparsity" ? percent(value) : number(value));
      const text = (value) => (name === "sparsity" ? percent(value) : `${number(value)} ${words.unit}`);
      const over = `${words.title} over layers 1 to ${layers}: ${values.map(text).join(", ")}`;
      const note = name !== "sparsity" ? "" : family === "ViT-MAE"
        ? "of the entries are not zero: an ordinary layer sets none to zero" : "of the entries are not zero";
      return element("div", { class: "quantity" }, head,
        element("p", { class: "value" }, element("b", {}, text(values[this.layer - 1])), ` ${note}`),
        curve(values, this.layer - 1, over),
        element("p", { class: "quiet" }, `${plain(values[0])} in layer 1, ${plain(values.at(-1))} in layer ${layers}`));
    });
    this.inside.querySelector(".numbers").replaceChildren(...rows);
  }

  showComponents({ components: found, components_missing: missing, layer }) {
    const place = this.inside.querySelector(".pca");
    const [canvas, words] = [place.querySelector("canvas"), place.querySelector("p")];
    canvas.hidden = !found;
    if (!found) {
      words.textContent = `No PCA here: ${missing}`;
      return;
    }
    const kept = found.kept.flat().filter(Boolean).length;
    const total = found.kept.flat().length;
    const energy = found.energy.map(percent).join(", ");
    const rows = found.colours.map((row) => row.map((colour) => colour?.map((part) => Math.round(255 * part))));
    patches(canvas, rows, `PCA of the tokens at layer ${layer}: ${kept} of ${total} patches kept`);
    words.textContent = `First three components as red, green, blue; they hold ${energy} of the energy. `
      + `${kept} of ${total} patches kept, the rest is taken for background.`;
  }

  showAttention({ attention, on_itself, convention, layer }) {
    const heads = attention.map((rows, head) => {
      const largest = Math.max(...rows.flat());
      const canvas = element("canvas");
      patches(canvas, rows.map((row) => row.map((value) => ramp(value / largest))),
        `Attention of head ${head + 1} at layer ${layer}, largest weight ${number(largest, 2)}`);
      const words = [`head ${head + 1}`, `max ${number(largest, 2)}`];
      if (convention === "authors") words.push(`itself ${number(on_itself[head], 2)}`);
      return element("figure", {}, canvas, element("figcaption", {}, ...words.map((word) => element("span", {}, word))));
    });
    this.inside.querySelector(".heads").replaceChildren(...heads);
    this.inside.querySelector(".attention p").textContent = "Dark is 0, bright each head's own largest weight (max)."
      + (convention === "authors" ? " Itself: the class token's weight on itself." : "");
  }

  /** The shape of everything that shows this model's patches. */
  shape() {
    const [height, width] = this.model.image_size;
    for (const part of [this.completion, this.inside]) {
      part.style.setProperty("--shape", `${width} / ${height}`);
      part.hidden = !this.on;
    }
    this.completion.classList.toggle("pixelated", Math.max(height, width) <= PIXELATED);
  }
}

// --- what a person does ---

let lifted = null;  // addresses of pictures in memory, given back when replaced
function show_original() {
  const index = state.shown[0];
  const [height, width] = about.models[index].image_size;
  if (lifted) URL.revokeObjectURL(lifted);
  lifted = URL.createObjectURL(state.originals[index]);
  for (const id of ["under", "original"]) $(id).src = lifted;
  $("original").alt = sentence(state.picture.title);
  const sizes = new Set(about.models.map((model) => `${model.image_size} ${model.channels}`));
  $("original-of").textContent = sizes.size > 1 ? `as ${short(index)} takes it` : "";
  const kind = { 1: "gray", 3: "in colour", 4: "with transparency" }[about.models[index].channels];
  $("original-note").textContent = `${sentence(state.picture.title)}, resized for the model: ${width} × ${height} pixels, ${kind}.`;
  for (const part of document.querySelectorAll(".paint, .original")) {
    part.style.setProperty("--shape", `${width} / ${height}`);
    part.classList.toggle("pixelated", Math.max(height, width) <= PIXELATED);
  }
}

let loading = null;
/** Show another picture; the one before stays where the new one can't be read. */
async function open_picture(picture) {
  loading?.abort();
  const own = loading = new AbortController();
  try {
    const fetched = about.models.map(async (_, model) => {
      const params = picture.sample ? { model, sample: picture.sample } : { model };
      return (await ask("/api/original", params, picture.file ?? null, own.signal)).blob();
    });
    const originals = await Promise.all(fetched);
    if (own.signal.aborted) return;
    panels.forEach((panel) => panel.cancel());
    Object.assign(state, { picture, originals });
    $("save").disabled = false;
  } catch (error) {
    complain("picture", error);
    if (error.retryAfter) setTimeout(() => { if (loading === own) open_picture(picture); }, 1000 * error.retryAfter);
    return;
  }
  clear("picture");
  for (const button of $("samples").children) button.setAttribute("aria-pressed", button.dataset.name === picture.sample);
  show_original();
  refresh();
}

function open_file(file) {
  const { upload } = about.limits;
  if (file.size > upload) {
    complain("picture", new Problem(`${file.name} has ${number(file.size / 1e6, 3)} MB; the limit is ${upload / 1e6} MB: send a smaller picture.`));
    return;
  }
  open_picture({ title: file.name || "the pasted picture", file });
}

/** Everything anew: another picture, or other models. */
function refresh() {
  panels.forEach((panel) => panel.shape());
  $("insides").classList.toggle("pair", state.shown.length > 1);
  const deepest = Math.max(...state.shown.map((index) => about.models[index].layers));
  $("layer").max = deepest;
  show_layer();
  for (const panel of panels.filter((one) => one.on)) {
    panel.askCompletion();
    panel.askLayers();
    panel.askLayer();
  }
}

function ask_completions() {
  if (state.picture) panels.filter((panel) => panel.on).forEach((panel) => panel.askCompletion());
}

function ask_layer() {
  show_layer();
  if (!state.picture) return;
  for (const panel of panels.filter((one) => one.on)) {
    panel.showNumbers();
    panel.askLayer();
  }
}

function show_layer() {
  $("layer-out").textContent = `${$("layer").value} of ${$("layer").max}`;
  $("layer").ariaValueText = `layer ${$("layer-out").textContent}`;
  $("threshold-out").textContent = Number($("threshold").value).toFixed(1);
}

function show_ratio(masked, total) {
  $("ratio-out").textContent = `${masked} of ${total} patches`;
  $("ratio").ariaValueText = $("ratio-out").textContent;
  if (!state.drawn) $("ratio").value = Math.round((100 * masked) / total);
}

function painted() {
  state.drawn = false;
  state.revision += 1;
  const mask = grid.value;
  show_ratio([...mask].filter((place) => place === "1").length, mask.length);
  $("seed-out").textContent = "painted by hand";
  ask_completions();
}

function drawn() {
  state.drawn = true;
  state.revision += 1;
  $("seed-out").textContent = $("seed").value;
  ask_completions();
}

async function save() {
  const model = state.shown.length === about.models.length ? {} : { model: state.shown[0] };
  const named = state.picture.sample ? { sample: state.picture.sample } : {};
  $("save").disabled = true;
  try {
    const response = await ask("/api/sheet", { ...model, ...named, mask: grid.value }, state.picture.file ?? null);
    const address = URL.createObjectURL(await response.blob());
    element("a", { href: address, download: "crate-mae-completion.png" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
    clear("save");
    announce("The picture was saved.");
  } catch (error) {
    complain("save", error);
  } finally {
    $("save").disabled = false;
  }
}

// --- set up ---

const grid = new MaskGrid($("mask"), painted);
const panels = about.models.map((_, index) => new ModelPanel(index));
const { upload, pixels, formats } = about.limits;
$("file-limits").textContent = `${formats.join(", ")} up to ${upload / 1e6} MB and ${pixels / 1e6} megapixels; it stays in memory`;
$("models").append(...about.models.map((model, index) => element("li", {},
  `${title(index)}: ${model.parameters.toLocaleString("en")} parameters, ${model.layers} encoder layers of ${model.heads} heads, ${model.grid.join(" × ")} patches`)));
grid.shape(...about.models[0].grid);

for (const { name, title: words } of about.samples) {
  const image = element("img", { src: `/api/samples/${encodeURIComponent(name)}`, alt: "" });
  const button = element("button", { type: "button", "aria-pressed": "false", "data-name": name, title: words, "aria-label": sentence(words) }, image);
  button.addEventListener("click", () => open_picture({ title: words, sample: name }));
  $("samples").append(button);
}

if (about.models.length > 1) {
  const views = [...about.models.map((_, index) => [short(index), [index]]), ["Side by side", [0, 1]]];
  views.forEach(([words, shown], place) => {
    const radio = element("input", { type: "radio", name: "view", value: place });
    radio.checked = shown.length > 1;
    radio.addEventListener("change", () => {
      state.shown = shown;
      panels.forEach((panel) => panel.cancel());
      if (state.picture) { show_original(); refresh(); }
    });
    $("views").append(element("label", {}, radio, element("span", {}, words)));
  });
  $("views").hidden = false;
}

for (const [name, { title: words, unit, definition }] of Object.entries(about.quantities)) {
  const [symbol, raised] = SYMBOLS[name];
  const term = element("dt", {}, symbol, element("sup", {}, raised), name === words ? "" : ` ${words}`, `, ${unit}`);
  $("definitions").append(term, element("dd", {}, definition));
}
const conventions = { paper: "Attention, the paper's formula", authors: "Attention, as the layer uses it" };
for (const [name, words] of Object.entries(conventions)) {
  $("definitions").append(element("dt", {}, words), element("dd", {}, `${sentence(about.conventions[name])}.`));
}

$("file").addEventListener("change", () => {
  if ($("file").files[0]) open_file($("file").files[0]);
  $("file").value = "";  // the same file can be chosen again
});
const files_of = (event) => [...((event.dataTransfer ?? event.clipboardData)?.files ?? [])];
addEventListener("paste", (event) => { if (files_of(event)[0]) open_file(files_of(event)[0]); });
addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over"); });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").classList.remove("over"); });
addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  if (files_of(event)[0]) open_file(files_of(event)[0]);
});
for (const id of ["ratio", "seed"]) $(id).addEventListener("input", drawn);
for (const id of ["layer", "threshold", "convention"]) $(id).addEventListener("input", ask_layer);
$("clear").addEventListener("click", () => { grid.value = "0".repeat(grid.value.length); painted(); });
$("invert").addEventListener("click", () => {
  grid.value = [...grid.value].map((place) => (place === "1" ? "0" : "1")).join("");
  painted();
});
$("save").addEventListener("click", save);
$("seed-out").textContent = $("seed").value;
$("layer").max = Math.max(...about.models.map((model) => model.layers));
$("layer").value = Math.max(Math.max(...about.models.map((model) => model.layers)) - 1, 1);  // the paper's choice
open_picture({ title: about.samples[0].title, sample: about.samples[0].name });
