"""Flow with schedules of learning rate, batch size and momentum: noise over flow time, against steps that get small."""

from collections.abc import Callable

import numpy as np
import optax
import pytest
from scipy.interpolate import CubicSpline

from solvable import SGD, FeatureScaling, GradientFlow
from solvable.models.feature_scaling.mode_quadrature import power_law_modes
from solvable.models.feature_scaling.noise_profile import NoiseProfile
from solvable.models.feature_scaling.second_moments import NoisySteps, follow
from solvable.models.feature_scaling.slot_march import Flow, slot_march
from solvable.models.feature_scaling.two_time import Descent, march

Shape = Callable[[np.ndarray], np.ndarray]
SHAPES: dict[str, Shape] = {
    "linear": lambda x: 1 - x,
    "warm-up-stable-decay": lambda x: np.minimum(1.0, x / 0.2) * np.clip((1 - x) / 0.1, 0.0, 1.0),
    "jump": lambda x: np.where(x < 0.7, 1.0, 0.1),
}


def rates_of(shape: Shape, steps: int, peak: float) -> np.ndarray:
    return peak * shape((np.arange(steps) + 0.5) / steps)


def profile(shape: Shape, steps: int, peak: float, noise: float) -> tuple[NoiseProfile, float]:
    rates = rates_of(shape, steps, peak)
    return NoiseProfile.of_steps(rates, np.zeros(steps), np.full(steps, peak / noise)), float(rates.sum())


def test_breaks_are_jumps_and_kinks_only() -> None:
    for name, expected in (("linear", []), ("warm-up-stable-decay", [10.0, 80.0]), ("jump", [70.0])):
        found, _ = profile(SHAPES[name], 4000, 0.025, 0.1)
        np.testing.assert_allclose(found.breaks, expected, atol=0.05)
    jump, _ = profile(SHAPES["jump"], 4000, 0.025, 0.1)
    assert (jump.before(70.0), jump.after(70.0)) == pytest.approx((0.1, 0.01))


def test_steps_that_stand_still_have_no_noise() -> None:
    rates = np.array([0.1, 0.0, 0.0, 0.2])
    found = NoiseProfile.of_steps(rates, np.zeros(4), np.full(4, 2.0))
    assert found.last == pytest.approx(0.3)
    assert found.before(0.05) == pytest.approx(0.05)


@pytest.mark.parametrize("name", SHAPES)
def test_lazy_schedules_are_the_limit_of_small_steps(name: str) -> None:
    """Against the recursion of second moments with 1, 1/2 and 1/4 of the steps' length, extrapolated twice."""
    modes, peak, noise, steps = power_law_modes(1.5, 0.4, np.inf, 500.0, head=8, per_decade=5, reach=1e2), 0.1, 0.1, 400
    found = []
    for finer in (1, 2, 4):
        rates = np.append(rates_of(SHAPES[name], finer * steps, peak / finer), 0.0)
        plan = NoisySteps(rates, peak / finer / noise)
        found.append(float(follow(modes, plan, rates.size)[-1].sum()))
    once = [2 * found[1] - found[0], 2 * found[2] - found[1]]
    shape, last = profile(SHAPES[name], 16 * steps, peak / 16, noise)
    curve = slot_march(modes, Flow(0.0, noise=shape), last, per_decade=12)
    assert curve.test_loss[-1] == pytest.approx((4 * once[1] - once[0]) / 3, rel=1.2e-3)


@pytest.mark.parametrize("sizes", [{}, {"features": 16.0, "samples": 12.0}], ids=str)
def test_rich_schedules_are_the_limit_of_small_steps(sizes: dict[str, float]) -> None:
    """The march with two lengths of step, extrapolated, is good to about 0.2 %."""
    modes, shape, noise = power_law_modes(1.5, 0.4, 24, 10.0), SHAPES["linear"], 0.05
    found = []
    for rate, steps in ((0.2, 63), (0.1, 126)):
        rates = np.append(rates_of(shape, steps, rate), 0.0)
        found.append(float(march(modes, Descent(rates, 1.0, batch=rate / noise, **sizes), steps + 1).test_loss[-1]))
    falling, last = profile(shape, 2000, 12.6 / 2000, noise)
    curve = slot_march(modes, Flow(1.0, noise=falling, **sizes), last, per_decade=16)
    assert curve.test_loss[-1] == pytest.approx(2 * found[1] - found[0], rel=5e-3)
    # A constant noise of the same mean over the same time is another training.
    constant = slot_march(modes, Flow(1.0, noise=noise, **sizes), last, per_decade=16)
    assert constant.test_loss[-1] > 1.02 * curve.test_loss[-1]


def test_a_falling_rate_and_a_growing_batch_with_the_same_noise_are_the_same_training() -> None:
    """Both have ``d tau / dz = epsilon(z)`` over the number of samples z."""
    steps, batch = 4000, 16.0
    falling = NoiseProfile.of_steps(
        rates_of(lambda x: 1 - 0.9 * x, steps, 0.01), np.zeros(steps), np.full(steps, batch)
    )
    # A constant rate passes the same samples with batches eta / epsilon(z): many fewer steps.
    sizes, used = [], 0.0
    while used < steps * batch:
        sizes.append(0.01 / (0.01 / batch * (1 - 0.9 * used / (steps * batch))))
        used += sizes[-1]
    growing = NoiseProfile.of_steps(np.full(len(sizes), 0.01), np.zeros(len(sizes)), np.array(sizes))
    assert len(sizes) < 0.7 * steps
    assert growing.last == pytest.approx(falling.last, rel=2e-3)
    # Up to the batches of the last steps, each of which is a visible share of the samples that are left.
    for time in np.linspace(0, 0.95, 7) * falling.last:
        assert growing.after(time) == pytest.approx(falling.after(time), rel=5e-3)


MODEL = FeatureScaling(1.5, 0.4, modes=40, features=16)


def test_a_constant_schedule_is_the_constant_rate() -> None:
    options = {"solver": "slot-march", "per_decade": 4}
    constant = MODEL.predict([1, 20, 80], SGD(0.05, batch_size=8), **options)
    scheduled = MODEL.predict(
        [1, 20, 80], SGD(optax.constant_schedule(0.05), batch_size=lambda s: 8 + 0 * s), **options
    )
    np.testing.assert_allclose(scheduled.test_loss, constant.test_loss, rtol=1e-12)
    # Momentum is a longer step of the same batch.
    heavy = MODEL.predict([1, 20, 80], SGD(0.025, batch_size=8, momentum=0.5), **options)
    np.testing.assert_allclose(heavy.test_loss, constant.test_loss, rtol=1e-12)


def test_the_clock_of_a_flow_may_follow_a_schedule() -> None:
    """Without noise only flow time counts, for any number of features."""
    cosine = optax.cosine_decay_schedule(0.2, 100)
    found = MODEL.predict([20, 100], GradientFlow(cosine), per_decade=8)
    expected = MODEL.predict(found.flow_time.values, GradientFlow(), per_decade=8)
    np.testing.assert_allclose(found.test_loss, expected.test_loss, rtol=1e-12)


def test_heavy_ball_in_the_limit_of_small_steps_is_a_longer_step() -> None:
    """Lazy, m = 0.5: the recursion with steps of 1, 1/2 and 1/4 of the length, at fixed noise, extrapolated."""
    modes = power_law_modes(1.5, 0.4, 40, 40.0)
    found = []
    for finer in (1, 2, 4):
        plan = NoisySteps(0.02 / finer, 0.4 / finer, momentum=0.5)
        found.append(float(follow(modes, plan, 500 * finer + 1)[-1].sum()))
    once = [2 * found[1] - found[0], 2 * found[2] - found[1]]
    curve = slot_march(modes, Flow(0.0, noise=0.1), 20.0, per_decade=16)
    loss = np.exp(CubicSpline(np.log1p(curve.times / 0.3), np.log(curve.test_loss))(np.log1p(20 / 0.3)))
    assert loss == pytest.approx((4 * once[1] - once[0]) / 3, rel=1e-3)


def test_momentum_of_a_long_memory_is_not_a_flow_yet() -> None:
    with pytest.warns(UserWarning, match="steps remember longer"):
        MODEL.predict([10], SGD(0.1, batch_size=8, momentum=0.9), solver="slot-march", per_decade=4)
    with pytest.raises(ValueError, match="limit of small steps without weight decay"):
        MODEL.predict([10], SGD(0.1, batch_size=8, weight_decay=0.1), solver="slot-march")
