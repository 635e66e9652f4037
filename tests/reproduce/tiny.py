"""A scale for tests: that of digits, with two steps, one small size for all, and a few images."""

from dataclasses import replace

from crate_mae.reproduce.run_scales import digits
from crate_mae.reproduce.scales import Scale

SIZES = {"dim": 16, "depth": 2, "heads": 2}
DECODER = {"decoder_dim": 16, "decoder_depth": 1, "decoder_heads": 2}


def tiny() -> Scale:
    scale = digits()
    short = {"steps": 2, "batch": 8, "checkpoint_every": 1, "evaluation_images": 16}

    def shrink(config):  # type: ignore[no-untyped-def]
        decoder = DECODER if config.model.startswith("vit") else {}
        return replace(config.evaluated_every(2), **short, model_settings=config.model_settings | SIZES | decoder)

    return replace(
        scale,
        name="tiny",
        images=32,
        pretrain={key: shrink(config) for key, config in scale.pretrain.items()},
        finetune={key: shrink(config) for key, config in scale.finetune.items()},
    )
