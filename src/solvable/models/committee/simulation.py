"""Finite-size committees: draw datasets, train from weights with exactly the prescribed overlaps, and measure.

With ``x ~ N(0, I/D)`` the data are kept as ``sqrt(D) x`` and the weights as ``w / sqrt(D)``. No factor of D is then
left: ``h = W X^T``, ``A = W[:, :K]`` (the index vectors are the first K axes, which rotations of Gaussian inputs make
as good as any), ``C = W W^T``, and the step ``w += (dt/gamma) sum_mu g x`` (delayed-features, eq. 6) is
``W += (dt/P) g X`` with ``gamma = P/D``. There are two forms of the same step, which differ in what they read:

* ``Primal`` keeps the weights and reads X twice per step.
* ``Dual`` keeps the fields and reads the P x P matrix ``X X^T`` once per step: less wherever P < 2 D.

One-pass stochastic gradient descent, ``w <- (1 - eta d / D) w + eta g x`` with a fresh input at every step, is
``W <- (1 - eta d / D) W + (eta / D) g X^T``. D steps pass a flow time of eta (Saad and Solla's scaling).
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import check_choice, check_count
from solvable.divergence import DivergedError
from solvable.models.committee.gaussian import test_loss
from solvable.models.committee.problem import EXACT_SAMPLES, PROBES, Problem, initial_weights
from solvable.numerics.ensemble import trajectories

_POWER_ITERATIONS = 100
# About how many operations a machine does in the time it reads one number: 30 (CPU) to 120 (H200, float64).
_OPERATIONS_PER_READ = 30


class Data(NamedTuple):
    """A training set. ``matrix`` is what a step reads: the inputs, or their inner products."""

    matrix: Float[Array, "sample column"]
    index_fields: Float[Array, "index sample"]
    target: Float[Array, "sample"]


class Simulated(NamedTuple):
    """Results, with axes (seed, time, ...), NaN from divergence on.

    ``diverged`` has the first step that is not finite, or -1, and ``below`` the last step before it at which the loss
    was below its first value, both for each seed.
    """

    train_loss: np.ndarray
    test_loss: np.ndarray
    alignment: np.ndarray
    overlap: np.ndarray
    kernel_alignment: np.ndarray
    diverged: np.ndarray
    below: np.ndarray


def product(left: Array, right: Array) -> Array:
    """A matrix product in the precision of its arguments: GPUs would compute float32 products in less."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def draw_inputs(key: Array, samples: int, dimension: int, dtype: Any) -> Float[Array, "sample dimension"]:
    """Standard normal inputs ``sqrt(D) x``; drawn in float64, so that a seed means the same data in either dtype."""
    return jax.random.normal(key, (samples, dimension)).astype(dtype)


def velocity(problem: Problem, data: Data, weights: Float[Array, "neuron dimension"]) -> tuple[Array, Array]:
    """``dW/dt = (1/P) sum_mu g^mu x^mu`` without decay, and the errors ``Delta^mu``.

    With readouts b and c it is ``-(b_i / 2 c_i)`` times the gradient of the training loss ``mean Delta^2``.
    """
    signals, error = problem.signals(product(weights, data.matrix.T), data.index_fields)
    return product(signals, data.matrix) / data.index_fields.shape[1], error


class Primal(eqx.Module):
    """The weights, over ``sqrt(D)``, and the velocity that momentum carries on."""

    weights: Float[Array, "neuron column"]
    momentum: Float[Array, "neuron column"]
    name: ClassVar[str] = "primal"

    @classmethod
    def start(cls, problem: Problem, inputs: Array, weights: Array, index_fields: Array) -> tuple[Self, Data]:
        return cls(weights, jnp.zeros_like(weights)), _data(problem, inputs, index_fields)

    def fields(self, data: Data) -> Float[Array, "neuron sample"]:
        return product(self.weights, data.matrix.T)

    def inner(self, data: Data, rows: Float[Array, "row sample"]) -> Float[Array, "row sample"]:
        """``rows X X^T``."""
        return product(product(rows, data.matrix), data.matrix.T)

    def order_parameters(self, indices: int) -> tuple[Array, Array]:
        """Alignment ``A`` and overlap ``C``."""
        return self.weights[:, :indices], product(self.weights, self.weights.T)

    def moved(self, problem: Problem, data: Data, rate: Any) -> tuple[Self, Array]:
        """The state after one step of this learning rate, and the errors before it."""
        training: Any = problem.training
        speed, error = velocity(problem, data, self.weights)
        weights = (1 - rate * training.weight_decay) * self.weights + rate * speed
        momentum = self.momentum
        if training.momentum:
            before, momentum = momentum, training.momentum * momentum + speed - training.weight_decay * self.weights
            weights = weights + rate * training.momentum * (momentum if training.nesterov else before)
        return type(self)(weights.astype(self.weights.dtype), momentum.astype(self.weights.dtype)), error


class Dual(eqx.Module):
    """Fields, alignment and overlap, which follow each other without the weights.

    With ``r = 1 - dt decay`` and ``F = (dt/P) g X X^T``, which moves the fields: ``h' = r h + F``,
    ``A' = r A + (dt/P) g h*^T`` and ``C' = r^2 C + (dt/P) [r (g h^T + h g^T) + F g^T]``.
    """

    field_values: Float[Array, "neuron sample"]
    alignment: Float[Array, "neuron index"]
    overlap: Float[Array, "neuron neuron"]
    name: ClassVar[str] = "dual"

    @classmethod
    def start(cls, problem: Problem, inputs: Array, weights: Array, index_fields: Array) -> tuple[Self, Data]:
        everything = product(inputs, inputs.T)
        indices = index_fields.shape[0]
        begin = cls(product(weights, inputs.T), weights[:, :indices], product(weights, weights.T))
        return begin, _data(problem, everything, index_fields)

    def fields(self, data: Data) -> Float[Array, "neuron sample"]:
        return self.field_values

    def inner(self, data: Data, rows: Float[Array, "row sample"]) -> Float[Array, "row sample"]:
        return product(rows, data.matrix)

    def order_parameters(self, indices: int) -> tuple[Array, Array]:
        return self.alignment, self.overlap

    def moved(self, problem: Problem, data: Data, rate: Any) -> tuple[Self, Array]:
        signals, error = problem.signals(self.field_values, data.index_fields)
        training: Any = problem.training
        kept = 1 - rate * training.weight_decay
        pull = (rate / error.shape[0]) * signals
        push = product(pull, data.matrix)
        cross = kept * product(pull, self.field_values.T)
        state = (
            kept * self.field_values + push,
            kept * self.alignment + product(pull, data.index_fields.T),
            kept**2 * self.overlap + cross + cross.T + product(push, pull.T),
        )
        return type(self)(*(value.astype(self.overlap.dtype) for value in state)), error


Form = Primal | Dual
FORMS: dict[str, type[Form]] = {form.name: form for form in (Primal, Dual)}


def choose_form(samples: int, dimension: int, neurons: int, steps: int) -> str:
    """``primal`` or ``dual``, whichever is faster: by what is read, or for wide networks by what is computed.

    A primal step reads ``2 P D`` numbers for ``4 P D N`` operations and a dual one ``P^2`` for ``2 P^2 N``; but the
    dual form first needs the inner products, ``2 P^2 D`` operations.
    """
    operations = max(1.0, 2 * neurons / _OPERATIONS_PER_READ)
    primal = steps * 2 * samples * dimension * operations
    dual = steps * samples**2 * operations + 2 * samples**2 * dimension / _OPERATIONS_PER_READ
    return "dual" if dual < primal else "primal"


def bytes_per_run(form: str, samples: int, dimension: int, neurons: int, dtype: Any) -> float:
    """Peak memory of one run: while the inputs are drawn, or with the inner products beside them."""
    size = np.dtype(dtype).itemsize
    drawn = (2 * 8.0 + size) * samples * dimension
    kept = size * (samples**2 + samples * dimension if form == "dual" else samples * dimension)
    # The measurement of the kernel's alignment multiplies its probes with the slopes of every neuron.
    measured = 3.0 * size * neurons * (samples + dimension) * (samples if samples <= EXACT_SAMPLES else PROBES)
    return max(drawn, kept) + measured + size * (6.0 * neurons * (samples + dimension))


def _data(problem: Problem, matrix: Array, index_fields: Array) -> Data:
    return Data(matrix, index_fields, problem.target(index_fields).astype(matrix.dtype))


class Run(NamedTuple):
    """One dataset and its student; ``probe_key`` draws the same probes of the kernel at all times.

    To tell when it diverged: its first loss, the last step ``below`` that, and the first step that is not finite.
    """

    student: Form
    data: Data
    probe_key: Array
    start_loss: Array
    below: Array
    diverged: Array


class Setup(NamedTuple):
    """Everything about a run that is not drawn at random."""

    problem: Problem
    weights: Float[np.ndarray, "neuron dimension"]
    samples: int
    form: type[Form]
    dtype: str


def set_up(problem: Problem, steps: int, *, dimension: int, dtype: str, form: str) -> Setup:
    """Check the options of a simulation, choose the form of a step by the number of steps, make the initial weights."""
    dimension = check_count("dimension", dimension)
    samples = _check_samples(problem.samples_per_dimension, dimension)
    check_choice("dtype", dtype, ("float32", "float64"))
    check_choice("form", form, ("auto", *FORMS))
    training: Any = problem.training
    if training.momentum and form == "dual":
        raise ValueError("form 'dual' has no momentum: use 'primal' or 'auto'")
    if form == "auto":
        form = "primal" if training.momentum else choose_form(samples, dimension, problem.neurons, steps)
    weights = initial_weights(np.asarray(problem.initial_overlap), np.asarray(problem.initial_alignment), dimension)
    return Setup(problem.with_dtype(dtype), weights, samples, FORMS[form], dtype)


def simulate(setup: Setup, steps: list[int], **options: Any) -> Simulated:
    """Full-batch gradient descent ``w <- (1 - dt d) w + (dt/gamma) sum_mu g^mu x^mu`` on ``seeds`` datasets at once.

    Each has ``P = round(gamma D)`` samples (and steps by ``D/P``, not by a ``1/gamma`` that rounding made different).
    All begin with the same weights, which have the prescribed overlaps ``C`` and alignments ``A`` to rounding. The
    options are those of :func:`solvable.numerics.ensemble.trajectories`.
    """
    neurons, dimension = setup.weights.shape
    size = bytes_per_run(setup.form.name, setup.samples, dimension, neurons, setup.dtype)
    begin, move, look = (partial(function, setup) for function in (_start, _step, _measure))
    measured = trajectories(begin, move, look, steps, bytes_per_run=size, **options)
    below, watched = measured.pop("below")[:, -1], measured.pop("diverged")[:, -1]
    saved = np.asarray(steps)
    finite = np.isfinite(measured["train_loss"])
    seen = np.where(finite.all(axis=1), -1, saved[np.argmin(finite, axis=1)])
    # A step sees the loss before it: the last loss is seen by the measurement only.
    diverged = np.where(watched >= 0, watched, seen)
    lost = (diverged[:, None] >= 0) & (saved >= diverged[:, None])
    results = {
        name: np.where(lost.reshape(lost.shape + (1,) * (values.ndim - 2)), np.nan, values)
        for name, values in measured.items()
    }
    return Simulated(**results, diverged=diverged, below=below)


def largest_curvature(problem: Problem, data: Data, weights: Float[Array, "neuron dimension"]) -> Float[Array, ""]:
    """The largest eigenvalue, in size, of the Jacobian of the velocity, by power iteration.

    Gradient descent on a quadratic of curvature ``a`` multiplies what is left by ``1 - dt a``: stable below ``2/a``.
    """

    def bend(direction: Array) -> Array:
        return jax.jvp(lambda at: velocity(problem, data, at)[0], (weights,), (direction,))[1]

    def improve(_: int, estimate: tuple[Array, Array]) -> tuple[Array, Array]:
        direction = bend(estimate[0])
        size = jnp.linalg.norm(direction)
        return direction / jnp.where(size == 0, 1.0, size), size

    first = jax.random.normal(jax.random.key(0), weights.shape, weights.dtype)
    start = (first / jnp.linalg.norm(first), jnp.zeros((), weights.dtype))
    return jax.lax.fori_loop(0, _POWER_ITERATIONS, improve, start)[1]


def _start(setup: Setup, key: Array) -> Run:
    data_key, probe_key = jax.random.split(key)
    inputs = draw_inputs(data_key, setup.samples, setup.weights.shape[1], setup.dtype)
    weights = jnp.asarray(setup.weights, setup.dtype)
    student, data = setup.form.start(setup.problem, inputs, weights, inputs[:, : setup.problem.indices].T)
    loss = jnp.mean(setup.problem.error(student.fields(data), data.index_fields) ** 2)
    return Run(student, data, probe_key, loss, jnp.zeros((), int), jnp.full((), -1))


def _step(setup: Setup, run: Run, count: Array) -> Run:
    student, error = run.student.moved(setup.problem, run.data, setup.problem.training.rate_at(count))
    loss = jnp.mean(error**2)
    below = jnp.where(loss <= run.start_loss, count, run.below)
    diverged = jnp.where((run.diverged < 0) & ~jnp.isfinite(loss), count, run.diverged)
    return run._replace(student=student, below=below, diverged=diverged)


def _measure(setup: Setup, run: Run) -> dict[str, Array]:
    problem = setup.problem
    fields = run.student.fields(run.data)
    alignment, overlap = run.student.order_parameters(problem.indices)
    inner = partial(run.student.inner, run.data)
    return {
        "train_loss": jnp.mean(problem.error(fields, run.data.index_fields) ** 2),
        "test_loss": test_loss(problem, alignment, overlap),
        "alignment": alignment,
        "overlap": overlap,
        "kernel_alignment": problem.kernel_alignment(fields, run.data.target, inner, run.probe_key),
        "below": run.below,
        "diverged": run.diverged,
    }


def divergence(setup: Setup, simulated: Simulated, key: int) -> DivergedError:
    """The error that says when the first run diverged, and which learning rate is stable; it is trained up to there."""
    seed = int(np.argmax(simulated.diverged >= 0))
    below, diverged = int(simulated.below[seed]), int(simulated.diverged[seed])
    primal = setup._replace(form=Primal)

    @jax.jit
    def curvature(run_key: Array, count: int) -> Array:
        run = jax.lax.fori_loop(0, count, lambda i, run: _step(primal, run, i), _start(primal, run_key))
        return largest_curvature(setup.problem, run.data, run.student.weights)

    training: Any = setup.problem.training
    run_key = jax.random.fold_in(jax.random.key(key), seed)
    largest = max(float(curvature(run_key, count)) for count in (0, below)) + training.weight_decay
    rate = float(training.learning_rates(below, below + 1)[0])
    # Where the curvature still grows the bound is too generous: half the learning rate is then the first thing to try.
    stable = min(2 / largest, rate / 2)
    return DivergedError(
        f"{int((simulated.diverged >= 0).sum())} of {simulated.diverged.size} runs diverged. That of seed {seed} rose "
        f"above its first loss for good after step {below} and was no longer finite from step {diverged}. The largest "
        f"curvature there is {largest:.4g}, where learning rates below {2 / largest:.4g} are stable: lower "
        f"learning_rate = {rate:g} to {stable:.3g} or less, or pass on_divergence='keep' for the results up to there",
        step=diverged,
        time=float(diverged),
        stable_learning_rate=stable,
    )


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


class OnePass(NamedTuple):
    """The weights over ``sqrt(D)``, and the random key of the inputs."""

    weights: Float[Array, "neuron dimension"]
    key: Array


def simulate_one_pass(
    problem: Problem, times: list[int], *, dimension: int, dtype: str, **options: Any
) -> dict[str, np.ndarray]:
    """Test loss, alignment and overlap, each (seed, time, ...); times count D steps."""
    dimension = check_count("dimension", dimension)
    check_choice("dtype", dtype, ("float32", "float64"))
    weights = initial_weights(np.asarray(problem.initial_overlap), np.asarray(problem.initial_alignment), dimension)
    problem = problem.with_dtype(dtype)
    return trajectories(
        lambda run_key: OnePass(jnp.asarray(weights, dtype), run_key),
        partial(_pass, problem, dimension),
        partial(_measure_one_pass, problem),
        times,
        # The inputs of D steps are drawn together.
        bytes_per_run=8.0 * 3 * dimension**2,
        **options,
    )


def _pass(problem: Problem, dimension: int, run: OnePass, count: Array) -> OnePass:
    """D steps."""
    training: Any = problem.training
    rate, decay = training.learning_rate / dimension, training.weight_decay
    inputs = jax.random.normal(jax.random.fold_in(run.key, count), (dimension, dimension)).astype(run.weights.dtype)

    def step(weights: Array, example: Array) -> tuple[Array, None]:
        signals, _ = problem.signals(product(weights, example[:, None]), example[: problem.indices, None])
        moved = (1 - rate * decay) * weights + rate * signals * example
        return moved.astype(weights.dtype), None

    return OnePass(jax.lax.scan(step, run.weights, inputs)[0], run.key)


def _measure_one_pass(problem: Problem, run: OnePass) -> dict[str, Array]:
    alignment, overlap = run.weights[:, : problem.indices], product(run.weights, run.weights.T)
    return {"test_loss": test_loss(problem, alignment, overlap), "alignment": alignment, "overlap": overlap}


def one_pass_divergence(problem: Problem, times: np.ndarray, test_losses: np.ndarray) -> DivergedError | None:
    """The error that says when runs diverged, if any did; ``test_losses`` are (seed, time)."""
    finite = np.isfinite(test_losses)
    if finite.all():
        return None
    time = float(times[np.argmin(finite.all(axis=0))])
    return DivergedError(
        f"{int((~finite.all(axis=1)).sum())} of {finite.shape[0]} runs diverged, the first by time {time:g} with "
        f"{problem.training!r}: lower the learning rate, or pass on_divergence='keep' for the results up to there",
        step=None,
        time=time,
    )
