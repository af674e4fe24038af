"""Lists of numbers as people type them: ``1:1e5:200log``, ``0:10:5``, ``1,10,100``."""

from typing import Any

import numpy as np

from solvable.numerics.cost import in_bytes

# Longer lists are typing errors: they take 80 MB, and the results at each of their values much more.
_MOST_VALUES = 10_000_000


def parse_range(text: str, what: str = "times") -> np.ndarray:
    """``first:last:count`` evenly spaced, ``first:last:countlog`` in the logarithm, or numbers with commas."""
    usage = f"{what} {text!r} must look like 1:1e5:200log, 0:10:5 or 1,10,100"
    try:
        if ":" not in text:
            return np.array([float(part) for part in text.split(",")])
        first, last, count = text.split(":")
        is_log = count.endswith("log")
        number = int(count.removesuffix("log"))
        begin, end = float(first), float(last)
    except ValueError as error:
        raise ValueError(usage) from error
    if number < 2:
        raise ValueError(f"{usage}: a grid needs at least 2 values")
    if number > _MOST_VALUES:
        raise ValueError(
            f"{what} {text!r} asks for {number} values, {in_bytes(8.0 * number)} before anything is computed: "
            f"ask for {_MOST_VALUES} at most"
        )
    if not (np.isfinite(begin) and np.isfinite(end)):
        raise ValueError(f"{usage}: a grid runs between finite numbers")
    if not is_log:
        return np.linspace(begin, end, number)
    if not (0 < begin < np.inf and 0 < end < np.inf):
        raise ValueError(f"{usage}: a log grid runs between positive numbers")
    # Also downwards: spectra are listed from the strongest mode on.
    return np.geomspace(begin, end, number)


def parse_axis(text: str, flag: str) -> tuple[str, np.ndarray]:
    """``name=range`` for an axis of a phase diagram."""
    name, equals, values = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{flag} {text!r} must look like weight_decay=1e-6:1e-1:100log")
    grid = parse_range(values, flag)
    found, counts = np.unique(grid, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"{flag} {text!r} has {found[counts > 1][0]:g} twice: give each value once")
    return name.strip().replace("-", "_"), grid


def parse_matrix(text: str, what: str) -> np.ndarray:
    """Rows separated by semicolons, ``1,0.2;0.2,1``."""
    try:
        return np.array([[float(number) for number in row.split(",")] for row in text.split(";")])
    except ValueError as error:
        raise ValueError(f"{what} {text!r} is not a matrix: write equally long rows as 1,0.2;0.2,1") from error


def parse_values(text: str, what: str) -> list[Any]:
    """A list to sweep over: a range, numbers, names (``relu,tanh``; ``none`` for none), or vectors (``1,2;3,4``)."""
    if ";" in text:
        return [parse_range(part, what).tolist() for part in text.split(";") if part.strip()]
    if ":" in text:
        return parse_range(text, what).tolist()
    return [parse_scalar(part) for part in text.split(",")]


def parse_scalar(text: str) -> Any:
    """A number, ``true``, ``false``, ``none`` or else the text itself."""
    text = text.strip()
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_box(text: str, what: str) -> tuple[Any, ...] | None:
    """``low:high`` or ``low:high:log``, between which a design draws; None if it is a list of values instead."""
    low, *rest = text.split(":")
    if len(rest) not in (1, 2) or rest[1:] not in ([], ["log"]):
        return None
    try:
        return (float(low), float(rest[0]), *rest[1:])
    except ValueError as error:
        raise ValueError(f"{what} {text!r} must look like 0.05:3 or 1e-6:1e-1:log") from error
