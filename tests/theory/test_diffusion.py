"""Processes with known laws: the general formulas, the variance-exploding case, the structured processes."""

import math

import pytest
import torch

from crate_mae.errors import UserError
from crate_mae.theory import diffusion as df
from crate_mae.theory import mixture as mx
from crate_mae.theory.rates import compression_rate_gradient
from crate_mae.theory.two_sample import kernel_test, moment_test


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64)


def gaussian_score(x, t):
    """The score of dz = sqrt(2) dw from N(0, I), which is N(0, (1 + 2 t) I) at time t."""
    return -x / (1 + 2 * t)


def test_variance_exploding_case_is_minus_s_plus_s_and_two_s():
    process, x = df.variance_exploding(3.0), draw(4, 2)
    s = gaussian_score
    torch.testing.assert_close(df.probability_flow(process, s)(x, 0.5), -s(x, 0.5))
    torch.testing.assert_close(df.reverse_probability_flow(process, s)(x, 0.5), s(x, 2.5))
    torch.testing.assert_close(df.time_reversal(process, s).drift(x, 0.5), 2 * s(x, 2.5))
    assert df.time_reversal(process, s).diffusion(x, 0.5) == pytest.approx(2**0.5)


def test_the_flow_of_a_gaussian_is_exact():
    # dx = x / (1 + 2 t) dt has the solution x(0) sqrt(1 + 2 t): the law N(0, (1 + 2 t) I) exactly
    x = draw(10, 2)
    flow = df.probability_flow(df.variance_exploding(2.0), gaussian_score)
    times = torch.linspace(0, 2, 401, dtype=torch.float64)
    torch.testing.assert_close(df.integrate_ode(flow, x, times), x * 5**0.5, rtol=1e-5, atol=1e-5)


def multiplicative(horizon=1.0):
    """dz = Sigma(z, t) dw with Sigma = diag((1 + t) z): component-wise log-normal, div Psi = 2 (1 + t)^2 z."""
    return df.ItoProcess(lambda x, t: 0.1 * (1 + t) * x, lambda x, t: torch.diag_embed((1 + t) * x), horizon)


def test_general_formulas_with_a_matrix_that_moves_with_x_and_t():
    process, x = multiplicative(), draw(5, 3).abs() + 0.5
    score = lambda x, t: -x * (1 + t)  # noqa: E731
    t = 0.25
    for clock, field, signs in [
        (t, df.probability_flow(process, score), (1, -0.5)),
        (1 - t, df.reverse_probability_flow(process, score), (-1, 0.5)),
        (1 - t, df.time_reversal(process, score).drift, (-1, 1)),
    ]:
        psi, divergence = ((1 + clock) * x) ** 2, 2 * (1 + clock) ** 2 * x
        spread = divergence + psi * score(x, clock)
        expected = signs[0] * 0.1 * (1 + clock) * x + signs[1] * spread
        torch.testing.assert_close(field(x, t), expected)


def test_divergence_takes_rows_of_a_full_matrix():
    # Sigma = [[1, x_0], [0, x_1]]: Psi = [[1 + x_0^2, x_0 x_1], [x_0 x_1, x_1^2]], div = [2 x_0 + x_0, x_1 + 2 x_1]
    def sigma(x, t):
        zero, one = torch.zeros_like(x[..., 0]), torch.ones_like(x[..., 0])
        return torch.stack([torch.stack([one, x[..., 0]], -1), torch.stack([zero, x[..., 1]], -1)], -2)

    process = df.ItoProcess(lambda x, t: torch.zeros_like(x), sigma, 1.0)
    x = draw(6, 2)
    flow = df.probability_flow(process, lambda x, t: torch.zeros_like(x))
    torch.testing.assert_close(flow(x, 0.0), -1.5 * x)


def test_one_matrix_for_all_points_and_a_number_in_a_tensor():
    sigma = torch.tensor([[1.0, 0.0], [0.5, 2.0]], dtype=torch.float64)
    process = df.ItoProcess(lambda x, t: torch.zeros_like(x), lambda x, t: sigma, 1.0)
    x, noise = draw(7, 2), draw(1, 7, 2, seed=1)
    torch.testing.assert_close(
        df.probability_flow(process, gaussian_score)(x, 0.5), -0.5 * gaussian_score(x, 0.5) @ (sigma @ sigma.T).T
    )
    times = torch.tensor([0.0, 0.25], dtype=torch.float64)
    torch.testing.assert_close(df.integrate_sde(process, x, times, noise), x + 0.5 * noise[0] @ sigma.T)
    number = df.ItoProcess(process.drift, lambda x, t: torch.tensor(3.0, dtype=torch.float64), 1.0)
    torch.testing.assert_close(df.integrate_sde(number, x, times, noise), x + 1.5 * noise[0])
    torch.testing.assert_close(df.probability_flow(number, gaussian_score)(x, 0.5), -4.5 * gaussian_score(x, 0.5))


def test_reversal_of_an_ornstein_uhlenbeck_process_returns_to_its_start():
    # dz = -z dt + sqrt(2) dw from N(0, v I): variance v e^{-2t} + 1 - e^{-2t}
    v, horizon, n = 9.0, 1.0, 20000
    variance = lambda t: v * math.exp(-2 * t) + 1 - math.exp(-2 * t)  # noqa: E731
    process = df.ItoProcess(lambda x, t: -x, lambda x, t: 2**0.5, horizon)
    backward = df.time_reversal(process, lambda x, t: -x / variance(t))
    times = torch.linspace(0, horizon, 201, dtype=torch.float64)
    x = variance(horizon) ** 0.5 * draw(n, 1)
    end = df.integrate_sde(backward, x, times, draw(200, n, 1, seed=1), "heun")
    assert float(end.var()) == pytest.approx(v, rel=0.05)


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("heun", 2)])
def test_integrators_have_their_order(method, order):
    velocity = lambda x, t: math.cos(t) * x - x**3  # noqa: E731
    x = draw(5)
    ends = [
        df.integrate_ode(velocity, x, torch.linspace(0, 1, n + 1, dtype=torch.float64), method) for n in (40, 80, 5120)
    ]
    coarse, fine = (float((end - ends[2]).norm()) for end in ends[:2])
    assert math.log2(coarse / fine) == pytest.approx(order, abs=0.2)


def test_euler_maruyama_by_hand_and_callback():
    process = df.ItoProcess(lambda x, t: -x, lambda x, t: 0.5, 1.0)
    x, noise, seen = draw(3), draw(2, 3, seed=1), []
    times = torch.tensor([0.0, 0.25, 1.0], dtype=torch.float64)
    found = df.integrate_sde(process, x, times, noise, callback=lambda t, x: seen.append((t, x)))
    by_hand = x - 0.25 * x + 0.5 * 0.25**0.5 * noise[0]
    by_hand = by_hand - 0.75 * by_hand + 0.5 * 0.75**0.5 * noise[1]
    torch.testing.assert_close(found, by_hand)
    assert [t for t, _ in seen] == [0.0, 0.25, 1.0]
    torch.testing.assert_close(seen[-1][1], found)


def test_structured_processes_are_the_papers_and_reverse_each_other():
    U, Z, T = mx.orthogonal_bases(6, 2, 3, rng()), draw(6, 5), 2.0
    gradient = compression_rate_gradient(Z, U, 0.5)
    torch.testing.assert_close(df.structured_denoising(U, 0.5, T).drift(Z, 0.5), -gradient / 1.5)
    torch.testing.assert_close(df.structured_denoising_flow(U, 0.5, T)(Z, 0.5), -gradient / 3)
    torch.testing.assert_close(df.structured_diffusion_flow(U, 0.5)(Z, 0.5), gradient)
    process, stand_in = df.structured_denoising(U, 0.5, T), df.structured_score(U, 0.5, T)
    torch.testing.assert_close(
        df.probability_flow(process, stand_in)(Z, 0.5), df.structured_denoising_flow(U, 0.5, T)(Z, 0.5)
    )
    torch.testing.assert_close(
        df.reverse_probability_flow(process, stand_in)(Z, 0.5), df.structured_diffusion_flow(U, 0.5)(Z, 0.5)
    )
    assert float(df.time_reversal(process, stand_in).drift(Z, 0.5).abs().max()) < 1e-12


def test_structured_processes_say_where_they_are_singular():
    U, Z = mx.orthogonal_bases(6, 2, 3, rng()), draw(6, 5)
    with pytest.raises(UserError, match="singular"):
        df.structured_denoising(U, 0.5, 2.0).drift(Z, 2.0)
    with pytest.raises(UserError, match="singular"):
        df.structured_diffusion_flow(U, 0.5)(Z, 0.0)


def test_schedule_makes_steps_of_kappa():
    times = df.diffusion_times(0.01, 0.25, 6)
    steps = (times[1:] - times[:-1]) / (2 * times[:-1])
    torch.testing.assert_close(steps, torch.full_like(steps, 0.25))
    assert float(times[-1]) == pytest.approx(1.5**5 * 0.01)
    U, Y = mx.orthogonal_bases(6, 2, 3, rng()), draw(6, 5)
    by_hand = Y
    for _ in range(5):
        by_hand = by_hand + 0.25 * compression_rate_gradient(by_hand, U, 0.5)
    flow = df.structured_diffusion_flow(U, 0.5)
    torch.testing.assert_close(df.integrate_ode(flow, Y, times, "euler"), by_hand)
    back = df.denoising_times(0.01, 0.25, 6)
    assert back[0] == 0
    assert float(back[-1]) == pytest.approx(float(times[-1] - times[0]))


def test_bad_input_raises_a_clear_error():
    process, x = df.variance_exploding(1.0), draw(3)
    times = torch.tensor([0.0, 1.0], dtype=torch.float64)
    with pytest.raises(UserError, match="standard normal"):
        df.integrate_sde(process, x, times, draw(2, 3))
    with pytest.raises(UserError, match="do not increase"):
        df.integrate_ode(gaussian_score, x, times.flip(0))
    with pytest.raises(UserError, match="above 0"):
        df.diffusion_times(0.0, 0.5, 3)


def test_two_sample_tests_see_a_difference_and_only_that():
    x, y = draw(500, 3), draw(500, 3, seed=1)
    for test in (moment_test, kernel_test):
        assert test(x, y, rng()).p_value > 0.05
        assert test(x, y + 0.3, rng()).p_value < 0.01
        assert test(x, 1.4 * y, rng()).p_value < 0.01
    # equal first and second moments, another shape: only the kernel sees it
    signs = torch.sign(draw(500, 3, seed=2))
    assert kernel_test(x, signs, rng()).p_value < 0.01


def test_constant_samples_do_not_differ(as_a_user):
    x = torch.ones(50, 2, dtype=torch.float64)
    for test in (moment_test, kernel_test):
        assert test(x, x, rng()).p_value > 0.05
        with pytest.raises(UserError, match="equal shapes, 2 points or more"):
            test(x, x[:20], rng())


def test_times_that_do_not_increase_raise_a_clear_error():
    x = torch.ones(2, dtype=torch.float64)
    for times in (torch.tensor([0.0, math.nan, 1.0]), torch.tensor([])):
        with pytest.raises(UserError, match="do not increase"):
            df.integrate_ode(lambda x, t: x, x, times)
    for schedule in ((math.inf, 0.2, 3), (0.1, 0.2, 0)):
        with pytest.raises(UserError, match="a schedule needs"):
            df.diffusion_times(*schedule)
