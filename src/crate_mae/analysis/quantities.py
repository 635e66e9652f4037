"""What is measured at a layer: one definition of each quantity, used by every curve, figure and report.

Layer l takes tokens Z^l and computes Z^{l+1/2} and then Z^{l+1} (``Block.step``). All tokens count, including the class
token, so N is the number of patches plus one. In the decoder read Y and V for Z and U. Z^{l+1/2} is the result of MSSA
in the encoder, and the input of MSSA in the decoder, which works in reverse order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.models.stack import Block, Step, Tokens
from crate_mae.theory import rates
from crate_mae.theory.equivalence import mssa_field, step_cosines

Columns = Float[Tensor, "b d N"]  # tokens as the theory has them
PerImage = Float[Tensor, " b"]


@dataclass(frozen=True)
class View:
    """One layer and its results on a batch; everything is measured in double precision if the device has it."""

    block: Block
    tokens: Tokens
    """Z^l."""
    step: Step
    """Z^{l+1/2}, the code A^{l+1} and Z^{l+1}."""
    epsilon: float
    """The quantisation precision in every rate."""

    @cached_property
    def bases(self) -> Float[Tensor, "K d p"]:
        """U^l; used only if the layer has subspaces."""
        assert self.block.bases is not None
        return wide(self.block.bases)

    @cached_property
    def entering(self) -> Columns:
        """Z^l."""
        return wide(self.tokens).mT

    @cached_property
    def half(self) -> Columns:
        """Z^{l+1/2}."""
        return wide(self.step.half).mT

    @cached_property
    def normed_half(self) -> Columns:
        """Z^{l+1/2} after the layer norm that follows it."""
        return wide(self.block.normed_half(self.step.half)).mT

    @cached_property
    def code(self) -> Float[Tensor, "b m N"]:
        """A^{l+1}: the sparse code of an encoder layer, Z^{l+1} itself in the paper's form."""
        return wide(self.step.code).mT

    @cached_property
    def leaving(self) -> Columns:
        """Z^{l+1}."""
        return wide(self.step.tokens).mT

    @cached_property
    def attended(self) -> Columns:
        """X: the input of MSSA, after the layer norm before it."""
        return wide(self.block.attended(self.tokens)).mT

    @cached_property
    def angles(self) -> tuple[Float[Tensor, "2 b"], Float[Tensor, "2 b"]]:
        """Angles in degrees between -grad R^c(X | U) and the layer's own MSSA of X, then the equation's MSSA(X | U).

        First raw, then with the span of {U_k U_k^T X} removed from both.
        """
        own = wide(self.block.attend(self.block.attended(self.tokens))).mT
        steps = torch.stack([own, mssa_field(self.attended, self.bases, self.epsilon)])
        raw, beyond = step_cosines(steps, self.attended, self.bases, self.epsilon)
        return raw.acos().rad2deg(), beyond.acos().rad2deg()

    def compression(self, tokens: Columns) -> PerImage:
        """R^c(. | U^l) of tokens that are scaled to norm 1, so that only their directions count."""
        return rates.compression_rate(tokens, self.bases, self.epsilon, unit_norm=True)

    def objective(self, tokens: Columns) -> PerImage:
        """Delta R(. | U^l) - lambda ||.||_1 of tokens that are scaled to norm 1, with the layer's own lambda."""
        assert self.block.threshold is not None
        return rates.sparse_rate_reduction(
            tokens, self.bases, self.epsilon, self.block.threshold, norm="l1", unit_norm=True
        )


def wide(tensor: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Double precision, except on Apple's GPUs, which lack it."""
    return tensor.detach().to(torch.float32 if tensor.device.type == "mps" else torch.float64)


def sparsity(tokens: Float[Tensor, "b r c"]) -> PerImage:
    """||Z||_0 / (d N): the fraction of non-zero entries."""
    return (tokens != 0).to(tokens.dtype).mean((-2, -1))


def gini(tokens: Float[Tensor, "b r c"]) -> PerImage:
    """The Gini index of the magnitudes |z|: 0 if all are equal, close to 1 if a few entries dominate.

        1 - 2 sum_i (c_i / ||c||_1) (n - i + 1/2) / n   with c_1 <= .. <= c_n the sorted magnitudes

    Unlike a count of zeros it also separates small entries from large ones. 0 if every entry is zero.
    """
    sizes = tokens.abs().flatten(1).sort(1).values
    n = sizes.shape[1]
    weights = (n - torch.arange(1, n + 1, dtype=sizes.dtype, device=sizes.device) + 0.5) / n
    total = sizes.sum(1)
    return torch.where(total > 0, 1 - 2 * (sizes @ weights) / torch.where(total > 0, total, 1), 0)


@dataclass(frozen=True)
class Quantity:
    """A number for each layer and image."""

    title: str
    symbol: str
    """In TeX, without the dollar signs."""
    unit: str
    definition: str
    """One sentence for a reader of the report."""
    of: Callable[[View], PerImage]
    needs_subspaces: bool = True
    needs_threshold: bool = False

    def why_not(self, block: Block) -> str | None:
        """Why the quantity is not defined for a layer; None if it is."""
        if self.needs_subspaces and block.bases is None:
            return "it needs the subspaces U of a white-box layer, and this family has none"
        if self.needs_threshold and block.threshold is None:
            return "it is defined for a layer that compresses and then sparsifies; a decoder layer does the reverse"
        return None


QUANTITIES: dict[str, Quantity] = {
    "compression": Quantity(
        "compression, raw",
        r"R^c(Z^{\ell+1/2}\,|\,U^\ell)",
        "nats",
        "The coding rate of the tokens at the half step against the layer's subspaces, as the paper's figure has it: "
        "raw tokens and raw bases.",
        lambda at: rates.compression_rate(at.half, at.bases, at.epsilon),
    ),
    "compression_normed": Quantity(
        "compression, after the norm",
        r"R^c(\mathrm{LN}\,Z^{\ell+1/2}\,|\,U^\ell)",
        "nats",
        "The same after the layer norm that follows the half step, which removes the effect of growing token norms.",
        lambda at: rates.compression_rate(at.normed_half, at.bases, at.epsilon),
    ),
    "compression_authors": Quantity(
        "compression, authors' convention",
        r"R^c(\mathrm{unit}\;U^{\ell\top}\mathrm{LN}\,Z^\ell)",
        "nats",
        "The input of MSSA, LN Z^l in the encoder, projected by each U_k, with every projected token scaled to norm 1: "
        "the convention of the authors' script for their supervised model.",
        lambda at: rates.projected_compression_rate(rates.project(at.attended, at.bases), at.epsilon, unit_norm=True),
    ),
    "rate": Quantity(
        "rate of all tokens",
        r"R(Z^{\ell+1/2})",
        "nats",
        "The coding rate of the tokens at the half step, without subspaces.",
        lambda at: rates.coding_rate(at.half, at.epsilon),
        needs_subspaces=False,
    ),
    "rate_reduction": Quantity(
        "rate reduction",
        r"\Delta R(Z^{\ell+1/2}\,|\,U^\ell)",
        "nats",
        "The rate of all tokens minus the compression, both raw. With learned bases it can be negative.",
        lambda at: rates.rate_reduction(at.half, at.bases, at.epsilon),
    ),
    "compression_step": Quantity(
        "compression, change by MSSA",
        r"R^c(Z^{\ell+1/2}\,|\,U^\ell) - R^c(Z^\ell\,|\,U^\ell)",
        "nats",
        "The compression of the half step minus that of the tokens that enter the layer, each token scaled to norm 1: "
        "below 0 if the first half of the layer compresses.",
        lambda at: at.compression(at.half) - at.compression(at.entering),
        needs_threshold=True,
    ),
    "objective_step": Quantity(
        "sparse rate reduction, change by the layer",
        r"L(Z^{\ell+1}\,|\,U^\ell) - L(Z^\ell\,|\,U^\ell)",
        "nats",
        "The objective L = R - R^c - lambda ||.||_1 of the tokens that leave the layer minus that of those that enter "
        "it, against the layer's own subspaces and with its lambda, each token scaled to norm 1: above 0 if the layer "
        "improves the objective.",
        lambda at: at.objective(at.leaving) - at.objective(at.entering),
        needs_threshold=True,
    ),
    "sparsity": Quantity(
        "non-zero entries of the code",
        r"\|A^{\ell+1}\|_0\,/\,(mN)",
        "fraction of entries",
        "The fraction of entries of the layer's sparse code that are not exactly zero; lower is sparser. A token's "
        "code has m entries; in the paper's form m = d and the code is the layer's output.",
        lambda at: sparsity(at.code),
        needs_subspaces=False,
    ),
    "gini": Quantity(
        "Gini index of the code",
        r"\mathrm{Gini}(|A^{\ell+1}|)",
        "0 to 1",
        "How unequal the magnitudes of the code's entries are: 0 if all are equal, close to 1 if a few dominate.",
        lambda at: gini(at.code),
        needs_subspaces=False,
    ),
    "angle": Quantity(
        "angle of the layer's own step",
        r"\angle(\mathrm{MSSA},\,-\nabla R^c)",
        "degrees",
        "Between the output of the layer's MSSA for its input X and -grad R^c(X | U): 0 if the layer follows the "
        "negative gradient, 90 if it is orthogonal to it, above 90 if it expands.",
        lambda at: at.angles[0][0],
    ),
    "angle_beyond": Quantity(
        "the same, span removed",
        r"\angle(\mathrm{MSSA},\,-\nabla R^c)",
        "degrees",
        "The same with the span of {U_k U_k^T X} removed from both: the interaction between tokens.",
        lambda at: at.angles[1][0],
    ),
    "angle_equation": Quantity(
        "angle of the equation's step",
        r"\angle(\mathrm{MSSA}(X|U),\,-\nabla R^c)",
        "degrees",
        "As the first angle, with MSSA as in the paper's equation: [U_1 .. U_K] in place of a learned output map.",
        lambda at: at.angles[0][1],
    ),
    "angle_equation_beyond": Quantity(
        "the equation's, span removed",
        r"\angle(\mathrm{MSSA}(X|U),\,-\nabla R^c)",
        "degrees",
        "The same with the span of {U_k U_k^T X} removed from both.",
        lambda at: at.angles[1][1],
    ),
}
