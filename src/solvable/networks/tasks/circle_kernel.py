r"""Tangent kernels of MLPs on the circle, of infinite or finite width, and their lazy learning curves.

All conventions are those of :class:`solvable.networks.MLP` with ``parameterisation="mean-field"`` and two inputs. The
kernel is that of gradient descent with a learning rate of ``η learning_rate_scale``: it depends on neither the richness
nor, for wide networks, the width. Time is ``t = η × steps``, the loss half the mean square ("half-mse").
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.checks import check_count
from solvable.networks.mlp import MLP, check_positive, layer_kernel
from solvable.networks.tasks.circle import circle_grid, circle_inputs
from solvable.precision import in_float64


def dual_activation(power: float, correlation: Any) -> np.ndarray:
    r"""``E[max(0, u)^q max(0, v)^q]`` for standard Gaussians u and v with a correlation ρ.

    With ``c² = (1 + ρ) / 2`` it is ``2^q Γ(q+1)² / (2 sqrt(π) Γ(q+3/2)) c^(2q+1) F(1/2, 1/2; q+3/2; c²)``: polar
    coordinates, then ``sin u = c s`` in the integral over the angle. q = 0 and 1 are the arc-cosine kernels.

    >>> bool(abs(dual_activation(1.0, 0.0) - 1 / (2 * np.pi)) < 1e-15)
    True
    """
    from scipy.special import gamma, hyp2f1

    if not power > -0.5:
        raise ValueError(f"power must be above -1/2, or the square has no mean, not {power!r}")
    squared = np.clip((1 + np.asarray(correlation, float)) / 2, 0.0, 1.0)
    front = 2**power * gamma(power + 1) ** 2 / (2 * math.sqrt(math.pi) * gamma(power + 1.5))
    return np.asarray(front * squared ** (power + 0.5) * hyp2f1(0.5, 0.5, power + 1.5, squared))


def he_scale(power: float = 1.0) -> float:
    """The ``weight_scale`` that preserves the size of activations from layer to layer; sqrt(2) for ReLU."""
    return float(dual_activation(power, 1.0)) ** -0.5


def circle_spectrum(
    depth: int,
    power: float = 1.0,
    *,
    weight_scale: float = 1.0,
    bias: bool = True,
    bias_scale: float = 0.0,
    input_scale: float = 1.0,
    points: int = 4096,
) -> np.ndarray:
    r"""Eigenvalues ``λ_k``, k = 0 ... points / 2, of the tangent kernel of an infinitely wide MLP on a grid of angles.

    With covariance Σ of preactivations and tangent kernel Θ of layer l, as functions of the angle between inputs,
    ``A = E φ φ'`` and ``D = E φ̇ φ̇'`` under Σ: ``Σ -> s² A + s_b²`` and ``Θ -> A + [bias] + s² Θ D``. The eigenvalue
    of cos(k θ) and sin(k θ) is the Fourier coefficient of the last Θ; on a grid it includes its aliases ``k ± points``,
    as the kernel matrix of the grid does. ``λ_k ~ k^(-2 power)``; for integer powers every second one vanishes without
    biases and depth (see docs/errata).

    Parameters
    ----------
    depth
        Number of linear layers.
    power
        The exponent q of the activation ``max(h, 0)^q``.
    weight_scale, bias, bias_scale, input_scale
        As in :class:`solvable.networks.MLP`.
    points
        Number of angles of the grid.
    """
    check_count("depth", depth)
    check_count("points", points)
    check_positive("weight_scale", weight_scale)
    check_positive("input_scale", input_scale)
    if not 0.5 < power < math.inf:
        raise ValueError(f"power must be above 1/2, or derivatives have no mean square, not {power!r}")
    if not 0 <= bias_scale < math.inf:
        raise ValueError(f"bias_scale must be a finite number, 0 or more, not {bias_scale!r}")
    cosine = np.cos(2 * np.pi * np.arange(points) / points)
    learned = float(bool(bias))
    noise = bias_scale**2 if bias else 0.0
    tangent = input_scale**2 / 2 * cosine + learned
    covariance = weight_scale**2 * input_scale**2 / 2 * cosine + noise
    variance = weight_scale**2 * input_scale**2 / 2 + noise
    for _ in range(depth - 1):
        correlation = covariance / variance
        activations = variance**power * dual_activation(power, correlation)
        slopes = power**2 * variance ** (power - 1) * dual_activation(power - 1, correlation)
        tangent = activations + learned + weight_scale**2 * tangent * slopes
        covariance = weight_scale**2 * activations + noise
        variance = weight_scale**2 * variance**power * float(dual_activation(power, 1.0)) + noise
    return np.fft.rfft(tangent).real / points


def lazy_loss(times: Any, eigenvalues: Any, decay: float, modes: int | None = None) -> np.ndarray:
    """``L(t) = 1/4 sum_k k^(-2q) exp(-2 λ_k t)``: the loss of an infinitely wide lazy network, half the mean square.

    Parameters
    ----------
    times
        Times t, learning rate times steps.
    eigenvalues
        λ_k from k = 0 on, as from :func:`circle_spectrum`.
    decay
        The decay q of the Fourier coefficients of the target.
    modes
        Number of Fourier modes of the target; by default all below the last eigenvalue, as in
        :func:`solvable.networks.circle` on the same grid.
    """
    values = np.asarray(eigenvalues, float)
    modes = values.size - 2 if modes is None else check_count("modes", modes)
    if modes >= values.size:
        raise ValueError(f"modes must be below the {values.size} eigenvalues given, k = 0 ..., not {modes}")
    waves = np.arange(1, modes + 1)
    shares = 0.25 * waves ** (-2.0 * decay)
    return np.array([shares @ np.exp(-2 * values[1 : modes + 1] * t) for t in np.atleast_1d(times)])


@in_float64
def mlp_tangent_kernel(network: MLP, points: int) -> jax.Array:
    """The tangent kernel of an MLP of one output on the grid, times its ``learning_rate_scale``, in float64."""
    kernel = layer_kernel(network, circle_inputs(circle_grid(points)))
    return kernel * jnp.asarray(network.learning_rate_scale, jnp.float64)


@in_float64
def linearised_loss(times: Any, kernel: Any, targets: Any) -> np.ndarray:
    """Losses (targets, times) of the tangent model of a centred network: ``1/2n |exp(-K t / n) y|²``.

    ``targets`` has one column per target, on the grid of the kernel. This is exact for gradient flow of any duration.
    """
    kernel, targets = jnp.asarray(kernel), jnp.asarray(targets, jnp.float64)
    points = kernel.shape[0]
    if kernel.shape != (points, points) or targets.shape[:1] != (points,):
        raise ValueError(f"targets need a row for each point of the kernel, not {targets.shape} and {kernel.shape}")
    values, vectors = jnp.linalg.eigh(kernel / points)
    shares = (vectors.T @ targets.reshape(points, -1)) ** 2 / (2 * points)
    fading = jnp.exp(-2 * jnp.maximum(values, 0.0)[:, None] * jnp.atleast_1d(jnp.asarray(times)))
    return np.asarray(shares.T @ fading)


@in_float64
def wave_spectrum(kernel: Any, waves: int | None = None) -> np.ndarray:
    """``λ_k`` of a kernel matrix on the grid, k = 0 ... waves - 1: its mean over cos(k θ) and sin(k θ).

    For an infinitely wide network these are its eigenvalues; for a finite one they fluctuate around them. By default
    all that the grid resolves are returned.
    """
    matrix = jnp.asarray(kernel)
    points = matrix.shape[0]
    resolved = (points + 1) // 2
    waves = resolved if waves is None else check_count("waves", waves)
    if matrix.shape != (points, points) or waves > resolved:
        raise ValueError(f"a kernel matrix of shape {matrix.shape} resolves {resolved} waves, not {waves}")
    angles = circle_grid(points)[:, None] * jnp.arange(waves)
    return np.asarray(sum(((matrix @ wave) * wave).sum(0) for wave in (jnp.cos(angles), jnp.sin(angles)))) / points**2
