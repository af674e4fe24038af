"""Compensated summation for optimisers: updates below the rounding of a weight are accumulated instead of lost."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class _Compensated(NamedTuple):
    inner: Any
    remainder: Any


def compensated(optimiser: Any) -> optax.GradientTransformationExtraArgs:
    """An optimiser that adds the part of each update that rounding removes to the next update (Kahan summation).

    Late in training, and always in lazy networks, an update is smaller than half a unit in the last place of a float32
    weight: it is lost, and gradient descent stalls at a loss that depends on neither width nor task. With compensation
    it continues, at the cost of one more array of the shape of each weight.

    Parameters
    ----------
    optimiser
        An Optax transformation.

    >>> import jax.numpy as jnp, optax
    >>> from solvable.networks import compensation
    >>> optimiser = compensation.compensated(optax.sgd(1.0))
    >>> weight = jnp.float32(1.0)
    >>> state = optimiser.init(weight)
    >>> for _ in range(100):
    ...     updates, state = optimiser.update(jnp.float32(1e-8), state, weight)
    ...     weight = optax.apply_updates(weight, updates)
    ...
    >>> abs(float(weight) - (1 - 1e-6)) < 1e-7
    True
    """
    inner = optax.with_extra_args_support(optimiser)

    def init(parameters: Any) -> _Compensated:
        return _Compensated(inner.init(parameters), jax.tree.map(jnp.zeros_like, parameters))

    def update(gradients: Any, state: _Compensated, parameters: Any = None, **extra: Any) -> tuple[Any, _Compensated]:
        if parameters is None:
            raise ValueError("a compensated optimiser needs the parameters: update(gradients, state, parameters)")
        updates, inner_state = inner.update(gradients, state.inner, parameters, **extra)
        updates = jax.tree.map(jnp.add, updates, state.remainder)
        remainder = jax.tree.map(lambda step, weight: step - ((weight + step) - weight), updates, parameters)
        return updates, _Compensated(inner_state, remainder)

    return optax.GradientTransformationExtraArgs(init, update)
