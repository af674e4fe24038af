"""Causal march of the two-time equations of a linear network whose features learn, one row for each step.

A network ``f = w^T A psi / N`` with random ``A(0)`` and ``w(0) = 0`` is trained on modes of eigenvalue ``lambda_k`` and
target ``w_k``. As N, the batch B and the samples P grow, correlations ``C(t, s)`` and responses ``R(t, s)`` close
on themselves (feature-scaling, eqs. 26 to 31 and 41, corrected: see docs/errata). With ``Theta(t, s)`` the distance
by which the gradient of step s has moved the weights at time t (:mod:`solvable.models.feature_scaling.optimiser`; for
plain gradient descent the learning rate, below the diagonal) and ``o`` the product entry by entry,

    H^w = [1 - gamma Theta (Theta o C3)]^-1 Theta      C_w = H^w C3 H^w^T          G = H^w + gamma Theta o C_w
    H_k = [1 + lambda_k G R3 R1]^-1                    S = sum_k lambda_k H_k G
    R1  = [1 + S R3 / P]^-1                            R3 = [1 + R1 S / N]^-1
    X   = G C3 G^T / N                                 W = C0 / P + diag(train) / B
    C0  = sum_k lambda_k H_k [w_k^2 1 1^T + X] H_k^T + (1 - H_k) W (1 - H_k)^T
    C2  = R1 (sum_k lambda_k^2 H_k [w_k^2 1 1^T + X] H_k^T + lambda_k H_k W H_k^T) R1^T          C3 = R3 C2 R3^T
    train(t) = [R1 (C0 + (P / B) diag_{s<t}(train)) R1^T](t, t)

Writing both noises through ``lambda H G R3 = (1 - H) R1^-1`` has no cancellation and makes online learning
(``P = inf``: ``R1 = 1``, ``train = C0(t, t)``) and reused samples, drawn with replacement in batches, one case. Row
t needs earlier rows only, so that one pass solves what the paper iterates.

The work of a row is products with one matrix that holds all ``H_k``; it is limited by memory bandwidth.

>>> from solvable.models.feature_scaling.mode_quadrature import power_law_modes
>>> from solvable.models.feature_scaling.two_time import Descent, march
>>> modes = power_law_modes(capacity=1.5, source=0.5, modes=100, scale=100.0)
>>> solution = march(modes, Descent(learning_rate=0.1, richness=1.0), steps=20)
>>> solution.test_loss.shape, bool(solution.test_loss[-1] < solution.test_loss[0])
((20,), True)
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.feature_scaling.mode_quadrature import Modes
from solvable.models.feature_scaling.optimiser import update_kernel
from solvable.progress import progress_bar


class Descent(NamedTuple):
    """How the network is trained; infinite ``features``, ``batch`` or ``samples`` must be concrete to be seen."""

    # One number, or one number per step.
    learning_rate: Any
    richness: Any
    features: Any = np.inf
    batch: Any = np.inf
    samples: Any = np.inf
    momentum: Any = 0.0
    nesterov: bool = False


class Kinds(NamedTuple):
    """Which of the sizes are finite: they decide which equations there are."""

    features: bool
    batch: bool
    samples: bool
    exact_batch: bool


class Solution(NamedTuple):
    """Curves and two-time functions over the steps ``0 ... T - 1``."""

    test_loss: Float[Array, "time"]
    train_loss: Float[Array, "time"]
    # What each node adds to the test loss.
    node_loss: Float[Array, "time node"]
    weight_correlation: Float[Array, "time time"]
    correlation_2: Float[Array, "time time"]
    correlation_3: Float[Array, "time time"]
    correlation_0: Float[Array, "time time"]
    response_3: Float[Array, "time time"]
    response_24: Float[Array, "time time"]
    # G R3 R1: what moves each mode; without momentum the kernel's growth times eta on its first subdiagonal.
    drive: Float[Array, "time time"]


def is_finite(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer) or bool(np.isfinite(value))


def march(
    modes: Modes, descent: Descent, steps: int, *, exact_batch: bool = False, progress: bool | None = False
) -> Solution:
    """Rows ``0 ... steps - 1``. ``exact_batch`` adds the term ``lambda_k^2 <v_k^2> / B`` that theory drops (online).

    Reverse-mode differentiation keeps every row's state; use forward mode (``jax.jacfwd``) beyond a hundred steps.
    """
    kinds = Kinds(is_finite(descent.features), is_finite(descent.batch), is_finite(descent.samples), exact_batch)
    nodes = tuple(jnp.asarray(value) for value in modes[1:])
    # Infinite sizes are not used; as numbers they would only make NaN of the derivatives.
    sizes = (descent.richness, descent.features, descent.batch, descent.samples)
    numbers = tuple(jnp.asarray(value if is_finite(value) else 1.0, float) for value in sizes)
    kernel = update_kernel(descent.learning_rate, steps, descent.momentum, descent.nesterov)
    rows, begin = _empty(nodes[0].size, kinds), 0
    with progress_bar("marching", float(steps) ** 3, progress) as advance:
        for end in _stops(steps):
            rows = _stretch(rows, nodes, numbers, kernel[:end, :end], begin, end, kinds)
            if progress:
                jax.block_until_ready(rows)
            advance(float(end) ** 3 - float(begin) ** 3)
            begin = end
    return _solution(rows, kinds)


def memory(steps: int, nodes: int) -> float:
    """Bytes that :func:`march` takes at its peak: all ``H_k`` before and after a stretch, and a dozen matrices."""
    return 8.0 * steps**2 * (2 * nodes + 24)


def _stops(steps: int) -> list[int]:
    """Where the arrays are made longer: rows are as long as the stretch, so short stretches waste less."""
    stops, stop = [], 64
    while stop < steps:
        stops.append(stop)
        stop = -(-int(stop * 1.4) // 64) * 64
    return [*stops, steps]


class Rows(NamedTuple):
    """The two-time functions so far, over (time, time) unless stated otherwise; symbols as at the top of the module."""

    weight_response: Array  # H^w
    feedback: Array  # 1 + gamma (Theta o C3) H^w
    weight_correlation: Array  # C_w
    push: Array  # G
    feature_response: Array  # R3
    sample_response: Array  # R1
    joint_response: Array  # R3 R1
    mode_response: Array  # S
    readout_response: Array  # -R1 S
    feature_noise: Array  # X
    error_correlation: Array  # C0
    batch_correlation: Array  # R1^-1 C2 R1^-T
    drive_correlation: Array  # C3
    drive: Array  # G R3 R1
    mode_rows: Float[Array, "time node time2"]  # H_k
    mode_decay: Float[Array, "time node"]  # H_k 1
    node_loss: Float[Array, "time node"]
    batch_noise: Float[Array, "kind time"]
    train_loss: Float[Array, "time"]


# The axes that grow with the number of rows, where these are not both of two.
_GROWING = {"mode_rows": (0, 2), "mode_decay": (0,), "node_loss": (0,), "batch_noise": (1,), "train_loss": (0,)}


def _empty(count: int, kinds: Kinds) -> Rows:
    shapes = {"mode_rows": (0, count, 0), "mode_decay": (0, count), "node_loss": (0, count), "train_loss": (0,)}
    shapes["batch_noise"] = (count if kinds.exact_batch else 1, 0)
    return Rows(*(jnp.zeros(shapes.get(name, (0, 0))) for name in Rows._fields))


def _lengthened(rows: Rows, size: int) -> Rows:
    def pad(name: str, value: Array) -> Array:
        grows = _GROWING.get(name, (0, 1))
        return jnp.pad(value, [(0, size - n if axis in grows else 0) for axis, n in enumerate(value.shape)])

    return Rows(*(pad(name, value) for name, value in rows._asdict().items()))


@partial(jax.jit, static_argnames=("begin", "end", "kinds"))
def _stretch(
    rows: Rows,
    nodes: tuple[Array, ...],
    numbers: tuple[Array, ...],
    kernel: Array,
    begin: int,
    end: int,
    kinds: Kinds,
) -> Rows:
    rows = _lengthened(rows, end)
    return jax.lax.fori_loop(begin, end, lambda t, inner: _row(t, inner, nodes, numbers, kernel[t], kinds), rows)


def _row(
    t: Array, known: Rows, nodes: tuple[Array, ...], numbers: tuple[Array, ...], moved: Array, kinds: Kinds
) -> Rows:
    """The equations of the module's docstring, row t, from the rows that are known; ``moved`` is row t of Theta."""
    eigenvalues, counts, _ = nodes
    richness, features, batch, samples = numbers
    size = known.push.shape[0]
    index = jnp.arange(size)
    here, past = (index == t) * 1.0, (index < t) * 1.0

    # H^w = Theta [1 + gamma (Theta o C3) H^w]; the bracket is kept, row by row.
    weight_response = known.weight_response.at[t].set(moved @ known.feedback)
    from_drive = weight_response @ (known.drive_correlation @ weight_response[t])
    weight_correlation = _symmetric(known.weight_correlation, t, from_drive)
    push = known.push.at[t].set(weight_response[t] + richness * moved * weight_correlation[t])

    drive = push[t] @ known.feature_response if kinds.features else push[t]
    drive = drive @ known.sample_response if kinds.samples else drive
    row = here - eigenvalues[:, None] * (drive @ known.mode_rows.reshape(size, -1)).reshape(-1, size)
    rows = known._replace(
        weight_response=weight_response,
        weight_correlation=weight_correlation,
        push=push,
        drive=known.drive.at[t].set(drive),
        mode_decay=known.mode_decay.at[t].set(row.sum(1)),
        mode_response=known.mode_response.at[t].set(((eigenvalues * counts) @ row) @ push),
    )
    rows = _with_responses(t, rows, here, features, samples, kinds)
    if kinds.features:
        noise = push @ (rows.drive_correlation @ push[t]) / features
        rows = rows._replace(feature_noise=_symmetric(rows.feature_noise, t, noise))
    rows = _with_losses(t, rows, row, past, nodes, batch, samples, kinds)
    second = _second_correlation(t, rows, row, nodes, batch, samples, kinds)
    batch_correlation = _symmetric(rows.batch_correlation, t, second)
    through = rows.joint_response @ (batch_correlation @ rows.joint_response[t])
    drive_correlation = _symmetric(rows.drive_correlation, t, through)
    fed_back = here + richness * ((moved * drive_correlation[t]) @ weight_response)
    return rows._replace(
        batch_correlation=batch_correlation,
        drive_correlation=drive_correlation,
        feedback=rows.feedback.at[t].set(fed_back),
        # Last, after everything that reads it: the compiler would copy the largest array otherwise.
        mode_rows=rows.mode_rows.at[t].set(row),
    )


def _through_modes(t: Array, earlier: Array, row: Array, vectors: Array) -> Array:
    """``sum_k H_k vector_k`` for the rows up to t, of which t itself is not among the earlier ones yet."""
    result = earlier.reshape(row.shape[1], -1) @ vectors.ravel()
    return result.at[t].set((row * vectors).sum())


def _symmetric(matrix: Array, t: Array, row: Array) -> Array:
    row = jnp.where(jnp.arange(row.size) <= t, row, 0.0)
    return matrix.at[t].set(row).at[:, t].set(row)


def _with_responses(t: Array, rows: Rows, here: Array, features: Array, samples: Array, kinds: Kinds) -> Rows:
    into_samples = rows.mode_response[t] @ rows.feature_response if kinds.features else rows.mode_response[t]
    row_1 = here - into_samples @ rows.sample_response / samples if kinds.samples else here
    row_24 = -(row_1 @ rows.mode_response) if kinds.samples else -rows.mode_response[t]
    row_3 = here + row_24 @ rows.feature_response / features if kinds.features else here
    sample_response = rows.sample_response.at[t].set(row_1)
    return rows._replace(
        sample_response=sample_response,
        readout_response=rows.readout_response.at[t].set(row_24),
        feature_response=rows.feature_response.at[t].set(row_3),
        joint_response=rows.joint_response.at[t].set(row_3 @ sample_response),
    )


def _with_losses(
    t: Array,
    rows: Rows,
    row: Array,
    past: Array,
    nodes: tuple[Array, ...],
    batch: Array,
    samples: Array,
    kinds: Kinds,
) -> Rows:
    """Row t of C0 (without reused samples its diagonal only), and the noise that the losses make at t."""
    eigenvalues, counts, targets = nodes
    missing = -row * past
    kicked = jnp.zeros_like(row)
    if kinds.samples:
        kicked = kicked + (missing @ rows.error_correlation) * past / samples
    if kinds.batch:
        kicked = kicked + missing * rows.batch_noise / batch
    kicked = counts[:, None] * kicked
    pushed = (eigenvalues * counts)[:, None] * (row @ rows.feature_noise) - kicked if kinds.features else -kicked
    node = eigenvalues * targets * rows.mode_decay[t] ** 2 + (pushed * row).sum(1)
    if not kinds.samples:
        train = node.sum()
        error_correlation = rows.error_correlation.at[t, t].set(train)
    else:
        signal = rows.mode_decay @ (eigenvalues * targets * rows.mode_decay[t])
        whole = signal + _through_modes(t, rows.mode_rows, row, pushed) + kicked.sum(0)
        error_correlation = _symmetric(rows.error_correlation, t, whole)
        train = rows.sample_response[t] @ (error_correlation @ rows.sample_response[t])
        if kinds.batch:
            train = train + samples / batch * (rows.sample_response[t] ** 2 * past) @ rows.train_loss
    noise = train
    if kinds.exact_batch:
        noise = train + jnp.where(counts > 0, node / jnp.where(counts > 0, counts, 1.0), 0.0)
    return rows._replace(
        node_loss=rows.node_loss.at[t].set(node),
        error_correlation=error_correlation,
        train_loss=rows.train_loss.at[t].set(train),
        batch_noise=rows.batch_noise.at[:, t].set(noise),
    )


def _second_correlation(
    t: Array, rows: Rows, row: Array, nodes: tuple[Array, ...], batch: Array, samples: Array, kinds: Kinds
) -> Array:
    """Row t of R1^-1 C2 R1^-T."""
    eigenvalues, counts, targets = nodes
    result = rows.mode_decay @ (eigenvalues**2 * targets * rows.mode_decay[t])
    if not any(kinds):
        return result
    carried = jnp.zeros_like(row)
    if kinds.samples:
        carried = carried + row @ rows.error_correlation / samples
    if kinds.batch:
        carried = carried + row * rows.batch_noise / batch
    if kinds.features:
        carried = carried + eigenvalues[:, None] * (row @ rows.feature_noise)
    return result + _through_modes(t, rows.mode_rows, row, (eigenvalues * counts)[:, None] * carried)


@partial(jax.jit, static_argnames=("kinds",))
def _solution(rows: Rows, kinds: Kinds) -> Solution:
    second = rows.batch_correlation
    if kinds.samples:
        second = rows.sample_response @ second @ rows.sample_response.T
    return Solution(
        jnp.diagonal(rows.error_correlation),
        rows.train_loss,
        rows.node_loss,
        rows.weight_correlation,
        second,
        rows.drive_correlation,
        rows.error_correlation,
        rows.feature_response,
        rows.readout_response,
        rows.drive,
    )
