"""Compression compared with denoising: the two vector fields of the paper's figure, and MSSA against the gradient.

The paper claims that -grad R^c(Z | U) and the score of the noisy mixture point in the same direction. Both are
evaluated at the same tokens here, and compared token by token.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from crate_mae.operators import mssa_tied
from crate_mae.theory.mixture import Draw, Mixture, score
from crate_mae.theory.rates import compression_rate_gradient, lift, project

REST = 1e-12
"""If a projection leaves less than this fraction of a matrix's squared norm, the remainder is rounding error."""


@dataclass(frozen=True)
class Agreement:
    """How well compression agrees with denoising, averaged over the tokens of a draw."""

    raw: float
    """Mean cosine between -grad R^c and the score."""
    across: float
    """The same after removing from both fields the component within each token's own subspace."""
    selectivity: float
    """How many times faster the step shrinks the noise orthogonal to the token's subspace than the signal in it.

    Large for a denoiser, infinite if it does not change the signal; 1 for a uniform shrinkage of everything towards
    zero, which removes no noise relative to the signal.
    """


def cosine(a: Float[Tensor, "*b d N"], b: Float[Tensor, "*b d N"]) -> Float[Tensor, "*b N"]:
    """The cosine between a_i and b_i for each token; 0 where one of them is zero."""
    return torch.nn.functional.cosine_similarity(a, b, dim=-2)


def compression_field(Z: Float[Tensor, "*b d N"], U: Float[Tensor, "K d p"], epsilon: float) -> Float[Tensor, "*b d N"]:
    """-grad R^c(Z | U): the direction of compression for tokens coded together."""
    return -compression_rate_gradient(Z, U, epsilon)


def compression_field_alone(
    Z: Float[Tensor, "*b d N"], U: Float[Tensor, "K d p"], epsilon: float
) -> Float[Tensor, "*b d N"]:
    """-grad R^c of each token coded alone, N = 1: the field that a plot of one point at a time shows."""
    return -compression_rate_gradient(Z.mT.unsqueeze(-1), U, epsilon).squeeze(-1).mT


def across(V: Float[Tensor, "d N"], U: Float[Tensor, "K d p"], memberships: Int[Tensor, " N"]) -> Float[Tensor, "d N"]:
    """v_i - U_s U_s^T v_i with s the subspace of token i: the component of a field orthogonal to that subspace."""
    own = memberships == torch.arange(len(U), device=V.device)[:, None]
    return V - lift(project(V, U) * own[:, None, :], U)


def agreement(mixture: Mixture, drawn: Draw, field: Float[Tensor, "d N"]) -> Agreement:
    """Compare a compression field with the mixture's score at the same tokens; the bases must be orthonormal."""
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


def mssa_field(Z: Float[Tensor, "*b d N"], U: Float[Tensor, "K d p"], epsilon: float) -> Float[Tensor, "*b d N"]:
    """MSSA(Z | U) (eq:mssa), the paper's approximation of -grad R^c(Z | U)."""
    return mssa_tied(Z.mT, U.mT.flatten(0, 1), len(U), epsilon).mT


def step_cosines(
    step: Float[Tensor, "*s d N"], Z: Float[Tensor, "*b d N"], U: Float[Tensor, "K d p"], epsilon: float
) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
    """The cosine between a step and -grad R^c(Z | U), raw and beyond the span of {U_k U_k^T Z}.

    Inner products are Frobenius. "Beyond the span" means that the projection onto the span of the K matrices
    S_k = U_k U_k^T Z is removed from both; what remains is the interaction between tokens. With G_kl = <S_k, S_l> and
    a_k = <S_k, A> it needs only

        <A - P A, B - P B> = <A, B> - a^T G^+ b.

    0 where one of the two is zero or lies in the span. ``step`` may have leading dimensions that Z does not have.
    """
    field = compression_field(Z, U, epsilon).expand_as(step)
    W, joined = project(Z, U), U.permute(1, 0, 2).flatten(1)
    stacked = W.flatten(-3, -2)
    products = (joined.mT @ joined) * (stacked @ stacked.mT)
    gram = products.unflatten(-1, W.shape[-3:-1]).unflatten(-3, W.shape[-3:-1]).sum((-3, -1))
    # singular if all tokens are orthogonal to a subspace, or if two subspaces coincide
    inverse = torch.linalg.pinv(gram, hermitian=True)
    a, b = ((project(M, U) * W).sum((-2, -1)) for M in (step, field))

    def inner(A: Tensor, B: Tensor, a: Tensor, b: Tensor) -> Float[Tensor, "2 *s"]:
        raw = (A * B).sum((-2, -1))
        return torch.stack([raw, raw - torch.einsum("...k,...kl,...l->...", a, inverse, b)])

    of_step, of_field = inner(step, step, a, a), inner(field, field, b, b)
    left = (of_step > REST * of_step[0]) & (of_field > REST * of_field[0])
    cosine = torch.where(left, inner(step, field, a, b) / torch.where(left, of_step * of_field, 1).sqrt(), 0)
    raw, beyond = cosine.clamp(-1, 1)
    return raw, beyond


def mssa_cosines(Z: Float[Tensor, "d N"], U: Float[Tensor, "K d p"], epsilon: float) -> tuple[float, float]:
    """``step_cosines`` of MSSA(Z | U)."""
    raw, beyond = step_cosines(mssa_field(Z, U, epsilon), Z, U, epsilon)
    return float(raw), float(beyond)
