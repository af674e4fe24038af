"""Training on P = gamma D samples by its response functions, step by step in time: the check of the latent closure.

In the limit D to infinity each weight and each sample follows its own process (delayed-features, eqs. 7-9; in discrete
time, exact for descent):

    w(t+1) = (1 - dt d) w(t) + dt [ n(t) + sum_{s<=t} Rh(t,s) w(s) + R*(t) beta ],     <n n> = Cg / gamma
    h(t)   = u(t) + (dt/gamma) sum_{s<t} Rw(t,s) g(s),                                 <u u> = Cw, <u h*> = A
    Rw(t+1,s) = (1 - dt d) Rw(t,s) + dt sum_{s<s'<=t} Rh(t,s') Rw(s',s),               Rw(s+1,s) = 1

with ``Cg = <g g>``, ``Rh = <dg/du>``, ``R* = <dg/dh*>``. Everything at step t + 1 depends on steps up to t, so one pass
forward solves it. The cavity fields are ``u(t) = U(t) z`` on independent normals z, with the noise ``n`` on an
orthonormal basis of the signals: no two-time matrix is factored, and Cw is a covariance by construction. Responses are
derivatives along each sample's trajectory; no average of signals with latents (the closure's way) is used.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee import jumps
from solvable.models.committee.gaussian_samples import sobol_normals
from solvable.models.committee.online import factor
from solvable.models.committee.population import test_loss
from solvable.models.committee.task import Task
from solvable.models.committee.trajectories import Samples, mean_field_response

# Signals whose new part is smaller than this share add no direction: it would be rounding.
_NEW = 1e-9


class TwoTime(NamedTuple):
    """Order parameters at steps 0 to T; two-time ones as ``(t, s)``, responses zero where s is too late."""

    train_loss: Float[np.ndarray, "scramble time"]
    test_loss: Float[np.ndarray, "scramble time"]
    alignment: Float[np.ndarray, "scramble time neuron index"]
    weight_correlation: Float[np.ndarray, "scramble time time neuron neuron"]
    gradient_correlation: Float[np.ndarray, "scramble time time neuron neuron"]
    weight_response: Float[np.ndarray, "scramble time time neuron neuron"]
    field_response: Float[np.ndarray, "scramble time time neuron neuron"]
    index_response: Float[np.ndarray, "scramble time neuron index"]


def solve_response(
    task: Task,
    *,
    samples_per_dimension: float,
    initial_overlap: Float[Array, "neuron neuron"],
    initial_alignment: Float[Array, "neuron index"],
    step: float,
    weight_decay: float = 0.0,
    steps: int,
    samples: int = 4096,
    scrambles: int = 4,
    key: int = 0,
) -> TwoTime:
    """Solve once for each scramble of the samples; the spread over scrambles is the sampling error.

    Costs about ``N^3 T^3 / 3`` multiplications a sample. An activation with a kink at zero (ReLU) needs the jump
    formula and with it memory ``~ 3 T^2 N^2`` numbers a sample; kinks elsewhere are not seen.
    """
    latents = np.asarray(factor(initial_alignment, initial_overlap))
    jumps.check_memory(task, samples, steps)
    runs = []
    for scramble in range(scrambles):
        normals = sobol_normals(samples, latents.shape[1] + steps * latents.shape[0], (key, scramble)).T
        march = March(task, latents, normals, samples_per_dimension, step, weight_decay, steps)
        # A run away from all bounds is found and reported at its first step that is not finite.
        with np.errstate(over="ignore", invalid="ignore"):
            runs.append(march.run())
    return TwoTime(*(np.stack(values) for values in zip(*runs, strict=True)))


class March:
    """One pass forward in time over one set of samples."""

    def __init__(
        self,
        task: Task,
        latents: np.ndarray,
        normals: np.ndarray,
        samples_per_dimension: float,
        step: float,
        weight_decay: float,
        steps: int,
    ):
        neurons, times = len(latents), steps + 1
        self.task, self.normals, self.step, self.steps = task, normals, step, steps
        self.samples_per_dimension, self.keep = samples_per_dimension, 1 - step * weight_decay
        self.indices, self.initial = latents.shape[1] - neurons, latents.shape[1]
        # Latents that have entered the weights so far.
        self.known = self.initial
        self.cavity = np.zeros((times, neurons, len(normals)))
        self.cavity[0, :, : self.known] = latents
        self.basis = np.zeros((0, normals.shape[1]))
        self.weight_response = np.zeros((times, times, neurons, neurons))
        self.field_response = np.zeros((times, times, neurons, neurons))
        self.index_response = np.zeros((times, neurons, self.indices))
        self.samples = Samples(task, normals[: self.indices], times, step / samples_per_dimension)
        self.kinks = jumps.Kinks(task, times, normals.shape[1]) if jumps.kink(task) else None

    def run(self) -> tuple[np.ndarray, ...]:
        """March to the last step; the fields of :class:`TwoTime` without the scramble."""
        for t in range(self.steps + 1):
            self._respond(t)
            if not np.isfinite(self.samples.train_loss[t]) or not np.all(np.isfinite(self.field_response[t])):
                raise ValueError(
                    f"the response equations diverged at step {t} (time {t * self.step:g}) with step = {self.step:g}: "
                    "samples are unstable there; lower the step, or use the latent solver, which needs no responses"
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
            test_losses(self.task, alignment, equal),
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
        if self.kinks is not None:
            newest = slice(self.known - len(self.task.readout), self.known)
            self.kinks.advance(self.samples, self.cavity[: t + 1], newest, self.normals, kernel)
            by_fields, by_index = self.kinks.responses(self.samples)
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


def test_losses(task: Task, alignment: np.ndarray, overlap: np.ndarray) -> np.ndarray:
    """The test loss at each time."""
    return np.asarray(_losses(task, jnp.asarray(alignment), jnp.asarray(overlap)))


@eqx.filter_jit
def _losses(task: Task, alignment: Array, overlap: Array) -> Array:
    return jax.lax.map(lambda state: test_loss(task, *state), (alignment, overlap))


test_losses.__test__ = False  # type: ignore[attr-defined]
