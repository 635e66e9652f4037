"""Who races and on what: each contestant with its own best recipe, each course with its images and its labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crate_mae.errors import UserError
from crate_mae.models.architectures import model_config
from crate_mae.models.config import ModelConfig
from crate_mae.training.config import Optimiser


@dataclass(frozen=True)
class Recipe:
    """A contestant's model and how it is trained."""

    title: str
    """For tables."""
    model: str
    """A name of the zoo."""
    settings: Mapping[str, Any]
    """Fields of ``ModelConfig``, and the preset; sizes of image and patch are the course's."""
    optimiser: Optimiser = field(default="adamw", kw_only=True)
    learning_rate: float
    """The peak; the schedule is a linear warm-up and a half cosine over the used share of the budget."""
    warmup: float = 0.1
    """The share of the budget in which the learning rate rises."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.05
    clip: float = 1.0
    """The largest norm of the gradient."""
    averaging: float = 0.0
    """What the result keeps of its former value at each step, as a running mean of the weights; 0 for the last ones."""
    batch: int = 128
    mask_ratio: float = 0.75
    finetune_rate: float = 1e-3
    """The peak of the learning rate in fine-tuning, from pretrained and from random weights alike."""
    layer_decay: float = 1.0
    """In fine-tuning: each layer's learning rate over that of the layer above."""


@dataclass(frozen=True)
class Course:
    """A set of images and what is done with it."""

    data: str
    """Its name, or a path."""
    image_size: int
    patch_size: int
    stored_size: int
    """Images are kept in memory as squares of this side: the shorter side is resized to it, the middle is cut out."""
    finetune_steps: Mapping[int, int] = field(default_factory=lambda: {10: 500, 1: 150})
    """From the per cent of training images whose labels are used to the number of steps."""
    finetune_batch: int = 128
    probe_images: int | None = None
    """Training images of the probe and of 20-NN, drawn at random; None for all."""
    by_layer: bool = True
    """Whether what each encoder layer does is measured too."""

    def config(self, recipe: Recipe) -> ModelConfig:
        """The model of a recipe for these images."""
        return model_config(
            recipe.model, image_size=self.image_size, patch_size=self.patch_size, **dict(recipe.settings)
        )


DECODER = {"decoder_dim": 128, "decoder_depth": 2, "decoder_heads": 4}
_TRAINING: dict[str, Any] = {"optimiser": "muon", "learning_rate": 4e-3, "layer_decay": 0.7}
CRATE_MAE = Recipe(
    "CRATE-MAE",
    "crate_mae_tiny_residual",
    {"dim": 384, "heads": 6, "depth": 4, "eta": 0.5, "lambda_": 0.1, **DECODER},
    batch=128,
    **_TRAINING,
)
VIT_MAE = Recipe(
    "ViT-MAE",
    "vit_mae_small",
    {"dim": 192, "heads": 3, "depth": 4, **DECODER, "decoder_depth": 1},
    batch=64,
    **_TRAINING,
)
"""Each with the width and the batch that probed best in the search, with plain pixels as targets (docs/log.md)."""

CRATE_MAE_NARROW = replace(
    CRATE_MAE,
    title="CRATE-MAE, narrow",
    settings={**CRATE_MAE.settings, "dim": 256, "heads": 4},
    batch=64,
)
"""With less than half of ViT-MAE's parameters: its steps are faster, most of all in float32."""

PAPER_FORM = replace(
    CRATE_MAE, title="CRATE-MAE, the paper's form", settings={**CRATE_MAE.settings, "encoder_skip": "none"}
)
"""The same model and training, with tokens that are replaced by their code."""

COURSES = {
    "cifar10": Course("cifar10", image_size=32, patch_size=4, stored_size=32),
    "imagenette": Course("imagenette", image_size=64, patch_size=8, stored_size=72),
}
_WHITE_BOX = {"crate-mae": CRATE_MAE, "crate-mae-narrow": CRATE_MAE_NARROW}
RECIPES = {
    "cifar10": _WHITE_BOX | {"vit-mae": VIT_MAE, "paper-form": PAPER_FORM},
    "imagenette": _WHITE_BOX | {"vit-mae": VIT_MAE},
}
"""For each course, the contestants by the names that --only takes."""
REFERENCES = ("paper-form",)
"""Contestants that are there to be compared layer by layer; they are not fine-tuned."""


def chosen(only: Sequence[str]) -> dict[str, dict[str, Recipe]]:
    """Contestants by course; ``only`` names courses, contestants or both."""
    contestants = list(dict.fromkeys(name for recipes in RECIPES.values() for name in recipes))
    for name in only:
        if name not in RECIPES and name not in contestants:
            raise UserError(f"there is no {name} in the race; choose from {', '.join([*RECIPES, *contestants])}.")
    courses = [name for name in RECIPES if name in only] or list(RECIPES)
    racing = [name for name in contestants if name in only] or contestants
    found = {course: {name: RECIPES[course][name] for name in racing if name in RECIPES[course]} for course in courses}
    if not any(found.values()):
        raise UserError(f"{', '.join(racing)} does not race on {', '.join(courses)}; leave one of them out of --only.")
    return {course: recipes for course, recipes in found.items() if recipes}
