"""The listing is the oracle: same weights, same loss, same gradients, same encoding."""

from dataclasses import replace

import pytest
import torch

from crate_mae.bench.contestants import Work, listing, ours
from crate_mae.bench.listing import listing_name, listing_of
from crate_mae.models.architectures import model_config
from crate_mae.models.config import ModelConfig
from tests.bench.tiny import CONFIG

RESIDUAL = model_config(
    "crate_mae_tiny_residual",
    dim=24,
    depth=2,
    heads=3,
    decoder_dim=12,
    decoder_depth=1,
    decoder_heads=2,
    image_size=(16, 16),
    patch_size=(4, 4),
)


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, heads=1, decoder_heads=1), RESIDUAL])
@pytest.mark.parametrize("batch", [1, 4], ids=["fewer tokens than dimensions", "more"])
def test_losses_and_gradients_agree(config: ModelConfig, batch: int) -> None:
    work = Work(config, batch)
    model = work.model().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)  # no bias and no norm that hides a mistake
    plain = listing_of(model)
    images = work.images.double()
    own, theirs = model(images, work.masks).loss, plain(images, work.masks)
    torch.testing.assert_close(own, theirs)
    own.backward()
    theirs.backward()
    others = dict(plain.named_parameters())
    assert {listing_name(name) for name, _ in model.named_parameters()} == others.keys()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, others[listing_name(name)].grad, msg=lambda text, name=name: f"{name}: {text}"
        )
    with torch.no_grad():
        torch.testing.assert_close(model.encode(images), plain.encode(plain.patchify(images)))


def test_the_same_losses_step_by_step() -> None:
    """In float32, with both optimisers: the fused AdamW with parameter groups, and the default one."""
    work = Work(CONFIG, 4)
    own, theirs = ours(work), listing(work)
    for group in own.optimiser.param_groups + theirs.optimiser.param_groups:
        group["weight_decay"] = 0.0
    losses = []
    for _ in range(5):
        losses.append((own.loss().item(), theirs.loss().item()))
        own()
        theirs()
    assert losses[0][0] > losses[-1][0]
    for a, b in losses:
        assert a == pytest.approx(b, rel=1e-5)
