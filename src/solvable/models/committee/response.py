"""Training on P = gamma D samples by its response functions, step by step in time: the check of the latent closure.

In the limit D to infinity each weight and each sample follows its own process (delayed-features, eqs. 7-9; in discrete
time, exact for gradient descent):

    w(t+1) = (1 - dt d) w(t) + dt [ n(t) + sum_{s<=t} Rh(t,s) w(s) + R*(t) beta ],     <n n> = Cg / gamma
    h(t)   = u(t) + (dt/gamma) sum_{s<t} Rw(t,s) g(s),                                 <u u> = Cw, <u h*> = A
    Rw(t+1,s) = (1 - dt d) Rw(t,s) + dt sum_{s<s'<=t} Rh(t,s') Rw(s',s),               Rw(s+1,s) = 1

with ``Cg = <g g>``, ``Rh = <dg/du>``, ``R* = <dg/dh*>``. Everything at step t + 1 depends on steps up to t, so one pass
forward solves it. The cavity fields are ``u(t) = U(t) z`` on independent normals z, with the noise ``n`` on an
orthonormal basis of the signals: no two-time matrix is factored, and Cw is a covariance by construction. Responses are
derivatives along each sample's trajectory; no average of signals with latents (as in the closure) is used.

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

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import check_count
from solvable.divergence import DivergedError
from solvable.models.committee import trajectories
from solvable.models.committee.gaussian import sobol_normals, test_loss
from solvable.models.committee.online import factor
from solvable.models.committee.outputs import Advance, OutputRequest, Solution
from solvable.models.committee.problem import Problem
from solvable.models.committee.trajectories import Samples, SignalJumps, mean_field_response
from solvable.numerics.cost import check_cost
from solvable.training import Covers, GradientDescent

# Signals whose new part is smaller than this fraction add no direction: it would be rounding.
_NEW = 1e-9


class TwoTime(NamedTuple):
    """Order parameters at steps 0 to T; two-time ones as ``(t, s)``, responses zero where s is too late."""

    train_loss: Float[np.ndarray, "replicate time"]
    test_loss: Float[np.ndarray, "replicate time"]
    alignment: Float[np.ndarray, "replicate time neuron index"]
    weight_correlation: Float[np.ndarray, "replicate time time neuron neuron"]
    gradient_correlation: Float[np.ndarray, "replicate time time neuron neuron"]
    weight_response: Float[np.ndarray, "replicate time time neuron neuron"]
    field_response: Float[np.ndarray, "replicate time time neuron neuron"]
    index_response: Float[np.ndarray, "replicate time neuron index"]


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
        everything = self.two_time(problem, int(steps[-1]), key)
        advance(1.0)
        overlap = np.einsum("kttij->ktij", everything.weight_correlation)
        values = {name: getattr(everything, name)[:, steps] for name in ("train_loss", "test_loss", "alignment")}
        values["overlap"] = overlap[:, steps]
        grid = np.ix_(np.arange(overlap.shape[0]), steps, steps)
        if request.correlations:
            values["weight_correlation"] = everything.weight_correlation[grid]
            values["gradient_correlation"] = everything.gradient_correlation[grid]
        if request.responses:
            values["weight_response"] = everything.weight_response[grid]
            values["field_response"] = everything.field_response[grid]
            values["index_response"] = everything.index_response[:, steps]
        if request.loss_gap:
            values["loss_gap"] = loss_gap(problem, everything)[:, steps]
        return Solution(values)

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
            # A run that grows beyond all bounds is reported at its first step that is not finite.
            with np.errstate(over="ignore", invalid="ignore"):
                runs.append(march.run())
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
        self.jumps = SignalJumps(problem, times, normals.shape[1]) if trajectories.slope_jumps(problem) else None

    def run(self) -> tuple[np.ndarray, ...]:
        """March to the last step; the fields of :class:`TwoTime` without the replicate."""
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
        equal = np.einsum("ttij->tij", correlation)
        return (
            self.samples.train_loss,
            test_losses(self.problem, alignment, equal),
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
        self.field_response[t, : t + 1] = mean_field_response(self.samples.slopes[: t + 1], kernel)
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


def test_losses(problem: Problem, alignment: np.ndarray, overlap: np.ndarray) -> np.ndarray:
    """The test loss at each time."""
    return np.asarray(_losses(problem, jnp.asarray(alignment), jnp.asarray(overlap)))


@jax.jit
def _losses(problem: Problem, alignment: Array, overlap: Array) -> Array:
    return jax.lax.map(lambda state: test_loss(problem, *state), (alignment, overlap))


test_losses.__test__ = False  # type: ignore[attr-defined]
