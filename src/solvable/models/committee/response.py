"""Training on P = gamma D samples by its response functions: the check of the latent closure, and the paper's scheme.

In the limit D to infinity each weight and each sample follows its own process (delayed-features, eqs. 7-9; in discrete
time, exact for gradient descent):

    w(t+1) = (1 - dt d) w(t) + dt [ n(t) + sum_{s<=t} Rh(t,s) w(s) + R*(t) beta ],     <n n> = Cg / gamma
    h(t)   = u(t) + (dt/gamma) sum_{s<t} Rw(t,s) g(s),                                 <u u> = Cw, <u h*> = A
    Rw(t+1,s) = (1 - dt d) Rw(t,s) + dt sum_{s<s'<=t} Rh(t,s') Rw(s',s),               Rw(s+1,s) = 1

with ``Cg = <g g>``, ``Rh = <dg/du>``, ``R* = <dg/dh*>``. Everything at step t + 1 depends on steps up to t, so one pass
forward solves it (:class:`Response`). The cavity fields are ``u(t) = U(t) z`` on independent normals z, with the noise
``n`` on an orthonormal basis of the signals: no two-time matrix is factored, and Cw is a covariance by construction.
Responses are derivatives along each sample's trajectory; unlike in the closure, signals are not averaged with latents.

The paper iterates on whole two-time functions instead (:class:`FixedPoint`; A.6 and eq. 32). From the online limit on:
draw cavity fields with the covariance of the last iterate, run every sample through time, estimate ``Cg``, ``Rh`` and
``R*`` (with eq. 21 corrected: see docs/errata), solve the linear equations of the weights for ``Cw``, ``A`` and ``Rw``,
and move every function part of the way.

==========  =======================  ================================================
symbol      name                     shape
==========  =======================  ================================================
``U``       cavity                   (time, neuron, latent); latent = index, neuron, then noise
``z``       normals                  (latent, sample)
``Cw``      weight_correlation       (time, time, neuron, neuron)
``Cg``      gradient_correlation     (time, time, neuron, neuron)
``Rw``      weight_response          (time, time, neuron, neuron)
``Rh``      field_response           (time, time, neuron, neuron)
``R*``      index_response           (time, neuron, index)
==========  =======================  ================================================
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from solvable.checks import check_count
from solvable.coverage import Covers
from solvable.divergence import DivergedError
from solvable.models.committee import trajectories
from solvable.models.committee.gaussian import test_losses
from solvable.models.committee.online import descent_latents, factor
from solvable.models.committee.problem import Advance, OutputRequest, Problem, Solution
from solvable.models.committee.trajectories import Samples, Signals, TwoTime, as_function, as_matrix
from solvable.numerics.cost import check_cost
from solvable.numerics.sobol import sobol_normals
from solvable.training import GradientDescent

# Signals whose new part is smaller than this fraction add no direction: it would be rounding.
_NEW = 1e-9


@dataclasses.dataclass(frozen=True)
class TwoTimeSolver:
    """A solver by response functions: it computes all two-time functions at all steps up to the last time."""

    samples: int
    replicates: int
    covers: ClassVar[tuple[Covers, ...]] = (Covers(GradientDescent, options=("weight_decay",)),)

    def __post_init__(self) -> None:
        check_count("samples", self.samples, 16)
        check_count("replicates", self.replicates, 2)

    def check_cost(self, problem: Problem, times: np.ndarray) -> None:
        steps, neurons = float(times[-1]), problem.neurons
        check_cost(
            f"{type(self).__name__}() for {steps:.3g} steps",
            # All two-time functions of every replicate, and averages over samples at each pair of times.
            operations=self.replicates * steps**2 * neurons**2 * (2.0 * self.samples + steps * neurons),
            memory=8.0 * self.replicates * 6 * (steps * neurons) ** 2,
            remedy="ask for earlier times, or use the solver Latent",
        )

    def solve(
        self, problem: Problem, times: np.ndarray, request: OutputRequest, key: int, advance: Advance
    ) -> Solution:
        if request.kernel_alignment:
            raise ValueError("the alignment of the kernel needs the solver Latent or Flow")
        steps = times.astype(int)
        found = self.two_time(problem, int(steps[-1]), key)
        advance(1.0)
        everything = found._asdict() | {"overlap": np.einsum("kttij->ktij", found.weight_correlation)}
        if request.loss_gap:
            everything["loss_gap"] = loss_gap(problem, found)
        if not request.correlations:
            del everything["weight_correlation"], everything["gradient_correlation"]
        if not request.responses:
            del everything["weight_response"], everything["field_response"], everything["index_response"]
        pairs = np.ix_(np.arange(self.replicates), steps, steps)
        two_times = ("weight_correlation", "gradient_correlation", "weight_response", "field_response")
        return Solution({name: v[pairs] if name in two_times else v[:, steps] for name, v in everything.items()})

    def two_time(self, problem: Problem, steps: int, key: int) -> TwoTime:
        """All order parameters at steps 0 to ``steps``."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Response(TwoTimeSolver):
    """Responses by derivatives along each sample's trajectory, in one pass forward in time: the check of the closure.

    Costs about ``N^3 T^3 / 3`` multiplications per sample for T steps. An activation that is not differentiable at zero
    (ReLU) needs the jump formula, and with it memory of about ``3 T^2 N^2`` numbers per sample; non-differentiable
    points elsewhere are not seen.

    Parameters
    ----------
    samples
        Size of one set of samples.
    replicates
        Number of independent randomised quasi-Monte-Carlo sets of samples; their spread is the error.
    """

    samples: int = 2048
    replicates: int = 4

    def two_time(self, problem: Problem, steps: int, key: int) -> TwoTime:
        latents = np.asarray(factor(problem.initial_alignment, problem.initial_overlap))
        trajectories.check_jump_memory(problem, self.samples, steps)
        runs = []
        for replicate in range(self.replicates):
            count = latents.shape[1] + steps * latents.shape[0]
            march = March(problem, latents, sobol_normals(self.samples, count, (key, replicate)).T, steps)
            # A run that diverges is reported at its first step that is not finite.
            with np.errstate(over="ignore", invalid="ignore"):
                runs.append(march.run())
        return _stacked(runs)


@dataclasses.dataclass(frozen=True)
class FixedPoint(TwoTimeSolver):
    """The paper's damped iteration on two-time functions (appendix A.6, eq. 32): the baseline.

    Parameters
    ----------
    samples
        Pseudo-random samples, drawn anew in every iteration.
    damping
        Fraction of the old iterate that is kept, ``X <- damping X + (1 - damping) X_MC``.
    iterations
        Number of iterations.
    replicates
        Number of independent iterations; their spread is the error.
    """

    samples: int = 8000
    replicates: int = 2
    damping: float = 0.5
    iterations: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("iterations", self.iterations)
        if not 0 <= self.damping < 1:
            raise ValueError(f"damping must be at least 0 and below 1, not {self.damping!r}")

    def two_time(self, problem: Problem, steps: int, key: int) -> TwoTime:
        return self.iterate(problem, steps, key)[0]

    def iterate(
        self, problem: Problem, steps: int, key: int
    ) -> tuple[TwoTime, Float[np.ndarray, "replicate iteration"]]:
        """The last iterate, and how far each iteration moved the weight correlation (largest entry).

        Parameters
        ----------
        problem
            What is solved.
        steps
            Number of steps.
        key
            Random key of the samples.
        """
        if trajectories.slope_jumps(problem):
            raise ValueError(
                "the fixed-point scheme differentiates the signals and misses the jump at the non-differentiable point "
                f"of {problem.activation}: use the solver Latent or Response"
            )
        runs = [
            _iterate(self, problem, steps, np.random.default_rng((key, replicate)))
            for replicate in range(self.replicates)
        ]
        return _stacked([run[0] for run in runs]), np.array([run[1] for run in runs])


def _stacked(runs: list[TwoTime]) -> TwoTime:
    return TwoTime(*(np.stack(values) for values in zip(*runs, strict=True)))


def loss_gap(problem: Problem, everything: TwoTime) -> np.ndarray:
    """``(2/gamma) sum_ij (c_i / b_i) dt sum_{s<t} R^w_ij(t, s) C^g_ij(t, s)`` (eq. 18), (replicate, time)."""
    training: Any = problem.training
    products = everything.weight_response * everything.gradient_correlation
    steps = products.shape[1]
    earlier = np.tril(np.ones((steps, steps)), -1)
    factor = 2 * training.learning_rate / problem.samples_per_dimension
    return factor * np.einsum("ktsij,i,ts->kt", products, problem.readout_ratio, earlier)


class March:
    """One pass forward in time over one set of samples."""

    def __init__(self, problem: Problem, latents: np.ndarray, normals: np.ndarray, steps: int) -> None:
        training: Any = problem.training
        step = training.learning_rate
        neurons, times = len(latents), steps + 1
        self.problem, self.normals, self.step, self.steps = problem, normals, step, steps
        self.samples_per_dimension, self.keep = problem.samples_per_dimension, 1 - step * training.weight_decay
        self.indices, self.initial = latents.shape[1] - neurons, latents.shape[1]
        # Latents that have entered the weights so far.
        self.known = self.initial
        self.cavity = np.zeros((times, neurons, len(normals)))
        self.cavity[0, :, : self.known] = latents
        self.basis = np.zeros((0, normals.shape[1]))
        self.weight_response = np.zeros((times, times, neurons, neurons))
        self.field_response = np.zeros((times, times, neurons, neurons))
        self.index_response = np.zeros((times, neurons, self.indices))
        self.samples = Samples(problem, normals[: self.indices], times, step / problem.samples_per_dimension)
        self.jumps = (
            trajectories.SignalJumps(problem, times, normals.shape[1]) if trajectories.slope_jumps(problem) else None
        )

    def run(self) -> TwoTime:
        """March to the last step."""
        for t in range(self.steps + 1):
            self._respond(t)
            if not np.isfinite(self.samples.train_loss[t]) or not np.all(np.isfinite(self.field_response[t])):
                raise DivergedError(
                    f"the response equations diverged at step {t} with learning_rate = {self.step:g}: samples are "
                    "unstable there; lower the learning rate, or use the solver Latent, which needs no responses",
                    step=t,
                    time=float(t),
                )
            if t < self.steps:
                self._move_weights(t)
        correlation = np.einsum("tia,sja->tsij", self.cavity, self.cavity, optimize=True)
        signals = self.samples.signals
        signal_correlation = np.einsum("tin,sjn->tsij", signals, signals, optimize=True) / signals.shape[-1]
        alignment = self.cavity[:, :, : self.indices]
        return TwoTime(
            self.samples.train_loss,
            _test_losses(self.problem, alignment, correlation),
            alignment,
            correlation,
            signal_correlation,
            self.weight_response,
            self.field_response,
            self.index_response,
        )

    def _respond(self, t: int) -> None:
        """Fields, signals and responses at step t."""
        cavity = self.cavity[t, :, : self.known] @ self.normals[: self.known]
        self.samples.advance(cavity, self.weight_response[t, :t])
        kernel = self.samples.memory_step * self.weight_response[: t + 1, : t + 1]
        self.index_response[t] = self.samples.index_response[t].mean(axis=-1)
        self.field_response[t, : t + 1] = trajectories.mean_field_response(self.samples.slopes[: t + 1], kernel)
        if self.jumps is not None:
            newest = slice(self.known - self.problem.neurons, self.known)
            self.jumps.advance(self.samples, self.cavity[: t + 1], newest, self.normals, kernel)
            by_fields, by_index = self.jumps.responses(self.samples)
            self.field_response[t, : t + 1] += by_fields
            self.index_response[t] += by_index

    def _move_weights(self, t: int) -> None:
        """Cavity fields and weight responses at step t + 1 from the responses at step t."""
        response = self.field_response[t, : t + 1]
        drift = np.einsum("sij,sja->ia", response, self.cavity[: t + 1])
        drift[:, : self.indices] += self.index_response[t]
        coefficients = self._noise(self.samples.signals[t])
        self.known = self.initial + coefficients.shape[1]
        drift[:, self.initial : self.known] += coefficients / np.sqrt(self.samples_per_dimension)
        self.cavity[t + 1] = self.keep * self.cavity[t] + self.step * drift
        # Rw(s, s) is stored as zero, so that the sum over s < s' is the sum over all.
        carried = np.einsum("uij,usjk->sik", response, self.weight_response[: t + 1])
        self.weight_response[t + 1] = self.keep * self.weight_response[t] + self.step * carried
        self.weight_response[t + 1, t] = np.eye(len(coefficients))

    def _noise(self, signals: np.ndarray) -> np.ndarray:
        """Coefficients of the signals on the orthonormal basis, which grows by one direction for each neuron."""
        samples = signals.shape[1]
        rest, coefficients = signals.copy(), np.zeros((len(signals), len(self.basis)))
        # Twice, because one pass of Gram-Schmidt leaves what rounding put back.
        for _ in range(2):
            projection = rest @ self.basis.T / samples
            coefficients, rest = coefficients + projection, rest - projection @ self.basis
        new, mixing = _orthonormal(rest, np.sqrt(np.mean(signals**2)))
        self.basis = np.concatenate([self.basis, new])
        return np.concatenate([coefficients, mixing], axis=1)


def _orthonormal(vectors: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal directions (zero where there is none) and the lower triangle that gives the vectors back."""
    directions, mixing = np.zeros_like(vectors), np.zeros((len(vectors), len(vectors)))
    for i, vector in enumerate(vectors):
        mixing[i] = vector @ directions.T / len(vector)
        rest = vector - mixing[i] @ directions
        size = np.sqrt(np.mean(rest**2))
        if size > _NEW * scale:
            directions[i], mixing[i, i] = rest / size, size
    return directions, mixing


def _test_losses(problem: Problem, alignment: np.ndarray, correlation: np.ndarray) -> np.ndarray:
    return np.asarray(test_losses(problem, alignment, np.einsum("ttij->tij", correlation)))


class Weights(NamedTuple):
    """What the equations of the weights give from ``Cg``, ``Rh``, ``R*``; two-time functions as (t, s, i, j)."""

    correlation: np.ndarray
    alignment: np.ndarray
    response: np.ndarray


def _iterate(
    solver: FixedPoint, problem: Problem, steps: int, generator: np.random.Generator
) -> tuple[TwoTime, list[float]]:
    weights, signals, changes = *_online_start(problem, steps, solver.samples, generator), []
    for iteration in range(solver.iterations):
        drawn, train_loss = _sampled(problem, weights, solver.samples, generator)
        solved = _solved(problem, drawn)
        if not all(np.all(np.isfinite(values)) for values in (*drawn, *solved)):
            raise DivergedError(
                f"the fixed-point iteration diverged in iteration {iteration + 1} with {problem.training!r}: lower the "
                "learning rate or the number of steps, or use the solver Latent",
                step=steps,
                time=float(steps),
            )
        following = Weights(*_mixed(weights, solved, solver.damping))
        signals = Signals(*_mixed(signals, drawn, solver.damping))
        changes.append(float(np.max(np.abs(following.correlation - weights.correlation))))
        weights = following
    found = TwoTime(
        train_loss,
        _test_losses(problem, weights.alignment, weights.correlation),
        weights.alignment,
        weights.correlation,
        signals.correlation,
        weights.response,
        signals.field_response,
        signals.index_response,
    )
    return found, changes


def _mixed(old: tuple[np.ndarray, ...], new: tuple[np.ndarray, ...], damping: float) -> list[np.ndarray]:
    return [damping * before + (1 - damping) * after for before, after in zip(old, new, strict=True)]


def _online_start(problem: Problem, steps: int, count: int, generator: np.random.Generator) -> tuple[Weights, Signals]:
    """All functions at infinitely many samples, where responses are instantaneous."""
    latents = np.asarray(descent_latents(problem, steps))
    normals = generator.standard_normal((latents.shape[2], count))
    response = np.zeros((steps + 1, steps + 1, problem.neurons, problem.neurons))
    samples = Samples(problem, normals[: problem.indices], steps + 1, memory_step=0.0)
    samples.run(latents @ normals, response)
    response[np.arange(steps + 1), np.arange(steps + 1)] = samples.slopes.mean(axis=-1)
    correlation = np.einsum("tia,sja->tsij", latents, latents)
    weights = Weights(correlation, latents[:, :, : problem.indices], weight_propagator(problem, response)[0])
    return weights, samples.estimates(response)


def _sampled(
    problem: Problem, weights: Weights, count: int, generator: np.random.Generator
) -> tuple[Signals, np.ndarray]:
    """Run samples through time with the cavity covariance and weight response of an iterate."""
    times, neurons, indices = weights.alignment.shape
    training: Any = problem.training
    covariance = np.eye(indices + times * neurons)
    covariance[indices:, indices:] = as_matrix(weights.correlation)
    covariance[indices:, :indices] = weights.alignment.reshape(-1, indices)
    covariance[:indices, indices:] = covariance[indices:, :indices].T
    values, vectors = np.linalg.eigh(covariance)
    # Paths are smooth in time, so that most eigenvalues are rounding, of either sign.
    root = vectors * np.sqrt(np.maximum(values, 0))
    fields = root @ generator.standard_normal((len(values), count))
    cavity = fields[indices:].reshape(times, neurons, -1)
    memory_step = training.learning_rate / problem.samples_per_dimension
    samples = Samples(problem, fields[:indices], times, memory_step)
    samples.run(cavity, weights.response)
    response = trajectories.mean_field_responses(samples.slopes, memory_step * weights.response)
    return samples.estimates(response), samples.train_loss


def _solved(problem: Problem, signals: Signals) -> Weights:
    """The weights are Gaussian: ``Cw = A A^T + P (C0 - A0 A0^T) P^T + dt^2 Rw Cg Rw^T / gamma``."""
    training: Any = problem.training
    rate = training.learning_rate
    overlap, initial_alignment = np.asarray(problem.initial_overlap), np.asarray(problem.initial_alignment)
    response, initial = weight_propagator(problem, signals.field_response)
    times, neurons = initial.shape[:2]
    flat, start = as_matrix(response), initial.reshape(times * neurons, neurons)
    alignment = start @ initial_alignment
    alignment = alignment + rate * flat @ signals.index_response.reshape(times * neurons, -1)
    correlation = alignment @ alignment.T
    correlation += start @ (overlap - initial_alignment @ initial_alignment.T) @ start.T
    correlation += rate**2 / problem.samples_per_dimension * flat @ as_matrix(signals.correlation) @ flat.T
    return Weights(as_function(correlation, times), alignment.reshape(times, neurons, -1), response)


def weight_propagator(problem: Problem, field_response: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``Rw(t,s)`` and the response ``P(t)`` to the initial weights, from ``Rh``."""
    times, neurons = len(field_response), field_response.shape[-1]
    response, initial = np.zeros_like(field_response), np.zeros((times, neurons, neurons))
    initial[0] = np.eye(neurons)
    training: Any = problem.training
    rate, keep = training.learning_rate, 1 - training.learning_rate * training.weight_decay
    for t in range(times - 1):
        row = field_response[t, : t + 1]
        initial[t + 1] = keep * initial[t] + rate * np.einsum("sij,sjk->ik", row, initial[: t + 1])
        carried = np.einsum("uij,usjk->sik", row, response[: t + 1], optimize=True)
        response[t + 1] = keep * response[t] + rate * carried
        response[t + 1, t] = np.eye(neurons)
    return response, initial
