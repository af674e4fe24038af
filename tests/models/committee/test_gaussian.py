"""The exact test loss: closed forms, quadrature against closed forms, samples, and degenerate weights."""

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from committees import problem
from hypothesis import given, settings

from solvable import activations, teachers
from solvable.models.committee.gaussian import (
    FINE,
    polynomial_average,
    student_products,
    student_teacher_products,
    teacher_power,
    test_loss,
    test_loss_error,
)
from solvable.numerics.sobol import SOBOL_LIMIT, sobol_normals

loss_of, error_of = eqx.filter_jit(test_loss), eqx.filter_jit(test_loss_error)
READOUT = np.array([0.5, -0.3, 0.7])


def task_of(activation, teacher, readout=READOUT, indices=1):
    return problem(activation, teacher, readout, indices=indices)


def weights(seed, neurons=3, indices=1, inside=False):
    """Latent coordinates of weights; ``inside``: all of them in the span of the index vectors."""
    latents = np.random.default_rng(seed).normal(size=(neurons, indices + neurons)) / np.sqrt(2)
    if inside:
        latents[:, indices:] = 0
    return jnp.asarray(latents[:, :indices]), jnp.asarray(latents @ latents.T), latents


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.01, 2), scale=st.floats(0.1, 3), neurons=st.sampled_from([1, 3]))
def test_quadratic_network_has_the_closed_form_of_its_moments(seed, epsilon, scale, neurons):
    alignment, overlap, _ = weights(seed, neurons)
    task = task_of(activations.quadratic(epsilon), teachers.square(), np.full(neurons, scale / neurons))
    a, variance = scale * epsilon / neurons, jnp.diagonal(overlap)
    squares = variance[:, None] * variance + 2 * overlap**2
    expected = (scale / neurons) ** 2 * overlap.sum() + 0.25 * (
        3 - 2 * a * jnp.sum(variance + 2 * alignment[:, 0] ** 2) + a**2 * squares.sum()
    )
    # Rounding of sums whose terms are a few times the loss.
    assert test_loss(task, alignment, overlap) == pytest.approx(float(expected), rel=1e-11, abs=1e-12)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), left=st.integers(0, 6), right=st.integers(0, 6))
def test_polynomial_averages_are_those_of_gauss_hermite(seed, left, right):
    generator = np.random.default_rng(seed)
    p, q = (tuple(generator.normal(size=degree + 1)) for degree in (left, right))
    root = np.tril(generator.normal(size=(2, 2)))
    covariance = root @ root.T
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(8)  # exact to degree 15
    x, y = np.meshgrid(nodes, nodes, indexing="ij")
    first, second = root[0, 0] * x, root[1, 0] * x + root[1, 1] * y
    values = np.polynomial.polynomial.polyval(first, p) * np.polynomial.polynomial.polyval(second, q)
    expected = np.sum(np.outer(node_weights, node_weights) * values) / (2 * np.pi)
    found = polynomial_average(p, q, covariance[0, 0], covariance[1, 1], covariance[0, 1])
    size = np.sum(np.outer(node_weights, node_weights) * np.abs(values)) / (2 * np.pi)
    assert float(found) == pytest.approx(expected, rel=1e-11, abs=1e-12 * size)


@pytest.mark.parametrize("inside", [False, True])
def test_erf_and_relu_averages_are_arcsines_and_arc_cosines(inside):
    _, overlap, _ = weights(1, inside=inside)
    variance = np.diagonal(overlap)
    found = student_products(task_of(activations.erf, jnp.tanh), overlap, FINE)
    arcsine = 2 / np.pi * np.arcsin(np.clip(overlap / np.sqrt(np.outer(1 + variance, 1 + variance)), -1, 1))
    # The rule's error at 40 nodes a side is near 1e-12 for functions this smooth.
    np.testing.assert_allclose(found, arcsine, atol=1e-11)
    found = student_products(task_of(activations.relu, jnp.tanh), overlap, FINE)
    scale = np.sqrt(np.outer(variance, variance))
    angle = np.arccos(np.clip(overlap / scale, -1, 1))
    arc_cosine = scale / (2 * np.pi) * (np.sin(angle) + (np.pi - angle) * np.cos(angle))
    np.testing.assert_allclose(found, arc_cosine, atol=1e-11)


def test_relu_on_a_relu_teacher_is_an_arc_cosine_too():
    alignment, overlap, _ = weights(4)
    variance = np.diagonal(overlap)
    task = task_of(activations.relu, activations.relu)
    angle = np.arccos(alignment[:, 0] / np.sqrt(variance))
    expected = np.sqrt(variance) / (2 * np.pi) * (np.sin(angle) + (np.pi - angle) * np.cos(angle))
    np.testing.assert_allclose(student_teacher_products(task, alignment, variance, FINE), expected, atol=1e-11)
    assert teacher_power(task, FINE) == pytest.approx(0.5, rel=1e-12)


TEACHERS = {
    "square": (1, teachers.square()),
    "kink": (1, jnp.abs),
    "two": (2, lambda a, b: jnp.tanh(a) * b),
    "three": (3, lambda h: jnp.tanh(h[0]) + h[1] * h[2]),
    "four": (4, lambda h: h[0] * h[1] + jnp.tanh(h[2]) - h[3]),
}


@pytest.mark.parametrize(
    ("activation", "teacher", "inside"),
    [
        (activations.Polynomial((0.1, 1.0, 0.3, 0.2)), "square", False),
        (activations.quadratic(0.5), "kink", True),
        (activations.relu, "square", True),
        (activations.relu, "two", False),
        (activations.tanh, "kink", False),
        (activations.tanh, "two", True),
        (activations.quadratic(0.5), "three", False),
        (activations.relu, "four", False),
    ],
)
def test_loss_is_that_of_samples(activation, teacher, inside):
    indices, function = TEACHERS[teacher]
    alignment, overlap, latents = weights(2, indices=indices, inside=inside)
    task = task_of(activation, function, indices=indices)
    normals = sobol_normals(2**15, latents.shape[1], 5).T
    losses = np.asarray(task.error(jnp.asarray(latents @ normals), jnp.asarray(normals[:indices])) ** 2)
    # The spread of blocks of a Sobol sequence overstates its error: 5 of these would be safe for plain samples.
    error = losses.reshape(64, -1).mean(axis=1).std() / 8
    found, reported = loss_of(task, alignment, overlap), error_of(task, alignment, overlap)
    assert abs(float(found) - losses.mean()) < 5 * error + 10 * float(reported)
    # The coarse rule's error on tanh^2 (K = 2, 3), two scrambles (K = 4).
    assert float(reported) < {"two": 1e-5, "three": 3e-4, "four": 0.02}.get(teacher, 1e-8) * float(found)


def test_loss_has_derivatives_also_where_weights_are_collinear():
    _, _, latents = weights(3, inside=True)
    latents[1] = latents[0]

    def loss(latents):
        return test_loss(task_of(activations.relu, teachers.square()), latents[:, :1], latents @ latents.T)

    value, slopes = jax.jit(loss), jax.jit(jax.grad(loss))(jnp.asarray(latents))
    step = 1e-5 * np.random.default_rng(0).normal(size=latents.shape)
    change = value(jnp.asarray(latents + step)) - value(jnp.asarray(latents - step))
    # Central differences: rounding 1e-12 over a step of 1e-5, and third derivatives.
    assert float(jnp.sum(slopes * 2 * step)) == pytest.approx(float(change), rel=1e-4, abs=1e-10)


def test_loss_works_in_jit_vmap_and_for_a_neuron_without_weights():
    task = task_of(activations.tanh, teachers.square())
    alignments, overlaps = (jnp.stack(values) for values in zip(*(weights(k)[:2] for k in range(3)), strict=True))
    together = jax.jit(jax.vmap(lambda a, c: test_loss(task, a, c)))(alignments, overlaps)
    apart = [loss_of(task, a, c) for a, c in zip(alignments, overlaps, strict=True)]
    np.testing.assert_allclose(together, apart, rtol=1e-13)
    nothing = loss_of(task, jnp.zeros((3, 1)), jnp.zeros((3, 3)))
    assert nothing == pytest.approx(0.75, rel=1e-12)


def test_order_of_neurons_does_not_matter():
    alignment, overlap, _ = weights(6)
    order = np.array([2, 0, 1])
    one = loss_of(task_of(activations.tanh, jnp.sin), alignment, overlap)
    other = loss_of(task_of(activations.tanh, jnp.sin, READOUT[order]), alignment[order], overlap[order][:, order])
    assert one == pytest.approx(float(other), rel=1e-12)


def test_sobol_normals_are_normal_and_fall_back_beyond_their_limit():
    normals = sobol_normals(2**12, 8, (3, 1))
    assert np.abs(normals.mean(axis=0)).max() < 2e-3
    # 2^12 Sobol points: an order below the 0.022 of pseudo-random ones.
    assert np.abs(normals.T @ normals / len(normals) - np.eye(8)).max() < 0.01
    assert np.all(normals == sobol_normals(2**12, 8, (3, 1)))
    assert not np.any(normals == sobol_normals(2**12, 8, (3, 2)))
    wide = sobol_normals(2, SOBOL_LIMIT + 5000, 0)
    assert wide.shape == (2, SOBOL_LIMIT + 5000)
    assert np.all(np.isfinite(wide))
    assert wide[:, SOBOL_LIMIT:].std() == pytest.approx(1, abs=0.05)
    with pytest.raises(ValueError, match="count >= 1"):
        sobol_normals(0, 3, 0)
