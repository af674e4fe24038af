"""Causal march of the two-time equations of a linear network whose features learn, one row for each step.

A network ``f = w^T A psi / N`` with random ``A(0)`` and ``w(0) = 0`` is trained on modes of eigenvalue ``lambda_k`` and
target ``w_k``. As N, the batch B and the samples P grow, correlations ``C(t, s)`` and responses ``R(t, s)`` close
on themselves (feature-scaling, eqs. 26 to 31 and 41, corrected: see docs/errata). With ``Theta(t, s)`` the distance
by which the gradient of step s has moved the weights at time t (:mod:`solvable.models.feature_scaling.optimiser`; for
plain gradient descent the learning rate, below the diagonal; for the readout ``Theta``, for the features ``Theta_A``,
with ``rho_t`` what is left of their start) and ``o`` the product entry by entry,

    H^w = [1 - gamma Theta (Theta_A o C3)]^-1 Theta rho       C_w = H^w C3 H^w^T      G = rho H^w + gamma Theta_A o C_w
    H_k = [1 + lambda_k G R3 R1]^-1                           S = sum_k lambda_k H_k G
    R1  = [1 + M o (S R3)]^-1                                 R3 = [1 + R1 S / N]^-1
    X   = G C3 G^T / N
    C0  = sum_k lambda_k H_k [w_k^2 1 1^T + X] H_k^T + (1 - H_k) W (1 - H_k)^T
    C2  = R1 (sum_k lambda_k^2 H_k [w_k^2 1 1^T + X] H_k^T + lambda_k H_k W H_k^T) R1^T          C3 = R3 C2 R3^T
    train(t) = [(1 + q) C0 (1 + q)^T + q (P W - C0) q^T](t, t),   q = -S R3 R1 / P

M says which earlier steps saw the samples of this one, and W is the covariance of the noise that drawing samples makes:

    with replacement         M = 1 / P                             W = C0 / P + diag(C1) / B
    reshuffled every epoch   M = 1 / P between epochs, else 0      W = C0 / P + diag(C1) / B - [same epoch] C1 / P
    in a fixed order         M = 1 / B if t = s mod P / B, else 0  W = [t = s mod P / B] C0 / B
    online                   M = 0                                 W = diag(C0) / B

with ``C1 = R1 C0 R1^T + (R1 - 1)(P W - C0)(R1 - 1)^T``, the error on samples not yet seen in this epoch. Label noise
adds its variance to C0 in W, C1 and the training loss, not in the test loss ``C0(t, t)``. Writing all noises through
``lambda H G R3 = (1 - H) R1^-1`` has no cancellation and makes these one case. Row t needs earlier rows only, so that
one pass solves what the paper iterates.

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

from solvable.checks import is_traced
from solvable.models.feature_scaling import blocked_march
from solvable.models.feature_scaling.march_problem import (
    Descent as Descent,
)
from solvable.models.feature_scaling.march_problem import (
    Kinds,
    Numbers,
    StepPlan,
    is_finite,
)
from solvable.models.feature_scaling.march_problem import (
    Solution as Solution,
)
from solvable.models.feature_scaling.mode_quadrature import Modes
from solvable.models.feature_scaling.optimiser import Kernels, update_kernel
from solvable.progress import progress_bar


def march(
    modes: Modes,
    descent: Descent,
    steps: int,
    *,
    exact_batch: bool = False,
    averages: Float[np.ndarray, "average time"] | None = None,
    progress: bool | None = False,
    compiled: bool | None = None,
) -> Solution:
    """Rows ``0 ... steps - 1``. ``exact_batch`` adds the term ``lambda_k^2 <v_k^2> / B`` that theory drops (online).

    Each row of ``averages`` holds the share of every time in an average of the weights, whose test loss is computed.
    ``compiled`` chooses between the program for JAX, which can be differentiated and runs on accelerators, and the
    products of matrices of :mod:`solvable.models.feature_scaling.blocked_march`; by default the latter on CPUs, where
    nothing is traced. Reverse-mode differentiation keeps every row's state; use forward mode (``jax.jacfwd``) beyond a
    hundred steps.
    """
    sizes = (descent.features, descent.batch, descent.samples)
    finite = [is_finite(size) for size in sizes]
    kinds = Kinds(finite[0], finite[1], finite[2], exact_batch, descent.sampling)
    # Infinite sizes are not used; as numbers they would only make NaN of the derivatives.
    features, batch, samples = (value if is_finite(value) else 1.0 for value in sizes)
    per_epoch = samples / batch if kinds.samples and kinds.sampling != "replacement" else 1.0
    numbers = Numbers(descent.richness, features, samples, descent.label_noise, per_epoch)
    kernels = _kernels(descent, steps)
    if is_compiled(modes, descent) if compiled is None else compiled:
        return _compiled_march(modes, numbers, kernels, batch, kinds, averages, progress)
    inverse_batch = np.broadcast_to(1 / np.asarray(batch, float), (steps,))
    return blocked_march.blocked_march(modes[1:], numbers, StepPlan(kernels, inverse_batch), kinds, averages, progress)


def is_compiled(modes: Modes, descent: Descent | None = None) -> bool:
    """Whether a march is compiled by JAX: on accelerators, and where it is differentiated or vectorised."""
    return jax.default_backend() != "cpu" or is_traced(modes, descent)


def _compiled_march(
    modes: Modes,
    numbers: Numbers,
    kernels: Kernels,
    batch: Any,
    kinds: Kinds,
    averages: Float[np.ndarray, "average time"] | None,
    progress: bool | None,
) -> Solution:
    nodes = tuple(jnp.asarray(value) for value in modes[1:])
    numbers = Numbers(*(jnp.asarray(value, float) for value in numbers))
    kernels = Kernels(*(jnp.asarray(value) for value in kernels))
    steps = kernels.kept.shape[0]
    plan = StepPlan(kernels, jnp.broadcast_to(1 / jnp.asarray(batch, float), (steps,)))
    rows, begin = _empty(nodes[0].size, kinds), 0
    with progress_bar("marching", float(steps) ** 3, progress) as advance:
        for end in _stops(steps):
            rows = _stretch(rows, nodes, numbers, plan.until(end), begin, end, kinds)
            if progress:
                jax.block_until_ready(rows)
            advance(float(end) ** 3 - float(begin) ** 3)
            begin = end
    solution = _solution(rows, kinds)
    if averages is None:
        return solution
    found = _averaged_loss(jnp.asarray(averages), rows, nodes, numbers, plan.kernels, kinds)
    return solution._replace(averaged_loss=found)


def _kernels(descent: Descent, steps: int) -> Kernels:
    if descent.kernels is not None:
        return descent.kernels
    theta = update_kernel(descent.learning_rate, steps, descent.momentum, descent.nesterov)
    return Kernels(theta, theta, np.ones(steps))


def memory(steps: int, nodes: int, compiled: bool = True) -> float:
    """Bytes that :func:`march` takes at its peak: compiled, all ``H_k`` before and after a stretch, and matrices."""
    return 8.0 * steps**2 * (2 * nodes + 28) if compiled else blocked_march.memory(steps, nodes)


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
    feedback: Array  # rho + gamma (Theta_A o C3) H^w
    weight_correlation: Array  # C_w
    push: Array  # G
    feature_response: Array  # R3
    sample_response: Array  # R1
    joint_response: Array  # R3 R1
    mode_response: Array  # S
    readout_response: Array  # -R1 S
    feature_noise: Array  # X
    error_correlation: Array  # C0
    unseen_correlation: Array  # C1, for reshuffled epochs
    sample_noise: Array  # W of reused samples
    batch_correlation: Array  # R1^-1 C2 R1^-T
    drive_correlation: Array  # C3
    drive: Array  # G R3 R1
    mode_rows: Float[Array, "time node time2"]  # H_k
    mode_decay: Float[Array, "time node"]  # H_k 1
    node_loss: Float[Array, "time node"]
    batch_noise: Float[Array, "kind time"]  # W of new samples, which is diagonal
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
    numbers: Numbers,
    plan: StepPlan,
    begin: int,
    end: int,
    kinds: Kinds,
) -> Rows:
    rows = _lengthened(rows, end)
    return jax.lax.fori_loop(begin, end, lambda t, inner: _row(t, inner, nodes, numbers, plan, kinds), rows)


def _row(t: Array, known: Rows, nodes: tuple[Array, ...], numbers: Numbers, plan: StepPlan, kinds: Kinds) -> Rows:
    """The equations of the module's docstring, row t, from the rows that are known."""
    eigenvalues, counts, _ = nodes
    richness, kept = numbers.richness, plan.kernels.kept[t]
    moved, moved_features = plan.kernels.readout[t], plan.kernels.features[t]
    size = known.push.shape[0]
    here = (jnp.arange(size) == t) * 1.0

    # H^w = Theta [rho + gamma (Theta_A o C3) H^w]; the bracket is kept, row by row.
    weight_response = known.weight_response.at[t].set(moved @ known.feedback)
    from_drive = weight_response @ (known.drive_correlation @ weight_response[t])
    weight_correlation = _symmetric(known.weight_correlation, t, from_drive)
    push_row = kept * weight_response[t] + richness * moved_features * weight_correlation[t]
    push = known.push.at[t].set(push_row)

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
    rows = _with_responses(t, rows, here, numbers, kinds)
    if kinds.features:
        noise = push @ (rows.drive_correlation @ push[t]) / numbers.features
        rows = rows._replace(feature_noise=_symmetric(rows.feature_noise, t, noise))
    rows = _with_losses(t, rows, row, nodes, numbers, plan.inverse_batch[t], kinds)
    second = _second_correlation(t, rows, row, nodes, kinds)
    batch_correlation = _symmetric(rows.batch_correlation, t, second)
    through = rows.joint_response @ (batch_correlation @ rows.joint_response[t])
    drive_correlation = _symmetric(rows.drive_correlation, t, through)
    fed_back = kept * here + richness * ((moved_features * drive_correlation[t]) @ weight_response)
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


def _with_responses(t: Array, rows: Rows, here: Array, numbers: Numbers, kinds: Kinds) -> Rows:
    row_1 = here
    if kinds.samples:
        row_1 = (
            here - (_seen_before(t, here.size, numbers, kinds) * _into_samples(t, rows, kinds)) @ rows.sample_response
        )
    row_24 = -(row_1 @ rows.mode_response) if kinds.samples else -rows.mode_response[t]
    row_3 = here + row_24 @ rows.feature_response / numbers.features if kinds.features else here
    sample_response = rows.sample_response.at[t].set(row_1)
    return rows._replace(
        sample_response=sample_response,
        readout_response=rows.readout_response.at[t].set(row_24),
        feature_response=rows.feature_response.at[t].set(row_3),
        joint_response=rows.joint_response.at[t].set(row_3 @ sample_response),
    )


def _into_samples(t: Array, rows: Rows, kinds: Kinds) -> Array:
    """Row t of S R3."""
    return rows.mode_response[t] @ rows.feature_response if kinds.features else rows.mode_response[t]


def _epochs(size: int, numbers: Numbers) -> tuple[Array, Array]:
    """The epoch of each step, and its place in there."""
    epoch = jnp.floor((jnp.arange(size) + 0.5) / numbers.steps_per_epoch)
    return epoch, jnp.round(jnp.arange(size) - epoch * numbers.steps_per_epoch)


def _seen_before(t: Array, size: int, numbers: Numbers, kinds: Kinds) -> Array:
    """Row t of M: how much the samples of this step were seen at each earlier one."""
    epoch, place = _epochs(size, numbers)
    if kinds.sampling == "epochs":
        return (epoch != epoch[t]) / numbers.samples
    if kinds.sampling == "cyclic":
        return (place == place[t]) * numbers.steps_per_epoch / numbers.samples
    return jnp.ones(size) / numbers.samples


def _with_losses(
    t: Array,
    rows: Rows,
    row: Array,
    nodes: tuple[Array, ...],
    numbers: Numbers,
    inverse_batch: Array,
    kinds: Kinds,
) -> Rows:
    """Row t of C0 (without reused samples its diagonal only), and the noise that the losses make at t."""
    eigenvalues, counts, targets = nodes
    missing = -row * (jnp.arange(row.shape[1]) < t)
    kicked = missing @ rows.sample_noise if kinds.samples else missing * rows.batch_noise
    kicked = counts[:, None] * kicked
    pushed = (eigenvalues * counts)[:, None] * (row @ rows.feature_noise) - kicked if kinds.features else -kicked
    node = eigenvalues * targets * rows.mode_decay[t] ** 2 + (pushed * row).sum(1)
    rows = rows._replace(node_loss=rows.node_loss.at[t].set(node))
    if kinds.samples:
        signal = rows.mode_decay @ (eigenvalues * targets * rows.mode_decay[t])
        whole = signal + _through_modes(t, rows.mode_rows, row, pushed) + kicked.sum(0)
        rows = rows._replace(error_correlation=_symmetric(rows.error_correlation, t, whole))
        return _with_sample_noise(t, rows, numbers, inverse_batch, kinds)
    loss = node.sum()
    noise = loss + numbers.label_noise
    if kinds.exact_batch:
        noise = noise + jnp.where(counts > 0, node / jnp.where(counts > 0, counts, 1.0), 0.0)
    return rows._replace(
        error_correlation=rows.error_correlation.at[t, t].set(loss),
        train_loss=rows.train_loss.at[t].set(loss),
        batch_noise=rows.batch_noise.at[:, t].set(noise * inverse_batch if kinds.batch else 0.0),
    )


def _with_sample_noise(t: Array, rows: Rows, numbers: Numbers, inverse_batch: Array, kinds: Kinds) -> Rows:
    """Row t of C1 and W, and the training loss."""
    size, samples = rows.push.shape[0], numbers.samples
    here = (jnp.arange(size) == t) * 1.0
    noisy = rows.error_correlation + numbers.label_noise
    response = rows.sample_response[t]
    moved = response - here
    excess = samples * rows.sample_noise - noisy
    # How the error on any one sample differs from that on a new one.
    total = moved
    if kinds.sampling != "replacement":
        total = -_into_samples(t, rows, kinds) @ rows.sample_response / samples
    train = (here + total) @ noisy @ (here + total) + total @ excess @ total
    noise = (_seen_before(t, size, numbers, kinds) if kinds.sampling == "cyclic" else 1 / samples) * noisy[t]
    if kinds.sampling == "epochs":
        unseen = rows.sample_response @ (noisy @ response) + (rows.sample_response - jnp.eye(size)) @ (excess @ moved)
        epoch, _ = _epochs(size, numbers)
        noise = noise - (epoch == epoch[t]) * unseen / samples + here * unseen[t] * inverse_batch
        rows = rows._replace(unseen_correlation=_symmetric(rows.unseen_correlation, t, unseen))
    elif kinds.sampling == "replacement" and kinds.batch:
        noise = noise + here * train * inverse_batch
    return rows._replace(
        train_loss=rows.train_loss.at[t].set(train), sample_noise=_symmetric(rows.sample_noise, t, noise)
    )


def _second_correlation(t: Array, rows: Rows, row: Array, nodes: tuple[Array, ...], kinds: Kinds) -> Array:
    """Row t of R1^-1 C2 R1^-T."""
    eigenvalues, counts, targets = nodes
    result = rows.mode_decay @ (eigenvalues**2 * targets * rows.mode_decay[t])
    if not (kinds.features or kinds.batch or kinds.samples):
        return result
    carried = row @ rows.sample_noise if kinds.samples else row * rows.batch_noise
    if kinds.features:
        carried = carried + eigenvalues[:, None] * (row @ rows.feature_noise)
    return result + _through_modes(t, rows.mode_rows, row, (eigenvalues * counts)[:, None] * carried)


@partial(jax.jit, static_argnames=("kinds",))
def _averaged_loss(
    averages: Array, rows: Rows, nodes: tuple[Array, ...], numbers: Numbers, kernels: Kernels, kinds: Kinds
) -> Float[Array, "average"]:
    """Test loss of averaged weights ``sum_s a(t, s) w_s`` and ``sum_s a(t, s) A_s``.

    The averages move the modes by ``G = (a rho) (a H^w) + gamma (a Theta_A) o (a H^w C3 H^w^T)`` in place of ``G``.
    """
    eigenvalues, counts, targets = nodes
    response = averages @ rows.weight_response
    correlation = response @ rows.drive_correlation @ rows.weight_response.T
    push = (averages @ kernels.kept)[:, None] * response + numbers.richness * (
        averages @ kernels.features
    ) * correlation
    size = rows.push.shape[0]

    def loss(own: Array) -> Array:
        moved = ((own @ rows.joint_response) @ rows.mode_rows.reshape(size, -1)).reshape(-1, size)
        decay = 1 - eigenvalues * moved.sum(1)
        noise = moved @ rows.sample_noise if kinds.samples else moved * rows.batch_noise
        variance = eigenvalues * (noise * moved).sum(1)
        if kinds.features:
            left = own - eigenvalues[:, None] * (moved @ rows.push)
            variance = variance + ((left @ rows.drive_correlation) * left).sum(1) / numbers.features
        return (eigenvalues * (targets * decay**2 + counts * variance)).sum()

    return jax.lax.map(loss, push)


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
