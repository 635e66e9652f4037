from pathlib import Path

import numpy as np
import pytest
import torch

import crate_mae
from crate_mae.analysis.attention import attention_maps
from tests.conftest import small_model
from tests.models.test_convert import GOLDEN, OWN, imported, read


def test_maps_are_distributions(model: crate_mae.MaskedAutoencoder, images: torch.Tensor) -> None:
    for convention in ("paper", "authors"):
        found = attention_maps(model, images, -1, convention)
        assert found.maps.shape == (3, 4, 3, 4)
        np.testing.assert_allclose(found.maps.sum((-2, -1)) + found.on_itself, 1, rtol=1e-5)
        assert (found.maps >= 0).all()
        assert (found.on_itself > 0).all() == (convention == "authors")


@torch.no_grad()
def test_the_papers_formula_entry_by_entry(images: torch.Tensor) -> None:
    model = small_model("crate_mae_tiny", depth=3)
    found = attention_maps(model, images)
    assert found.layer == 2
    _, _, tokens = next(model.encoder.steps(model.embed(images)))  # Z^2 enters the last layer but one
    block = model.encoder.blocks[1]
    for image in range(3):
        for head, U in enumerate(block.bases):
            weights = [float(torch.exp((U.T @ tokens[image, i]) @ (U.T @ tokens[image, 0]))) for i in range(1, 13)]
            expected = np.array(weights).reshape(3, 4) / sum(weights)
            np.testing.assert_allclose(found.maps[image, head], expected, rtol=1e-4)


@torch.no_grad()
def test_the_ordinary_layers_formula_entry_by_entry(images: torch.Tensor) -> None:
    model = small_model("vit_mae_base_he")
    torch.nn.init.normal_(model.encoder.blocks[0].mixer.qkv.bias)
    found = attention_maps(model, images, layer=1)
    tokens, linear = model.embed(images), model.encoder.blocks[0].mixer.qkv
    for head in range(4):
        rows = slice(head * 4, head * 4 + 4)
        Q, q = linear.weight[:16][rows], linear.bias[:16][rows]
        K, k = linear.weight[16:32][rows], linear.bias[16:32][rows]
        weights = [float(torch.exp((K @ tokens[0, i] + k) @ (Q @ tokens[0, 0] + q))) for i in range(1, 13)]
        np.testing.assert_allclose(found.maps[0, head].flatten(), np.array(weights) / sum(weights), rtol=1e-4)


@pytest.mark.parametrize(
    ("file", "key"),
    [(OWN, "unmasked_layer.attention"), (GOLDEN, "unmasked_last_layer_attention")],
    ids=["own", "authors"],
)
def test_the_authors_convention_is_the_golden_map(file: Path, key: str) -> None:
    if not file.is_file():
        pytest.skip("the authors' golden tensors are not beside the checkout")
    weights, io, config = read(file)
    found = attention_maps(imported(weights, config), io["images"], -1, "authors")
    golden = io[key][:, :, 0].numpy()
    np.testing.assert_allclose(found.maps.reshape(golden[..., 1:].shape), golden[..., 1:], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.on_itself, golden[..., 0], rtol=1e-5, atol=1e-6)


def test_a_layer_that_is_not_there(images: torch.Tensor) -> None:
    for convention in ("paper", "authors"):
        with pytest.raises(crate_mae.UserError, match="no layer 3"):
            attention_maps(small_model("crate_mae_tiny"), images, 3, convention)
    assert attention_maps(small_model("crate_mae_tiny", depth=1), images).layer == 1
