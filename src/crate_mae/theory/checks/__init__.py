"""Every claim as a function from a random generator to a ``Check``; ``ALL`` lists them in the order of the docs."""

from collections.abc import Callable

import torch

from crate_mae.theory.checks import completion, concentration, diffusion, equivalence, mixture, rates, theorem
from crate_mae.theory.checks.check import Check as Check

ALL: dict[str, Callable[[torch.Generator], Check]] = {
    f"{module.__name__.rsplit('.', 1)[-1]}.{function.__name__}": function
    for module, functions in [
        (rates, [rates.closed_form_gradients, rates.smaller_side]),
        (
            mixture,
            [
                mixture.score_of_density,
                mixture.sample_moments,
                mixture.denoiser_limit,
                mixture.score_magnitude,
                mixture.gradient_magnitude,
            ],
        ),
        (
            diffusion,
            [
                diffusion.exact_marginals,
                diffusion.printed_signs,
                diffusion.general_clock,
                diffusion.printed_clock,
                diffusion.structured_marginals,
                diffusion.round_trip,
                diffusion.last_time,
                diffusion.encoder_step,
            ],
        ),
        (
            equivalence,
            [
                equivalence.fields_alone,
                equivalence.fields_2d,
                equivalence.fields_3d,
                equivalence.fields_few_tokens,
                equivalence.fields_many_tokens,
                equivalence.informal_theorem,
                equivalence.mssa_raw,
                equivalence.mssa_beyond_the_span,
            ],
        ),
        (
            theorem,
            [
                theorem.assumption_at_base,
                theorem.beta_above_one,
                theorem.bound_at_base,
                theorem.residual_below_noise,
                theorem.slope_at_base,
                theorem.slope_over_d,
                theorem.nontrivial_regime,
                theorem.optimal_epsilon,
                theorem.signal_shrinkage,
                theorem.rate_reduction_factor,
                theorem.no_shrinkage,
            ],
        ),
        (
            concentration,
            [
                concentration.noise_norm,
                concentration.signal_norm,
                concentration.gram_deviation,
                concentration.inverse_deviation,
                concentration.pseudo_inverse_deviation,
                concentration.neumann,
                concentration.neumann_converges,
                concentration.gaussian_norm,
                concentration.gaussian_covariance,
                concentration.binomial,
            ],
        ),
        (
            completion,
            [completion.low_rank, completion.union_by_rank, completion.union_by_subspaces, completion.whole_tokens],
        ),
    ]
    for function in functions
}
