import numpy as np
import pytest
import torch

from crate_mae.analysis.subspaces import incoherence
from tests.conftest import small_model


def test_both_forms_pair_by_pair() -> None:
    model = small_model("crate_mae_tiny")
    found = incoherence(model.encoder)
    assert not isinstance(found, str)
    for layer, block in enumerate(model.encoder.blocks):
        U = block.bases.detach().double().numpy()
        for k in range(4):
            for l in range(4):  # noqa: E741
                raw = np.linalg.svd(U[k].T @ U[l])[1].max()
                assert found.raw[layer, k, l] == pytest.approx(raw)
                # the largest cosine between two subspaces through their projectors
                P, Q = (basis @ np.linalg.pinv(basis) for basis in (U[k], U[l]))
                assert found.orthonormal[layer, k, l] == pytest.approx(np.linalg.norm(P @ Q, 2))
        values = np.concatenate([np.linalg.svd(basis)[1] for basis in U])
        assert found.stretch[layer] == pytest.approx([values.min(), values.max()])
        off = [found.orthonormal[layer, k, l] for k in range(4) for l in range(4) if k != l]  # noqa: E741
        assert found.mean[layer] == pytest.approx(np.mean(off))
        assert found.largest[layer] == pytest.approx(max(off))


def test_orthogonal_bases_are_incoherent() -> None:
    model = small_model("crate_mae_tiny")
    with torch.no_grad():
        for block in model.encoder.blocks:
            block.mssa.subspaces.copy_(2 * torch.eye(16))
    found = incoherence(model.encoder)
    assert not isinstance(found, str)
    assert found.largest.max() == 0
    assert np.diagonal(found.orthonormal, axis1=1, axis2=2) == pytest.approx(1)
    assert np.diagonal(found.raw, axis1=1, axis2=2) == pytest.approx(4)
    assert found.stretch == pytest.approx(np.full((2, 2), 2.0))


def test_the_level_of_chance() -> None:
    model = small_model("crate_mae_tiny", dim=480, heads=6, depth=1)
    torch.nn.init.normal_(model.encoder.blocks[0].mssa.subspaces, generator=torch.Generator().manual_seed(0))
    found = incoherence(model.encoder)
    assert not isinstance(found, str)
    assert found.mean[0] == pytest.approx(found.by_chance, abs=0.02)


def test_where_there_is_nothing_to_compare_it_says_so() -> None:
    assert "no subspaces" in str(incoherence(small_model("vit_mae_base").encoder))
    assert "only one subspace" in str(incoherence(small_model("crate_mae_tiny", heads=1).encoder))
