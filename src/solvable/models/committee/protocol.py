"""Training algorithms of the committee, written once against two operations that have two back ends.

An algorithm needs two things of the training set:

    fields(w) = w . x^mu  of every sample,        pull(v) = (1/gamma) sum_mu v^mu x^mu  of a signal for every sample.

Everything else, losses, batches, momentum, schedules, averages, is a function of single samples or a linear combination
of weights. :class:`System` is the interface. Its back ends are the latent closure, which gives the limit of many
dimensions (:mod:`solvable.models.committee.closure`), and the literal simulation in finite dimension
(``solvable.models.committee.simulation``). What is exact in the limit is what this interface can express: signals
are functions of single samples, and weights can be added and multiplied by numbers but have no accessible coordinates.

=====================  =====================  ==================================================================
symbol                 name                   meaning
=====================  =====================  ==================================================================
``w_i``                Weights                of the hidden units, in the coordinates of the back end
``v_i^mu``             signals                (neuron, sample): what moves the weights
``m^mu / b``           sample_weights         of a batch: zero outside of it, with mean one over all samples
``c``                  readout                (neuron), or (class, neuron) for the softmax loss
=====================  =====================  ==================================================================
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee.problem import Problem

# The closure's weights are NumPy arrays, those of a simulation are traced by JAX.
if TYPE_CHECKING:
    AnyArray = Any
else:
    AnyArray = Array | np.ndarray


@functools.partial(jax.tree_util.register_dataclass, data_fields=["coordinates"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Weights:
    """Weights of all neurons as a vector: they can be added, subtracted, and multiplied or divided by numbers.

    ``coordinates`` are (neuron, column).
    """

    coordinates: Any

    def __add__(self, other: "Weights") -> "Weights":
        return combine((1.0, 1.0), (self, other))

    def __sub__(self, other: "Weights") -> "Weights":
        return combine((1.0, -1.0), (self, other))

    def __mul__(self, factor: Any) -> "Weights":
        return Weights(self.coordinates * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> "Weights":
        return self * (1 / divisor)

    def __neg__(self) -> "Weights":
        return self * -1.0


def combine(factors: Sequence[Any], weights: Sequence[Weights]) -> Weights:
    """``sum_i factors[i] weights[i]`` in one operation. Coordinates that some of the weights do not have yet are zero.

    The coordinates of the latent closure become more as training goes on.
    """
    return Weights(combine_arrays(factors, [each.coordinates for each in weights]))


def combine_arrays(factors: Sequence[Any], arrays: Sequence[AnyArray]) -> AnyArray:
    """``sum_i factors[i] arrays[i]``, narrower arrays padded with zeros."""
    widest = max(array.shape[-1] for array in arrays)
    if namespace(*factors, *arrays) is np:
        total = np.zeros((*arrays[0].shape[:-1], widest))
        for factor, array in zip(factors, arrays, strict=True):
            total[..., : array.shape[-1]] += factor * array
        return total
    # Factors of a higher precision do not raise that of the weights.
    return sum(
        jnp.asarray(factor, arrays[0].dtype) * jnp.pad(array, ((0, 0), (0, widest - array.shape[-1])))
        for factor, array in zip(factors, arrays, strict=True)
    )


def namespace(*values: Any) -> Any:
    """``jax.numpy`` where one of the values is JAX's, else ``numpy``, which starts faster and compiles nothing."""
    return jnp if any(isinstance(value, jax.Array) for value in values) else np


class System:
    """A training set and the two operations on it; what an algorithm is written against.

    Attributes
    ----------
    problem
        Network, task and start.
    start
        The initial weights.
    labels
        Label of every sample, or None where the label is the teacher's output without noise.
    index_fields
        ``h*`` of every sample, (index, sample).
    """

    problem: Problem
    start: Weights
    labels: Array | None
    index_fields: Float[AnyArray, "index sample"]

    def fields(self, weights: Weights) -> Float[AnyArray, "neuron sample"]:
        """``h_i = w_i . x`` of every sample.

        Parameters
        ----------
        weights
            The weights.
        """
        raise NotImplementedError

    def pull(self, signals: Float[AnyArray, "neuron sample"]) -> Weights:
        """``(1/gamma) sum_mu v^mu x^mu``: the change of the weights that signals cause.

        Parameters
        ----------
        signals
            ``v``: one number for every neuron and sample.
        """
        raise NotImplementedError

    def overlap(self, weights: Weights) -> Float[AnyArray, "neuron neuron"]:
        """``w_i . w_j / D``.

        Parameters
        ----------
        weights
            The weights.
        """
        raise NotImplementedError

    def batch(self, count: Any) -> Float[AnyArray, "sample"] | None:
        """The weight of every sample in the batch of a step, with mean one; None where all samples are in it.

        Parameters
        ----------
        count
            Number of steps before this one.
        """
        raise NotImplementedError

    def noise(self, count: Any) -> Weights:
        """Independent standard normal numbers as weights: each neuron's has ``w . w / D = 1``.

        Parameters
        ----------
        count
            Number of steps before this one.
        """
        raise NotImplementedError

    def fresh_labels(self, count: Any) -> Array | None:
        """The labels of a step: those of the samples, with new noise where the task draws it afresh at each step.

        Parameters
        ----------
        count
            Number of steps before this one.
        """
        return self.labels

    def signals(
        self, fields: Float[AnyArray, "neuron sample"], labels: Array | None = None, readout: Array | None = None
    ) -> Float[AnyArray, "neuron sample"]:
        """``g_i = b_i phi'(h_i) s``, with ``s`` minus the derivative of the loss by the output.

        Parameters
        ----------
        fields
            Fields of every sample.
        labels
            Label of every sample; by default those of the training set.
        readout
            Readout of each neuron; by default that of the model.
        """
        labels = self.labels if labels is None else labels
        return self.problem.respond(fields, self.index_fields, labels, readout=readout).signals

    def gradient(
        self,
        weights: Weights,
        labels: Array | None = None,
        sample_weights: Float[AnyArray, "sample"] | None = None,
        readout: Array | None = None,
    ) -> "Gradient":
        """``pull(sample_weights signals(fields(weights)))``, which back ends may do in one pass over the samples.

        Parameters
        ----------
        weights
            The weights.
        labels
            Label of every sample; by default those of the training set.
        sample_weights
            Weight of every sample in the batch; by default one.
        readout
            Trained readout of each neuron, whose own gradient is then computed as well; by default that of the model.
        """
        labels = self.labels if labels is None else labels
        answer = self.problem.respond(self.fields(weights), self.index_fields, labels, sample_weights, readout)
        return Gradient(self.pull(answer.signals), answer.readout_pull)


class Gradient(NamedTuple):
    """Minus the gradient on a batch: of the weights, and of the readout where it is trained."""

    weights: Weights
    readout: Array | None


class DescentState(NamedTuple):
    """What gradient descent carries from step to step; None where the training has no such thing."""

    weights: Weights
    momentum: Weights | None = None
    average: Weights | None = None
    readout: Array | None = None


@dataclasses.dataclass(frozen=True)
class Descent:
    """Gradient descent and mini-batch SGD as their training objects say.

    ``rates`` are the learning rates of all steps, where they are known beforehand.
    """

    training: Any
    rates: Any = None

    def start(self, system: System) -> DescentState:
        """The state before the first step."""
        training = self.training
        return DescentState(
            weights=system.start,
            momentum=system.start * 0.0 if training.momentum else None,
            average=None if training.ema_decay is None and training.average_from is None else system.start,
            readout=None if training.readout_learning_rate is None else system.problem.readout,
        )

    def step(self, system: System, state: DescentState, count: Any) -> DescentState:
        """The state after one step."""
        training = self.training
        rate = training.rate_at(count) if self.rates is None else float(self.rates[count])
        gradient = system.gradient(state.weights, system.fresh_labels(count), system.batch(count), state.readout)
        force = self._clipped(system, gradient.weights)
        weights, momentum = self._moved(state, force, rate)
        if training.temperature:
            weights = combine((1.0, (2 * rate * training.temperature) ** 0.5), (weights, system.noise(count)))
        readout = state.readout
        if readout is not None:
            readout = readout + training.readout_learning_rate * gradient.readout
        return DescentState(weights, momentum, self._averaged(state.average, weights, count), readout)

    def _moved(self, state: DescentState, force: Weights, rate: Any) -> tuple[Weights, Weights | None]:
        """Weights and momentum after a step, as in PyTorch and Optax."""
        training, decay = self.training, self.training.weight_decay
        moved = combine((1 - rate * decay, rate), (state.weights, force))
        if state.momentum is None:
            return moved, None
        coupled = 0.0 if training.decoupled else decay
        momentum = combine((training.momentum, 1.0, -coupled), (state.momentum, force, state.weights))
        carried = momentum if training.nesterov else state.momentum
        return combine((1.0, rate * training.momentum), (moved, carried)), momentum

    def _clipped(self, system: System, force: Weights) -> Weights:
        """The force, shortened where its norm is too large."""
        longest = self.training.max_gradient_norm
        if longest is None:
            return force
        square = system.overlap(force).trace()
        xp = namespace(square)
        return force * xp.minimum(1.0, longest / xp.sqrt(xp.where(square > 0, square, 1.0)))

    def _averaged(self, average: Weights | None, weights: Weights, count: Any) -> Weights | None:
        """The average of the weights after a step."""
        if average is None:
            return None
        if self.training.ema_decay is not None:
            fraction: Any = 1 - self.training.ema_decay
        else:
            fraction = 1 / namespace(count).maximum(count + 1 - self.training.average_from + 1.0, 1.0)
        return combine((1 - fraction, fraction), (average, weights))

    def weights(self, state: DescentState) -> Weights:
        """The weights whose losses are measured."""
        return state.weights

    def average(self, state: DescentState) -> Weights | None:
        """The average of the weights, whose losses are measured beside those of the weights."""
        return state.average

    def readout(self, state: DescentState) -> Array | None:
        """The readout, where it is trained."""
        return state.readout
