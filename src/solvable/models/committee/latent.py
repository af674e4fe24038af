"""Gradient descent by the latent closure: the default solver of the committee.

In the coordinates of :mod:`solvable.models.committee.closure` the weights ``U`` follow the same linear optimiser as the
weights of the network, with ``<g Y>`` in place of minus the gradient: momentum and schedules act on ``U`` directly.
"""

import dataclasses
import math
import time
from typing import Any, ClassVar

import jax
import numpy as np

from solvable.checks import check_count
from solvable.coverage import Covers
from solvable.models.committee.algorithm import Algorithm
from solvable.models.committee.batches import batches_of
from solvable.models.committee.closure import LatentClosure
from solvable.models.committee.exchangeable import ExchangeableClosure
from solvable.models.committee.population import integration_error
from solvable.models.committee.problem import Advance, OutputRequest, Problem, Solution
from solvable.models.committee.protocol import Descent
from solvable.models.committee.recording import Recorder
from solvable.models.committee.symmetry import symmetry_of
from solvable.numerics.cost import check_cost
from solvable.numerics.memory import device_memory
from solvable.training import SGD, GradientDescent

# Steps between two checks for divergence; a check makes an accelerator wait.
_LOOK_EVERY = 64
# Parts of signals below this share of them are rounding.
LEAST_TOLERANCE = 1e-6
_DEFAULT_MEMORY = 4.0 * 2**30
# What whole steps can have: everything that is linear in the weights, or depends on their lengths alone.
OPTIONS = (
    "momentum",
    "nesterov",
    "weight_decay",
    "decoupled",
    "ema_decay",
    "average_from",
    "max_gradient_norm",
    "temperature",
    "readout_learning_rate",
)
# Samples over rank and samples per dimension for errors of about one percent, and what a default may choose.
_USUAL_LOAD, _MOST_FITTED = 25, 2**17
# Beyond this many directions per sample the closure says nothing.
_MOST_LOAD = 0.5
# How much of ``1 - n/D`` shortens the step into the n-th coordinate, by convention.
_OPEN, _HALF_WAY, _SHRUNK = 0.0, 0.5, 1.0
# Typical rank of the latent basis on long runs, and the overhead of an evaluation from Python in operations.
_USUAL_RANK, _CALL = 64, 1e6
# What an accuracy costs is estimated from a run with this many times fewer samples, through so many steps at most.
_FEWER, _REHEARSED_STEPS, _REHEARSED_FRESH = 4, 1000, 50
_LOSSES = ("train_loss", "test_loss")


@dataclasses.dataclass(frozen=True)
class ClosureSolver:
    """Settings of a solver that averages over samples of the latent closure.

    Parameters
    ----------
    samples
        Size of one set of samples.
    replicates
        Number of independent randomised quasi-Monte-Carlo sets of samples; their spread is part of the error. The first
        is solved twice, which bounds the bias of finite samples.
    tolerance
        Fraction of a signal that must lie outside the latent basis for the basis to grow.
    memory_limit
        Most bytes to use; half the accelerator's memory, or 4 GiB on a CPU, if None.
    """

    samples: int = 8192
    replicates: int = 4
    tolerance: float = 3e-3
    memory_limit: float | None = None
    covers: ClassVar[tuple[Covers, ...]] = ()
    # A single replicate has no spread, and hence no error.
    least_replicates: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_count("samples", self.samples, 16)
        check_count("replicates", self.replicates, self.least_replicates)
        if not LEAST_TOLERANCE <= self.tolerance < 1:
            raise ValueError(f"tolerance must lie between {LEAST_TOLERANCE:g} and 1, not {self.tolerance!r}")

    def closure(
        self,
        problem: Problem,
        replicate: int,
        shrunk: float,
        key: int,
        request: OutputRequest | None = None,
    ) -> LatentClosure:
        """A new latent basis for one set of samples and one convention for new directions.

        Parameters
        ----------
        problem
            What is solved.
        replicate
            Number of the set of samples.
        shrunk
            How much to shorten the steps into new directions.
        key
            Random key of the samples.
        request
            What is recorded: two-time functions and kernels need the closure of single neurons.
        """
        settings: dict[str, Any] = {
            "samples": self.samples,
            "tolerance": self.tolerance,
            "shrunk": shrunk,
            "key": (key, replicate),
            "memory_limit": _memory() if self.memory_limit is None else self.memory_limit,
        }
        symmetry = symmetry_of(problem) if request in (None, OutputRequest()) else None
        return LatentClosure(problem, **settings) if symmetry is None else ExchangeableClosure(*symmetry, **settings)

    def solve(
        self, problem: Problem, times: np.ndarray, request: OutputRequest, key: int, advance: Advance
    ) -> Solution:
        """Solve with every set of samples: the first with both conventions for new directions, others half way."""
        if request.responses:
            raise ValueError("the latent closure needs no response functions and has none: use the solver Response")
        each = 1 / (self.replicates + 1)
        recorders = [
            [
                self.run(problem, times, request, replicate, shrunk, key, lambda part: advance(each * part))
                for shrunk in ((_HALF_WAY,) if replicate else (_OPEN, _SHRUNK))
            ]
            for replicate in range(self.replicates)
        ]
        every = [recorder for runs in recorders for recorder in runs]
        stopped = [recorder for recorder in every if recorder.stopped is not None]
        first = min(stopped, key=lambda recorder: recorder.stopped or 0.0, default=None)
        found = [[recorder.arrays(times.size) for recorder in runs] for runs in recorders]
        # A run that diverged before the first time has measured nothing.
        names = [name for name in found[0][0] if all(name in arrays for runs in found for arrays in runs)]
        values = {
            name: np.stack([np.mean([arrays[name] for arrays in runs], axis=0) for runs in found]) for name in names
        }
        bias = {name: abs(found[0][0][name] - found[0][1][name]) / 2 for name in names}
        notes = {
            "rank": max(recorder.rank for recorder in every),
            "evaluations": max(recorder.evaluations for recorder in every),
            "peak_bytes": max(recorder.bytes for recorder in every),
        }
        time_error = {} if stopped else self.time_error(problem, times, key, int(notes["rank"]))
        time_error |= integration_error(problem.task, {name: array.mean(axis=0) for name, array in values.items()})
        if first is None:
            return Solution(values, bias, time_error, notes)
        return Solution(values, bias, time_error, notes, first.stopped, first.stable_learning_rate)

    def run(
        self,
        problem: Problem,
        times: np.ndarray,
        request: OutputRequest,
        replicate: int,
        shrunk: float,
        key: int,
        advance: Advance,
    ) -> Recorder:
        """One set of samples with one convention."""
        closure = self.closure(problem, replicate, shrunk, key, request)
        recorder = Recorder(closure, problem, shrunk, request)
        # A run that diverges is noticed from its loss.
        with np.errstate(over="ignore", invalid="ignore"):
            self.follow(problem, times, closure, recorder, advance)
        recorder.finish(times)
        return recorder

    def rehearse(self, problem: Problem, times: np.ndarray, key: int) -> tuple[float, float] | None:
        """Estimate the seconds of a solution and the relative error of its losses from a quarter of the samples.

        Parameters
        ----------
        problem
            What is solved.
        times
            Increasing times, in the units of the training.
        key
            Random key of the samples.

        Returns
        -------
        tuple or None
            Both are rather too small: the spread over samples and the error of the time steps are not in them, and only
            the first steps are tried. None where so few samples do not carry the run.
        """
        # Where every step opens directions each costs more than the one before.
        growth, most = (2, _REHEARSED_FRESH) if known_rank(problem, times) else (1, _REHEARSED_STEPS)
        early = np.unique(np.minimum(times, most)) if problem.training.counts_steps else times
        small = dataclasses.replace(self, samples=max(self.samples // _FEWER, 16))
        both, seconds = [], 0.0
        try:
            for shrunk in (_OPEN, _SHRUNK):
                # The first run compiles, the second one is timed.
                begin = time.monotonic()
                run = small.run(problem, early, OutputRequest(), 0, shrunk, key, lambda part: None)
                seconds = (time.monotonic() - begin) * _FEWER * (self.replicates + 1)
                both.append(run.arrays(early.size))
        except (ValueError, ArithmeticError, MemoryError):
            return None
        errors = [abs(both[0][name] - both[1][name]) / (both[0][name] + both[1][name]) for name in _LOSSES]
        largest = float(np.max(errors)) / _FEWER
        longer = (float(times[-1]) / max(float(early[-1]), 1e-300)) ** growth
        return (seconds * longer, largest) if math.isfinite(largest) else None

    def follow(
        self, problem: Problem, times: np.ndarray, closure: LatentClosure, recorder: Recorder, advance: Advance
    ) -> None:
        """Train through the times, and record the state at each."""
        raise NotImplementedError

    def time_error(self, problem: Problem, times: np.ndarray, key: int, rank: int) -> dict[str, np.ndarray]:
        """Errors of the time steps; whole steps have none."""
        return {}


@dataclasses.dataclass(frozen=True)
class Latent(ClosureSolver):
    """Gradient descent in whole steps, exact as the dimension grows: the default for ``GradientDescent``."""

    covers: ClassVar[tuple[Covers, ...]] = (
        Covers(GradientDescent, options=OPTIONS, schedules=("learning_rate",)),
        Covers(
            SGD,
            options=(*OPTIONS, "batch_fraction"),
            sampling=("epochs", "subsets", "replacement", "cyclic"),
            schedules=("learning_rate",),
        ),
    )
    covers_every_task: ClassVar[bool] = True

    def fitted(self, problem: Problem, times: np.ndarray) -> "Latent":
        """This solver with enough samples for the number of directions, where it is known before the run.

        Parameters
        ----------
        problem
            Network, target, start, samples per dimension and training.
        times
            Increasing times, in the units of the training.
        """
        needed = _USUAL_LOAD * known_rank(problem, times) * problem.samples_per_dimension
        most = max(self.samples, _MOST_FITTED)
        enough = min(2 ** math.ceil(math.log2(max(needed, 1.0))), most)
        return dataclasses.replace(self, samples=max(self.samples, enough))

    def check_cost(self, problem: Problem, times: np.ndarray) -> None:
        steps, rank = float(times[-1]), known_rank(problem, times)
        load = rank * problem.samples_per_dimension / self.samples
        if load > _MOST_LOAD:
            raise ValueError(
                f"every step opens a new direction for every neuron here, {rank} in all, which {self.samples} samples "
                f"do not carry: rank * samples_per_dimension / samples = {load:.2g} must be below {_MOST_LOAD:g}. Ask "
                f"for {int(steps * _MOST_LOAD / load)} steps at most or raise the samples of the solver; for long runs "
                "train the finite system itself: simulate(...)"
            )
        typical = max(rank / 2, _USUAL_RANK)
        check_cost(
            f"Latent() for {steps:.3g} steps",
            operations=steps * (self.replicates + 1) * (4.0 * self.samples * problem.neurons * typical + _CALL),
            remedy="ask for earlier times, or for gradient flow: GradientFlow(...), or simulate",
        )

    def follow(
        self, problem: Problem, times: np.ndarray, closure: LatentClosure, recorder: Recorder, advance: Advance
    ) -> None:
        saved, last = {int(time) for time in times}, int(times[-1])
        algorithm = algorithm_of(problem.training, last)
        state = algorithm.start(closure)
        for count in range(last + 1):
            weights = algorithm.weights(state)
            # The step comes before the record, which then finds the fields computed.
            following = state if count == last else algorithm.step(closure, state, count)
            if count in saved:
                recorder.record(weights, algorithm.readout(state), algorithm.average(state))
            if (count % _LOOK_EVERY == 0 and recorder.has_diverged(weights, count)) or count == last:
                break
            state = following
            advance(1 / last)


def known_rank(problem: Problem, times: np.ndarray) -> int:
    """The number of directions of a run, where signals are new at every step; 0 where it is not known beforehand.

    Batches of their own at every step, or in every epoch, and fresh label noise have nothing to do with what was seen
    before. The set of samples inside the margin of a hinge loss also changes at every step.
    """
    batches, steps = batches_of(problem.training), int(times[-1])
    fresh = problem.labelling.fresh or problem.loss.kind == "hinge"
    new = fresh or (batches is not None and batches.sampling != "cyclic")
    noisy = bool(getattr(problem.training, "temperature", 0.0))
    return problem.neurons * steps * (int(new) + int(noisy))


def algorithm_of(training: Any, steps: int | None = None) -> Any:
    """The algorithm of a training; learning rates of ``steps`` steps are computed beforehand where this is given."""
    if isinstance(training, Algorithm):
        return training
    return Descent(training, None if steps is None else training.learning_rates(0, steps))


def _memory() -> float:
    memory = device_memory(jax.devices()[0])
    return _DEFAULT_MEMORY if memory is None else memory / 2
