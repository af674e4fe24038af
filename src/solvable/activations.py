"""Activation functions by name: the quadratic one of delayed-features, polynomials, and the common ones.

Any continuous scalar JAX function can be used in their place. Those of this module have a readable repr and compare
equal, and averages of polynomials over Gaussian fields are computed in closed form.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


@dataclasses.dataclass(frozen=True)
class Polynomial:
    """``sum_n coefficients[n] h^n``.

    Parameters
    ----------
    coefficients
        One number per power, beginning with the constant.

    >>> from solvable.activations import Polynomial
    >>> float(Polynomial((1.0, 0.0, 0.5))(2.0))
    3.0
    """

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        values = tuple(float(value) for value in self.coefficients)
        if not values or not all(abs(value) < float("inf") for value in values):
            raise ValueError(f"a polynomial needs finite coefficients, at least one, not {self.coefficients!r}")
        object.__setattr__(self, "coefficients", values)

    def __call__(self, field: Array) -> Array:
        total = jnp.zeros_like(field)
        for coefficient in reversed(self.coefficients):
            total = total * field + coefficient
        return total


@dataclasses.dataclass(frozen=True)
class Named:
    """A function that prints as its name."""

    name: str
    function: Callable[[Array], Array] = dataclasses.field(repr=False)

    def __call__(self, field: Array) -> Array:
        return self.function(field)

    def __repr__(self) -> str:
        return self.name


def quadratic(epsilon: float) -> Polynomial:
    """``h + epsilon h^2 / 2`` (delayed-features, eq. 1).

    Parameters
    ----------
    epsilon
        Strength of the quadratic part.

    >>> from solvable.activations import quadratic
    >>> quadratic(0.5)
    Polynomial(coefficients=(0.0, 1.0, 0.25))
    """
    return Polynomial((0.0, 1.0, float(epsilon) / 2))


linear = Polynomial((0.0, 1.0))
relu = Named("relu", jax.nn.relu)
tanh = Named("tanh", jnp.tanh)
# Saad and Solla's: erf(h / sqrt 2), whose Gaussian averages are arcsines.
erf = Named("erf", lambda field: jax.scipy.special.erf(field / jnp.sqrt(2.0)))


def parse(text: Any) -> Any:
    """Return the activation of a name: ``relu``, ``tanh``, ``erf``, ``linear`` or ``quadratic(0.5)``.

    Parameters
    ----------
    text
        The name. Anything that is not a string is returned unchanged.
    """
    if not isinstance(text, str):
        return text
    name, _, argument = text.replace(" ", "").rstrip(")").partition("(")
    known: dict[str, Any] = {"relu": relu, "tanh": tanh, "erf": erf, "linear": linear}
    if name in known and not argument:
        return known[name]
    if name == "quadratic" and argument:
        with contextlib.suppress(ValueError):
            return quadratic(float(argument))
    raise ValueError(f"no activation is named {text!r}; there are {', '.join(known)} and quadratic(0.5)")
