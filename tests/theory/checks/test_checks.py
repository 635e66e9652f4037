"""Each check fails if its formula is perturbed; each finding holds if its premise is made true."""

import math
from dataclasses import replace

import pytest
import torch

from crate_mae.theory import checks, completion, concentration, diffusion, equivalence, mixture, rates, theorems
from crate_mae.theory.checks import ALL, Check
from crate_mae.theory.checks import completion as completion_checks
from crate_mae.theory.checks import concentration as concentration_checks
from crate_mae.theory.checks import diffusion as diffusion_checks
from crate_mae.theory.checks import equivalence as equivalence_checks
from crate_mae.theory.checks import mixture as mixture_checks
from crate_mae.theory.checks import theorem as theorem_checks


def run(name, seed=0):
    return ALL[name](torch.Generator().manual_seed(seed))


def times(factor):
    return lambda original: lambda *a, **k: factor * original(*a, **k)


def each(factor):
    def wrap(original):
        def scaled(*a, **k):
            found = original(*a, **k)
            if isinstance(found, dict):
                return {name: factor * value for name, value in found.items()}
            return type(found)(factor * value for value in found)

        return scaled

    return wrap


def instead(function):
    return lambda original: function


def noisier(original):
    return lambda model, shape, generator: original(replace(model, noise=1.2 * model.noise), shape, generator)


def wrong_clock(original):
    return lambda process, score: lambda x, t: -diffusion.probability_flow(process, score)(x, t)


def faster(original):
    return lambda process, score: lambda x, t: 1.01 * original(process, score)(x, t)


def towards_zero(Z, U, epsilon):
    return -Z


def off_subspaces(Z, U, epsilon):
    return Z - mixture.project_to_nearest(U, Z)


def towards_nearest(Z, U, epsilon):
    return -off_subspaces(Z, U, epsilon)


def one_subspace(original):
    return lambda d, count, p, generator: original(d, 1, p, generator).expand(count, d, p)


def exact_score(U, epsilon, horizon):
    spread = U.new_full((2, 2), 2**-0.5)
    return lambda Z, t: mixture.score(mixture.codebook(U, math.sqrt(2 * (horizon - t)), spread), Z)


def one_time_more(original):
    return lambda t_1, kappa, layers: original(t_1, kappa, layers + 1)


def steps_of_kappa(t_1, kappa, layers):
    left = (1 - 2 * kappa) ** torch.arange(layers, dtype=torch.float64)
    return diffusion.diffusion_times(t_1, kappa, layers)[-1] * (1 - left)


def residual_of_order(power):
    def predicted(setting, seen):
        return theorems.compression_step(setting, seen.tokens) + setting.sigma**power * seen.signal

    return instead(predicted)


HOLDS = {
    "rates.closed_form_gradients": (rates, "compression_rate_gradient", times(1 + 1e-6)),
    "rates.smaller_side": (rates, "compression_rate", times(1 + 1e-6)),
    "mixture.score_of_density": (mixture, "score", times(1 + 1e-6)),
    "mixture.sample_moments": (mixture, "sample", noisier),
    "mixture.denoiser_limit": (mixture, "denoise", instead(lambda model, Z: Z)),
    "mixture.gradient_magnitude": (mixture_checks, "compression_rate_gradient", instead(off_subspaces)),
    "diffusion.exact_marginals": (diffusion, "_spread_of", times(0.5)),
    "diffusion.general_clock": (diffusion, "reverse_probability_flow", wrong_clock),
    "diffusion.round_trip": (diffusion, "reverse_probability_flow", faster),
    "equivalence.fields_alone": (equivalence, "compression_field_alone", instead(towards_zero)),
    "equivalence.fields_few_tokens": (equivalence, "compression_field", instead(towards_zero)),
    "equivalence.mssa_beyond_the_span": (equivalence, "mssa_tied", times(-1)),
    "theorem.bound_at_base": (theorems, "bound", times(0.1)),
    "theorem.slope_over_d": (theorems, "apply_projection", times(0)),
    "theorem.optimal_epsilon": (theorems, "optimal_epsilon", times(1.1)),
    "theorem.signal_shrinkage": (theorems, "shrinkage", times(0.99)),
    "theorem.rate_reduction_factor": (theorems, "rate_reduction_growth", times(0.99)),
    "concentration.noise_norm": (concentration, "noise_constant", times(2)),
    "concentration.signal_norm": (concentration, "signal_constants", each(2)),
    "concentration.pseudo_inverse_deviation": (concentration, "signal_constants", each(2)),
    "concentration.neumann": (concentration, "neumann_norms", each(3)),
    "concentration.neumann_converges": (concentration, "neumann_norms", each(2)),
    "concentration.gaussian_norm": (concentration, "gaussian_constants", each(2)),
    "concentration.gaussian_covariance": (concentration, "gaussian_constants", each(2)),
    "concentration.binomial": (concentration, "binomial_constant", times(1.2)),
    "completion.low_rank": (completion, "soft_impute", instead(lambda X, visible: 0 * X)),
    "completion.union_by_subspaces": (completion, "complete_on_subspaces", instead(lambda X, visible, U: 0 * X)),
}

ASSUMPTION_MET = theorems.Setting(d=32_000, N=4_000, K=8, p=4_000, sigma=0.01, epsilon=0.5)
FEW_TOKENS = theorems.Setting(d=3072, N=16, K=4, p=768, sigma=0.1, epsilon=0.5)

FINDINGS = {
    "mixture.score_magnitude": (
        mixture,
        "score",
        lambda original: lambda model, Z: original(model, Z) / model.noise,
    ),
    "diffusion.printed_signs": (diffusion_checks, "PRINTED", instead((2, -1, 1))),
    "diffusion.printed_clock": (diffusion_checks, "ACCELERATION", instead(0.0)),
    "diffusion.structured_marginals": (diffusion, "structured_score", instead(exact_score)),
    "diffusion.last_time": (diffusion, "diffusion_times", one_time_more),
    "diffusion.encoder_step": (diffusion, "denoising_times", instead(steps_of_kappa)),
    "equivalence.fields_2d": (equivalence, "compression_field", instead(towards_nearest)),
    "equivalence.fields_3d": (equivalence, "compression_field", instead(towards_nearest)),
    "equivalence.fields_many_tokens": (equivalence, "compression_field", instead(towards_nearest)),
    "equivalence.informal_theorem": (equivalence, "compression_field", instead(towards_nearest)),
    "equivalence.mssa_raw": (equivalence, "compression_field", times(-1)),
    "theorem.assumption_at_base": (theorems, "BASE", instead(ASSUMPTION_MET)),
    "theorem.beta_above_one": (theorem_checks, "ALLOWED", instead(replace(theorem_checks.ALLOWED, N=9_000))),
    "theorem.residual_below_noise": (theorems, "predicted_step", residual_of_order(2)),
    "theorem.slope_at_base": (theorems, "predicted_step", residual_of_order(1.5)),
    "theorem.nontrivial_regime": (theorems, "asymptotic_bound", instead(lambda K, sigma: sigma**1.5)),
    "theorem.no_shrinkage": (theorems, "rate_reduction_step", instead(lambda setting, Z: Z)),
    "concentration.gram_deviation": (concentration, "signal_constants", each(0.2)),
    "concentration.inverse_deviation": (theorems, "BASE", instead(FEW_TOKENS)),
    "completion.union_by_rank": (mixture, "orthogonal_bases", one_subspace),
    "completion.whole_tokens": (completion, "complete_on_subspaces", instead(lambda X, visible, U: X)),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(concentration_checks, "TRIALS", 6)
    monkeypatch.setattr(concentration_checks, "TRIALS_LARGER", 1)
    monkeypatch.setattr(concentration_checks, "LARGE", FEW_TOKENS)
    monkeypatch.setattr(theorem_checks, "DRAWS", 1)
    monkeypatch.setattr(theorem_checks, "EXPONENTS", (10, 50))
    monkeypatch.setattr(theorem_checks, "SLOPE_DRAWS", 4)
    monkeypatch.setattr(equivalence_checks, "MSSA_DRAWS", 1)
    monkeypatch.setattr(completion_checks, "RANKS", (2, 5))
    monkeypatch.setattr(diffusion_checks, "PERMUTATIONS", 600)
    monkeypatch.setattr(diffusion_checks, "STEPS", (16, 32, 64))
    monkeypatch.setattr(diffusion_checks, "SAMPLES", 500)


def test_every_check_is_perturbed():
    assert sorted([*HOLDS, *FINDINGS]) == sorted(ALL)


@pytest.mark.parametrize("name", HOLDS)
def test_a_check_that_holds_fails_when_its_formula_is_perturbed(name, monkeypatch):
    found = run(name)
    assert found.holds, found
    module, attribute, wrap = HOLDS[name]
    monkeypatch.setattr(module, attribute, wrap(getattr(module, attribute)))
    assert not run(name).holds


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_would_hold_if_its_premise_were_true(name, monkeypatch):
    assert not run(name).holds
    module, attribute, wrap = FINDINGS[name]
    monkeypatch.setattr(module, attribute, wrap(getattr(module, attribute)))
    found = run(name)
    assert found.holds, found


def test_the_smallest_constants_follow_from_the_relations():
    met = replace(theorems.BASE, N=10**8, d=2 * 10**9, K=2, p=10**9, sigma=0.001, epsilon=1.0)
    assert theorems.unmet(met, theorem_checks.SUPPORTED) == ["N >= p"]
    assert theorems.unmet(theorem_checks.ALLOWED, theorem_checks.SUPPORTED) == []


def test_a_check_compares():
    def holds(measured, relation, expected, tolerance=0.0):
        return Check("", "code", "-", measured, relation, expected, tolerance).holds

    assert holds(1.0, "<=", 1.0)
    assert not holds(1.1, "<=", 1.0)
    assert holds(1.1, ">=", 1.0)
    assert holds(1.1, "=", 1.0, 0.2)
    assert not holds(1.1, "=", 1.0)
    assert not holds(float("nan"), "<=", 1.0)


def test_checks_are_seeded():
    name = "equivalence.fields_few_tokens"
    assert run(name, 3) == run(name, 3)
    assert run(name, 3) != run(name, 4)
    assert checks.ALL is ALL
