"""Target functions of the index fields, by name. Any JAX function of K fields can be used in their place."""

from typing import Any

from solvable.activations import Polynomial


def square() -> Polynomial:
    """``h^2 / 2`` (delayed-features, eq. 1).

    >>> from solvable.teachers import square
    >>> float(square()(3.0))
    4.5
    """
    return Polynomial((0.0, 0.0, 0.5))


def linear() -> Polynomial:
    """``h``: the linear teacher.

    >>> from solvable.teachers import linear
    >>> float(linear()(3.0))
    3.0
    """
    return Polynomial((0.0, 1.0))


def parse(text: Any) -> Any:
    """Return the teacher of a name: ``square`` or ``linear``.

    Parameters
    ----------
    text
        The name. Anything that is not a string is returned unchanged.
    """
    if not isinstance(text, str):
        return text
    known = {"square": square, "linear": linear}
    name = text.removesuffix("()")
    if name not in known:
        raise ValueError(f"no teacher is named {text!r}; there are {', '.join(known)}")
    return known[name]()
