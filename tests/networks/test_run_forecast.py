"""A forecast that learns from the run, where the law is known: the kernel's own curve, sped up, slowed and noisy."""

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.integrate import solve_ivp

from solvable import GradientDescent
from solvable.inference.runs import Run
from solvable.inference.splines import Grid
from solvable.inference.theory_laws import Curve
from solvable.networks import MLP, Fixed, centred, log_steps, train
from solvable.networks.forecast import forecast
from solvable.networks.run_forecast import Continuation, weights_of
from solvable.networks.run_laws import GrowingLaw

RATE = 0.1
STEPS = np.array(log_steps(300)[1:], float)


def circle(points=200):
    angle = (np.arange(points) + 0.5) * 2 * np.pi / points
    return np.stack([np.cos(angle), np.sin(angle)], axis=1), np.sign(np.sin(angle))


def network(key):
    return centred(MLP(2, 1, width=256, depth=2, key=key, parameterisation="ntk", bias_scale=0.5))


@functools.cache
def report(outputs=1):
    inputs, targets = circle()
    if outputs == 1:
        return forecast(network, inputs, targets, seeds=1, progress=False)

    def wider(key):
        return centred(MLP(2, outputs, width=256, depth=2, key=key, parameterisation="ntk", bias_scale=0.5))

    return forecast(wider, inputs, np.stack([targets] * outputs, axis=1), seeds=1, progress=False)


def lazy(steps, speed=1.0):
    """Half of the squared error of the initial kernel by gradient flow, whose clock may run faster."""
    return report().lazy_curve(speed * RATE * np.asarray(steps, float)).train_loss.values / 2


def finite_steps(steps):
    return report().lazy_curve(RATE * steps, learning_rate=RATE).train_loss.values / 2


def test_the_exact_lazy_curve_is_recovered():
    learned = report().update(STEPS, finite_steps(STEPS), RATE)
    assert learned.is_lazy
    assert "follows its initial kernel" in learned.verdict
    assert learned.summary().splitlines()[0].split(maxsplit=1) == ["verdict", learned.verdict]
    # All three kernel continuations hold the lazy curve.
    assert learned.weights["power law"] < 0.1
    ahead = learned.predict([1000, 3000])
    # The spline of the curve, and the few per cent of weight that the power law has.
    np.testing.assert_allclose(ahead.loss, finite_steps(np.array([1000.0, 3000.0])), rtol=0.02)
    np.testing.assert_allclose(ahead.lazy_loss, finite_steps(np.array([1000.0, 3000.0])), rtol=1e-12)
    assert learned.speed == pytest.approx(1, abs=1e-3)


def test_the_interval_holds_the_truth_of_noisy_lazy_runs():
    # Widths are those of trained networks, which also leave their laws: 68 % must hold at least 68 % of runs that do
    # not. A true coverage of 0.9 gives fewer than 14 of 20 with a probability of 0.2 %; the key is fixed.
    draw, truth, held = np.random.default_rng(1), float(lazy([3000])[0]), []
    for _ in range(20):
        losses = lazy(STEPS) * np.exp(0.03 * draw.normal(size=STEPS.size))
        learned = report().update(STEPS, losses, RATE)
        at = learned.predict("10x").isel(time=0)
        held.append(float(at.low68) < truth < float(at.high68))
    assert sum(held) >= 14


@pytest.mark.parametrize("speed", [2.0, 0.5])
def test_another_speed_is_not_lazy_and_its_size_is_right(speed):
    losses = lazy(STEPS, speed)
    learned = report().update(STEPS, losses, RATE)
    assert not learned.is_lazy
    last = STEPS[-1] / 1.25 <= STEPS
    expected = np.log(losses / finite_steps(STEPS))[last].mean()
    assert learned.deviation[0] == pytest.approx(expected, rel=1e-6)
    percent = f"{100 * abs(math.expm1(expected)):.0f} % {'below' if speed > 1 else 'above'} the lazy curve"
    assert percent in learned.verdict
    assert ("faster" if speed > 1 else "more slowly") in learned.verdict
    assert "no longer applies" in learned.verdict
    assert learned.speed == pytest.approx(speed, rel=1e-2)
    # The forecast knows the speed: without the power law's share it would be exact.
    truth = float(lazy([3000], speed)[0])
    at = learned.predict([3000]).isel(time=0)
    assert float(at.low68) < truth < float(at.high68)
    assert abs(math.log(float(at.loss) / truth)) < abs(math.log(float(at.lazy_loss) / truth)) / 2


def test_the_growing_law_is_the_exact_solution_of_one_mode():
    # A linear network of two layers that learns one mode x: dx/dt = -x (1 + growth (1 - x)), in units of the kernel.
    growth, unit = 3.0, 2.0
    knots = np.linspace(np.log(1e-4), np.log(40), 300)
    law = GrowingLaw(Curve(Grid(knots), -2 * np.exp(knots), 1.0), unit)
    times = np.geomspace(1e-3, 4, 30)
    run = Run("one mode", times, np.ones(30), flow_time=times)
    exact = ((1 + growth) / (growth + np.exp((1 + growth) * times))) ** 2
    found = law.basis({"rate": 1.0, "growth": growth * unit}, run)[:, 0]
    np.testing.assert_allclose(found, exact, rtol=5e-3)
    # Half of the rate is half of the time.
    slower = law.basis({"rate": 0.5, "growth": growth * unit}, Run("slower", times, np.ones(30), flow_time=2 * times))[
        :, 0
    ]
    np.testing.assert_allclose(slower, exact, rtol=5e-3)


def test_a_kernel_that_goes_on_growing_is_forecast():
    # All modes on one clock whose speed s grows as ds/dt = growth s sqrt(L/L(0)), by an independent integration.
    growth, unit, start = 0.4, RATE * STEPS[-1], float(lazy([0])[0])

    def slope(_, state):
        loss = float(report().lazy_curve(state[:1]).train_loss.values[0]) / 2
        return [state[1], growth / unit * state[1] * math.sqrt(loss / start)]

    ends = np.append(STEPS, 3000.0)
    solution = solve_ivp(slope, (0, RATE * 3000), [0.0, 1.0], t_eval=RATE * ends, rtol=1e-8, atol=1e-10)
    losses = lazy(solution.y[0] / RATE)
    learned = report().update(STEPS, losses[:-1], GradientDescent(lambda step: RATE + 0 * step))
    wanted = Run("later", ends[-1:], np.full(1, np.nan), flow_time=RATE * ends[-1:])
    errors = {
        name: abs(math.log(float(one.losses(wanted)[0]) / 2 / losses[-1]))
        for name, one in learned.continuations.items()
    }
    assert errors["growing"] < 0.02
    assert min(error for name, error in errors.items() if name != "growing") > 0.1
    at = learned.predict([3000]).isel(time=0)
    assert float(at.low68) < losses[-1] < float(at.high68)


def test_conventions_momentum_and_schedules_are_clocks():
    steps = np.unique(np.round(STEPS))
    curve = report(3).lazy_curve(RATE * steps).train_loss.values
    plain = report(3).update(steps, curve / 2, GradientDescent(RATE / 2, momentum=0.5))
    mean = report(3).update(steps, curve / 3, GradientDescent(RATE * 3 / 4, momentum=0.5), loss="mse")
    whole = report(3).update(steps, curve, GradientDescent(RATE / 4, momentum=0.5), loss="squared")
    scheduled = report(3).update(steps, curve / 2, GradientDescent(lambda step: RATE + 0 * step))
    for learned, scale in ((plain, 2), (mean, 3), (whole, 1), (scheduled, 2)):
        assert learned.is_lazy
        np.testing.assert_allclose(learned.lazy, curve, rtol=1e-9)
        assert float(learned.predict().loss[0]) * scale == pytest.approx(2 * float(plain.predict().loss[0]), rel=1e-6)


def test_a_trained_network():
    # One rich network: its lazy forecast is flagged, and the 95 % interval holds what came. How well intervals are
    # calibrated is measured on many networks, by docs/results/make/run_forecast.py.
    inputs, targets = circle()
    rich = centred(MLP(2, 1, 64, 2, key=jax.random.key(3), parameterisation="mean-field", richness=2.0))
    before = forecast(rich, inputs, targets, progress=False)
    rate = 0.2 / before.eigenvalues.max()
    data = Fixed(jnp.asarray(inputs, "float32"), jnp.asarray(targets[:, None], "float32"))
    trained = train(lambda key: rich, data, optax.sgd(rate), steps=1000, loss="half-mse", progress=False)
    curve = trained.curves.train_loss.isel(seed=0)
    early = curve.sel(time=slice(0, 100))
    learned = before.update(early.time.values, early.values, rate)
    assert not learned.is_lazy
    assert learned.deviation[0] < 0
    at = learned.predict().isel(time=0)
    truth = float(curve.sel(time=1000))
    assert float(at.low95) < truth < float(at.high95)


def test_wrong_runs_end_in_one_line():
    start, losses = float(lazy([0])[0]), lazy(STEPS)
    cases = {
        "needs 12: record more often": (STEPS[::4], losses[::4], RATE),
        "the loss is nan at step": (STEPS, np.where(STEPS > 100, np.nan, losses), RATE),
        "steps must increase": (STEPS[::-1], losses, RATE),
        "is there twice": (np.append(STEPS[0], STEPS), np.append(losses[0], losses), RATE),
        "two lists of equal length": (STEPS, losses[:3], RATE),
        "training must say": (STEPS, losses, None),
        "whole numbers": (STEPS + 0.5, losses, RATE),
        "is not the run that was forecast; measure": (np.append(0, STEPS), 3 * np.append(start, losses), RATE),
        "it would be with loss='mse'": (np.append(0, STEPS), 2 * np.append(start, losses), RATE),
    }
    for message, arguments in cases.items():
        with pytest.raises(ValueError, match=message) as caught:
            report().update(*arguments)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="loss must be one of"):
        report().update(STEPS, losses, RATE, loss="mae")
    with pytest.raises(ValueError, match="momentum follows a schedule"):
        report().update(STEPS, losses, GradientDescent(RATE, momentum=lambda step: 0.5 + 0 * step))


def test_a_run_that_has_not_begun_says_so():
    steps = np.arange(1, 31)
    learned = report().update(steps, report().lazy_curve(1e-5 * steps).train_loss.values / 2, 1e-5)
    assert "too little" in learned.verdict


def test_weights_are_inverse_squares_of_held_out_errors():
    learned = report().update(STEPS, lazy(STEPS, 2.0), RATE)
    errors = {name: one.error_per_decade for name, one in learned.continuations.items()}
    assert isinstance(learned.continuations["lazy"], Continuation)
    found = weights_of(learned.continuations)
    assert sum(found.values()) == pytest.approx(1)
    ratio = (errors["lazy"] ** 2 + 0.01) / (errors["power law"] ** 2 + 0.01)
    assert found["power law"] / found["lazy"] == pytest.approx(ratio)


def test_widths_grow_with_the_horizon_and_the_report_is_complete():
    learned = report().update(STEPS, lazy(STEPS, 1.5), RATE)
    ahead = learned.predict([400, 1000, 3000, 10_000])
    assert (np.diff(ahead.width) > 0).all()
    assert (ahead.low95 < ahead.low68).all()
    assert (ahead.high68 < ahead.high95).all()
    data = learned.to_dataset()
    assert data.measured_loss.values[-1] == pytest.approx(lazy(STEPS[-1:], 1.5)[0])
    assert data.attrs["verdict"] == learned.verdict
    content = json.loads(learned.to_json())
    assert content["forecast"]["step"] == 3000
    assert not content["is_lazy"]
    assert len(learned.plot().axes) == 1


def test_warnings_come_before_numbers():
    lines = report().summary().splitlines()
    labels = [line.split()[0] for line in lines]
    assert labels[0] == "verdict"
    assert labels.index("note") < labels.index("capacity")
    assert report().notes[0].split(": ")[0] in lines[0]
