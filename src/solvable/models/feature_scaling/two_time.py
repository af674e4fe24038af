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

The work of a row are products with one matrix, all ``H_k`` beside each other; it is bound by memory bandwidth.

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
    state, begin = _empty(0, nodes[0].size, kinds), 0
    with progress_bar("marching", float(steps) ** 3, progress) as advance:
        for end in _stops(steps):
            state = _stretch(state, nodes, numbers, kernel[:end, :end], begin, end, kinds)
            if progress:
                jax.block_until_ready(state)
            advance(float(end) ** 3 - float(begin) ** 3)
            begin = end
    return _solution(state, kinds)


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


_MATRICES = ("Hw", "fed", "Cw", "G", "R3", "R1", "RR", "S", "R24", "X", "C0", "F", "C3", "J")


def _empty(size: int, count: int, kinds: Kinds) -> dict[str, Array]:
    state = {name: jnp.zeros((size, size)) for name in _MATRICES}
    state["H"] = jnp.zeros((size, count, size))
    state["ones"] = jnp.zeros((size, count))
    state["node"] = jnp.zeros((size, count))
    state["noise"] = jnp.zeros((count if kinds.exact_batch else 1, size))
    state["train"] = jnp.zeros(size)
    return state


def _lengthened(state: dict[str, Array], size: int) -> dict[str, Array]:
    def pad(name: str, value: Array) -> Array:
        grows = {"H": (0, 2), "ones": (0,), "node": (0,), "noise": (1,), "train": (0,)}.get(name, (0, 1))
        return jnp.pad(value, [(0, size - n if axis in grows else 0) for axis, n in enumerate(value.shape)])

    return {name: pad(name, value) for name, value in state.items()}


@partial(jax.jit, static_argnames=("begin", "end", "kinds"))
def _stretch(
    state: dict[str, Array],
    nodes: tuple[Array, ...],
    numbers: tuple[Array, ...],
    kernel: Array,
    begin: int,
    end: int,
    kinds: Kinds,
) -> dict[str, Array]:
    state = _lengthened(state, end)
    return jax.lax.fori_loop(begin, end, lambda t, inner: _row(t, inner, nodes, numbers, kernel[t], kinds), state)


def _row(
    t: Array,
    old: dict[str, Array],
    nodes: tuple[Array, ...],
    numbers: tuple[Array, ...],
    moved: Array,
    kinds: Kinds,
) -> dict[str, Array]:
    """The equations of the module's docstring, row t; ``s`` holds what is known so far, ``moved`` is row t of Theta."""
    eigenvalues, counts, _ = nodes
    richness, features, batch, samples = numbers
    s = dict(old)
    size = s["Hw"].shape[0]
    index = jnp.arange(size)
    here, past = (index == t) * 1.0, (index < t) * 1.0

    # H^w = Theta [1 + gamma (Theta o C3) H^w]; the bracket is kept, row by row.
    s["Hw"] = s["Hw"].at[t].set(moved @ s["fed"])
    s["Cw"] = _symmetric(s["Cw"], t, s["Hw"] @ (s["C3"] @ s["Hw"][t]))
    s["G"] = s["G"].at[t].set(s["Hw"][t] + richness * moved * s["Cw"][t])

    drive = s["G"][t] @ s["R3"] if kinds.features else s["G"][t]
    drive = drive @ s["R1"] if kinds.samples else drive
    s["J"] = s["J"].at[t].set(drive)
    row = here - eigenvalues[:, None] * (drive @ s["H"].reshape(size, -1)).reshape(-1, size)
    s["ones"] = s["ones"].at[t].set(row.sum(1))
    s["S"] = s["S"].at[t].set(((eigenvalues * counts) @ row) @ s["G"])
    s.update(_responses(t, s, here, features, samples, kinds))
    if kinds.features:
        s["X"] = _symmetric(s["X"], t, s["G"] @ (s["C3"] @ s["G"][t]) / features)
    s.update(_losses(t, s, row, past, nodes, batch, samples, kinds))
    s["F"] = _symmetric(s["F"], t, _second_correlation(t, s, row, nodes, batch, samples, kinds))
    s["C3"] = _symmetric(s["C3"], t, s["RR"] @ (s["F"] @ s["RR"][t]))
    s["fed"] = s["fed"].at[t].set(here + richness * ((moved * s["C3"][t]) @ s["Hw"]))
    # Last, after everything that reads it: the compiler would copy the largest array otherwise.
    s["H"] = s["H"].at[t].set(row)
    return s


def _through_modes(t: Array, earlier: Array, row: Array, vectors: Array) -> Array:
    """``sum_k H_k vector_k`` for the rows up to t, of which t itself is not among the earlier ones yet."""
    result = earlier.reshape(row.shape[1], -1) @ vectors.ravel()
    return result.at[t].set((row * vectors).sum())


def _symmetric(matrix: Array, t: Array, row: Array) -> Array:
    row = jnp.where(jnp.arange(row.size) <= t, row, 0.0)
    return matrix.at[t].set(row).at[:, t].set(row)


def _responses(
    t: Array, s: dict[str, Array], here: Array, features: Array, samples: Array, kinds: Kinds
) -> dict[str, Array]:
    new = {}
    into_samples = s["S"][t] @ s["R3"] if kinds.features else s["S"][t]
    row_1 = here - into_samples @ s["R1"] / samples if kinds.samples else here
    new["R1"] = s["R1"].at[t].set(row_1)
    row_24 = -(row_1 @ s["S"]) if kinds.samples else -s["S"][t]
    new["R24"] = s["R24"].at[t].set(row_24)
    row_3 = here + row_24 @ s["R3"] / features if kinds.features else here
    new["R3"] = s["R3"].at[t].set(row_3)
    new["RR"] = s["RR"].at[t].set(row_3 @ new["R1"])
    return new


def _losses(
    t: Array,
    s: dict[str, Array],
    row: Array,
    past: Array,
    nodes: tuple[Array, ...],
    batch: Array,
    samples: Array,
    kinds: Kinds,
) -> dict[str, Array]:
    """Row t of C0 (without reused samples its diagonal only), and the noise that the losses make at t."""
    eigenvalues, counts, targets = nodes
    missing = -row * past
    kicked = jnp.zeros_like(row)
    if kinds.samples:
        kicked = kicked + (missing @ s["C0"]) * past / samples
    if kinds.batch:
        kicked = kicked + missing * s["noise"] / batch
    kicked = counts[:, None] * kicked
    pushed = (eigenvalues * counts)[:, None] * (row @ s["X"]) - kicked if kinds.features else -kicked
    node = eigenvalues * targets * s["ones"][t] ** 2 + (pushed * row).sum(1)
    new = {"node": s["node"].at[t].set(node)}
    if not kinds.samples:
        train = node.sum()
        new["C0"] = s["C0"].at[t, t].set(train)
    else:
        signal = s["ones"] @ (eigenvalues * targets * s["ones"][t])
        whole = signal + _through_modes(t, s["H"], row, pushed) + kicked.sum(0)
        new["C0"] = _symmetric(s["C0"], t, whole)
        train = s["R1"][t] @ (new["C0"] @ s["R1"][t])
        if kinds.batch:
            train = train + samples / batch * (s["R1"][t] ** 2 * past) @ s["train"]
    new["train"] = s["train"].at[t].set(train)
    noise = train
    if kinds.exact_batch:
        noise = train + jnp.where(counts > 0, node / jnp.where(counts > 0, counts, 1.0), 0.0)
    new["noise"] = s["noise"].at[:, t].set(noise)
    return new


def _second_correlation(
    t: Array, s: dict[str, Array], row: Array, nodes: tuple[Array, ...], batch: Array, samples: Array, kinds: Kinds
) -> Array:
    """Row t of R1^-1 C2 R1^-T."""
    eigenvalues, counts, targets = nodes
    result = s["ones"] @ (eigenvalues**2 * targets * s["ones"][t])
    if not any(kinds):
        return result
    carried = jnp.zeros_like(row)
    if kinds.samples:
        carried = carried + row @ s["C0"] / samples
    if kinds.batch:
        carried = carried + row * s["noise"] / batch
    if kinds.features:
        carried = carried + eigenvalues[:, None] * (row @ s["X"])
    return result + _through_modes(t, s["H"], row, (eigenvalues * counts)[:, None] * carried)


@partial(jax.jit, static_argnames=("kinds",))
def _solution(s: dict[str, Array], kinds: Kinds) -> Solution:
    second = s["R1"] @ s["F"] @ s["R1"].T if kinds.samples else s["F"]
    return Solution(
        jnp.diagonal(s["C0"]), s["train"], s["node"], s["Cw"], second, s["C3"], s["C0"], s["R3"], s["R24"], s["J"]
    )
