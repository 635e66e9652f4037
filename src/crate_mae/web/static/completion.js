// One model's completion: the picture, its error beside the mean patch's, and a map of errors.

import { element, patches, ramp } from "./drawing.js";
import { $, about, announce, latest, query, short, state, whose } from "./state.js";
import { number, sentence } from "./words.js";

const PIXELATED = 64;  // pictures up to this side are shown pixel by pixel

export class Completion {
  /** `onMask` gets every answer, with the revision of the mask it was asked for. */
  constructor(index, onMask, onFailure) {
    this.index = index;
    this.onMask = onMask;
    this.figure = $("completion-template").content.cloneNode(true).firstElementChild;
    this.figure.querySelector(".by").textContent = `by ${short(index)}`;
    $("stage").insertBefore(this.figure, $("stage").querySelector(".original"));
    this.answer = null;
    this.asked = latest({ part: this.figure, section: $("completion-section"), who: whose(index) }, (...given) => this.#complete(...given), onFailure);
  }

  ask(made) { this.asked.ask({ revision: state.revision, made }); }

  cancel() { this.asked.cancel(); }

  age() { if (this.answer) this.asked.age(); }

  async #complete({ revision, made }, signal) {
    const answer = this.answer = await query("/api/complete", this.index, made, signal);
    const image = this.figure.querySelector("img");
    image.src = answer.completed;
    const error = answer.error === null ? "nothing is masked" : `error ${number(answer.error)}`;
    image.alt = `${state.picture.title}, completed by ${short(this.index)}: ${error}`;
    this.figure.querySelector(".number").textContent = sentence(error);
    const reference = answer.error === null ? "" : `over the masked patches; the mean patch gives ${number(answer.mean_patch_error)}.`;
    this.figure.querySelector(".words").textContent = answer.caption ? `${reference} ${sentence(answer.caption)}.` : reference;
    this.words = `${short(this.index)}: ${error}`;
    this.onMask(answer, revision);
  }

  /** The map of errors, on a scale that all models share; hidden unless asked for. */
  showErrors(on, largest) {
    const canvas = this.figure.querySelector("canvas");
    canvas.hidden = !on || !this.largestError;
    this.figure.classList.toggle("dimmed", !canvas.hidden);
    if (canvas.hidden) return;
    const rows = this.answer.errors.map((row) => row.map((error) => (error === null ? null : ramp(error / largest))));
    patches(canvas, rows, `Map of errors of ${short(this.index)}: dark is 0, bright ${number(largest, 3)}`);
  }

  get largestError() {
    return Math.max(0, ...(this.answer?.errors.flat() ?? []).filter((error) => error !== null));
  }

  shape(on) {
    const [height, width] = about.models[this.index].image_size;
    this.figure.style.setProperty("--shape", `${width} / ${height}`);
    this.figure.hidden = !on;
    this.figure.classList.toggle("pixelated", Math.max(height, width) <= PIXELATED);
  }
}

/** The scale of the map of errors. */
export function showScale(on, largest) {
  $("error-scale").hidden = !on;
  $("error-scale").replaceChildren("Error of each masked patch: 0", element("span", { class: "ramp" }), number(largest, 3));
}

/** The picture as the first model on the page takes it, below the mask and beside the completions. */
export function showOriginal(address) {
  const index = state.shown[0];
  const { image_size: [height, width], channels } = about.models[index];
  for (const id of ["under", "original"]) $(id).src = address;
  $("original").alt = state.picture.title;
  const sizes = new Set(about.models.map((model) => `${model.image_size} ${model.channels}`));
  $("original-of").textContent = sizes.size > 1 ? `as ${short(index)} takes it` : "";
  const kind = { 1: "gray", 3: "in colour", 4: "with transparency" }[channels];
  const how = state.picture.sample ? "" : { crop: "the middle of it, ", pad: "all of it with a border, ", stretch: "stretched, " }[state.picture.fit];
  $("original-note").textContent = `${state.picture.title}, ${how}${width}\u00a0×\u00a0${height} pixels, ${kind}.`;
  for (const part of document.querySelectorAll(".paint, .original")) {
    part.style.setProperty("--shape", `${width} / ${height}`);
    part.classList.toggle("pixelated", Math.max(height, width) <= PIXELATED);
  }
}

/** The newest completions in words, for those who listen. */
export function announceCompletions(shown, { masked_patches: masked, patches: total }) {
  const parts = shown.filter((one) => one.words).map((one) => one.words);
  announce(`${masked} of ${total} patches masked. ${parts.join(". ")}.`);
}
