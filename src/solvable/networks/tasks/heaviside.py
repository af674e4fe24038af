"""The step function in one dimension: the smallest task on which a network visibly learns its own feature."""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.checks import check_choice, check_count
from solvable.networks.sources import Fixed, Fresh

Kind = Literal["grid", "random", "fresh"]


def heaviside(kind: Kind = "fresh", samples: int = 1000, *, test_samples: int = 1000, key: Any = None) -> Fixed | Fresh:
    """``f*(x) = 1`` for x > 0 and 0 elsewhere on [-1, 1] (layerwise, Fig. 2.2), as data for :func:`networks.train`.

    Parameters
    ----------
    kind
        ``"grid"``: training samples at the midpoints of equal cells; ``"random"``: uniform samples; ``"fresh"``: new
        uniform samples at every step.
    samples
        Size of the training set.
    test_samples
        Size of the test set, which is always a grid: sums over it are integrals, while random test samples would add
        1/``test_samples`` to the overlap of every mode.
    key
        For ``"random"``, a JAX key or a whole number.

    >>> from solvable.networks.tasks.heaviside import heaviside
    >>> data = heaviside("grid", samples=4)
    >>> data.inputs[:, 0].tolist(), data.targets[:, 0].tolist()
    ([-0.75, -0.25, 0.25, 0.75], [0.0, 0.0, 1.0, 1.0])
    """
    check_choice("kind", kind, get_args(Kind))
    check_count("samples", samples)
    test = midpoints(check_count("test_samples", test_samples))
    if kind == "fresh":
        return Fresh(_sample, test, step(test))
    if kind == "grid":
        inputs = midpoints(samples)
    elif key is None:
        raise ValueError('kind="random" draws random samples: give key, a JAX key or a whole number')
    else:
        inputs = _uniform(jax.random.key(key) if isinstance(key, int | np.integer) else key, samples)
    return Fixed(inputs, step(inputs), test, step(test))


def midpoints(count: int) -> Array:
    """(count, 1): the midpoints of equal cells of [-1, 1]. None is at the step at 0 if ``count`` is even."""
    return jnp.asarray((2 * np.arange(count)[:, None] + 1 - count) / count, jnp.float32)


def step(inputs: Array) -> Array:
    """1 where the input is positive, else 0."""
    return (inputs > 0).astype(inputs.dtype)


def _uniform(key: jax.Array, count: int) -> Array:
    return jax.random.uniform(key, (count, 1), jnp.float32, -1, 1)


def _sample(key: jax.Array, count: int) -> tuple[Array, Array]:
    inputs = _uniform(key, count)
    return inputs, step(inputs)
