"""The forecast on the circle, where capacity and source are known: alpha = 2 q, beta = (2 p - 1) / (2 q).

Networks of one hidden layer with activation ``max(0, h)^q`` have kernels with eigenvalues ``k^(-2 q)`` in the frequency
k, twice each (feature-scaling, eq. 13), and targets are ``sum_k k^-p cos(k t)`` (eq. 14).
"""

import functools
import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.diagnostics import linear_layers, ntk, tangent_model
from solvable.models.feature_scaling import FeatureScaling, fit_source_capacity
from solvable.networks.forecast import forecast
from solvable.networks.forecast_report import ForecastReport
from solvable.networks.initialisations import built_in, initial_networks, make
from solvable.networks.mlp import MLP
from solvable.networks.parts import Constant
from solvable.networks.spectral_laws import Modes, Window, clearance, estimate, last_decade

quiet = functools.partial(forecast, progress=False)


def circle(points):
    angle = (np.arange(points) + 0.5) * 2 * np.pi / points
    return angle, np.stack([np.cos(angle), np.sin(angle)], axis=1)


def series(angle, power, terms=3000):
    frequency = np.arange(1.0, terms + 1)
    return np.cos(np.outer(angle, frequency)) @ frequency**-power


def power_relu(weights, inputs, power):
    """Sum over neurons of ``a max(0, w x)^q / sqrt(N)``, of a batch."""
    into, out = weights
    before = inputs @ into
    active = before > 0
    return (jnp.where(active, jnp.where(active, before, 1) ** power, 0) @ out / np.sqrt(out.size))[:, None]


APPLY = {power: functools.partial(power_relu, power=power) for power in (0.75, 1.0, 1.25, 1.5)}


def network(power, width=2048):
    def made(seed):
        generator = np.random.default_rng(seed)
        return APPLY[power], (jnp.asarray(generator.normal(size=(2, width))), jnp.asarray(generator.normal(size=width)))

    return made


def exact_spectrum(power, points):
    """Eigenvalues on a regular grid at infinite width, by frequency, by quadrature: the kernel is circulant.

    ``K(t) = E[phi(z) phi(z')] + cos t E[phi'(z) phi'(z')]`` with z = r cos s and z' = r cos(s - t), r Rayleigh: moments
    of r times autocorrelations over the angle, whose Fourier coefficients are squares of those of phi and phi'.
    """
    nodes = points * (2**17 // points)
    cosine = np.cos((np.arange(nodes) + 0.5) * 2 * np.pi / nodes)
    positive = np.where(cosine > 0, cosine, 1)
    value, slope = (
        np.abs(np.fft.fft(np.where(cosine > 0, factor * positive**order, 0)) / nodes) ** 2
        * 2**order
        * math.gamma(1 + order)
        for factor, order in ((1, power), (power, power - 1))
    )
    kernel = value + (np.roll(slope, 1) + np.roll(slope, -1)) / 2
    return kernel.reshape(-1, points).sum(axis=0)


@functools.cache
def report_of(power, decay, points=800, width=2048, draws=2):
    angle, inputs = circle(points)
    return quiet(network(power, width), inputs, series(angle, decay), seeds=draws)


CASES = [(1.5, 1.0), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1.5, 1.75), (1.25, 0.8)))]


@pytest.mark.parametrize(("power", "decay"), CASES)
def test_capacity_and_source_of_the_circle(power, decay):
    # The bound on the errors keeps them from covering everything; most is that windows from mode 3 on bend.
    report = report_of(power, decay)
    capacity, source = 2 * power, (2 * decay - 1) / (2 * power)
    assert abs(report.capacity - capacity) < min(report.capacity_error, 0.1)
    assert abs(report.source - source) < min(report.source_error, 0.1)
    assert report.capacity_error < 0.4
    assert report.source_error < 0.4
    assert report.first_mode == pytest.approx(report.last_mode / 10)


def test_exponents_are_those_of_the_model_within_an_interval():
    report = report_of(1.5, 1.0)
    expected = FeatureScaling(report.capacity, report.source).exponents().exponent
    for quantity in expected.quantity.values:
        for regime in ("lazy", "rich"):
            found = report.exponent(quantity, regime)
            assert found.value == pytest.approx(float(expected.sel(quantity=quantity, regime=regime)), rel=1e-12)
            assert found.low <= found.value <= found.high
    lazy, rich = report.exponent("time"), report.exponent("time", "rich")
    assert lazy.value == report.source
    assert rich.value == pytest.approx(2 * report.source / (1 + report.source))
    # One sigma of a Gaussian about the source, but for the 2000 draws and the cut at zero.
    assert lazy.high - report.source == pytest.approx(report.source_error, rel=0.1)
    assert report.phase == "hard"
    assert sum(report.phase_chances.values()) == pytest.approx(1)
    # N* t* = C, and the loss falls as N*^(-alpha beta) where the task is hard.
    share = report.exponent("optimal-features").value
    assert report.exponent("compute").value == pytest.approx(share * report.capacity * report.source)


def test_measured_eigenvalues_against_quadrature():
    report, exact = report_of(1.5, 1.0), np.sort(exact_spectrum(1.5, 800))[::-1]
    ratio = report.eigenvalues[:, :70] / exact[:70]
    # Kernels of 2048 neurons: an eigenvalue fluctuates by a few times 1/sqrt(2048) = 2 %, all of them mostly together.
    assert np.abs(ratio.mean(axis=1) - 1).max() < 0.12
    # Once that is out, each is right on average over the networks.
    shape = np.exp(np.log(ratio / ratio.mean(axis=1, keepdims=True)).mean(axis=0))
    assert np.abs(shape - 1).max() < 0.1


def test_estimate_of_the_exact_spectrum():
    """Without a network: the estimator on exact eigenvalues, of two interleaved parities, and exact power."""
    for power, decay in ((0.75, 0.9), (1.25, 1.5), (1.5, 1.75), (1.75, 1.2)):
        capacity, source = 2 * power, (2 * decay - 1) / (2 * power)
        eigenvalues = exact_spectrum(power, 2**15)[1:8000]
        order = np.argsort(-eigenvalues, kind="stable")
        # Cosine and sine, which are degenerate, share the power of their frequency.
        modes = Modes(np.repeat(eigenvalues[order], 2), np.repeat((order + 1.0) ** (-2 * decay), 2))
        found = estimate(modes, Window(20, 200), Window(20, 200))
        # A straight line alone is off by 0.03 to 0.1 in the capacity: eigenvalues are not asymptotic at mode 20.
        assert abs(found.capacity - capacity) < 0.05
        assert abs(found.source - source) < 0.05


@pytest.mark.parametrize(("capacity", "source"), [(1.5, 0.6), (2.0, 1.0), (3.5, 0.8)])
def test_pure_power_laws_are_found(capacity, source):
    rank = np.arange(1.0, 5001)
    modes = Modes(rank**-capacity, rank ** (-capacity * source - 1))
    found = estimate(modes, last_decade(500), last_decade(500))
    # Bins average a convex function. The tail ends at mode 5000: half of that is in the source, and in its error.
    assert found.capacity == pytest.approx(capacity, abs=0.02)
    assert found.source == pytest.approx(source, abs=max(1.1 * found.source_error, 0.02))
    assert found.source_error < 0.1
    reference = fit_source_capacity(modes.eigenvalues, np.sqrt(modes.power / modes.eigenvalues))
    assert found.capacity == pytest.approx(float(reference.capacity), abs=0.03)
    clear = clearance(modes, 5000)
    assert clear.floor == 0
    assert clear.last > 500


def test_a_shift_of_the_rank_is_no_other_capacity():
    rank = np.arange(1.0, 3001)
    modes = Modes((rank - 0.9) ** -2.0, rank**-2.0)
    found = estimate(modes, Window(8, 80), Window(8, 80))
    straight = -np.polyfit(np.log(rank[7:80]), np.log(modes.eigenvalues[7:80]), 1)[0]
    assert abs(found.capacity - 2) < 0.7 * abs(straight - 2)
    assert abs(found.capacity - 2) < found.capacity_error


def test_white_noise_is_a_floor_and_taken_out():
    rank, generator = np.arange(1.0, 2001), np.random.default_rng(0)
    signal, level = rank**-2.5, 1e-5
    modes = Modes(rank**-2.0, (np.sqrt(signal) + math.sqrt(level) * generator.normal(size=2000)) ** 2)
    clear = clearance(modes, 2000)
    # Some 1200 modes of chi-squared noise: a standard error of 4 %.
    assert clear.floor == pytest.approx(level, rel=0.15)
    assert 20 < clear.last < 2 * (3 * level) ** (-1 / 2.5)
    found = estimate(modes, last_decade(200), last_decade(clear.last), clear.floor)
    assert abs(found.source - 0.75) < 2 * found.source_error < 0.5


def test_leaks_hide_targets_that_are_too_smooth():
    rank = np.arange(1.0, 1001)
    eigenvalues, smooth, rough = rank**-2.0, rank**-6.0, rank**-2.0
    assert clearance(Modes(eigenvalues, rough), 1000).last > 500
    # lambda_k^2 / n sum_j p_j / lambda_j^2 passes 0.3 k^-6 where k^2 = 0.3 n / 1.64.
    assert clearance(Modes(eigenvalues, smooth), 1000).last == pytest.approx(math.sqrt(300 / 1.64), rel=0.5)
    # noise lambda_k sum_j p_j / lambda_j passes 0.3 k^-6 where k^4 = 0.3 / (1.08 noise).
    assert clearance(Modes(eigenvalues, smooth), 10**9, 1e-4).last == pytest.approx((3000 / 1.08) ** 0.25, rel=0.5)


def test_lazy_curve_is_that_of_the_tangent_model():
    """Gradient descent on the linearised network, step by step, from its own outputs."""
    angle, inputs = circle(40)
    goal = series(angle, 1.5)
    apply, start = network(1.5, 64)(0)
    report = quiet(apply, inputs, goal, parameters=start, initial_outputs="network")
    linear, rate = tangent_model(apply, start), 0.5 / report.eigenvalues.max()

    def loss(parameters):
        return jnp.mean((linear(parameters, inputs)[:, 0] - goal) ** 2)

    def step(parameters, _):
        value, slope = jax.value_and_grad(loss)(parameters)
        # Time is that of half the squared error.
        return jax.tree.map(lambda now, down: now - rate * down / 2, parameters, slope), value

    losses = np.asarray(jax.jit(lambda: jax.lax.scan(step, start, length=301)[1])())
    steps = np.array([0, 1, 10, 100, 300])
    exact = report.lazy_curve(rate * steps, learning_rate=rate).train_loss.values
    np.testing.assert_allclose(exact, losses[steps], rtol=1e-8)
    flow = report.lazy_curve(rate * steps).train_loss.values
    np.testing.assert_allclose(flow[3:], losses[steps[3:]], rtol=0.05)
    assert np.isnan(report.lazy_curve([1.0]).train_loss_spread).all()
    with pytest.raises(ValueError, match="below .* diverges"):
        report.lazy_curve([1.0], learning_rate=3 / report.eigenvalues.max())


def test_outputs_learn_each_by_its_own_kernel():
    """Two outputs with weights of their own: eigenvalues as of one, power added up, labels one-hot."""
    _, inputs = circle(60)
    apply, (into, out) = network(1.5, 64)(0)
    labels = (inputs[:, 0] > 0.3).astype(int)

    def double(weights, points):
        return jnp.concatenate([apply(part, points) for part in weights], axis=1)

    one = quiet(apply, inputs, labels.astype(float), parameters=(into, out))
    two = quiet(double, inputs, labels, parameters=((into, out), (into, -out)))
    np.testing.assert_allclose(two.eigenvalues, one.eigenvalues, rtol=1e-6, atol=1e-15)
    cross = quiet(apply, inputs, 1.0 - labels, parameters=(into, out))
    np.testing.assert_allclose(two.power, one.power + cross.power, rtol=1e-6, atol=1e-12)
    assert two.power.sum() == pytest.approx(1)


def test_landmarks_and_precision_keep_the_strong_modes():
    angle, inputs = circle(40)
    apply, start = network(1.5, 8)(0)
    exact, whole, single = (
        quiet(apply, inputs, series(angle, 1.5), parameters=start, **options)
        for options in ({}, {"landmarks": 40}, {"dtype": "float32"})
    )
    np.testing.assert_allclose(whole.eigenvalues[0, :10], exact.eigenvalues[0, :10], rtol=1e-6)
    np.testing.assert_allclose(whole.power[0, :10], exact.power[0, :10], rtol=1e-5, atol=1e-12)
    # Float32 keeps six digits of the largest, and nothing is taken for an eigenvalue that is its rounding.
    kept = single.eigenvalues.shape[1]
    assert kept < exact.eigenvalues.shape[1]
    np.testing.assert_allclose(single.eigenvalues, exact.eigenvalues[:, :kept], atol=3e-6 * exact.eigenvalues.max())
    assert single.precision == "float32"


def test_parity_gap_is_found_and_named():
    angle, inputs = circle(120)
    # 3 ones and odd frequencies: the even ReLU kernel sees cos 2t, never cos 3t.
    report = quiet(network(1.0, 256), inputs, np.cos(2 * angle) + np.cos(3 * angle), seeds=1)
    (gap,) = [note for note in report.notes if "parity gap" in note]
    assert "odd" in gap
    assert "50 %" in gap
    assert "biases" in gap
    np.testing.assert_allclose(report.outside, 0.5, rtol=1e-6)
    assert report.lazy_curve([1e12]).train_loss.values == pytest.approx(0.5, rel=1e-6)
    assert not [note for note in report_of(1.5, 1.0).notes if "parity" in note]


class Scaled(eqx.Module):
    weight: jax.Array
    factor: Constant

    def __call__(self, one):
        return self.weight @ jnp.tanh(one) * self.factor.held


def test_constants_of_a_network_are_no_parameters():
    """Factors are arrays like weights, but training leaves them alone, and so must the kernel."""
    _, inputs = circle(30)
    weight = jnp.asarray([[0.3, -2.0]])
    (held,) = initial_networks(Scaled(weight, Constant(jnp.asarray(3.0))), None, None, 0)
    assert held.constants() == 1
    kernel = ntk(held.model, inputs, dtype="float64", progress=False).values
    np.testing.assert_allclose(kernel, 9 * np.tanh(inputs) @ np.tanh(inputs).T, rtol=1e-12)


@pytest.mark.slow
def test_kernel_of_our_own_networks():
    _, inputs = circle(30)
    mlp = MLP(2, 1, 32, 2, key=jax.random.key(0), parameterisation="ntk", power=1.5, bias=False, dtype=jnp.float64)
    first, last = (layer.weight for layer in mlp.layers)
    report = quiet(mlp, inputs, inputs[:, 0])
    assert report.parameters == 3 * 32

    def plain(weights, points):
        return APPLY[1.5]((weights[0].T / math.sqrt(2), weights[1][0]), points)

    kernel = ntk(plain, inputs, parameters=(first, last), progress=False).values
    np.testing.assert_allclose(report.eigenvalues[0], np.linalg.eigvalsh(kernel)[::-1] / 30, rtol=1e-6)


def test_notes_say_what_to_mind():
    angle, inputs = circle(40)
    goal, generator = series(angle, 1.5), np.random.default_rng(0)

    def said(report, words):
        return any(words in note for note in report.notes)

    few = quiet(network(1.5, 256), inputs, goal, seeds=2)
    assert said(few, "decades of modes")
    assert not said(few, "one network was measured")
    apply, start = network(1.5, 8)(0)
    narrow = quiet(apply, inputs, goal, parameters=start)
    assert said(narrow, "one network was measured")
    assert said(narrow, "fewer parameters (24) than points")
    noise = quiet(network(1.5, 256), inputs, generator.normal(size=40), seeds=1)
    assert not noise.source > 0 or noise.source < 2 * noise.source_error
    same = quiet(lambda: (apply, start), inputs, goal)
    assert same.networks == 1
    assert said(same, "initialisations are the same")
    linear = quiet(lambda weights, points: points @ weights, inputs, goal, parameters=jnp.ones((2, 1)))
    assert math.isnan(linear.capacity)
    assert not linear.power_law
    assert said(linear, "only 2 modes")
    assert math.isnan(linear.exponent("compute").value)
    for report in (few, narrow, noise, same, linear):
        assert report.summary()
        assert json.loads(report.to_json())["notes"] == list(report.notes)
        report.to_dataset()
    linear.plot()


def test_report_for_people_files_and_tables():
    report = report_of(1.5, 1.0)
    text = report.summary()
    assert f"{report.capacity:.3f} ± {report.capacity_error:.3f}" in text
    assert "loss against time, rich" in text
    assert "<table" in report._repr_html_()
    assert "rich=" in repr(report)
    content = json.loads(report.to_json())
    assert content["exponents"]["rich"]["time"]["value"] == report.exponent("time", "rich").value
    assert math.hypot(*content["source_errors"].values()) == pytest.approx(content["source_error"])
    data = report.to_dataset()
    assert data.eigenvalue.sizes == {"network": 2, "mode": report.eigenvalues.shape[1]}
    assert float(data.exponent.sel(quantity="time", regime="lazy")) == report.source
    assert all("long_name" in data[name].attrs for name in data.data_vars)
    assert len(report.plot().axes) == 3
    begin, end = report.times
    assert 1 < begin < end
    # The forecast slope is that of the curve between the times of the fitted modes.
    early, late = report.lazy_curve([2 * begin, end / 4]).train_loss.values
    slope = math.log(early / late) / math.log(end / (8 * begin))
    assert abs(slope - report.source) < 2 * report.source_error


class Tiny(eqx.Module):
    weight: jax.Array

    def __call__(self, one):
        return self.weight @ jnp.tanh(one)


def test_networks_in_all_forms():
    key = jax.random.key(3)
    module = Tiny(jax.random.normal(key, (1, 2)))
    assert len(initial_networks(module, None, None, 0)) == 1
    made = initial_networks(lambda key: Tiny(jax.random.normal(key, (1, 2))), None, 2, 0)
    assert len(made) == 2
    assert not np.allclose(made[0].model.weight, made[1].model.weight)
    assert make(lambda seed, other=1: seed + other, 2, 5) == 2006
    mlp = eqx.filter_eval_shape(make, built_in("mlp:16x3", 4, 2))
    assert [layer.weight.shape for layer in mlp.layers] == [(16, 4), (16, 16), (2, 16)]
    assert built_in("module:function", 4, 2) is None


@pytest.mark.slow
def test_torch_networks_are_drawn_anew_and_agree_with_jax():
    torch = pytest.importorskip("torch")
    angle, inputs = circle(40)
    state = torch.random.get_rng_state()

    def made():
        return torch.nn.Sequential(torch.nn.Linear(2, 24), torch.nn.ReLU(), torch.nn.Linear(24, 1))

    report = quiet(made, inputs, series(angle, 1.5), seeds=2)
    assert report.networks == 2
    assert torch.equal(state, torch.random.get_rng_state())
    first = make(made, 0, 0)
    weights = [jnp.asarray(value.detach().numpy(), jnp.float64) for value in first.parameters()]

    def apply(parameters, points):
        return jax.nn.relu(points @ parameters[0].T + parameters[1]) @ parameters[2].T + parameters[3]

    same = quiet(apply, inputs, series(angle, 1.5), parameters=weights)
    np.testing.assert_allclose(report.eigenvalues[0, :15], same.eigenvalues[0, :15], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": np.ones((10, 2)), "targets": np.ones(10)}, "10 points: give at least 20"),
        ({"targets": np.ones(39)}, "40 inputs and 39 targets"),
        ({"targets": np.zeros(40)}, "all zero"),
        ({"targets": np.full(40, np.nan)}, "not finite in row 0"),
        ({"targets": np.ones((40, 3))}, "1 outputs and the targets have 3"),
        ({"targets": np.arange(40) % 2}, "labels must be from 0 to 0"),
        ({"targets": np.array(["a"] * 40)}, "numbers or labels"),
        ({"initial_outputs": "middle"}, "initial_outputs must be one of 'zero', 'network'"),
        ({"first_mode": 9, "last_mode": 3}, "first_mode must be below last_mode"),
        ({"first_mode": 0}, "first_mode"),
        ({"seeds": 2}, "one network cannot be initialised with 2 seeds"),
        ({"parameters": None}, "it needs weights, inputs.*pass parameters"),
        ({"model": 3, "parameters": None}, "or a function that makes one, not 3"),
        ({"model": lambda: 3, "parameters": None}, "must return .* not int"),
        ({"landmarks": 41}, "landmarks must be"),
        ({"inputs": np.full((40, 2), np.inf)}, "not finite on input 0"),
    ],
)
def test_bad_input(change, message):
    apply, start = network(1.5, 8)(0)
    _, inputs = circle(40)
    arguments = {"model": apply, "inputs": inputs, "targets": inputs[:, 0], "parameters": start} | change
    with pytest.raises(ValueError, match=message):
        quiet(**arguments)


def test_bad_names():
    for text in ("mlp:", "mlp:10", "mlp:10x1", "mlp:0x2"):
        with pytest.raises(ValueError, match="mlp:WIDTHxDEPTH"):
            built_in(text, 2, 1)
    with pytest.raises(ValueError, match="quantity must be one of"):
        report_of(1.5, 1.0).exponent("speed")


@pytest.mark.slow
@pytest.mark.parametrize(("power", "decay"), [(0.75, 0.75), (0.75, 1.2), (1.25, 1.5), (1.5, 1.0), (1.5, 1.75)])
def test_errors_cover_the_truth(power, decay):
    """Random points and new networks, six times: deviations in units of their errors are about one."""
    capacity, source = 2 * power, (2 * decay - 1) / (2 * power)
    scores = []
    for seed in range(6):
        angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, 1000)
        inputs = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        report = quiet(network(power, 4096), inputs, series(angle, decay), key=seed)
        assert isinstance(report, ForecastReport)
        scores.append(
            ((report.capacity - capacity) / report.capacity_error, (report.source - source) / report.source_error)
        )
    # Errors are mostly systematic, the same in all six: a root mean square of 1.7 is a systematic error of 1.7 sigma.
    assert (np.sqrt(np.mean(np.square(scores), axis=0)) < 1.7).all()
    assert np.abs(scores).max() < 3


def test_work_beyond_the_limit_is_refused_before_it_begins(monkeypatch) -> None:
    """Ten classes cost ten gradients an input: on a slow machine that is said, with what to do about it."""
    from solvable.networks import forecast_checks

    inputs = np.random.default_rng(0).normal(size=(60, 5))
    labels = np.arange(60) % 10

    def apply(parameters, inputs):
        return np.tanh(1.0) * (inputs @ parameters)

    start = np.ones((5, 10))
    monkeypatch.setattr(forecast_checks, "operations_per_second", lambda: 1e3)
    with pytest.raises(ValueError, match=r"about .* for 60 points and 10 outputs.*landmarks.*--time-limit") as caught:
        forecast(apply, inputs, labels, parameters=start)
    assert "\n" not in str(caught.value)
    for limit in (None, np.inf):
        assert forecast(apply, inputs, labels, parameters=start, time_limit=limit).points == 60
    with pytest.raises(ValueError, match="time_limit must be a positive number"):
        forecast(apply, inputs, labels, parameters=start, time_limit=-1)


def test_the_estimate_counts_operations(monkeypatch) -> None:
    """Twice as many inputs are four times the contractions; a linear layer costs its rows plus its columns."""
    from solvable.networks import forecast_checks
    from solvable.networks.initialisations import Initial

    monkeypatch.setattr(forecast_checks, "operations_per_second", lambda: 1.0)
    monkeypatch.setattr(forecast_checks, "_DECOMPOSITION", 0.0)
    monkeypatch.setattr(forecast_checks, "_SLOWER", 0.0)
    monkeypatch.setattr(linear_layers, "WORTHWHILE", 0)
    network = eqx.nn.MLP(6, 10, 20, depth=1, key=jax.random.key(0))
    inputs = np.random.default_rng(0).normal(size=(40, 6))
    found = forecast_checks.forecast_seconds([Initial(network, None)], inputs, 10)
    assert found == 2 * 40 * 40 / 2 * 10 * ((6 + 20 + 1) + (20 + 10 + 1))
    assert forecast_checks.forecast_seconds([Initial(network, None)], inputs[:20], 10) == found / 4
    assert forecast_checks.forecast_seconds([Initial(network, None)] * 3, inputs, 1) == pytest.approx(0.3 * found)


def test_progress_says_how_long_it_takes(monkeypatch) -> None:
    import contextlib
    import sys

    module = sys.modules["solvable.networks.forecast"]
    told = []

    @contextlib.contextmanager
    def bar(label, total, show=None, unit=None):
        told.append([label, total, 0.0])
        yield lambda amount=1.0: told[-1].__setitem__(2, told[-1][2] + amount)

    monkeypatch.setattr(module, "progress_bar", bar)
    inputs = np.random.default_rng(0).normal(size=(40, 3))
    forecast(lambda own, x: x @ own, inputs, inputs, parameters=np.eye(3))
    ((label, total, done),) = told
    assert "about" in label
    assert done == pytest.approx(total)
