"""Training algorithms of the user's own, in the limit of many dimensions and in simulation."""

import numbers
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array

from solvable.models.committee.protocol import System, Weights
from solvable.training import Training


class Algorithm(Training):
    """Base class of training algorithms that the package does not have.

    Subclasses declare their options as fields and define :meth:`step` against the two operations of a
    :class:`~solvable.models.committee.protocol.System`: ``fields(weights)`` gives the fields of every sample, and
    ``pull(signals)`` the change of the weights that a signal per sample causes. ``Committee.predict`` and
    ``Committee.simulate`` take an algorithm in place of a training: the first follows it in the limit of many
    dimensions, with errors, the second in a finite one.

    The limit is exact for signals that depend on single samples (their fields at all times, labels, batches, private
    random numbers) and on order parameters such as losses and overlaps, and for weights that are linear combinations
    of the start and of earlier pulls. Write signals with ``jax.numpy``: simulations are compiled. An algorithm with
    the fields ``batch_fraction`` and ``sampling`` (as in :class:`solvable.SGD`) gets batches from ``system.batch``.

    Perceptron-like descent on the signs of the errors:

    >>> import jax.numpy as jnp
    >>> import solvable
    >>> class SignDescent(solvable.Algorithm):
    ...     learning_rate: float
    ...
    ...     def step(self, system, state, count):
    ...         signals = jnp.sign(system.signals(system.fields(state)))
    ...         return state + self.learning_rate * system.pull(signals)
    >>> model = solvable.Committee(samples_per_dimension=2.0)
    >>> coarse = solvable.solvers.Latent(samples=256, replicates=2)
    >>> model.predict([0, 4], SignDescent(0.1), solver=coarse).train_loss.shape
    (2,)
    """

    name: ClassVar[str] = "algorithm"

    def start(self, system: System) -> Any:
        """The state before the first step, any PyTree of weights and arrays; by default the initial weights.

        Parameters
        ----------
        system
            The training set and its operations.
        """
        return system.start

    def step(self, system: System, state: Any, count: Any) -> Any:
        """The state after one step.

        Parameters
        ----------
        system
            The training set and its operations.
        state
            The state before the step.
        count
            Number of steps before this one.
        """
        raise NotImplementedError(f"{type(self).__name__} must define step(system, state, count)")

    def weights(self, state: Any) -> Weights:
        """The weights whose losses and overlaps are measured; by default the state itself.

        Parameters
        ----------
        state
            The state of the algorithm.
        """
        return state

    def average(self, state: Any) -> Weights | None:
        """Averaged weights whose losses are measured beside those of the weights; by default None.

        Parameters
        ----------
        state
            The state of the algorithm.
        """
        return None

    def readout(self, state: Any) -> Array | None:
        """The readout, where the algorithm trains it; by default None.

        Parameters
        ----------
        state
            The state of the algorithm.
        """
        return None

    def flow_time(self, times: Any) -> Any:
        """Times multiplied by ``learning_rate``, where the algorithm has one constant learning rate.

        Parameters
        ----------
        times
            Numbers of steps.
        """
        rate = getattr(self, "learning_rate", 1.0)
        return np.asarray(times, float) * (float(rate) if isinstance(rate, numbers.Real) else 1.0)
