"""The step function in one dimension: the smallest task on which a network visibly makes its own feature."""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.checks import check_choice, check_count
from solvable.networks.sources import Fixed, Fresh

Kind = Literal["grid", "random", "fresh"]


def heaviside(kind: Kind = "fresh", points: int = 1000, *, test_points: int = 1000, key: Any = None) -> Fixed | Fresh:
    """``f*(x) = 1`` for x > 0 and 0 elsewhere on [-1, 1] (layerwise, Fig. 2.2), ready for :func:`networks.train`.

    ``"grid"`` has ``points`` training points at the middles of equal cells, ``"random"`` as many that are uniform and
    drawn with ``key`` (a JAX key or a whole number), ``"fresh"`` new uniform points every step. The test set is always
    a grid: sums over it are integrals, while random test points add 1/``test_points`` to the overlap of every mode.

    >>> from solvable.networks.tasks.heaviside import heaviside
    >>> data = heaviside("grid", points=4)
    >>> data.inputs[:, 0].tolist(), data.targets[:, 0].tolist()
    ([-0.75, -0.25, 0.25, 0.75], [0.0, 0.0, 1.0, 1.0])
    """
    check_choice("kind", kind, get_args(Kind))
    check_count("points", points)
    test = midpoints(check_count("test_points", test_points))
    if kind == "fresh":
        return Fresh(_sample, test, step(test))
    if kind == "grid":
        inputs = midpoints(points)
    elif key is None:
        raise ValueError('kind="random" draws its points: give key, a JAX key or a whole number')
    else:
        inputs = _uniform(jax.random.key(key) if isinstance(key, int | np.integer) else key, points)
    return Fixed(inputs, step(inputs), test, step(test))


def midpoints(points: int) -> Array:
    """(points, 1): the middles of equal cells of [-1, 1]. The jump at 0 is on none of them if ``points`` is even."""
    return jnp.asarray((2 * np.arange(points)[:, None] + 1 - points) / points, jnp.float32)


def step(inputs: Array) -> Array:
    """1 where the input is positive, else 0."""
    return (inputs > 0).astype(inputs.dtype)


def _uniform(key: jax.Array, points: int) -> Array:
    return jax.random.uniform(key, (points, 1), jnp.float32, -1, 1)


def _sample(key: jax.Array, points: int) -> tuple[Array, Array]:
    inputs = _uniform(key, points)
    return inputs, step(inputs)
