"""Compression beside denoising: the two vector fields of the paper's figure, and MSSA beside the gradient.

The paper holds that -grad R^c(Z | U) and the score of the noisy mixture point the same way. Both are taken at the same
tokens here, and compared token by token.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from crate_mae.operators import mssa_tied
from crate_mae.theory.mixture import Draw, Mixture, score
from crate_mae.theory.rates import compression_rate_gradient, lift, project


@dataclass(frozen=True)
class Agreement:
    """How far compression does what denoising does, as means over the tokens of a draw."""

    raw: float
    """Mean cosine between -grad R^c and the score."""
    across: float
    """The same with the part along each token's own subspace taken out of both."""
    selectivity: float
    """How many times faster the step shrinks the noise across the token's subspace than the signal in it.

    A denoiser's is large, infinite where it leaves the signal alone; 1 is a uniform shrinkage of everything towards
    zero, which denoises nothing.
    """


def cosine(a: Float[Tensor, "*b d N"], b: Float[Tensor, "*b d N"]) -> Float[Tensor, "*b N"]:
    """The cosine between a_i and b_i for each token; 0 where one of them is zero."""
    return torch.nn.functional.cosine_similarity(a, b, dim=-2)


def compression_field(Z: Float[Tensor, "*b d N"], U: Float[Tensor, "K d p"], epsilon: float) -> Float[Tensor, "*b d N"]:
    """-grad R^c(Z | U): the direction of compression for tokens that are coded together."""
    return -compression_rate_gradient(Z, U, epsilon)


def compression_field_alone(
    Z: Float[Tensor, "*b d N"], U: Float[Tensor, "K d p"], epsilon: float
) -> Float[Tensor, "*b d N"]:
    """-grad R^c of each token coded by itself, N = 1: the field that a picture of one point at a time shows."""
    return -compression_rate_gradient(Z.mT.unsqueeze(-1), U, epsilon).squeeze(-1).mT


def across(V: Float[Tensor, "d N"], U: Float[Tensor, "K d p"], memberships: Int[Tensor, " N"]) -> Float[Tensor, "d N"]:
    """v_i - U_s U_s^T v_i with s the subspace of token i: the part of a field that leaves the subspace."""
    own = memberships == torch.arange(len(U), device=V.device)[:, None]
    return V - lift(project(V, U) * own[:, None, :], U)


def agreement(mixture: Mixture, drawn: Draw, field: Float[Tensor, "d N"]) -> Agreement:
    """Compare a compression field with the mixture's score at the same tokens; bases orthonormal."""
    U, members = mixture.subspaces, drawn.memberships
    target = score(mixture, drawn.tokens)
    noise = across(drawn.noise, U, members)
    rate_across = (field * noise).sum() / noise.square().sum()
    rate_along = (field * drawn.signal).sum() / drawn.signal.square().sum()
    return Agreement(
        float(cosine(field, target).mean()),
        float(cosine(across(field, U, members), across(target, U, members)).mean()),
        float(rate_across / rate_along),
    )


def mssa_cosines(Z: Float[Tensor, "d N"], U: Float[Tensor, "K d p"], epsilon: float) -> tuple[float, float]:
    """The cosine between MSSA(Z | U) (eq:mssa) and -grad R^c(Z | U), raw and beyond the span of {U_k U_k^T Z}.

    Frobenius inner products. The second takes the projection onto the span of the K matrices U_k U_k^T Z out of both:
    what is left is what the tokens do to each other.
    """
    attention = mssa_tied(Z.mT, U.mT.flatten(0, 1), len(U), epsilon).mT
    compression = compression_field(Z, U, epsilon)
    shadows = (U @ project(Z, U)).flatten(1)
    left, singular, _ = torch.linalg.svd(shadows.T, full_matrices=False)
    # a subspace that no token touches, or two that coincide, add nothing to the span
    basis = left[:, singular > singular.max() * len(left) * torch.finfo(Z.dtype).eps]
    cosines = []
    for a, b in [
        (attention.flatten(), compression.flatten()),
        tuple(m.flatten() - basis @ (basis.T @ m.flatten()) for m in (attention, compression)),
    ]:
        cosines.append(float(a @ b / (a.norm() * b.norm())))
    return cosines[0], cosines[1]
