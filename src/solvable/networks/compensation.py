"""Steps smaller than the rounding of a weight, kept until they are large enough to be taken."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class _Compensated(NamedTuple):
    inner: Any
    owed: Any


def compensated(optimiser: Any) -> optax.GradientTransformationExtraArgs:
    """The same optimiser, with the part of each step that rounding takes away added to the next one (Kahan).

    Late in training, and always where networks are lazy, a step is less than half a unit in the last place of a
    float32 weight: it is lost, and descent stalls at a loss that depends on neither width nor task. With this it goes
    on, at the cost of one more array of each weight's shape.

    >>> import jax.numpy as jnp, optax, solvable.networks.compensation as compensation
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
        steps, kept = inner.update(gradients, state.inner, parameters, **extra)
        wanted = jax.tree.map(lambda step, debt: step + debt, steps, state.owed)
        owed = jax.tree.map(lambda step, weight: step - ((weight + step) - weight), wanted, parameters)
        return wanted, _Compensated(kept, owed)

    return optax.GradientTransformationExtraArgs(init, update)
