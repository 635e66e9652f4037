// The formulas behind the page, as MathML, and what their letters mean.

import { element } from "./drawing.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";

/** Letters are identifiers, digits numbers, everything else an operator. */
function leaf(text) {
  const made = document.createElementNS(MATHML, /^\d/.test(text) ? "mn" : /^\p{L}/u.test(text) ? "mi" : "mo");
  if (made.localName === "mo" && "‖|".includes(text)) made.setAttribute("stretchy", "false");
  made.append(text);
  return made;
}

function node(name, ...children) {
  const made = document.createElementNS(MATHML, name);
  made.append(...children.map((child) => (Array.isArray(child) ? row(...child) : typeof child === "string" ? leaf(child) : child)));
  return made;
}

const row = (...parts) => node("mrow", ...parts);
const sup = (base, above) => node("msup", base, above);
const sub = (base, below) => node("msub", base, below);
const frac = (above, below) => node("mfrac", above, below);
const inner = (one, other) => row("⟨", one, ",", other, "⟩");

function space() {
  const made = node("mspace");
  made.setAttribute("width", "0.2em");
  return made;
}

const half = () => frac("1", "2");
const layer = (letter) => sup(letter, "ℓ");
const halfStep = () => sup("Z", ["ℓ", "+", half()]);
const project = (head, token) => row(node("msubsup", "U", head, "⊤"), token);
const normalised = (token) => row("LN", space(), token);
const rate = (scale, gram) => ["log", space(), "det", "(", "I", "+", frac(scale, ["N", sup("ε", "2")]), gram, ")"];

const FORMULAS = {
  error: {
    lines: [["error", "=", frac("1", ["|", "M", "|"]), node("munder", "∑", ["i", "∈", "M"]),
      frac(sup(["‖", sub(node("mover", "x", "^"), "i"), "−", sub("x", "i"), "‖"], "2"), "P")]],
    words: "M are the masked patches, x the patches of P numbers in normalised units (or normalised patches, where the model was trained on them), x̂ what the decoder predicts. "
      + "The mean patch is the average of the visible patches: filling every masked patch with it needs no model.",
  },
  layer: {
    lines: [[halfStep(), "=", layer("Z"), "+", "MSSA", "(", normalised(layer("Z")), "|", layer("U"), ")", ","],
      [layer("A"), "=", "ISTA", "(", normalised(halfStep()), "|", layer("D"), ")"]],
    words: "A white-box layer compresses the tokens Z against its subspaces U, then finds their sparse code A in its dictionary D. "
      + "The code is the layer's output, or is added to the compressed tokens in the residual form. A ViT layer has attention and an MLP in their place.",
  },
  compression: {
    lines: [[sup("R", "c"), "=", half(), node("munder", "∑", "k"), ...rate("p", row(node("msubsup", "W", "k", "⊤"), sub("W", "k")))],
      [sub("W", "k"), "=", project("k", "Z")]],
  },
  rate: { lines: [["R", "=", half(), ...rate("d", row(sup("Z", "⊤"), "Z"))]] },
  sparsity: { lines: [[frac(sub(["‖", "A", "‖"], "0"), ["m", "N"])]] },
  pca: {
    lines: [[sub("colour", "c"), "=", inner(sub("u", "c"), "w")], ["w", "=", sup("U", "⊤"), "z"]],
    words: "w is a token z in all of the layer's subspaces U. u₁, u₂ and u₃, for red, green and blue, are the first eigenvectors of the kept patches' second moments. "
      + "A patch is kept where its first component over all patches is above the threshold. A ViT layer has keys in place of Uᵀz.",
  },
  authors: { lines: [[sub("a", "k"), "=", node("munder", "softmax", "j"), space(),
    frac(inner(project("k", normalised(sub("z", "cls"))), project("k", normalised(sub("z", "j")))), node("msqrt", "p"))]] },
  paper: { lines: [[sub("a", "k"), "=", node("munder", "softmax", "i"), space(), inner(project("k", sub("z", "i")), project("k", sub("z", "cls")))]] },
};

/** Put a formula and what its letters mean into `place`; `words` stand where the formula brings none. */
export function explain(place, name, words = "") {
  const maths = FORMULAS[name].lines.map((parts) => {
    const math = node("math", ...parts.map((part) => (typeof part === "string" ? part : part.cloneNode(true))));
    math.setAttribute("displaystyle", "true");
    return math;
  });
  const lines = element("p", { class: "math" }, ...maths);
  place.replaceChildren(lines, element("p", { class: "quiet" }, FORMULAS[name].words ?? words));
}
