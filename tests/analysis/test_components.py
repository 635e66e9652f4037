import numpy as np
import pytest
import torch

from crate_mae import MaskedAutoencoder, UserError
from crate_mae.analysis.components import components
from tests.conftest import small_model


def patches_of(model: MaskedAutoencoder, images: torch.Tensor, layer: int) -> np.ndarray:
    """[U_1^T z; ..; U_K^T z] for every patch, by numpy."""
    with torch.no_grad():
        tokens = model.embed(images)
        for block in model.encoder.blocks[:layer]:
            tokens = block(tokens)
        U = model.encoder.blocks[layer].bases.double().numpy()
        Z = tokens[:, 1:].double().numpy().reshape(-1, 16)
        return np.concatenate([Z @ basis for basis in U], 1)


def test_the_procedure_by_numpys_svd(images: torch.Tensor) -> None:
    model = small_model("crate_mae_tiny")
    found = components(model, images, layer=2, threshold=0.4)
    Z = patches_of(model, images, 1)
    u0 = np.linalg.svd(Z, full_matrices=False)[2][0]
    first = found.first.flatten()
    np.testing.assert_allclose(np.abs(first), np.abs(Z @ u0), atol=1e-6)
    assert found.cut == pytest.approx(0.4 * np.sqrt(np.mean((Z @ u0) ** 2)))
    kept = first >= found.cut
    assert np.array_equal(found.kept.flatten(), kept)
    inner = np.zeros((3, 4), bool)
    inner[1, 1:3] = True
    border = ~np.tile(inner.flatten(), 3)
    other = -first >= found.cut
    assert kept[border].sum() <= other[border].sum() or other.sum() < 3
    assert found.border_kept == pytest.approx(kept[border].mean())
    values, axes = np.linalg.svd(Z[kept], full_matrices=False)[1:]
    np.testing.assert_allclose(found.energy, values[:3] ** 2 / (Z[kept] ** 2).sum(), rtol=1e-6)
    projections = found.projections.reshape(-1, 3)
    np.testing.assert_allclose(np.abs(projections[kept]), np.abs(Z[kept] @ axes[:3].T), atol=1e-6)
    assert np.isnan(projections[~kept]).all()
    assert (projections[kept].sum(0) > 0).all()
    assert np.nanmin(found.colours, (0, 1, 2)) == pytest.approx([0, 0, 0])
    assert np.nanmax(found.colours, (0, 1, 2)) == pytest.approx([1, 1, 1])


def test_nothing_is_centred() -> None:
    """Tokens that all lie near one direction: an uncentred first component sees it, a centred one does not."""
    model = small_model("crate_mae_tiny", positions="fixed")
    with torch.no_grad():
        model.embedding.projection.weight.mul_(0.01)
        model.embedding.positions.table.normal_(std=0.01).add_(1.0)
    found = components(model, torch.randn(2, 3, 12, 24), layer=1, threshold=0.5)
    assert found.kept.all()
    assert found.energy[0] > 0.95


def test_the_sign_keeps_the_middle() -> None:
    """Patches in the middle are the opposite of those on the border: they stay, and the border goes."""
    model = small_model("crate_mae_tiny", positions="fixed", image_size=(20, 30))
    direction = torch.randn(16)
    with torch.no_grad():
        model.embedding.projection.weight.mul_(1e-3)
        table = direction.repeat(26, 1)
        inner = torch.zeros(5, 5, dtype=torch.bool)
        inner[1:-1, 1:-1] = True
        table[1:][inner.flatten()] *= -1.0
        model.embedding.positions.table.copy_(table)
    found = components(model, torch.randn(2, 3, 20, 30), layer=1, threshold=0.5)
    assert np.array_equal(found.kept, np.broadcast_to(inner.numpy(), (2, 5, 5)))
    assert found.border_kept == 0


def test_an_ordinary_layer_gives_its_keys(images: torch.Tensor) -> None:
    model = small_model("vit_mae_base_he")
    found = components(model, images, layer=1, threshold=0.0)
    with torch.no_grad():
        keys = model.encoder.blocks[0].mixer.qkv(model.embed(images))[:, 1:, 16:32].double().flatten(0, 1).numpy()
    expected = np.abs(keys @ np.linalg.svd(keys, full_matrices=False)[2][0])
    np.testing.assert_allclose(np.abs(found.first.flatten()), expected, atol=1e-6)


def test_thresholds_that_leave_nothing_or_mean_nothing(images: torch.Tensor) -> None:
    with pytest.raises(UserError, match="choose a lower one"):
        components(small_model("crate_mae_tiny"), images, threshold=50.0)
    with pytest.raises(UserError, match="from 0 up"):
        components(small_model("crate_mae_tiny"), images, threshold=-1.0)
