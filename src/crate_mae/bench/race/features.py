"""Features of a course's images, batch by batch."""

from collections.abc import Callable, Collection

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8

from crate_mae.bench.race.images import batch
from crate_mae.bench.race.training import EVALUATED_AT_ONCE
from crate_mae.features.extraction import Which, describe
from crate_mae.models.image_model import ImageModel


@torch.no_grad()
def features_of(
    model: ImageModel,
    pixels: UInt8[np.ndarray, "n H W c"],
    chosen: Int[np.ndarray, " m"],
    wanted: Collection[Which],
    report: Callable[[float], None] = lambda share: None,
) -> dict[Which, Float[np.ndarray, "m d"]]:
    """Each wanted kind of features of the chosen images, nothing masked; ``report`` is told the share that is done."""
    found: dict[Which, list[np.ndarray]] = {which: [] for which in wanted}
    for first in range(0, len(chosen), EVALUATED_AT_ONCE):
        part = batch(pixels, chosen[first : first + EVALUATED_AT_ONCE], model.config)
        for which, values in describe(model, list(wanted), part).items():
            found[which].append(values.numpy())
        report(min(first + EVALUATED_AT_ONCE, len(chosen)) / len(chosen))
    return {which: np.concatenate(parts) for which, parts in found.items()}
