"""Look inside a model from Python: curves over the layers, attention maps, and how well the decoder undoes the encoder.

    python examples/look_inside.py                              # a tiny model with random weights
    python examples/look_inside.py runs/demo/checkpoints/best   # a checkpoint of your own that takes digits

Three figures are written to runs/look_inside. The same lines work in a notebook, without ``savefig``.
"""

import sys
from pathlib import Path

import matplotlib
import torch

import crate_mae
from crate_mae.analysis.attention import attention_maps
from crate_mae.analysis.layerwise import layer_curves
from crate_mae.analysis.undoing import undoing
from crate_mae.data.open import open_dataset

matplotlib.use("Agg")  # a notebook leaves this out
import matplotlib.pyplot as plt

OUT = Path("runs/look_inside")


def main(checkpoint: str | None) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    model = crate_mae.load(checkpoint) if checkpoint else tiny_model()
    source = open_dataset("digits", "test")
    images = torch.stack([model.preprocess(source.read(index)) for index in range(48)])
    mask = crate_mae.random_mask(len(images), model.num_patches, 0.75, generator=torch.Generator().manual_seed(0))

    with torch.no_grad():
        encoder = layer_curves(model.encoder, (model.embed(part) for part in images.split(16)))
        decoder = layer_curves(model.decoder, [model.hand_over(model.encode(images, mask), mask)])
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for ax, (name, label) in zip(
        axes, [("compression", "$R^c$, nats"), ("sparsity", "fraction not zero")], strict=True
    ):
        for stack, curves, first in [("encoder", encoder, 1), ("decoder", decoder, 0)]:
            layers = range(first, first + len(curves[name].mean))
            ax.errorbar(layers, curves[name].mean, curves[name].spread, fmt="o-", capsize=3, label=stack)
        ax.set(xlabel="layer", ylabel=label, title=name)
        ax.legend()
    figure.savefig(OUT / "layers.png")

    maps = attention_maps(model, images[:1])  # the last layer but one, by the paper's formula
    figure, axes = plt.subplots(1, maps.maps.shape[1], figsize=(9, 2.2), layout="constrained")
    for head, ax in enumerate(axes):
        drawn = ax.imshow(maps.maps[0, head], vmin=0, vmax=maps.maps.max())
        ax.set(title=f"head {head + 1}", xticks=[], yticks=[])
    figure.colorbar(drawn, ax=axes, label="weight")
    figure.savefig(OUT / "attention.png")

    found = undoing(model, images.split(16))
    figure, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
    layers = range(1, len(found.alignment) + 1)
    ax.plot(layers, found.alignment, "o-", label="undone by the decoder")
    ax.plot(layers, found.alignment_left_alone, "o-", label="left alone")
    ax.set(xlabel="encoder layer", ylabel="linear CKA with the layer's input")
    ax.legend()
    figure.savefig(OUT / "undoing.png")

    print(f"R^c over the encoder's layers: {encoder['compression'].mean.round(1)} nats")
    print(f"Three figures in {OUT}")


def tiny_model() -> crate_mae.MaskedAutoencoder:
    """Four layers with random weights: the numbers mean nothing, but all of them are there."""
    generator = torch.Generator().manual_seed(0)
    shape = {"image_size": 8, "patch_size": 2, "channels": 1, "dim": 48, "depth": 4, "heads": 4}
    return crate_mae.create_model("crate_mae_tiny", generator=generator, **shape)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
