"""The student, the teacher, and the signals that move the weights; fields have the neuron as first axis."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Task(eqx.Module):
    """``f = sum_i c_i phi(h_i)`` is to be ``sigma(h*_1..K)``; ``g_i = b_i phi'(h_i) (sigma - f)`` moves the weights."""

    activation: Callable[[Array], Array] = eqx.field(static=True)
    teacher: Callable[..., Array] = eqx.field(static=True)
    readout: Float[Array, "neuron"]
    gradient_readout: Float[Array, "neuron"]

    def target(self, index_fields: Float[Array, "index *samples"]) -> Float[Array, "*samples"]:
        """``sigma`` of the index fields."""
        count = index_fields.shape[0]
        function = elementwise_teacher(self.teacher, count)
        for _ in range(index_fields.ndim - 1):
            function = jax.vmap(function, in_axes=-1, out_axes=-1)
        return function(index_fields)

    def error(
        self, fields: Float[Array, "neuron *samples"], index_fields: Float[Array, "index *samples"]
    ) -> Float[Array, "*samples"]:
        """``Delta = sigma - f``."""
        return self.target(index_fields) - jnp.tensordot(self.readout, each(self.activation)(fields), axes=1)

    def signals(
        self, fields: Float[Array, "neuron *samples"], index_fields: Float[Array, "index *samples"]
    ) -> tuple[Float[Array, "neuron *samples"], Float[Array, "*samples"]]:
        """``g`` and ``Delta``. Only the first derivative of the activation enters, so kinks need nothing special."""
        values, slopes = jax.jvp(each(self.activation), (fields,), (jnp.ones_like(fields),))
        error = self.target(index_fields) - jnp.tensordot(self.readout, values, axes=1)
        shape = (-1,) + (1,) * (fields.ndim - 1)
        return self.gradient_readout.reshape(shape) * slopes * error, error

    def slopes(self, fields: Float[Array, "neuron *samples"]) -> Float[Array, "neuron *samples"]:
        """``phi'`` of the fields."""
        return jax.jvp(each(self.activation), (fields,), (jnp.ones_like(fields),))[1]

    def curvature_bound(
        self, fields: Float[Array, "neuron *samples"], index_fields: Float[Array, "index *samples"]
    ) -> Float[Array, "*samples"]:
        """A bound on how strongly a sample's signals answer its own fields, ``|dg_i / dh_j|`` as a matrix norm."""
        ones = jnp.ones_like(fields)

        def slope(values: Array) -> tuple[Array, Array]:
            outputs, slopes = jax.jvp(each(self.activation), (values,), (ones,))
            return slopes, outputs

        slopes, bends, outputs = jax.jvp(slope, (fields,), (ones,), has_aux=True)
        error = self.target(index_fields) - jnp.tensordot(self.readout, outputs, axes=1)
        shape = (-1,) + (1,) * (fields.ndim - 1)
        moved, read = (values.reshape(shape) for values in (self.gradient_readout, self.readout))
        pulls = jnp.linalg.norm(moved * slopes, axis=0) * jnp.linalg.norm(read * slopes, axis=0)
        return pulls + jnp.max(jnp.abs(moved * bends), axis=0) * jnp.abs(error)

    def __call__(
        self, fields: Float[Array, "neuron *samples"], index_fields: Float[Array, "index *samples"]
    ) -> tuple[Float[Array, "neuron *samples"], Float[Array, "*samples"]]:
        """The signals: what the engines call."""
        return self.signals(fields, index_fields)


def each(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A scalar function over every entry of an array."""

    def applied(values: Array) -> Array:
        return jax.vmap(function)(values.reshape(-1)).reshape(values.shape)

    return applied


def elementwise_teacher(teacher: Callable[..., Any], count: int) -> Callable[[Array], Array]:
    """The teacher as a function of one vector of ``count`` fields, however it takes them.

    A teacher may take the fields one by one, ``sigma(h1, h2)``, or as one vector, ``sigma(h)``.
    """
    if takes_vector(teacher, count):
        return lambda fields: jnp.asarray(teacher(fields))
    return lambda fields: jnp.asarray(teacher(*[fields[k] for k in range(count)]))


def takes_vector(teacher: Callable[..., Any], count: int) -> bool:
    """Whether the teacher wants its fields as one vector: it does not accept ``count`` scalars, or fails on them."""
    try:
        inspect.signature(teacher).bind(*[0.0] * count)
        shape = jax.eval_shape(teacher, *[jax.ShapeDtypeStruct((), float)] * count)
        return shape.shape != ()
    except (TypeError, ValueError, IndexError):
        return True
