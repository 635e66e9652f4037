// Numbers and quantities in words.

export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
export const number = (value, digits = 4) => value.toLocaleString("en", { maximumSignificantDigits: digits });
export const percent = (part) => `${(100 * part).toLocaleString("en", { maximumFractionDigits: 1 })}\u00a0%`;

export const QUANTITIES = {
  compression: { symbol: ["R", "c"], name: "compression", plain: "How many nats code the tokens with the layer's subspaces: less is more compressed." },
  rate: { symbol: ["R", ""], name: "rate of all tokens", plain: "How many nats code the tokens without subspaces: how much they differ from each other." },
  sparsity: { symbol: ["", ""], name: "Non-zero entries of the code", plain: "How much of the layer's code is not zero: a white-box layer sets entries to zero, a ViT layer none." },
};
