// Numbers and formulas in words.

export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
export const number = (value, digits = 4) => value.toLocaleString("en", { maximumSignificantDigits: digits });
export const percent = (part) => `${(100 * part).toLocaleString("en", { maximumFractionDigits: 1 })} %`;

export const FORMULAS = {
  error: ["error = mean over the masked patches i of ‖x̂ᵢ − xᵢ‖² / pixels",
    "x are the patches in normalised units, or normalised patches where the model was trained on them; x̂ is what the decoder predicts. "
    + "The mean patch is the average of the visible patches: filling every masked patch with it needs no model."],
  layer: ["Zˡ⁺¹ᐟ² = Zˡ + MSSA(LN Zˡ | Uˡ),  then the sparse code ISTA(LN Zˡ⁺¹ᐟ² | Dˡ)",
    "A white-box layer compresses the tokens against its subspaces U, then makes them sparse in its dictionary D. A ViT layer has attention and an MLP in their place."],
  compression: ["Rᶜ(Z | U) = ½ Σₖ log det(I + p/(Nε²) (UₖᵀZ)ᵀ UₖᵀZ),  Z = Zˡ⁺¹ᐟ²"],
  rate: ["R(Z) = ½ log det(I + d/(Nε²) ZᵀZ),  Z = Zˡ⁺¹ᐟ²"],
  sparsity: ["‖A‖₀ / (mN),  A the code of the layer, m entries for each token"],
  pca: ["colour = (⟨u₁, z⟩, ⟨u₂, z⟩, ⟨u₃, z⟩),  z = [U₁ᵀz; …; U_Kᵀz]",
    "u are the first eigenvectors of ZᵀZ over the patches that are kept; a patch is kept where its first component over all patches is above the threshold. A ViT layer has keys in place of Uᵀz."],
};

export const QUANTITIES = {
  compression: { symbol: ["R", "c"], name: "compression", plain: "How many nats code the tokens with the layer's subspaces: less is more compressed." },
  rate: { symbol: ["R", ""], name: "rate of all tokens", plain: "How many nats code the tokens without subspaces: how much they differ from each other." },
  sparsity: { symbol: ["", ""], name: "Non-zero entries of the code", plain: "How much of the layer's code is not zero: a white-box layer sets entries to zero, a ViT layer none." },
};
