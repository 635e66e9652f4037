import pytest
import torch

from crate_mae import UserError
from crate_mae.analysis.layerwise import layer_curves, sparsity
from tests.conftest import small_model


def test_both_curves_against_the_definition_image_by_image() -> None:
    model = small_model("crate_mae_tiny").double()
    images = torch.randn(5, 3, 12, 24).double()
    curves = layer_curves(model, images.split(2), epsilon=0.3)
    assert curves.compression.values.shape == curves.sparsity.values.shape == (5, 2)
    for i in range(5):
        for layer, (half, full) in enumerate(model.encoder.steps(model.embed(images[i : i + 1]))):
            Z, rate = half[0].T, 0.0
            d, n = Z.shape
            p = d // 4
            for U in model.encoder.blocks[layer].mssa.bases:
                W = U.T @ Z
                rate += 0.5 * torch.linalg.slogdet(torch.eye(n) + p / (n * 0.3**2) * W.T @ W)[1].item()
            assert curves.compression.values[i, layer] == pytest.approx(rate, rel=1e-8)
            nonzero = sum(1 for value in full.flatten().tolist() if value != 0)
            assert curves.sparsity.values[i, layer] == pytest.approx(nonzero / (d * n))
    assert curves.compression.mean.tolist() == pytest.approx(curves.compression.values.mean(0).tolist())


def test_sparsity_counts_what_is_not_zero() -> None:
    assert sparsity(torch.tensor([[[0.0, 1.0], [0.0, -2.0]], [[0.0, 0.0], [0.0, 0.0]]])).tolist() == [0.5, 0.0]


def test_a_family_without_subspaces_says_so() -> None:
    with pytest.raises(UserError, match="subspaces"):
        layer_curves(small_model("vit_mae_base"), [torch.randn(1, 3, 12, 24)])
