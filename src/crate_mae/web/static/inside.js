// Inside the encoder: curves over the layers for all models on one axis, and each model's PCA and attention.

import { curves } from "./curves.js";
import { element, patches, ramp } from "./drawing.js";
import { explain } from "./formulas.js";
import { $, about, latest, query, short, state, whose } from "./state.js";
import { number, percent, QUANTITIES, sentence } from "./words.js";

const weight = (value) => (value < 0.001 ? "< 0.001" : number(value, 2));

export class Inside {
  constructor(index, onLayers) {
    this.index = index;
    this.model = about.models[index];
    this.layers = null;
    this.article = $("inside-template").content.cloneNode(true).firstElementChild;
    this.article.querySelector("h3").textContent = short(index);
    this.article.querySelector(".pca .plain").textContent = "Similar tokens have similar colours; checks are background.";
    explain(this.article.querySelector(".pca .formula div"), "pca");
    this.article.querySelector(".attention .plain").textContent = "Which patches each head reads for its summary of the picture: bright ones.";
    $("insides").append(this.article);
    const section = $("inside-section");
    this.asks = {
      layers: latest({ part: section, section, who: whose(index) }, async (_, signal) => {
        this.layers = await query("/api/layers", this.index, {}, signal);
        onLayers();
      }),
      layer: latest({ part: this.article, section, who: whose(index) }, async (params, signal) => {
        const answer = await query("/api/layer", this.index, params, signal);
        this.#components(answer);
        this.#attention(answer);
      }),
    };
  }

  age() { if (this.layers) Object.values(this.asks).forEach((one) => one.age()); }

  cancel() { Object.values(this.asks).forEach((one) => one.cancel()); }

  askLayers() { this.asks.layers.ask({}); }

  askLayer() {
    this.asks.layer.ask({ layer: this.layer, convention: $("convention").value, threshold: $("threshold").value });
  }

  /** The chosen layer, or the last where this model has fewer. */
  get layer() { return Math.min(Number($("layer").value), this.model.layers); }

  showLayer() {
    this.article.querySelector(".note").textContent = this.layer < Number($("layer").value)
      ? `${this.model.name} has ${this.model.layers} layers; its last is shown.`
      : `${this.model.name}, layer ${this.layer} of ${this.model.layers}`;
    const convention = $("convention").value;
    explain(this.article.querySelector(".attention .formula div"), convention, `${sentence(about.conventions[convention])}.`);
  }

  #components({ components: found, components_missing: missing, layer }) {
    const place = this.article.querySelector(".pca");
    const [canvas, words] = [place.querySelector("canvas"), place.querySelector(".words")];
    canvas.hidden = !found;
    if (!found) {
      words.textContent = `No PCA here: ${missing}`;
      return;
    }
    const [kept, total] = [found.kept.flat().filter(Boolean).length, found.kept.flat().length];
    const rows = found.colours.map((row) => row.map((colour) => colour?.map((part) => Math.round(255 * part))));
    patches(canvas, rows, `PCA of the tokens at layer ${layer}: ${kept} of ${total} patches kept`);
    words.textContent = `${kept} of ${total} patches kept. Red, green and blue hold ${found.energy.map(percent).join(", ")} of their energy.`;
  }

  #attention({ attention, on_itself, convention, layer }) {
    const heads = attention.map((rows, head) => {
      const largest = Math.max(...rows.flat());
      const canvas = element("canvas");
      patches(canvas, rows.map((row) => row.map((value) => ramp(value / largest))),
        `Attention of head ${head + 1} at layer ${layer}, largest weight ${number(largest, 2)}`);
      const words = [`head ${head + 1}`, `max ${weight(largest)}`];
      if (convention === "authors") words.push(`itself ${weight(on_itself[head])}`);
      return element("figure", {}, canvas, element("figcaption", {}, ...words.map((word) => element("span", {}, word))));
    });
    this.article.querySelector(".heads").replaceChildren(...heads);
    this.article.querySelector(".attention .words").replaceChildren("Weight: 0", element("span", { class: "ramp" }),
      `max of each head.${convention === "authors" ? " Itself: the class token's weight on itself, not drawn." : ""}`);
  }

  shape(on) {
    const [height, width] = this.model.image_size;
    this.article.style.setProperty("--shape", `${width} / ${height}`);
    this.article.hidden = !on;
  }
}

/** A card for each quantity, with the curves of all models shown. */
export function showNumbers(insides, choose) {
  const known = insides.filter((one) => state.shown.includes(one.index) && one.layers);
  if (!known.length) return;
  const open = new Set([...$("numbers").querySelectorAll("details[open]")].map((one) => one.dataset.name));
  const cards = Object.keys(about.quantities).map((name) => card(name, known, choose, open.has(name)));
  $("numbers").replaceChildren(...cards.sort((one, other) => one.matches(".undefined") - other.matches(".undefined")));
}

function card(name, known, choose, open) {
  const { symbol: [letter, raised], name: words, plain } = QUANTITIES[name];
  const text = name === "sparsity" ? percent : (value) => number(value);
  const unit = name === "sparsity" ? "" : ` ${about.quantities[name].unit}`;
  const lines = known.filter((one) => one.layers.curves[name]).map((one) => ({ order: one.index, values: one.layers.curves[name] }));
  const heading = letter ? [letter, element("sup", {}, raised), element("span", { class: "quiet" }, ` ${words}`)] : [words];
  const formula = element("details", { class: "formula", "data-name": name, ...(open && { open: "" }) }, element("summary", {}, "Formula"), element("div"));
  explain(formula.querySelector("div"), name, about.quantities[name].definition);
  const values = known.map((one) => {
    const label = element("span", { class: `key line-${one.index}` }, short(one.index));
    const curve = one.layers.curves[name];
    if (!curve) return element("p", { class: "missing" }, label, ` not defined: ${one.layers.left_out[name]}.`);
    return element("p", { class: "value" }, label, element("b", {}, `${text(curve[one.layer - 1])}${unit}`), ` in layer ${one.layer}`);
  });
  const layers = Math.max(...known.map((one) => one.model.layers));
  const over = lines.map(({ order, values: all }) => `${short(order)}: ${all.map(text).join(", ")}${unit}`).join("; ");
  const label = `${words} over layers 1 to ${layers}. ${over}`;
  const chart = lines.length ? [curves(lines, layers, Number($("layer").value) - 1, text, label, choose)] : [];
  return element("article", { class: `quantity${lines.length ? "" : " undefined"}` }, element("h3", {}, ...heading), element("p", { class: "quiet" }, plain), formula, ...values, ...chart);
}
