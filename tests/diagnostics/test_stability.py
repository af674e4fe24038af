"""Curvature of the training loss: against whole Hessians, identities, closed forms, and the other library."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import solvable
import solvable.equinox
from solvable.diagnostics import UpdateRule, ntk, stability
from solvable.diagnostics.lanczos import lanczos

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(12, 3))
LABELS = RNG.integers(0, 4, 12)
TARGETS = RNG.normal(size=(12, 4))
PARAMETERS = tuple(np.asarray(0.7 * RNG.normal(size=shape)) for shape in ((3, 5), (5,), (5, 4)))
# Enough products to exhaust the 40 parameters: Lanczos is then exact up to rounding.
EXACT = {"budget": 400.0, "tolerance": 0, "dtype": "float64", "count": 40}


def apply(parameters, inputs):
    first, bias, second = parameters
    return jnp.tanh(inputs @ first + bias) @ second


def linear(weights, inputs):
    return inputs @ weights


def whole(loss, parameters=PARAMETERS):
    """Hessian and Gauss-Newton matrix by dense automatic differentiation: another route than products."""
    with jax.enable_x64(True):
        flat, back = ravel_pytree(tuple(map(jnp.asarray, parameters)))

        def outputs(vector):
            return apply(back(vector), jnp.asarray(INPUTS)).ravel()

        jacobian = np.asarray(jax.jacobian(outputs)(flat))
        inner = np.asarray(jax.hessian(lambda f: loss(f.reshape(12, 4)))(outputs(flat)))
        hessian = np.asarray(jax.hessian(lambda v: loss(outputs(v).reshape(12, 4)))(flat))
    return hessian, jacobian.T @ inner @ jacobian


def nonzero(values):
    """Eigenvalues but for the null space of softmax, of which Lanczos sees one direction: sorted, largest first."""
    return np.sort(values[np.abs(values) > 1e-9])[::-1]


def cross_entropy(outputs):
    return -jnp.mean(jax.nn.log_softmax(outputs)[jnp.arange(12), LABELS])


LOSSES = {
    "mse": (lambda outputs: jnp.mean((outputs - TARGETS) ** 2), TARGETS),
    "half-mse": (lambda outputs: jnp.sum((outputs - TARGETS) ** 2) / 24, TARGETS),
    "cross-entropy": (cross_entropy, LABELS),
}


def in_batches(targets, *ends):
    ends = [0, *ends, 12]
    return [(INPUTS[a:b], targets[a:b]) for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize("loss", LOSSES)
def test_eigenvalues_are_those_of_the_whole_matrices(loss):
    function, targets = LOSSES[loss]
    hessian, gauss_newton = map(np.linalg.eigvalsh, whole(function))
    # Unequal batches: each sample counts alike.
    report = stability(apply, in_batches(targets, 3, 6), loss=loss, parameters=PARAMETERS, **EXACT)
    np.testing.assert_allclose(nonzero(report.eigenvalues), nonzero(hessian), atol=1e-11)
    assert len(nonzero(hessian)) >= 35
    # A matrix without full rank: Lanczos ends when its range is exhausted.
    found = report.gauss_newton
    np.testing.assert_allclose(found[:20], gauss_newton[::-1][:20], rtol=1e-8, atol=1e-9)
    assert found.min() > -1e-10
    assert report.loss == pytest.approx(float(function(apply(PARAMETERS, INPUTS))), rel=1e-6)
    assert report.smallest == pytest.approx(hessian[0])


def test_a_function_is_the_loss_it_computes():
    def mean_of_squares(outputs, targets):
        return jnp.mean((outputs - targets) ** 2)

    def squares(outputs, targets):
        return jnp.mean((outputs - targets) ** 2, axis=1)

    data = (INPUTS, TARGETS)
    expected = stability(apply, data, loss="mse", parameters=PARAMETERS, **EXACT)
    for loss in (mean_of_squares, squares):
        found = stability(apply, data, loss=loss, parameters=PARAMETERS, **EXACT)
        np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, atol=1e-12)
        assert found.loss_name == loss.__name__


def test_a_model_linear_in_its_parameters_has_the_gauss_newton_hessian():
    weights = RNG.normal(size=(3, 4))
    report = stability(linear, (INPUTS, LABELS), parameters=weights, budget=200, tolerance=1e-10, dtype="float64")
    np.testing.assert_allclose(report.eigenvalues, report.gauss_newton, rtol=1e-8)
    # On the squared loss it is X^T X / n, for each output.
    squared = stability(linear, (INPUTS, TARGETS), loss="half-mse", parameters=weights, **EXACT)
    assert squared.sharpness == pytest.approx(np.linalg.eigvalsh(INPUTS.T @ INPUTS / 12)[-1], rel=1e-10)


def test_two_weights_whose_hessian_is_known():
    """f = a b x with the loss (a b - s)^2 / 2 at x = 1: H = [[b^2, 2 a b - s], [2 a b - s, a^2]]."""
    a, b, s = 1.3, 0.4, 2.0
    report = stability(
        lambda p, x: p[0] * p[1] * x,
        (np.ones((1, 1)), np.full((1, 1), s)),
        loss="half-mse",
        parameters=(np.asarray(a), np.asarray(b)),
        dtype="float64",
    )
    mean, half, off = (a * a + b * b) / 2, (b * b - a * a) / 2, 2 * a * b - s
    roots = mean + math.hypot(half, off), mean - math.hypot(half, off)
    np.testing.assert_allclose(report.eigenvalues, roots, rtol=1e-12)
    np.testing.assert_allclose(report.gauss_newton[0], a * a + b * b, rtol=1e-12)


def test_scalar_network_at_its_minimum():
    """Where a network fits, H = GN = the tangent kernel: sum (a^2 + b^2) E[x^2] / Z^2; the model states K / Z."""
    model = solvable.ScalarNetwork(initial_first=(0.9, 0.3), initial_second=(0.2, -0.4), target=1.5, output_scale=2.0)
    late = model.predict([0, 200])
    first, second = late.first.values[-1], late.second.values[-1]
    report = stability(
        lambda p, x: (p[0] @ p[1] / 2.0) * x,
        (np.ones((1, 1)), np.full((1, 1), 1.5)),
        loss="half-mse",
        parameters=(first, second),
        dtype="float64",
    )
    kernel = (first @ first + second @ second) / 4
    assert report.sharpness == pytest.approx(kernel, rel=1e-9)
    assert float(late.kernel[-1]) == pytest.approx(kernel, rel=1e-9)
    assert report.gauss_newton[0] == pytest.approx(kernel, rel=1e-9)


def test_linear_network_at_its_minimum():
    """Of f = W2^T W1^T x on white inputs, the sharpness where it has learned is twice the strongest singular value."""
    singular_values = (2.0, 0.7)
    model = solvable.LinearNetwork(singular_values=singular_values, width=3)
    # Balanced layers of the strengths that the model predicts, with any rotation of the hidden units.
    strength = np.diag(model.predict([0, 200]).strength.values[-1])
    rotation = np.linalg.qr(RNG.normal(size=(3, 3)))[0][:2]
    first, second = np.sqrt(strength) @ rotation, rotation.T @ np.sqrt(strength)
    inputs = math.sqrt(2) * np.eye(2)
    targets = inputs @ np.diag(singular_values)
    report = stability(
        lambda p, x: x @ p[0] @ p[1],
        (inputs, targets),
        loss="half-mse",
        parameters=(first, second),
        dtype="float64",
        budget=60,
        tolerance=1e-10,
    )
    assert report.sharpness == pytest.approx(2 * max(singular_values), rel=1e-7)
    # The model refuses learning rates from 2 / sharpness on: the same number by another route.
    assert report.stable_learning_rate == pytest.approx(model._stable_learning_rate(), rel=1e-7)
    kernel = ntk(lambda p, x: x @ p[0] @ p[1], inputs, parameters=(first, second), outputs="full", dtype="float64")
    largest = np.linalg.eigvalsh(kernel.values.reshape(4, 4) / 2)[-1]
    assert report.sharpness == pytest.approx(largest, rel=1e-7)


def test_trace_and_density_agree_with_the_whole_hessian():
    hessian, _ = whole(cross_entropy)
    report = stability(
        apply, (INPUTS, LABELS), parameters=PARAMETERS, density=True, probes=40, dtype="float64", budget=30
    )
    # Key 0: 40 probes, whose mean is within 4 standard errors but in 1 of 10^4 cases.
    assert abs(report.trace - np.trace(hessian)) < 4 * report.trace_error
    assert 0 < report.trace_error < 0.2 * np.trace(hessian)
    # The standard error of signs is known: 2 sum_{i != j} H_ij^2 / probes.
    expected = math.sqrt(2 * (np.sum(hessian**2) - np.sum(np.diag(hessian) ** 2)) / 40)
    assert report.trace_error == pytest.approx(expected, rel=0.4)
    data = report.to_dataset()
    grid, density = data.eigenvalue.values, data.density.values
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=2e-3)
    assert np.trapezoid(grid * density, grid) == pytest.approx(report.trace / 40, rel=2e-2)
    # Against a histogram: the share of eigenvalues above a tenth of the largest.
    above = grid > 0.1 * report.sharpness
    share = np.mean(np.linalg.eigvalsh(hessian) > 0.1 * report.sharpness)
    assert np.trapezoid(density[above], grid[above]) == pytest.approx(share, abs=0.08)


def test_the_statistical_error_is_that_of_batch_means():
    """For a model with one weight the Hessian of a batch is its mean of x^2: a standard error of plain numbers."""
    x = RNG.normal(size=(30, 1))
    batches = [(x[i : i + 3], x[i : i + 3]) for i in range(0, 30, 3)]
    report = stability(
        lambda w, x: x * w, batches, loss="half-mse", parameters=np.asarray(0.3), budget=20, dtype="float64"
    )
    means = (x**2).reshape(10, 3).mean(axis=1)
    assert report.sharpness == pytest.approx(means.mean())
    assert report.statistical_error == pytest.approx(means.std(ddof=1) / math.sqrt(10))
    one = stability(lambda w, x: x * w, [(x, x)], loss="half-mse", parameters=np.asarray(0.3), dtype="float64")
    assert one.statistical_error is None


def test_residuals_bound_the_distance_from_an_eigenvalue():
    values = np.concatenate([np.linspace(-1, 1, 60), [3.0, 5.0]])
    found = lanczos(lambda v, basis: (values * v, np.zeros((1, len(basis)))), RNG.normal(size=62), 9)
    for ritz, residual in zip(found.values, found.residuals, strict=True):
        assert np.abs(values - ritz).min() <= residual + 1e-12
    assert 5 - found.errors[0] <= found.values[0] <= 5 + 1e-12
    assert found.errors[0] < found.residuals[0]
    assert found.weights.sum() == pytest.approx(1)


def test_the_default_look_costs_at_most_twenty_gradients():
    for data in ((INPUTS, LABELS), in_batches(LABELS, *range(1, 12))):
        report = stability(apply, data, parameters=PARAMETERS, tolerance=1e-12)
        assert 10 < report.cost <= 20
        assert f"{report.cost:.1f} gradients" in report.summary()
    # An earlier measurement is a good start: more accuracy for the same work.
    first = stability(apply, (INPUTS, LABELS), parameters=PARAMETERS, budget=60, tolerance=1e-6)
    again = stability(apply, (INPUTS, LABELS), parameters=PARAMETERS, start=first)
    plain = stability(apply, (INPUTS, LABELS), parameters=PARAMETERS)
    assert (again.cost, again.error) < (plain.cost + 1, plain.error)
    assert abs(again.sharpness - first.sharpness) <= 2 * again.error


@pytest.mark.parametrize("batches", [1, 2, 7, 8, 9, 12])
@pytest.mark.parametrize("budget", [12, 13, 20, 30])
def test_no_budget_is_exceeded(budget, batches):
    """Whether or not a part of the data is looked at first."""
    data = in_batches(LABELS, *range(1, batches))
    report = stability(apply, data, parameters=PARAMETERS, tolerance=0, budget=budget)
    assert budget - 3 <= report.cost <= budget
    with pytest.raises(ValueError, match="gradients, 12 or more"):
        stability(apply, data, parameters=PARAMETERS, budget=11.9)


def test_a_key_fixes_the_numbers():
    one, same, other = (stability(apply, (INPUTS, LABELS), parameters=PARAMETERS, key=key) for key in (1, 1, 2))
    np.testing.assert_array_equal(one.eigenvalues, same.eigenvalues)
    assert one.sharpness != other.sharpness


def test_frozen_parameters_are_left_out():
    trainable = (True, False, True)
    report = stability(apply, (INPUTS, LABELS), parameters=PARAMETERS, trainable=trainable, **EXACT)
    hessian, _ = whole(cross_entropy)
    kept = np.r_[0:15, 20:40]
    expected = np.linalg.eigvalsh(hessian[np.ix_(kept, kept)])
    np.testing.assert_allclose(nonzero(report.eigenvalues), nonzero(expected), atol=1e-11)


def test_half_precision_is_computed_in_float32():
    half = tuple(jnp.asarray(part, jnp.bfloat16) for part in PARAMETERS)
    rounded = tuple(np.asarray(part, np.float32) for part in half)
    report = stability(apply, (INPUTS, LABELS), parameters=half)
    expected = stability(apply, (INPUTS, LABELS), parameters=rounded)
    assert report.sharpness == expected.sharpness
    assert "in float32 (parameters in bfloat16)" in report.summary()


def test_outputs_are_found_in_a_dictionary():
    def fields(parameters, inputs):
        return {"logits": apply(parameters, inputs), "hidden": inputs}

    report = stability(fields, (INPUTS, LABELS), parameters=PARAMETERS)
    assert report.sharpness == stability(apply, (INPUTS, LABELS), parameters=PARAMETERS).sharpness


def test_ignored_labels_and_tokens():
    """Tokens of a sequence are samples of their own; those with the label -100 count as if they were not there."""
    labels = np.where(np.arange(12) % 3 == 0, -100, LABELS).reshape(4, 3)
    kept = labels.ravel() >= 0
    tokens = stability(apply, (INPUTS.reshape(4, 3, 3), labels), parameters=PARAMETERS, **EXACT)
    plain = stability(apply, (INPUTS[kept], LABELS[kept]), parameters=PARAMETERS, **EXACT)
    assert tokens.samples == plain.samples == 8
    np.testing.assert_allclose(tokens.eigenvalues, plain.eigenvalues, atol=1e-11)


def test_reverse_mode_gives_the_same_where_forward_mode_is_missing():
    @jax.custom_vjp
    def tanh(x):
        return jnp.tanh(x)

    tanh.defvjp(lambda x: (jnp.tanh(x), x), lambda x, slope: (slope * (1 - jnp.tanh(x) ** 2),))

    def custom(parameters, inputs):
        return tanh(inputs @ parameters[0] + parameters[1]) @ parameters[2]

    report = stability(custom, (INPUTS, LABELS), parameters=PARAMETERS, **EXACT)
    expected = stability(apply, (INPUTS, LABELS), parameters=PARAMETERS, **EXACT)
    np.testing.assert_allclose(report.eigenvalues, expected.eigenvalues, atol=1e-11)
    np.testing.assert_allclose(report.gauss_newton[:10], expected.gauss_newton[:10], atol=1e-9)


def test_the_preconditioned_hessian_of_optax():
    """Two steps of Adam: its state gives the matrix P^-1/2 H P^-1/2, here formed whole."""
    with jax.enable_x64(True):
        optimiser = optax.adam(0.01, b1=0.8, b2=0.95, eps=1e-4)
        weights = tuple(map(jnp.asarray, PARAMETERS))
        state, nu = optimiser.init(weights), 0.0
        for _ in range(2):
            slope = jax.grad(lambda p: cross_entropy(apply(p, jnp.asarray(INPUTS))))(weights)
            flat = np.asarray(ravel_pytree(slope)[0])
            nu = 0.95 * nu + 0.05 * flat**2
            update, state = optimiser.update(slope, state, weights)
            weights = optax.apply_updates(weights, update)
    rule = UpdateRule.of(state, learning_rate=0.01, momentum=0.8, beta2=0.95, eps=1e-4)
    root = np.sqrt(1 / ((1 - 0.8**2) * (np.sqrt(nu / (1 - 0.95**2)) + 1e-4)))
    hessian, _ = whole(cross_entropy, weights)
    report = stability(apply, (INPUTS, LABELS), parameters=weights, optimizer=rule, **EXACT)
    expected = np.linalg.eigvalsh(root[:, None] * hessian * root)
    np.testing.assert_allclose(nonzero(report.eigenvalues), nonzero(expected), atol=1e-8)
    assert report.edge == pytest.approx((2 + 2 * 0.8) / ((1 - 0.8) * 0.01))
    assert report.preconditioned
    assert "preconditioned Hessian" in report.verdict


def test_verdicts_and_dataset():
    data = (math.sqrt(2) * np.diag([1.0, 0.5]), np.ones((2, 1)))

    def at(rate):
        weights = np.zeros((2, 1))
        return stability(linear, data, loss="half-mse", parameters=weights, learning_rate=rate)

    assert at(1.6).regime == "stable"
    assert "80 % of the edge" in at(1.6).verdict
    assert at(2.0).regime == "edge of stability"
    assert at(3.0).regime == "unstable"
    assert (at(0.0).edge_fraction, at(0.0).regime) == (0, "stable")
    assert "does not move" in at(0.0).verdict
    report = at(None)
    assert report.regime == "unknown"
    assert report.edge_fraction is None
    assert "stable up to a learning rate of 2" in report.verdict
    found = at(1.6).to_dataset()
    assert float(found.edge_fraction) == pytest.approx(0.8, rel=1e-5)
    assert found.eigenvalue_of_hessian.dims == ("mode",)
    assert len(at(1.6).plot().axes) == 1


def test_equinox_module_equals_its_function():
    network = eqx.nn.MLP(3, 4, 5, depth=1, activation=jnp.tanh, key=jax.random.key(0))
    data = (INPUTS.astype("float32"), LABELS)
    direct = stability(network, data, learning_rate=0.1)
    through = solvable.equinox.stability(network, data, solvable.GradientDescent(0.1))
    assert direct.sharpness == pytest.approx(through.sharpness, rel=1e-5)
    assert through.edge == 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": []}, "are empty"),
        ({"data": iter([(INPUTS, LABELS)])}, "iterator"),
        ({"data": [INPUTS]}, "needs targets"),
        ({"data": (INPUTS, TARGETS)}, "give loss='mse'"),
        ({"data": (INPUTS, LABELS), "loss": "mse"}, "one-hot rows"),
        ({"data": (INPUTS, TARGETS[:, :2]), "loss": "mse"}, "have shape"),
        ({"data": (INPUTS, np.full(12, -100))}, "every target is ignored"),
        ({"loss": "hinge"}, "loss must be one of mse, half-mse, cross-entropy"),
        ({"parameters": (np.full((3, 5), np.nan), *PARAMETERS[1:])}, "on batch 1"),
        ({"parameters": ()}, "no trainable parameters"),
        ({"parameters": None}, "pass parameters"),
        ({"trainable": (False, False, False)}, "no trainable parameters"),
        ({"model": lambda p, x: jnp.sign(apply(p, x))}, "sign"),
        ({"model": lambda p, x: jax.lax.stop_gradient(apply(p, x))}, "detach"),
        ({"budget": 0}, "budget must be"),
        ({"momentum": 0.9}, "give learning_rate"),
        ({"optimizer": optax.sgd(0.1).init(PARAMETERS)}, "ScaleByAdamState"),
        ({"optimizer": optax.adam(0.1).init(PARAMETERS)}, "give the number as learning_rate"),
        ({"optimizer": optax.adam(0.1).init(PARAMETERS), "learning_rate": 0.1}, "has made no step"),
        ({"optimizer": solvable.GradientDescent(0.1), "learning_rate": 0.1}, "is read from the optimizer"),
        ({"optimizer": UpdateRule(0.1, scale=(np.ones(3),))}, "give a PyTree like the parameters"),
        ({"device": "cpu"}, "device is for torch"),
        ({"dtype": "float16"}, "dtype must be"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(change, words):
    arguments = {"model": apply, "data": (INPUTS, LABELS), "parameters": PARAMETERS, **change}
    model, data = arguments.pop("model"), arguments.pop("data")
    with pytest.raises(ValueError) as caught:
        stability(model, data, **arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_measured_sharpness_is_that_of_theory_and_falls_below_the_edge():
    """Along the flow of two weights in closed form; with a rate whose edge is lower, descent ends below that edge."""
    model = solvable.ScalarNetwork(initial_first=(1.2,), initial_second=(0.05,), target=1.0)
    flow = model.predict([0.2, 1.0, 3.0])
    data = np.ones((1, 1)), np.ones((1, 1))

    def measured(weights, rate=0.1):
        found = stability(
            lambda p, x: p[0] * p[1] * x,
            data,
            loss="half-mse",
            learning_rate=rate,
            parameters=tuple(map(np.asarray, weights)),
            dtype="float64",
        )
        return found.sharpness, found.edge

    for place in range(3):
        a, b = float(flow["first"][place, 0]), float(flow["second"][place, 0])
        theory = (a * a + b * b) / 2 + math.hypot((a * a - b * b) / 2, 2 * a * b - 1)
        assert measured((a, b))[0] == pytest.approx(theory, rel=1e-9)
    above = measured((a, b))[0] - 2.35
    assert above > 0.1
    rate = 2 / 2.35
    for _ in range(300):
        a, b = a - rate * (a * b - 1) * b, b - rate * (a * b - 1) * a
    sharpness, edge = measured((a, b), rate)
    # The oscillation that began at the edge plus ``above`` ends about as far below it.
    assert edge - 1.5 * above < sharpness < edge
