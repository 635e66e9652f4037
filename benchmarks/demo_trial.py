"""One trial for the demo's probe: ``python benchmarks/demo_trial.py --patch 4 4 --mask 0.5 --shift``.

It never reads the demo's test digits. The 1,347 training digits are cut into ``--parts``; with each of the first
``--folds`` parts held out, a model is pretrained on the others, and features of the others are probed on it, C chosen
on a fifth of the others. It prints one line of JSON: the accuracy of raw pixels, of the mean of the patches, and of the
patches side by side, which keep their places as pixels do. With --steps 0 the network is untrained.
"""

import argparse
import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from crate_mae import recipes
from crate_mae.data.named_layouts import split_digits
from crate_mae.evaluation.linear_probe import linear_probe
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.zoo import model_config
from crate_mae.tokens import random_mask
from crate_mae.training.optim import cosine_schedule, optimiser_of, set_learning_rate

STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=("digits", "digits_paper"), default="digits")
    parser.add_argument("--patch", type=int, nargs=2, default=(2, 4))
    parser.add_argument("--dim", type=int, default=192)
    parser.add_argument("--mask", type=float, default=0.75)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--shift", action="store_true", help="move each image by -1, 0 or 1 pixels down and across")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--folds", type=int, default=4)
    given = parser.parse_args(words)
    images, labels = training_digits()
    folds = StratifiedKFold(given.parts, shuffle=True, random_state=0).split(images, labels)
    accuracies: dict[str, list[float]] = {}
    seconds = time.process_time()
    for seed, (others, held_out) in zip(range(given.folds), folds, strict=False):
        model = pretrained(images[others], given, seed)
        train, test = (features(model, images[part]) for part in (others, held_out))
        for name, values in train.items():
            probe = linear_probe(values, labels[others], test[name], labels[held_out], strengths=STRENGTHS, seed=seed)
            accuracies.setdefault(name, []).append(round(probe.accuracy, 2))
    print(json.dumps(vars(given) | accuracies | {"processor seconds": round(time.process_time() - seconds, 1)}))


def training_digits() -> tuple[Float[Tensor, "n 1 8 8"], np.ndarray]:
    """Normalised as the recipe does it, and their labels."""
    digits = split_digits()
    shape = recipes.DIGITS_SHAPE
    pixels = torch.from_numpy((digits.train * 255).round() / 255)[:, None]
    return (pixels - shape["mean"][0]) / shape["std"][0], digits.train_labels


def pretrained(images: Float[Tensor, "n 1 8 8"], given: argparse.Namespace, seed: int) -> MaskedAutoencoder:
    """The recipe with what is ``given`` instead, in a plain loop."""
    recipe = recipes.PRETRAIN[given.recipe]()
    shape = recipe.model_settings | {"patch_size": tuple(given.patch), "dim": given.dim}
    model = MaskedAutoencoder(model_config(recipe.model, **shape), torch.Generator().manual_seed(seed))
    optimiser = optimiser_of(model, recipe.optimiser, recipe.learning_rate, recipe.weight_decay, recipe.betas)
    generator = torch.Generator().manual_seed(seed)
    for step in range(given.steps):
        set_learning_rate(optimiser, cosine_schedule(step, given.steps, recipe.warmup, recipe.learning_rate))
        batch = images[torch.randperm(len(images), generator=generator)[: recipe.batch]]
        if given.shift:
            batch = shifted(batch, generator)
        model(batch, random_mask(len(batch), model.num_patches, given.mask, generator)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    return model.eval()


def shifted(images: Float[Tensor, "b 1 8 8"], generator: torch.Generator) -> Float[Tensor, "b 1 8 8"]:
    """Each image moved by -1, 0 or 1 pixels down and across; what enters is black."""
    black = -recipes.DIGITS_SHAPE["mean"][0] / recipes.DIGITS_SHAPE["std"][0]
    windows = F.pad(images, (1, 1, 1, 1), value=black).unfold(2, 8, 1).unfold(3, 8, 1)
    down, across = torch.randint(0, 3, (2, len(images)), generator=generator)
    return windows[torch.arange(len(images)), :, down, across]


@torch.no_grad()
def features(model: MaskedAutoencoder, images: Float[Tensor, "n 1 8 8"]) -> dict[str, np.ndarray]:
    """By name, one row for each image."""
    patches = model.features(images, pool="grid").flatten(2)
    found = {"pixels": images.flatten(1), "mean": patches.mean(-1), "side by side": patches.flatten(1)}
    return {name: values.numpy() for name, values in found.items()}


if __name__ == "__main__":
    main()
