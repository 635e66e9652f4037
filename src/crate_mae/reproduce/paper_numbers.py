"""What the paper prints: the numbers of its tables, and the titles of its tables and figures.

Every number is as printed, with the label of its table. Tables 1 and 2 and figures 1 to 7 are in the main text, the
others in the appendix.
"""

from dataclasses import dataclass
from typing import Literal

from crate_mae.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Item:
    """A table or a figure of the paper."""

    name: str
    label: str
    """Its label in the paper's LaTeX source; for a figure with parts, their labels too."""
    title: str

    @property
    def kind(self) -> Literal["table", "figure"]:
        """Whether it is a table or a figure."""
        return "table" if self.name.startswith("table") else "figure"


ALL, LIST = "all", "list"
ITEMS: dict[str, Item] = {
    item.name: item
    for item in (
        Item("table1", "tab:model_configs", "Model configurations and parameter counts"),
        Item("table2", "tab:linear_probing_finetuning", "Fine-tuning and linear probing, CRATE-MAE and ViT-MAE"),
        Item("table3", "tab:comparison_with_random_init", "Fine-tuning, pretrained and from random weights"),
        Item("table4", "tab:reconstruction_loss", "Reconstruction loss on training and validation images"),
        Item("table5", "tab:performance_for_different_mask_sizes", "Linear probing by mask ratio"),
        Item("table6", "tab:performance_for_different_lambda", "Linear probing by lambda"),
        Item("figure1", "fig:crate_mae_pipeline", "The pipeline: an image's tokens through every layer and back"),
        Item("figure2", "fig:crate_compress_sparsification", "One layer: compression, then sparsification"),
        Item("figure3", "fig:structured_denoising", "Compression and denoising of tokens near subspaces"),
        Item("figure4", "fig:crate_mae_layers", "An encoder layer and the decoder layer that undoes it"),
        Item("figure5", "fig:exp-rc-sparsity-base", "Compression and sparsity, layer by layer"),
        Item("figure6", "fig:mae_autoencoding", "Completions with 75 % of the patches masked"),
        Item("figure7", "fig:pca_attn, fig:pca, fig:attention_maps", "Principal components and attention of CRATE-MAE"),
        Item("figure8", "fig:mae_autoencoding_extended", "More completions"),
        Item("figure9", "fig:pca_full", "More principal components"),
        Item("figure10", "fig:attention_maps_full", "More attention maps"),
        Item(
            "figure11",
            "fig:vit_pca_attn, fig:vit_pca, fig:vit_attention",
            "Principal components and attention of ViT-MAE",
        ),
    )
}


def check_name(name: str) -> None:
    """Refuse a name that is neither an item, nor all, nor list."""
    known = [*ITEMS, ALL, LIST]
    if name not in known:
        hint = did_you_mean(name, known, otherwise="crate-mae reproduce list names them.")
        raise UserError(f"the paper has no {name}; {hint}")


LAMBDA = 0.5
"""lambda in tables 2 to 4 (appendix B.1)."""
LAMBDA_OF_FIGURES = 5.0
"""lambda in the figures (appendix B.1) and in table 5 (its caption)."""
MASK_RATIO = 0.75
"""The mask ratio of everything except table 5."""

SETS = {
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "flowers102": "Oxford Flowers-102",
    "oxford_pets": "Oxford-IIIT-Pets",
}
"""The sets of tables 2 and 3: our name and the paper's."""

CONFIGURATIONS = {"small": (12, 576, 12, 196), "base": (12, 768, 12, 196)}
"""tab:model_configs: L, d, K and N."""
PARAMETERS = {"crate": {"small": 25.4, "base": 44.6}, "vit": {"small": 47.6, "base": 143.8}}
"""tab:model_configs, in millions."""

FINETUNING = {  # tab:linear_probing_finetuning, upper half; accuracy in per cent
    "cifar10": {"crate": {"small": 96.2, "base": 96.8}, "vit": {"small": 97.6, "base": 98.5}},
    "cifar100": {"crate": {"small": 79.0, "base": 80.3}, "vit": {"small": 83.0, "base": 87.0}},
    "flowers102": {"crate": {"small": 71.7, "base": 78.5}, "vit": {"small": 84.2, "base": 92.5}},
    "oxford_pets": {"crate": {"small": 73.7, "base": 76.7}, "vit": {"small": 81.7, "base": 90.3}},
}
PROBING = {  # tab:linear_probing_finetuning, lower half
    "cifar10": {"crate": {"small": 79.4, "base": 80.9}, "vit": {"small": 79.9, "base": 87.9}},
    "cifar100": {"crate": {"small": 56.6, "base": 60.1}, "vit": {"small": 62.3, "base": 68.0}},
    "flowers102": {"crate": {"small": 57.7, "base": 61.8}, "vit": {"small": 66.8, "base": 66.4}},
    "oxford_pets": {"crate": {"small": 40.6, "base": 46.2}, "vit": {"small": 51.8, "base": 80.1}},
}

PRETRAINED = {"cifar10": 96.8, "cifar100": 80.3, "flowers102": 78.5, "oxford_pets": 76.7}
"""tab:comparison_with_random_init, trained."""
RANDOM = {"cifar10": 85.1, "cifar100": 58.8, "flowers102": 38.0, "oxford_pets": 28.8}
"""tab:comparison_with_random_init, random init."""

RECONSTRUCTION = {"crate": {"train": 0.265, "val": 0.302}, "vit": {"train": 0.240, "val": 0.267}}
"""tab:reconstruction_loss, of the Base models on ImageNet-1K."""

BY_MASK_RATIO = {0.25: 69.78, 0.5: 75.97, 0.75: 75.99, 0.9: 73.45}
"""tab:performance_for_different_mask_sizes, on CIFAR-10."""
BY_LAMBDA = {0.1: 83.33, 0.5: 80.87, 5.0: 75.99}
"""tab:performance_for_different_lambda, on CIFAR-10."""
