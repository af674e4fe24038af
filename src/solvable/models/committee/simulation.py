"""Finite-size committees: draw datasets, train from weights with exactly the prescribed overlaps, and measure.

With ``x ~ N(0, I/D)`` the data are kept as ``sqrt(D) x`` and the weights as ``w / sqrt(D)``. No factor of D is then
left: ``h = W X^T``, ``A = W[:, :K]`` (the index vectors are the first K axes, which rotations of Gaussian inputs make
as good as any), ``C = W W^T``, and the step ``w += (dt/gamma) sum_mu g x`` (delayed-features, eq. 6) is
``W += (dt/P) g X`` with ``gamma = P/D``. There are two forms of the same training set, which differ in what they read:

* ``Primal`` keeps the weights themselves and reads X twice per step.
* ``Dual`` keeps the coefficients of the weights on the initial weights and on the inputs, and reads the P x P matrix
  ``X X^T`` once per step: less wherever P < 2 D.

One-pass stochastic gradient descent, ``w <- (1 - eta d / D) w + eta g x`` with a fresh input at every step, is
``W <- (1 - eta d / D) W + (eta / D) g X^T``. D steps pass a flow time of eta (Saad and Solla's scaling).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import check_choice, check_count
from solvable.divergence import DivergedError
from solvable.models.committee.algorithm import Algorithm
from solvable.models.committee.labels import AVERAGED
from solvable.models.committee.latent import algorithm_of
from solvable.models.committee.population import measure_test
from solvable.models.committee.problem import EXACT_SAMPLES, PROBES, Problem
from solvable.models.committee.protocol import Weights
from solvable.models.committee.start import initial_weights
from solvable.models.committee.training_set import FORMS, Form, Primal, draw_inputs, labelled, product
from solvable.numerics.ensemble import trajectories

_POWER_ITERATIONS = 100
# About how many operations a machine does in the time it reads one number: 30 (CPU) to 120 (H200, float64).
_OPERATIONS_PER_READ = 30


class Simulated(NamedTuple):
    """Results, with axes (seed, time, ...), NaN from divergence on; None where the task has no such quantity.

    ``diverged`` has the first step that is not finite, or -1, and ``below`` the last step before it at which the loss
    was below its first value, both for each seed.
    """

    train_loss: np.ndarray
    test_loss: np.ndarray
    alignment: np.ndarray
    overlap: np.ndarray
    diverged: np.ndarray
    below: np.ndarray
    kernel_alignment: np.ndarray | None = None
    train_error_rate: np.ndarray | None = None
    test_error_rate: np.ndarray | None = None
    averaged_train_loss: np.ndarray | None = None
    averaged_test_loss: np.ndarray | None = None
    averaged_train_error_rate: np.ndarray | None = None
    averaged_test_error_rate: np.ndarray | None = None
    readout: np.ndarray | None = None

    def measured(self) -> dict[str, np.ndarray]:
        """The quantities that there are, by name."""
        return {name: values for name, values in self._asdict().items() if values is not None}


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


class Run(NamedTuple):
    """One dataset and the state of the algorithm; ``probe_key`` draws the same probes of the kernel at all times.

    To tell when it diverged: its first loss, the last step ``below`` that, and the first step that is not finite.
    """

    data: Form
    state: Any
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
    algorithm: Any


def set_up(problem: Problem, steps: int, *, dimension: int, dtype: str, form: str) -> Setup:
    """Check the options of a simulation, choose the form of a step by the number of steps, make the initial weights."""
    dimension = check_count("dimension", dimension)
    samples = _check_samples(problem.samples_per_dimension, dimension)
    check_choice("dtype", dtype, ("float32", "float64"))
    check_choice("form", form, ("auto", *FORMS))
    # Only the weights themselves can take up noise, and an algorithm of the user's own may add some.
    noisy = bool(getattr(problem.training, "temperature", 0.0))
    if noisy and form == "dual":
        raise ValueError("temperature adds noise to the weights, which the form 'dual' does not keep: use 'primal'")
    if form == "auto":
        keeps = noisy or isinstance(problem.training, Algorithm)
        form = "primal" if keeps else choose_form(samples, dimension, problem.neurons, steps)
    weights = initial_weights(np.asarray(problem.initial_overlap), np.asarray(problem.initial_alignment), dimension)
    return Setup(problem.with_dtype(dtype), weights, samples, FORMS[form], dtype, algorithm_of(problem.training))


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


def largest_curvature(data: Primal, weights: Float[Array, "neuron dimension"]) -> Float[Array, ""]:
    """The largest eigenvalue, in size, of the Jacobian of the velocity, by power iteration.

    Gradient descent on a quadratic of curvature ``a`` multiplies what is left by ``1 - dt a``: stable below ``2/a``.
    """

    def bend(direction: Array) -> Array:
        return jax.jvp(lambda at: data.gradient(Weights(at)).weights.coordinates, (weights,), (direction,))[1]

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
    data = setup.form.of(setup.problem, inputs, jnp.asarray(setup.weights, setup.dtype), jax.random.fold_in(key, 2))
    state = data.rounded(setup.algorithm.start(data))
    loss = _losses(setup, data, state)[0]
    return Run(data, state, probe_key, loss, jnp.zeros((), int), jnp.full((), -1))


def _losses(setup: Setup, data: Form, state: Any, weights: Weights | None = None) -> tuple[Array, Array | None]:
    """Training loss over all samples, and misclassification rate where labels are classes."""
    weights = setup.algorithm.weights(state) if weights is None else weights
    readout = setup.algorithm.readout(state)
    losses, mistakes = setup.problem.judge(data.fields(weights), data.index_fields, data.labels, readout)
    return jnp.mean(losses), None if mistakes is None else jnp.mean(mistakes)


def _step(setup: Setup, run: Run, count: Array) -> Run:
    state = run.data.rounded(setup.algorithm.step(run.data, run.state, count))
    loss = _losses(setup, run.data, run.state)[0]
    below = jnp.where(loss <= run.start_loss, count, run.below)
    diverged = jnp.where((run.diverged < 0) & ~jnp.isfinite(loss), count, run.diverged)
    return run._replace(state=state, below=below, diverged=diverged)


def _measure(setup: Setup, run: Run) -> dict[str, Array]:
    problem, data, state = setup.problem, run.data, run.state
    weights, average = setup.algorithm.weights(state), setup.algorithm.average(state)
    found = _measure_weights(setup, run, weights)
    if average is not None:
        averaged = _measure_weights(setup, run, average)
        found |= {f"averaged_{name}": averaged[name] for name in AVERAGED if name in averaged}
    readout = setup.algorithm.readout(state)
    if readout is not None:
        found["readout"] = readout
    elif problem.is_plain:
        fields, target = data.fields(weights), problem.target(data.index_fields).astype(data.matrix.dtype)
        found["kernel_alignment"] = problem.kernel_alignment(fields, target, data.inner, run.probe_key)
    return found | {"below": run.below, "diverged": run.diverged}


def _measure_weights(setup: Setup, run: Run, weights: Weights) -> dict[str, Array]:
    """Losses, misclassification rates and order parameters of weights."""
    alignment, overlap = run.data.alignment(weights), run.data.overlap(weights)
    train_loss, train_error_rate = _losses(setup, run.data, run.state, weights)
    test = measure_test(setup.problem.with_readout(setup.algorithm.readout(run.state)), alignment, overlap)
    found = {
        "train_loss": train_loss,
        "test_loss": test.test_loss,
        "train_error_rate": train_error_rate,
        "test_error_rate": test.test_error_rate,
        "alignment": alignment,
        "overlap": overlap,
    }
    return {name: values for name, values in found.items() if values is not None}


def divergence(setup: Setup, simulated: Simulated, key: int) -> DivergedError:
    """The error that says when the first run diverged, and which learning rate is stable; it is trained up to there."""
    seed = int(np.argmax(simulated.diverged >= 0))
    below, diverged = int(simulated.below[seed]), int(simulated.diverged[seed])
    primal = setup._replace(form=Primal)

    @jax.jit
    def curvature(run_key: Array, count: int) -> Array:
        run = jax.lax.fori_loop(0, count, lambda i, run: _step(primal, run, i), _start(primal, run_key))
        return largest_curvature(run.data, setup.algorithm.weights(run.state).coordinates)

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
    key, labels = jax.random.fold_in(run.key, count), None
    inputs = jax.random.normal(key, (dimension, dimension)).astype(run.weights.dtype)
    if not problem.is_plain:
        inputs, _, labels = labelled(problem, inputs, jax.random.fold_in(key, 0), fresh=True)

    def step(weights: Array, sample: tuple[Array, Array | None]) -> tuple[Array, None]:
        example, label = sample
        own = None if label is None else label[None]
        index_fields = example[: problem.indices, None]
        signals = problem.respond(product(weights, example[:, None]), index_fields, own).signals
        moved = (1 - rate * decay) * weights + rate * signals * example
        return moved.astype(weights.dtype), None

    return OnePass(jax.lax.scan(step, run.weights, (inputs, labels))[0], run.key)


def _measure_one_pass(problem: Problem, run: OnePass) -> dict[str, Array]:
    alignment, overlap = run.weights[:, : problem.indices], product(run.weights, run.weights.T)
    test = measure_test(problem, alignment, overlap)
    found = {**test._asdict(), "alignment": alignment, "overlap": overlap}
    return {name: values for name, values in found.items() if values is not None}


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
