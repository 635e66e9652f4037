"""A scale for tests: the desk's, with two steps, one small size for all, two sets and a few images."""

from dataclasses import replace

from crate_mae.reproduce.scales import Scale, desk

SIZES = {"dim": 16, "depth": 2, "heads": 2}
DECODER = {"decoder_dim": 16, "decoder_depth": 1, "decoder_heads": 2}


def tiny() -> Scale:
    scale = desk()
    short = {"steps": 2, "batch": 8, "checkpoint_every": 1, "evaluation_images": 16}

    def shrink(config):  # type: ignore[no-untyped-def]
        decoder = DECODER if config.model.startswith("vit") else {}
        return replace(config.evaluated_every(2), **short, model_settings=config.model_settings | SIZES | decoder)

    return replace(
        scale,
        name="tiny",
        sets=("digits", "cifar10"),
        images=32,
        pretrain={key: shrink(config) for key, config in scale.pretrain.items()},
        finetune={key: shrink(config) for key, config in scale.finetune.items()},
    )
