"""Kernels of anybody's network: closed forms, other libraries, other routes, and what is made of them."""

import itertools
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from solvable.diagnostics import cka, feature_kernel, kernel_alignment, kernel_change, ntk, spectrum
from solvable.models.feature_scaling import fit_source_capacity

INPUTS = np.random.default_rng(0).normal(size=(9, 4))


def linear(parameters, inputs):
    return inputs @ parameters


def two_layers(parameters, inputs):
    first, second = parameters
    return jnp.tanh(inputs @ first.T) @ second.T


def two_layer_weights(width=6, outputs=3, key=1):
    draw = np.random.default_rng(key).normal
    return draw(size=(width, 4)), draw(size=(outputs, width))


def two_layer_kernel(parameters, inputs, others):
    """By hand: δ_cd h(x)·h(x') from the second layer, Σ_i A_ci A_di φ'_i(x) φ'_i(x') x·x' from the first."""
    first, second = parameters
    hidden, slope = (lambda x: np.tanh(x @ first.T)), (lambda x: 1 / np.cosh(x @ first.T) ** 2)
    from_second = np.einsum("ij,cd->icjd", hidden(inputs) @ hidden(others).T, np.eye(len(second)))
    from_first = np.einsum("ch,dh,ih,jh,ij->icjd", second, second, slope(inputs), slope(others), inputs @ others.T)
    return from_second + from_first


# Closed forms


def test_kernel_of_a_linear_model_is_that_of_its_features():
    kernel = ntk(linear, INPUTS, parameters=np.ones(4))
    np.testing.assert_allclose(kernel, INPUTS @ INPUTS.T, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(kernel, feature_kernel(INPUTS), rtol=1e-14, atol=1e-14)
    assert kernel.attrs["precision"] == "float64"
    assert kernel.attrs["parameters"] == 4


@pytest.mark.parametrize("method", ["jacobian", "products"])
def test_two_layers_by_hand(method):
    weights, others = two_layer_weights(), INPUTS[:5] * 1.5 + 0.2
    expected = two_layer_kernel(weights, INPUTS, others)
    kernel = ntk(two_layers, INPUTS, others, parameters=weights, outputs="full", method=method)
    np.testing.assert_allclose(kernel, expected, rtol=1e-12, atol=1e-12)
    assert kernel.attrs["contraction"] == method


def test_trace_and_sum_are_contractions_of_the_full_kernel():
    weights = two_layer_weights()
    full = two_layer_kernel(weights, INPUTS, INPUTS)
    trace = ntk(two_layers, INPUTS, parameters=weights)
    np.testing.assert_allclose(trace, np.einsum("icjc->ij", full), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        ntk(two_layers, INPUTS, parameters=weights, outputs="sum"), full.sum((1, 3)), rtol=1e-12, atol=1e-12
    )


def wide_layers(parameters, inputs):
    return two_layers(parameters, inputs) / jnp.sqrt(parameters[0].shape[0])


def test_sum_tends_to_trace_with_width():
    """Outputs of a wide network with random weights are independent: the difference falls as width^(-1/2).

    The logarithm of the ratio of one pair spreads by 0.72 over keys; of the means of 6, by 0.3. Four of these.
    """
    apart = {30: [], 3000: []}
    for width, found in apart.items():
        for key in range(6):
            weights = two_layer_weights(width, 5, key)
            trace, total = (ntk(wide_layers, INPUTS, parameters=weights, outputs=how) for how in ("trace", "sum"))
            found.append(float(np.linalg.norm(total - trace) / np.linalg.norm(trace)))
    assert np.log(np.mean(apart[30]) / np.mean(apart[3000])) == pytest.approx(np.log(10), abs=1.2)


# Other routes to the same number


@settings(max_examples=12)
@given(
    st.sampled_from([1, 4, 12]),
    st.sampled_from(["trace", "sum", "full"]),
    st.sampled_from([1e2, 3e3, 1e9]),
    st.booleans(),
)
def test_any_batch_and_memory_gives_the_same(batch, outputs, memory, square):
    weights, others = two_layer_weights(), None if square else INPUTS[::-2] + 1.0
    full = two_layer_kernel(weights, INPUTS, INPUTS if square else others)
    expected = {"full": full, "trace": np.einsum("icjc->ij", full), "sum": full.sum((1, 3))}[outputs]
    how = {"batch_size": batch} if batch < 12 else {}
    kernel = ntk(
        two_layers, INPUTS, others, parameters=weights, outputs=outputs, memory_limit=memory, method="jacobian", **how
    )
    np.testing.assert_allclose(kernel, expected, rtol=1e-11, atol=1e-11)


@cache
def example_module():
    return eqx.nn.MLP(4, 3, 8, 1, key=jax.random.key(0))


def test_equinox_module_and_its_function_agree():
    module = example_module()
    kernel = ntk(module, INPUTS, outputs="full")
    other = ntk(lambda own, inputs: jax.vmap(own)(inputs), INPUTS, parameters=module, outputs="full", method="jacobian")
    np.testing.assert_allclose(kernel, other, rtol=1e-12, atol=1e-13)


def torch_twin(module):
    """The same network in torch, with copied weights."""
    torch = pytest.importorskip("torch")
    layers = []
    for source in module.layers:
        layer = torch.nn.Linear(source.in_features, source.out_features).double()
        layer.weight.data = torch.as_tensor(np.array(source.weight))
        layer.bias.data = torch.as_tensor(np.array(source.bias))
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


@pytest.mark.parametrize("outputs", ["trace", "sum", "full"])
def test_torch_agrees_with_jax(outputs):
    module = example_module()
    there = ntk(torch_twin(module), INPUTS, INPUTS[:4], outputs=outputs, batch_size=2)
    np.testing.assert_allclose(there, ntk(module, INPUTS, INPUTS[:4], outputs=outputs), rtol=1e-10, atol=1e-10)
    assert there.attrs["library"] == "torch"


def test_torch_module_is_left_as_it_was():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
    module.append(torch.nn.Linear(8, 2))
    module[1].eval()
    module[0].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    kernel = ntk(module, INPUTS)
    assert [part.training for part in module] == [True, False, True, True]
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(value.grad is None for value in module.parameters())
    # Frozen parameters are not part of the tangent space: all but the first matrix.
    assert kernel.attrs["parameters"] == 8 + 16 + 18
    assert kernel.attrs["precision"] == "float32"
    double = ntk(module, INPUTS, dtype="float64")
    assert double.attrs["precision"] == "float64"
    np.testing.assert_allclose(kernel, double, rtol=1e-5, atol=1e-5)


def test_precision_is_as_asked():
    weights = [np.asarray(part, np.float32) for part in two_layer_weights()]
    wide = [part.astype(float) for part in weights]
    expected = np.einsum("icjc->ij", two_layer_kernel(wide, INPUTS, INPUTS))
    single = ntk(two_layers, INPUTS.astype(np.float32), parameters=weights)
    assert single.attrs["precision"] == "float32"
    assert 1e-9 < np.abs(single - expected).max() < 1e-4
    double = ntk(two_layers, INPUTS, parameters=weights, dtype="float64")
    assert double.attrs["precision"] == "float64"
    np.testing.assert_allclose(double, expected, rtol=1e-12, atol=1e-12)


def test_half_precision_adds_up_in_single():
    """600 squares of 2^-4 with 2^-12 lost of each: bfloat16 sums would stop growing at 256 times a term."""
    inputs = np.full((2, 600), 0.25)
    kernel = ntk(linear, jnp.asarray(inputs, jnp.bfloat16), parameters=jnp.ones(600, jnp.bfloat16))
    np.testing.assert_allclose(kernel, 600 / 16, rtol=1e-6)


def test_features_of_a_network():
    module = example_module()
    outputs = np.asarray(jax.vmap(module)(INPUTS))
    np.testing.assert_allclose(
        feature_kernel(module, INPUTS, batch_size=2), outputs @ outputs.T, rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(
        feature_kernel(module, INPUTS, INPUTS[:2]), outputs @ outputs[:2].T, rtol=1e-12, atol=1e-14
    )


# Nyström


def test_all_landmarks_give_the_full_kernel():
    weights = two_layer_weights()
    factor = ntk(two_layers, INPUTS, parameters=weights, landmarks=len(INPUTS))
    np.testing.assert_allclose(factor.values @ factor.values.T, ntk(two_layers, INPUTS, parameters=weights), atol=1e-9)
    assert factor.attrs["trace_error"] < 1e-12


def test_error_of_landmarks_is_exact_and_bounds_every_norm():
    inputs = np.random.default_rng(5).normal(size=(40, 4))
    weights = two_layer_weights(20)
    full = ntk(two_layers, inputs, parameters=weights).values
    errors = []
    for landmarks in (3, 10, 25):
        factor = ntk(two_layers, inputs, parameters=weights, landmarks=landmarks, key=2)
        missing = full - factor.values @ factor.values.T
        error = factor.attrs["trace_error"]
        assert error == pytest.approx(np.trace(missing) / np.trace(full), abs=1e-10)
        assert np.linalg.eigvalsh(missing).min() > -1e-9 * np.trace(full)
        assert max(np.abs(missing).max(), np.linalg.norm(missing)) <= error * np.trace(full) * (1 + 1e-9)
        errors.append(error)
    assert errors[0] > errors[1] > errors[2]


def test_factor_is_taken_for_features():
    weights = two_layer_weights()
    kernel, factor = (ntk(two_layers, INPUTS, parameters=weights, landmarks=count) for count in (None, 9))
    other = INPUTS[:, :2]
    assert cka(factor, other) == pytest.approx(cka(kernel, other), abs=1e-10)
    assert kernel_alignment(factor, other) == pytest.approx(kernel_alignment(kernel, other), abs=1e-10)
    np.testing.assert_allclose(
        spectrum(factor, other, modes=5).spectrum, spectrum(kernel, other, modes=5).spectrum, rtol=1e-9
    )


# Measures


@given(st.integers(4, 12), st.integers(1, 15), st.integers(1, 15), st.booleans(), st.integers(0, 10**6))
def test_similarity_from_features_is_that_from_kernels(inputs, first, second, debiased, key):
    generator = np.random.default_rng(key)
    a, b = generator.normal(size=(inputs, first)) + 1.0, generator.normal(size=(inputs, second))
    b[:, 0] += a[:, 0]
    try:
        expected = cka(a @ a.T, b @ b.T, debiased=debiased, kind="kernel")
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error)[:20]):
            cka(a, b, debiased=debiased, kind="features")
        return
    assert cka(a, b, debiased=debiased, kind="features") == pytest.approx(expected, rel=1e-8, abs=1e-8)
    assert cka(a @ a.T, b, debiased=debiased) == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_similarity_by_hand():
    centring = np.eye(9) - 1 / 9
    a, b = INPUTS[:, :2], np.tanh(INPUTS)
    one, other = centring @ a @ a.T @ centring, centring @ b @ b.T @ centring
    expected = np.trace(one @ other) / np.sqrt(np.trace(one @ one) * np.trace(other @ other))
    assert cka(a, b) == pytest.approx(expected, rel=1e-12)


@given(st.integers(0, 10**6), st.floats(0.1, 10))
def test_similarity_is_blind_to_rotation_scale_and_shift(key, scale):
    generator = np.random.default_rng(key)
    a = generator.normal(size=(15, 4))
    rotation, _ = np.linalg.qr(generator.normal(size=(4, 4)))
    assert cka(a, scale * a @ rotation + 3.0) == pytest.approx(1, abs=1e-10)
    assert cka(a, scale * a @ rotation, debiased=True) == pytest.approx(1, abs=1e-10)


def test_debiased_similarity_is_the_mean_over_quadruples():
    """The unbiased estimator by its definition: a mean over all four different inputs (Song et al. 2012)."""
    a, b = INPUTS[:7, :2] + 2.0, np.tanh(INPUTS[:7])
    one, other = a @ a.T, b @ b.T

    def mean(k, m):
        return np.mean(
            [k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q]) for i, j, q, r in itertools.permutations(range(7), 4)]
        )

    expected = mean(one, other) / np.sqrt(mean(one, one) * mean(other, other))
    assert cka(a, b, debiased=True) == pytest.approx(expected, rel=1e-10)


def test_debiased_similarity_of_unrelated_features_vanishes():
    """40 inputs, 200 random features: plain CKA is near 1 (biased), the debiased mean over 60 draws is 0.

    Its standard error is measured from the draws; four of them: a false alarm in 16,000.
    """
    generator = np.random.default_rng(7)
    pairs = [(generator.normal(size=(40, 200)), generator.normal(size=(40, 200))) for _ in range(60)]
    values = np.array([cka(a, b, debiased=True) for a, b in pairs])
    assert abs(values.mean()) < 4 * values.std() / np.sqrt(60)
    assert cka(*pairs[0]) > 0.7


def test_alignment_with_the_targets_own_kernel_is_one():
    labels = np.arange(9) % 3
    one_hot = np.eye(3)[labels]
    assert kernel_alignment(one_hot @ one_hot.T, labels) == pytest.approx(1, abs=1e-12)
    assert kernel_alignment(one_hot @ one_hot.T + 5, labels) == pytest.approx(1, abs=1e-12)
    assert kernel_alignment(one_hot @ one_hot.T + 5, labels, centred=False) < 0.9
    # Uncentred, by hand: <I, yy^T> / (|I| |yy^T|) = 1/sqrt(n).
    assert kernel_alignment(np.eye(9), INPUTS[:, 0], centred=False) == pytest.approx(1 / 3, rel=1e-12)


@given(st.floats(1e-9, 10), st.integers(0, 10**6))
def test_change_keeps_its_digits(step, key):
    """K -> (1 + s) K is a distance s in no other direction; turning one unit direction of two by an angle is exact."""
    generator = np.random.default_rng(key)
    a = generator.normal(size=(12, 3))
    for kind, one, other in (("features", a, a * np.sqrt(1 + step)), ("kernel", a @ a.T, a @ a.T * (1 + step))):
        change = kernel_change(one, other, kind=kind)
        assert change.distance == pytest.approx(step, rel=1e-6, abs=1e-14)
        assert change.misalignment < 1e-25
    basis, _ = np.linalg.qr(generator.normal(size=(12, 2)))
    angle = min(step, 1.5)
    turned = np.cos(angle) * basis[:, :1] + np.sin(angle) * basis[:, 1:]
    change = kernel_change(basis[:, :1], turned)
    assert change.misalignment == pytest.approx(np.sin(angle) ** 2, rel=1e-5, abs=1e-26)
    assert change.distance == pytest.approx(np.sqrt(2) * np.sin(angle), rel=1e-5, abs=1e-14)


def test_spectrum_of_orthonormal_functions_is_exact():
    generator = np.random.default_rng(3)
    functions = np.sqrt(50) * np.linalg.qr(generator.normal(size=(50, 8)))[0]
    eigenvalues, weights = np.arange(1.0, 9) ** -2.0, generator.normal(size=(8, 2))
    features = functions * np.sqrt(eigenvalues)
    for kernel, kind in ((features, "features"), (features @ features.T, "kernel")):
        found = spectrum(kernel, features @ weights, kind=kind)
        np.testing.assert_allclose(found.spectrum, eigenvalues, rtol=1e-11)
        np.testing.assert_allclose(found.target, np.sqrt(np.sum(weights**2, axis=1)), rtol=1e-9)
        assert float(found.power.sum()) == pytest.approx(1, abs=1e-12)
        assert found.attrs["outside"] < 1e-12
        assert found.sizes["mode"] == 8
    part = spectrum(features, features @ weights, modes=3)
    assert part.attrs["outside"] == pytest.approx(1 - float(found.power[:3].sum()), abs=1e-12)


def test_exponents_of_a_power_law_kernel_are_recovered():
    """Random Gaussian functions, 600 inputs, 2000 modes, 20 targets: alpha = 1.6, beta = 0.75 over modes 2 to 60.

    Over 20 other draws the errors were -0.023 ± 0.006 and 0.014 ± 0.010: a bias of finitely many inputs, and a
    spread over draws. The tolerances are the bias and four spreads.
    """
    generator = np.random.default_rng(4)
    ranks = np.arange(1.0, 2001)
    capacity, source = 1.6, 0.75
    features = generator.normal(size=(600, 2000)) * np.sqrt(ranks**-capacity)
    signs = generator.choice([-1.0, 1.0], (2000, 20))
    weights = signs * np.sqrt(ranks ** (-capacity * source - 1) / ranks**-capacity)[:, None]
    found = spectrum(feature_kernel(features), features @ weights)
    fit = fit_source_capacity(found.spectrum, found.target, first=2, last=60)
    assert float(fit.capacity) == pytest.approx(capacity, abs=0.045)
    assert float(fit.source) == pytest.approx(source, abs=0.055)


# Bad input


def test_bad_input_of_kernels():
    weights = two_layer_weights()
    with pytest.raises(ValueError, match="pass parameters="):
        ntk(two_layers, INPUTS)
    with pytest.raises(ValueError, match="no trainable parameters"):
        ntk(lambda own, inputs: inputs, INPUTS, parameters={"steps": np.array([1])})
    with pytest.raises(ValueError, match="outputs must be one of 'trace', 'sum', 'full', not 'mean'"):
        ntk(two_layers, INPUTS, parameters=weights, outputs="mean")
    with pytest.raises(ValueError, match="method='products' is for JAX"):
        ntk(two_layers, INPUTS, parameters=weights, method="products")
    with pytest.raises(ValueError, match="dtype must be"):
        ntk(two_layers, INPUTS, parameters=weights, dtype="float16")
    with pytest.raises(ValueError, match="batch_size must be a whole number"):
        ntk(two_layers, INPUTS, parameters=weights, batch_size=0)
    with pytest.raises(ValueError, match="memory_limit must be"):
        ntk(two_layers, INPUTS, parameters=weights, memory_limit=0)
    with pytest.raises(ValueError, match="at least one input"):
        ntk(two_layers, INPUTS[:0], parameters=weights)
    with pytest.raises(ValueError, match="must have the same shape"):
        ntk(two_layers, INPUTS, INPUTS[:, :2], parameters=weights)
    with pytest.raises(ValueError, match="from 1 to the 9 inputs, not 10"):
        ntk(two_layers, INPUTS, parameters=weights, landmarks=10)
    with pytest.raises(ValueError, match="landmarks approximate"):
        ntk(two_layers, INPUTS, parameters=weights, landmarks=3, outputs="full")
    with pytest.raises(ValueError, match="not finite from input 3 on"):
        ntk(two_layers, np.where(np.arange(9)[:, None] == 3, np.nan, INPUTS), parameters=weights)
    with pytest.raises(ValueError, match="must be a function"):
        ntk(3.0, INPUTS)
    with pytest.raises(ValueError, match="needs inputs"):
        feature_kernel(two_layers)
    with pytest.raises(ValueError, match="complex"):
        ntk(linear, INPUTS, parameters=np.ones(4, complex))


def test_bad_input_of_torch():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(4, 2)
    with pytest.raises(ValueError, match="lack 'bias'"):
        ntk(module, INPUTS, parameters={"weight": module.weight})
    with pytest.raises(ValueError, match=r"has shape \(3, 4\) where the model has \(2, 4\)"):
        ntk(module, INPUTS, parameters=torch.nn.Linear(4, 3))
    with pytest.raises(ValueError, match="a module or a state dict, not list"):
        ntk(module, INPUTS, parameters=[1.0])
    with pytest.raises(ValueError, match="requires_grad_"):
        ntk(module.requires_grad_(False), INPUTS)


def test_bad_input_of_measures():
    kernel = INPUTS @ INPUTS.T
    with pytest.raises(ValueError, match="kernel has 9 inputs and targets 5"):
        kernel_alignment(kernel, INPUTS[:5, 0])
    with pytest.raises(ValueError, match="is constant"):
        kernel_alignment(kernel, np.ones(9))
    with pytest.raises(ValueError, match="a is not finite in row 2"):
        cka(np.where(np.arange(9)[:, None] == 2, np.inf, INPUTS), INPUTS)
    with pytest.raises(ValueError, match="at least 4 inputs, not 3"):
        cka(INPUTS[:3], INPUTS[:3], debiased=True)
    with pytest.raises(ValueError, match="no relative change"):
        kernel_change(np.zeros((9, 9)), kernel)
    with pytest.raises(ValueError, match="symmetric kernel"):
        spectrum(INPUTS, INPUTS[:, 0], kind="kernel")
    with pytest.raises(ValueError, match="targets are all zero"):
        spectrum(kernel, np.zeros(9))
    with pytest.raises(ValueError, match="is zero on these inputs"):
        spectrum(np.zeros((9, 9)), INPUTS)
    with pytest.raises(ValueError, match="modes must be"):
        spectrum(kernel, INPUTS, modes=0)
    with pytest.raises(ValueError, match="kind must be"):
        cka(INPUTS, INPUTS, kind="matrix")
    with pytest.raises(ValueError, match="shape"):
        kernel_change(xr.DataArray(np.zeros((2, 3, 4))), kernel)
