"""What the data do not determine: sloppy directions of the scaled Jacobian, in numbers and in words."""

import math
from typing import NamedTuple

import numpy as np

from solvable.inference.fitting import Fit
from solvable.inference.profiles import Profile, covariance

# Beyond this ratio of the strongest to the weakest direction some combination is not determined.
_CONDITION = 1e5
# A change along a direction that a natural step of each parameter makes must move the deviance by this much.
_SEEN = 1.0


class Direction(NamedTuple):
    """A combination of parameters: its entries in natural steps, and its standard error in the same units."""

    entries: dict[str, float]
    error: float

    @property
    def names(self) -> list[str]:
        """Its two largest entries."""
        return sorted(self.entries, key=lambda name: -abs(self.entries[name]))[:2]

    @property
    def text(self) -> str:
        """The combination in words."""
        first, *rest = self.names
        if not rest or abs(self.entries[rest[0]]) < 0.2 * abs(self.entries[first]):
            return first
        same = self.entries[first] * self.entries[rest[0]] > 0
        return f"{first} {'together with' if same else 'against'} {rest[0]}"


class Identifiability(NamedTuple):
    """Singular values of the scaled Jacobian, sloppy directions, standard errors and correlations."""

    labels: list[str]
    singular_values: np.ndarray
    sloppy: list[Direction]
    errors: np.ndarray
    correlations: np.ndarray
    # Parameters that the standard error or a sloppy direction marks.
    marked: list[str]

    @property
    def condition(self) -> float:
        """Ratio of the largest to the smallest singular value."""
        return float(self.singular_values[0] / max(self.singular_values[-1], 1e-300))


def examine(fit: Fit) -> Identifiability:
    """Examine the Jacobian at the optimum, with columns scaled by the natural step of each parameter.

    Parameters
    ----------
    fit
        The fit.
    """
    problem = fit.problem
    labels = problem.labels
    slopes = problem.whiten(problem.jacobian(fit.best)) * (math.sqrt(problem.noise.information) / problem.noise.scale)
    steps = np.concatenate([problem.steps, np.ones(len(problem.columns))])
    _, strengths, directions = np.linalg.svd(slopes * steps, full_matrices=False)
    spread = covariance(fit)
    errors = np.sqrt(np.diag(spread))
    correlations = spread / np.outer(errors, errors)
    weak = (strengths < strengths[0] / _CONDITION) | (strengths < _SEEN)
    sloppy = [
        Direction(dict(zip(labels, directions[number].tolist(), strict=True)), float(1 / max(strengths[number], 1e-12)))
        for number in np.flatnonzero(weak)
    ]
    low, high = problem.box
    wide = [label for label, error, width in zip(labels, errors, high - low, strict=False) if error > width / 2]
    marked = list(dict.fromkeys([*wide, *(name for direction in sloppy for name in direction.names)]))
    return Identifiability(labels, strengths, sloppy, errors, correlations, marked)


def sentences(fit: Fit, found: Identifiability, profiles: dict[str, Profile]) -> list[str]:
    """What is not determined, and which measurement would determine it, in words.

    Parameters
    ----------
    fit
        The fit.
    found
        What the Jacobian says.
    profiles
        Profiles by label.
    """
    law = fit.problem.law
    remedies = {p.name: p.remedy for p in law.parameters} | dict(law.term_remedies)
    said = []
    for label, one in profiles.items():
        if one.identified == "yes":
            continue
        name = label.partition("[")[0]
        if one.identified == "no":
            text = f"{label} is not determined: every value from {_ends(one)} fits within its 95 % interval"
        elif one.low.open:
            text = f"{label} is only bounded from above: at most {one.high.ends[-1]:.3g}"
        else:
            text = f"{label} is only bounded from below: at least {one.low.ends[-1]:.3g}"
        if name in law.optional_terms and one.low.open and one.low.ends[-1] == 0:
            text = f"{label} may be zero: at most {one.high.ends[-1]:.3g}"
        partner = _partner(found, label)
        if partner:
            text += f"; it trades off against {partner[0]} (correlation {partner[1]:+.2f})"
        remedy = remedies.get(name)
        said.append(text + (f". To determine it, {remedy}" if remedy else ""))
    return said


def _ends(one: Profile) -> str:
    return f"{one.low.ends[-1]:.3g} to {one.high.ends[-1]:.3g}"


def _partner(found: Identifiability, label: str) -> tuple[str, float] | None:
    """The other number with which it correlates most."""
    place = found.labels.index(label)
    row = np.where(np.arange(len(found.labels)) == place, 0.0, found.correlations[place])
    if row.size < 2:
        return None
    other = int(np.argmax(np.abs(row)))
    return (found.labels[other], float(row[other])) if abs(row[other]) > 0.7 else None
