"""Finite-size committees: draw datasets, descend from weights with exactly the prescribed overlaps, and measure."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import check_choice, check_count
from solvable.models.committee.forms import (
    EXACT_SAMPLES,
    FORMS,
    PROBES,
    Data,
    Form,
    Primal,
    bytes_per_run,
    choose_form,
    draw_inputs,
    product,
    velocity,
)
from solvable.models.committee.fused import MOST_NEURONS
from solvable.models.committee.task import Task
from solvable.numerics.ensemble import trajectories

TestLoss = Callable[[Array, Array], Array]
# Relative to the largest overlap, how far below zero an eigenvalue may be and still count as rounding.
_ROUNDING = 1e-10
_POWER_ITERATIONS = 100


class Simulated(NamedTuple):
    """Results, with axes (seed, time, ...). ``diverged_step`` has the first step that is not finite, or -1."""

    train_loss: np.ndarray
    test_loss: np.ndarray
    alignment: np.ndarray
    overlap: np.ndarray
    kernel_alignment: np.ndarray
    diverged_step: np.ndarray


class Watch(NamedTuple):
    """What is kept to tell when a run left: the loss it began with, the last step below that, the first not finite."""

    start_loss: Array
    below: Array
    diverged: Array


class Run(NamedTuple):
    """One dataset and its student; ``test_key`` draws the same test samples at all times."""

    student: Form
    data: Data
    watch: Watch
    test_key: Array


class Setting(NamedTuple):
    """Everything about a run that is no random draw."""

    task: Task
    weights: Float[np.ndarray, "neuron dimension"]
    indices: int
    samples: int
    step: float
    decay: float
    form: type[Form]
    dtype: Any
    test_loss: TestLoss | None
    test_samples: int


def simulate(
    task: Task,
    *,
    samples_per_dimension: float,
    initial_overlap: Any,
    initial_alignment: Any,
    step: float,
    steps: Sequence[int],
    dimension: int,
    seeds: int,
    key: int = 0,
    weight_decay: float = 0.0,
    dtype: str = "float64",
    form: str = "auto",
    test_loss: TestLoss | None = None,
    test_samples: int = 16384,
    keep_diverged: bool = False,
    memory_limit: float | None = None,
    progress: bool | None = None,
) -> Simulated:
    """Full-batch descent ``w <- (1 - dt decay) w + (dt/gamma) sum_mu g^mu x^mu`` on ``seeds`` datasets at once.

    Each has ``P = round(gamma D)`` samples (and steps by ``D/P``, not by a ``1/gamma`` that rounding made different).
    All begin with the same weights, which have the prescribed overlaps ``C`` and alignments ``A`` to rounding.
    Measured at the whole numbers ``steps``:

    * ``train_loss``, the mean of ``Delta^2`` over the dataset;
    * ``test_loss``, from ``test_loss(A, C)`` if that is given (exact), otherwise the mean over ``test_samples`` fresh
      draws. New fields are Gaussian with covariance (A, C), so those are drawn and no inputs, the same at all times;
    * ``alignment`` A (seed, time, neuron, index) and ``overlap`` C (seed, time, neuron, neuron);
    * ``kernel_alignment``, how far the tangent kernel points to the target (see that function).

    ``form`` is how a step is taken (see ``forms``); ``auto`` takes the one done first. Runs that diverge raise a
    ValueError with the time it began and a stable step; with ``keep_diverged`` they are NaN from there on.
    """
    initial_overlap = np.asarray(initial_overlap, float)
    initial_alignment = np.asarray(initial_alignment, float)
    saved = _check_steps(steps)
    dimension = check_count("dimension", dimension)
    samples = _check_samples(samples_per_dimension, dimension)
    check_choice("dtype", dtype, ("float32", "float64"))
    check_choice("form", form, ("auto", *FORMS))
    seeds, test_samples = check_count("seeds", seeds), check_count("test_samples", test_samples)
    if not 0 < step < np.inf or not 0 <= weight_decay < np.inf:
        raise ValueError(f"step must be positive and weight_decay not negative, not {step!r} and {weight_decay!r}")
    weights = initial_weights(initial_overlap, initial_alignment, dimension)
    neurons, indices = initial_alignment.shape
    if form == "auto":
        form = choose_form(samples, dimension, neurons, saved[-1])
    if form == "fused" and neurons > MOST_NEURONS:
        raise ValueError(f"form 'fused' has room for {MOST_NEURONS} neurons, not {neurons}: use 'primal' or 'auto'")
    task = jax.tree.map(lambda value: jnp.asarray(value, dtype), task)
    setting = Setting(task, weights, indices, samples, step, weight_decay, FORMS[form], dtype, test_loss, test_samples)
    measured, watches = trajectories(
        partial(_start, setting),
        partial(_step, setting),
        partial(_measure, setting),
        saved,
        seeds=seeds,
        key=key,
        bytes_per_run=bytes_per_run(form, samples, dimension, neurons, dtype),
        memory_limit=memory_limit,
        progress=progress,
        label="descending",
    )
    return _judged(setting, measured, watches, saved, key, keep_diverged)


def initial_weights(
    overlap: Float[np.ndarray, "neuron neuron"], alignment: Float[np.ndarray, "neuron index"], dimension: int
) -> Float[np.ndarray, "neuron dimension"]:
    """Weights over ``sqrt(D)``: ``A`` on the first axes, a root of ``C - A A^T`` on the next, nothing else.

    Where a root of full rank has no room (as many neurons as dimensions), one of lower rank will do if there is one.
    """
    if alignment.ndim != 2 or overlap.shape != (alignment.shape[0],) * 2:
        raise ValueError(
            "initial_alignment must be (neuron, index) and initial_overlap (neuron, neuron), "
            f"not {alignment.shape} and {overlap.shape}"
        )
    if not (np.isfinite(overlap).all() and np.isfinite(alignment).all()) or not np.allclose(overlap, overlap.T):
        raise ValueError("initial_overlap must be symmetric, and it and initial_alignment finite")
    values, vectors = np.linalg.eigh((overlap + overlap.T) / 2 - alignment @ alignment.T)
    rounding = _ROUNDING * max(np.abs(overlap).max(), np.finfo(float).tiny)
    if values[0] < -rounding:
        raise ValueError(
            f"no weights have this initial_overlap and initial_alignment: C - A A^T has the eigenvalue {values[0]:.3g},"
            " which must not be negative; lower the alignment or raise the diagonal of the overlap"
        )
    neurons, indices = alignment.shape
    # The least eigenvalues come first: where there is no room for them they must be nothing but rounding.
    room = dimension - indices
    if room < 0 or (neurons > room and values[neurons - room - 1] > rounding):
        needed = indices + int((values > rounding).sum())
        raise ValueError(
            f"dimension = {dimension} has no room for {indices} index vectors and the directions of {neurons} neurons: "
            f"at least {needed} are needed"
        )
    kept = slice(max(neurons - room, 0), None)
    root = vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0))
    weights = np.zeros((neurons, dimension))
    weights[:, :indices] = alignment
    weights[:, indices : indices + root.shape[1]] = root
    return weights


def kernel_alignment(
    task: Task,
    fields: Float[Array, "neuron sample"],
    target: Float[Array, "sample"],
    inner: Callable[[Array], Array],
    key: Array,
) -> Float[Array, ""]:
    """``sqrt(P) y^T K y / (|K|_F |y|^2)`` on the training set, not centred; 0 where there is no kernel.

    ``K(x, x') = sum_i b_i c_i phi'(h_i) phi'(h'_i) x.x'`` is the kernel of ``df/dt = (1/gamma) sum_mu K(x, x_mu)
    Delta_mu``, the tangent kernel of the network where b and c are proportional (delayed-features, sec. 3; its
    prefactor, see docs/errata, drops out). ``y`` is the target, ``inner(rows) = rows X X^T``. The kernel itself is
    never formed: ``|K|_F^2`` is the mean of ``|K z|^2`` over random signs z, or exact for few samples.
    """
    slopes, couplings = task.slopes(fields), task.readout * task.gradient_readout
    samples = target.shape[0]

    def times_kernel(rows: Array) -> Array:
        pushed = inner((slopes[:, None] * rows).reshape(-1, samples)).reshape(len(slopes), -1, samples)
        return jnp.tensordot(couplings, slopes[:, None] * pushed, axes=1)

    if samples <= EXACT_SAMPLES:
        square = jnp.sum(times_kernel(jnp.eye(samples, dtype=target.dtype)) ** 2)
    else:
        probes = jax.random.rademacher(key, (PROBES, samples), target.dtype)
        square = jnp.sum(times_kernel(probes) ** 2) / PROBES
    size = jnp.sqrt(square) * jnp.sum(target**2)
    along = jnp.sqrt(float(samples)) * (times_kernel(target[None])[0] @ target)
    return jnp.where(size == 0, 0.0, along / jnp.where(size == 0, 1.0, size)).astype(target.dtype)


def sampled_test_loss(
    task: Task, alignment: Float[Array, "neuron index"], overlap: Float[Array, "neuron neuron"], key: Array, count: int
) -> Float[Array, ""]:
    """The mean of ``Delta^2`` over ``count`` new inputs, whose fields are Gaussian with covariance given by (A, C)."""
    index_key, rest_key = jax.random.split(key)
    index_fields = jax.random.normal(index_key, (alignment.shape[1], count), alignment.dtype)
    values, vectors = jnp.linalg.eigh(overlap - product(alignment, alignment.T))
    rest = jax.random.normal(rest_key, (alignment.shape[0], count), alignment.dtype)
    root = vectors * jnp.sqrt(jnp.maximum(values, 0))
    fields = product(alignment, index_fields) + product(root, rest)
    return jnp.mean(task.error(fields, index_fields) ** 2)


def largest_curvature(task: Task, data: Data, weights: Float[Array, "neuron dimension"]) -> Float[Array, ""]:
    """The largest eigenvalue, in size, of the Jacobian of the velocity, by power iteration.

    Descent on a bowl of curvature ``a`` multiplies what is left by ``1 - dt a``, so it is stable below ``dt = 2/a``.
    """

    def bend(direction: Array) -> Array:
        return jax.jvp(lambda at: velocity(task, data, at)[0], (weights,), (direction,))[1]

    def improve(_: int, estimate: tuple[Array, Array]) -> tuple[Array, Array]:
        direction = bend(estimate[0])
        size = jnp.linalg.norm(direction)
        return direction / jnp.where(size == 0, 1.0, size), size

    first = jax.random.normal(jax.random.key(0), weights.shape, weights.dtype)
    start = (first / jnp.linalg.norm(first), jnp.zeros((), weights.dtype))
    return jax.lax.fori_loop(0, _POWER_ITERATIONS, improve, start)[1]


def _start(setting: Setting, key: Array) -> Run:
    data_key, test_key = jax.random.split(key)
    dimension = setting.weights.shape[1]
    inputs = draw_inputs(data_key, setting.samples, dimension, setting.dtype)
    weights = jnp.asarray(setting.weights, setting.dtype)
    student, data = setting.form.start(setting.task, inputs, weights, inputs[:, : setting.indices].T)
    loss = jnp.mean(setting.task.error(student.fields(data), data.index_fields) ** 2)
    return Run(student, data, Watch(loss, jnp.zeros((), int), jnp.full((), -1)), test_key)


def _step(setting: Setting, run: Run, count: Array) -> Run:
    student, error = run.student.moved(setting.task, run.data, setting.step, setting.decay)
    loss = jnp.mean(error**2)
    watch = run.watch
    below = jnp.where(loss <= watch.start_loss, count, watch.below)
    diverged = jnp.where((watch.diverged < 0) & ~jnp.isfinite(loss), count, watch.diverged)
    return Run(student, run.data, Watch(watch.start_loss, below, diverged), run.test_key)


def _measure(setting: Setting, run: Run) -> tuple[dict[str, Array], Watch]:
    fields = run.student.fields(run.data)
    alignment, overlap = run.student.order_parameters(setting.indices)
    if setting.test_loss is None:
        test_loss = sampled_test_loss(setting.task, alignment, overlap, run.test_key, setting.test_samples)
    else:
        test_loss = setting.test_loss(alignment, overlap)
    measured = {
        "train_loss": jnp.mean(setting.task.error(fields, run.data.index_fields) ** 2),
        "test_loss": test_loss,
        "alignment": alignment,
        "overlap": overlap,
        "kernel_alignment": kernel_alignment(
            setting.task, fields, run.data.target, partial(run.student.inner, run.data), run.test_key
        ),
    }
    return measured, run.watch


def _judged(
    setting: Setting, measured: dict[str, np.ndarray], watches: Watch, saved: list[int], key: int, keep: bool
) -> Simulated:
    """The results, with NaN from where a run is not finite; or an error that says when and why the first one left."""
    steps = np.asarray(saved)
    finite = np.isfinite(measured["train_loss"])
    seen = np.where(finite.all(axis=1), -1, steps[np.argmin(finite, axis=1)])
    # The watch sees every step but the last one, which only the measurement sees.
    diverged = np.where(watches.diverged[:, -1] >= 0, watches.diverged[:, -1], seen)
    if (diverged >= 0).any() and not keep:
        seed = int(np.argmax(diverged >= 0))
        count = int((diverged >= 0).sum())
        raise ValueError(
            f"{count} of {len(diverged)} runs diverged. "
            + _departure(setting, key, seed, int(watches.below[seed, -1]), int(diverged[seed]))
        )
    lost = (diverged[:, None] >= 0) & (steps >= diverged[:, None])
    results = {
        name: np.where(lost.reshape(lost.shape + (1,) * (values.ndim - 2)), np.nan, values)
        for name, values in measured.items()
    }
    return Simulated(**results, diverged_step=diverged)


def _departure(setting: Setting, key: int, seed: int, below: int, diverged: int) -> str:
    """When a run left for good, and the step that is stable there; the run is taken once more up to that point."""
    setting = setting._replace(form=Primal)

    @jax.jit
    def curvature(run_key: Array, count: int) -> Array:
        run = jax.lax.fori_loop(0, count, lambda i, run: _step(setting, run, i), _start(setting, run_key))
        return largest_curvature(setting.task, run.data, run.student.weights)

    run_key = jax.random.fold_in(jax.random.key(key), seed)
    largest = max(float(curvature(run_key, count)) for count in (0, below)) + setting.decay
    # Where the curvature still grows the bound is too generous: half the step is then the first thing to try.
    stable = min(2 / largest, setting.step / 2)
    return (
        f"That of seed {seed} rose above its first loss for good after time {below * setting.step:g} (step {below}) "
        f"and was no longer finite from time {diverged * setting.step:g}. The largest curvature there is "
        f"{largest:.4g}, where steps below {2 / largest:.4g} are stable: "
        f"lower step = {setting.step:g} to {stable:.3g} or less, or pass keep_diverged=True for the results up to there"
    )


def _check_steps(steps: Sequence[int]) -> list[int]:
    values = np.asarray(steps)
    if values.ndim != 1 or not len(values) or (values < 0).any() or (np.diff(values) < 0).any() or (values % 1).any():
        raise ValueError(f"steps must be whole numbers, zero or more, in ascending order, not {steps!r}")
    return [int(value) for value in values]


def _check_samples(samples_per_dimension: float, dimension: int) -> int:
    if not 0 < samples_per_dimension < np.inf:
        raise ValueError(
            f"samples_per_dimension must be a positive finite number to simulate, not {samples_per_dimension!r}: "
            "the online limit is reached by large values"
        )
    samples = round(samples_per_dimension * dimension)
    if samples < 1:
        raise ValueError(
            f"samples_per_dimension = {samples_per_dimension:g} leaves no sample in dimension = {dimension}: "
            "raise either"
        )
    return samples
