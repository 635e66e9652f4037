"""Every quantity against a slow, direct computation from the weights, image by image."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import crate_mae
from crate_mae.analysis.layerwise import layer_curves
from crate_mae.analysis.quantities import QUANTITIES, gini, sparsity
from crate_mae.theory import rates
from tests.conftest import MAKES, small_model

EPSILON = 0.3
CRATE = [name for name in MAKES if name.startswith("crate")]


def shaken(name: str) -> crate_mae.MaskedAutoencoder:
    """A model in double precision whose norms and biases are not the identity."""
    model = MAKES[name]().double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def some_images(count: int = 5) -> Tensor:
    return torch.randn(count, 3, 12, 24, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def slow_rate(M: Tensor) -> float:
    """1/2 logdet(I + r / (n eps^2) M^T M) of M (r n), on the side of the tokens."""
    r, n = M.shape
    return 0.5 * torch.linalg.slogdet(torch.eye(n) + r / (n * EPSILON**2) * M.T @ M)[1].item()


def unit(M: Tensor) -> Tensor:
    return torch.stack([column / column.norm() for column in M.T], 1)


def slow_gini(values: np.ndarray) -> float:
    """Half the relative mean absolute difference, over all pairs."""
    values = np.abs(values).flatten()
    return float(np.abs(values[:, None] - values[None]).mean() / (2 * values.mean()))


def slow_angles(step: Tensor, X: Tensor, U: Tensor) -> tuple[float, float]:
    """Degrees to -grad R^c by autograd, raw and with the span of {U_k U_k^T X} projected out by least squares."""
    Z = X.clone().requires_grad_()
    with torch.enable_grad():
        total = sum(
            0.5 * torch.logdet(torch.eye(Z.shape[1]) + u.shape[1] / (Z.shape[1] * EPSILON**2) * (u.T @ Z).T @ (u.T @ Z))
            for u in U
        )
        (gradient,) = torch.autograd.grad(total, Z)
    span = torch.stack([(u @ u.T @ X).flatten() for u in U], 1)

    def angle(a: Tensor, b: Tensor) -> float:
        return math.degrees(math.acos(float(a @ b / (a.norm() * b.norm()))))

    def beyond(M: Tensor) -> Tensor:
        return M - span @ torch.linalg.lstsq(span, M[:, None]).solution[:, 0]

    a, b = step.flatten(), -gradient.flatten()
    return angle(a, b), angle(beyond(a), beyond(b))


def equation(X: Tensor, U: Tensor) -> Tensor:
    """sum_k U_k W_k softmax(W_k^T W_k), whose scale does not matter here."""
    return sum(u @ (u.T @ X) @ ((u.T @ X).T @ (u.T @ X)).softmax(0) for u in U)


def slow(block: torch.nn.Module, tokens: Tensor, decoder: bool) -> tuple[dict[str, float], Tensor]:
    """Every quantity of one white-box layer on one image's tokens (n d), and its output."""
    half, code, output = (part[0] for part in block.step(tokens[None]))
    U = block.mssa.bases
    if decoder:
        X = normed = block.norm_mssa(block.rotation(block.norm_rotation(tokens)))
    else:
        X, normed = block.norm_mssa(tokens), block.norm_ista(half)
    own = block.mssa(X[None])[0]
    raw_own, beyond_own = slow_angles(own.T, X.T, U)
    raw_equation, beyond_equation = slow_angles(equation(X.T, U), X.T, U)
    compression = sum(slow_rate(u.T @ half.T) for u in U)
    enters, halved, leaves = (unit(part.T) for part in (tokens, half, output))
    compressions = [sum(slow_rate(u.T @ part) for u in U) for part in (enters, halved, leaves)]
    found = {
        "compression": compression,
        "compression_normed": sum(slow_rate(u.T @ normed.T) for u in U),
        "compression_authors": sum(slow_rate(unit(u.T @ X.T)) for u in U),
        "rate": slow_rate(half.T),
        "rate_reduction": slow_rate(half.T) - compression,
        "compression_step": compressions[1] - compressions[0],
        "sparsity": sum(value != 0 for value in code.flatten().tolist()) / code.numel(),
        "gini": slow_gini(code.numpy()),
        "angle": raw_own,
        "angle_beyond": beyond_own,
        "angle_equation": raw_equation,
        "angle_equation_beyond": beyond_equation,
    }
    if not decoder:
        before, after = (
            slow_rate(part) - rate - block.ista.lambda_ * part.abs().sum().item()
            for part, rate in ((enters, compressions[0]), (leaves, compressions[2]))
        )
        found["objective_step"] = after - before
    else:
        del found["compression_step"]
    return found, output


@torch.no_grad()
@pytest.mark.parametrize("name", CRATE)
@pytest.mark.parametrize("where", ["encoder", "decoder"])
def test_every_quantity_against_its_definition_image_by_image(name: str, where: str) -> None:
    model, images = shaken(name), some_images()
    mask = crate_mae.random_mask(5, 12, 0.5, torch.Generator().manual_seed(0))
    if where == "encoder":
        stack, tokens = model.encoder, model.embed(images)
    else:
        stack, tokens = model.decoder, model.hand_over(model.encode(images, mask), mask)
    curves = layer_curves(stack, tokens.split(2), EPSILON)
    encoder_only = {"compression_step", "objective_step"} if where == "decoder" else set()
    assert curves.curves.keys() == QUANTITIES.keys() - encoder_only
    assert curves.left_out.keys() == encoder_only
    assert curves.images == 5
    expected = {quantity: np.empty((5, len(stack.blocks))) for quantity in curves.curves}
    for index, one in enumerate(tokens):
        for layer, block in enumerate(stack.blocks):
            found, one = slow(block, one, where == "decoder")
            for quantity, value in found.items():
                expected[quantity][index, layer] = value
    for quantity, values in expected.items():
        np.testing.assert_allclose(curves[quantity].mean, values.mean(0), rtol=1e-6, atol=1e-9, err_msg=quantity)
        np.testing.assert_allclose(curves[quantity].spread, values.std(0), rtol=1e-4, atol=1e-9, err_msg=quantity)


def test_compression_is_the_theorys_rate_of_the_same_tokens() -> None:
    model, images = small_model("crate_mae_tiny"), some_images(2).float()
    with torch.no_grad():
        curves = layer_curves(model.encoder, [model.embed(images)])
        for layer, (half, *_) in enumerate(model.encoder.steps(model.embed(images))):
            Z, U = half.mT.double(), model.encoder.blocks[layer].bases.double()
            assert curves["compression"].mean[layer] == float(rates.compression_rate(Z, U, 0.1).mean())
            assert curves["rate"].mean[layer] == float(rates.coding_rate(Z, 0.1).mean())


def test_a_family_without_subspaces_has_what_makes_sense_and_says_what_does_not() -> None:
    model = small_model("vit_mae_base")
    curves = layer_curves(model.encoder, [model.embed(some_images().float())])
    assert curves.curves.keys() == {"rate", "sparsity", "gini"}
    assert curves.left_out.keys() == QUANTITIES.keys() - curves.curves.keys()
    assert all("subspaces" in reason for reason in curves.left_out.values())
    assert curves["sparsity"].mean.tolist() == [1, 1]


def test_sparsity_counts_what_is_not_zero() -> None:
    tokens = torch.tensor([[[0.0, 1.0], [0.0, -2.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert sparsity(tokens).tolist() == [0.5, 0.0]


def test_gini_at_its_ends() -> None:
    alike, single, nothing = torch.full((1, 5, 4), -3.0), torch.zeros(1, 5, 4), torch.zeros(1, 5, 4)
    single[0, 2, 1] = 7
    assert gini(alike).item() == pytest.approx(0, abs=1e-6)
    assert gini(single).item() == pytest.approx(1 - 1 / 20)
    assert gini(nothing).item() == 0
