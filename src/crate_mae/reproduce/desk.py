"""The desk scale: models pretrained on Tiny ImageNet at 64 px, fine-tuned and probed on the paper's four sets."""

from typing import Any

from crate_mae.bench.race.recipes import Course, Recipe
from crate_mae.reproduce import paper_numbers as paper
from crate_mae.reproduce.desk_measurements import TIMED
from crate_mae.reproduce.desk_tasks import PROBE_IMAGES, TEST_IMAGES
from crate_mae.reproduce.scales import IMAGENET, Scale, Size, Timed, Variant

SOURCE = "tiny_imagenet"
VARIANTS: tuple[Variant, ...] = ("crate", "residual", "vit")
PRETRAIN_SECONDS = 90.0
"""Processor time of a pretraining without --hours: all tasks of a seed then take about an hour on one core."""
FINETUNE_SHARE = 1 / 3
"""The length of a fine-tuning, as a fraction of a pretraining's."""
LAYER_DECAY = 0.7
"""In fine-tuning, from pretrained and from random weights alike."""
FIGURE_IMAGES = 1_000

COURSES = {
    # Sets of 64 px or less keep their size, larger images are cropped from 72 px.
    data: Course(data, image_size=64, patch_size=8, stored_size=stored)
    for data, stored in {SOURCE: 64, "cifar10": 64, "cifar100": 64, "flowers102": 72, "oxford_pets": 72}.items()
}
_WHITE_BOX: dict[Size, dict[str, int]] = {
    "small": {"dim": 128, "depth": 3, "heads": 4},
    "base": {"dim": 192, "depth": 4, "heads": 6},
}
_VIT: dict[Size, dict[str, int]] = {
    "small": {"dim": 96, "depth": 3, "heads": 3},
    "base": {"dim": 192, "depth": 4, "heads": 6},
}
"""As in table 1, ViT-MAE-S is about a third narrower than CRATE-S, and ViT-MAE-B is as wide as CRATE-B."""

_DECODER = {"decoder_dim": 128, "decoder_depth": 2, "decoder_heads": 4}
_TRAINING: dict[str, Any] = {"optimiser": "muon", "learning_rate": 4e-3, "batch": 64, "layer_decay": LAYER_DECAY}


def recipes() -> dict[tuple[Variant, Size], Recipe]:
    """The paper's form with its mirrored decoder; the others with narrow ones, which a search found best (docs/log.md).

    They are defined apart from the race's recipes, so that a change there does not affect a running campaign.
    """
    found: dict[tuple[Variant, Size], Recipe] = {}
    for size in _WHITE_BOX:
        crate: dict[str, Any] = _WHITE_BOX[size] | {"eta": 0.1}
        vit: dict[str, Any] = dict(_VIT[size])
        found["crate", size] = Recipe("crate", "crate_mae_tiny", crate, **_TRAINING)
        found["residual", size] = Recipe("residual", "crate_mae_tiny_residual", crate | _DECODER, **_TRAINING)
        found["vit", size] = Recipe("vit", "vit_mae_small", vit | _DECODER | {"decoder_depth": 1}, **_TRAINING)
    return found


def desk(pretrain_seconds: float = PRETRAIN_SECONDS, speed: float = 1.0) -> Scale:
    """All models of the campaign, each trained for the same seconds of processor time."""
    finetune_seconds = round(pretrain_seconds * FINETUNE_SHARE, 1)
    words = (
        f"Photographs at 64 px, patches of 8 x 8. Every model is pretrained once on Tiny ImageNet without labels, for "
        f"{pretrain_seconds:g} s of processor time of one core, and shared by all tables. Fine-tuning of all weights: "
        f"{finetune_seconds:g} s of processor time, from the mean of the patches. Batches of 64; Muon with a peak "
        f"learning rate of {_TRAINING['learning_rate']:g} in pretraining, AdamW with 1e-3 and a layer decay of "
        f"{LAYER_DECAY:g} in fine-tuning. Products are computed in bfloat16 where the processor has instructions for "
        "it. -S and -B are sizes of our own (CRATE d 128, 3 layers and d 192, 4 layers, its decoder as deep and wide "
        "in the paper's form and 2 layers of 128 in the residual form; ViT-MAE d 96, 3 layers and d 192, 4 layers, "
        "decoder 1 layer of 128); eta = 0.1 in both forms of CRATE. Probes are "
        f"fitted to {PROBE_IMAGES:,} training images at most, and everything is tested on {TEST_IMAGES:,} test images "
        "at most. Compare the pattern with the paper's numbers, not the values."
    )
    return Scale(
        name="desk",
        protocol=words,
        kinds=TIMED,
        variants=VARIANTS,
        sets=tuple(paper.SETS),
        probed=("cifar10",),
        completed=(SOURCE, IMAGENET),
        shown=SOURCE,
        images=FIGURE_IMAGES,
        source=SOURCE,
        timed=Timed(pretrain_seconds, finetune_seconds, recipes(), COURSES, speed),
    )
