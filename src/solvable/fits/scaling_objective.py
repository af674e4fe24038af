"""Robust fits of the logarithm of a sum of power laws: variable projection for a start, then a Newton method.

Every form of a scaling law is a sum of terms ``exp(u_j)`` with ``u_j`` linear in the parameters, up to one parameter of
data reuse. The logarithm of the loss is ``log sum_j exp(u_j)``, with the gradient and Hessian of a softmax, and the
objective is minimised by the trust-region Newton method of SciPy.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize, nnls

_GRID = np.arange(0.1, 0.85, 0.1)
_REUSE_GRID = np.log([1.5, 5.0, 15.0, 50.0])
_BEST_STARTS = 3
# A coefficient that nonnegative least squares sets to zero starts at this fraction of the typical loss.
_SMALLEST_TERM = 1e-4
# Coefficients below this fraction of the smallest loss count as zero, and their logarithms stay above it.
NEGLIGIBLE = 1e-6
_GRADIENT_TOLERANCE = 1e-3
# Every residual counts as at least this large, so that the likelihood of exact data is bounded.
_SMALLEST_SCALE = 1e-6
STUDENT, HUBER, GAUSSIAN = "student", "huber", "none"
LOSSES = (STUDENT, HUBER, GAUSSIAN)


@dataclasses.dataclass(frozen=True)
class Form:
    """A form of the scaling law: its linear terms, and which exponent belongs to which quantity.

    Parameters
    ----------
    name
        The name in :func:`solvable.fits.scaling_law`.
    exponents
        Names of the exponents.
    powers
        The terms, each a quantity of the table and the name of its exponent.
    floor
        Whether there is a constant term.
    reuse
        Whether the tokens are those of repeated data, with one more parameter.
    formula
        The law, for people.
    """

    name: str
    exponents: tuple[str, ...]
    powers: tuple[tuple[str, str], ...]
    floor: bool = True
    reuse: bool = False
    formula: str = ""

    @property
    def quantities(self) -> tuple[str, ...]:
        """What the law depends on."""
        return tuple(quantity for quantity, _ in self.powers)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.floor + len(self.powers) + len(self.exponents) + self.reuse


FORMS: Mapping[str, Form] = {
    form.name: form
    for form in (
        Form(
            "parameters-tokens",
            ("alpha", "beta"),
            (("parameters", "alpha"), ("tokens", "beta")),
            formula="L = E + A N^-alpha + B D^-beta",
        ),
        Form(
            "equal-exponents",
            ("alpha",),
            (("parameters", "alpha"), ("tokens", "alpha")),
            formula="L = E + A N^-alpha + B D^-alpha",
        ),
        Form(
            "without-floor",
            ("alpha", "beta"),
            (("parameters", "alpha"), ("tokens", "beta")),
            floor=False,
            formula="L = A N^-alpha + B D^-beta",
        ),
        Form("compute", ("alpha",), (("compute", "alpha"),), formula="L = E + A C^-alpha"),
        Form(
            "data-reuse",
            ("alpha", "beta"),
            (("parameters", "alpha"), ("tokens", "beta")),
            reuse=True,
            formula="L = E + A N^-alpha + B D'^-beta,  D' = U (1 + R* (1 - exp(-(D/U - 1)/R*)))",
        ),
    )
}


@dataclasses.dataclass(frozen=True)
class Points:
    """Logarithms of the quantities of some runs, relative to the pivots, and the number of repetitions of their data.

    Parameters
    ----------
    logs
        ``log(quantity / pivot)`` of each quantity of the form; for data reuse that of the unique tokens.
    repeats
        How often the unique tokens were repeated, ``D/U - 1``; None without data reuse.
    """

    logs: Mapping[str, np.ndarray]
    repeats: np.ndarray | None = None

    @property
    def count(self) -> int:
        """Number of runs."""
        return len(next(iter(self.logs.values())))

    def take(self, rows: np.ndarray) -> "Points":
        """Some of the runs."""
        repeats = None if self.repeats is None else self.repeats[rows]
        return Points({name: values[rows] for name, values in self.logs.items()}, repeats)


class Law:
    """Logarithm of the loss with derivatives; parameters are log floor, log terms at the pivot, exponents, log R*."""

    def __init__(self, form: Form, points: Points) -> None:
        self.form, self.points = form, points
        terms = form.floor + len(form.powers)
        # u = linear @ theta, [run, term, parameter]: the part of the exponents in front of log R* is added in `logs`.
        linear = np.zeros((points.count, terms, form.size))
        linear[:, range(terms), range(terms)] = 1.0
        for place, (quantity, exponent) in enumerate(form.powers, start=int(form.floor)):
            linear[:, place, terms + form.exponents.index(exponent)] = -points.logs[quantity]
        self.linear, self.terms = linear, terms

    def _effective(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``log(D'/U)`` and its two derivatives with respect to log R*."""
        assert self.points.repeats is not None
        decay = np.exp(theta[-1])
        x = self.points.repeats / decay
        fall = np.exp(-x)
        value = 1 + decay * (1 - fall)
        # d value / d log R* = R* (1 - e^-x) - R* x e^-x, and once more.
        first = decay * (1 - fall - x * fall)
        second = first - decay * x * x * fall
        return np.log(value), first / value, second / value - (first / value) ** 2

    def logs(self, theta: np.ndarray) -> np.ndarray:
        """Logarithm of the loss of every run."""
        return self.derivatives(theta, order=0)[0]

    def derivatives(self, theta: np.ndarray, order: int = 2) -> tuple[np.ndarray, Any, Any]:
        """Logarithm of the loss, its gradient and its Hessian with respect to the parameters."""
        linear = self.linear
        if self.form.reuse:
            shift, first, second = self._effective(theta)
            at = self.terms + self.form.exponents.index("beta")
            linear = linear.copy()
            linear[:, -1, at] -= shift
            exponents = linear @ theta
            linear[:, -1, -1] = -theta[at] * first
        else:
            exponents = linear @ theta
        top = exponents.max(1, keepdims=True)
        weights = np.exp(exponents - top)
        total = weights.sum(1, keepdims=True)
        value = (top + np.log(total))[:, 0]
        if order == 0:
            return value, None, None
        weights /= total
        gradient = np.einsum("ij,ijk->ik", weights, linear)
        if order == 1:
            return value, gradient, None
        hessian = np.matmul(np.swapaxes(linear, 1, 2), weights[:, :, None] * linear)
        hessian -= gradient[:, :, None] * gradient[:, None, :]
        if self.form.reuse:
            hessian[:, -1, -1] -= weights[:, -1] * theta[at] * second
            cross = weights[:, -1] * first
            hessian[:, at, -1] -= cross
            hessian[:, -1, at] -= cross
        return value, gradient, hessian

    def basis(self, exponents: Sequence[float], reuse: float | None = None) -> np.ndarray:
        """The terms with unit coefficients, ``[run, term]``, for nonnegative least squares."""
        theta = np.zeros(self.form.size)
        theta[self.terms : self.terms + len(exponents)] = exponents
        linear = self.linear
        if self.form.reuse:
            theta[-1] = reuse
            linear = linear.copy()
            linear[:, -1, self.terms + self.form.exponents.index("beta")] -= self._effective(theta)[0]
            linear[:, :, -1] = 0.0
        return np.exp(linear @ theta)


@dataclasses.dataclass(frozen=True)
class Robust:
    """The loss of the residuals: a density with an estimated scale, or Huber's loss with a given threshold.

    Parameters
    ----------
    kind
        ``"student"``, ``"huber"`` or ``"none"`` (Gaussian).
    degrees
        Degrees of freedom of Student's t distribution.
    delta
        Threshold of Huber's loss.
    """

    kind: str = STUDENT
    degrees: float = 4.0
    delta: float = 1e-3

    @property
    def estimates_scale(self) -> bool:
        """Whether the logarithm of the scale is one more parameter."""
        return self.kind != HUBER

    def value(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Loss of standardised residuals, with two derivatives."""
        if self.kind == HUBER:
            # In units of the threshold, so that one tolerance of the gradient suits every threshold.
            size = np.abs(z)
            inside = size <= self.delta
            loss = np.where(inside, z * z / (2 * self.delta), size - self.delta / 2)
            return loss, np.clip(z / self.delta, -1, 1), inside / self.delta
        if self.kind == GAUSSIAN:
            return z * z / 2, z, np.ones_like(z)
        nu = self.degrees
        over = 1 / (nu + z * z)
        return (nu + 1) / 2 * np.log1p(z * z / nu), (nu + 1) * z * over, (nu + 1) * over * (1 - 2 * z * z * over)


@dataclasses.dataclass(frozen=True)
class Fit:
    """The optimum: parameters, scale of the residuals, objective and residuals, and the optima of all starts."""

    theta: np.ndarray
    scale: float
    objective: float
    residuals: np.ndarray
    converged: bool
    optima: tuple[float, ...] = ()


class Objective:
    """Sum over runs of the robust loss, with gradient and Hessian with respect to (parameters, log scale).

    Parameters
    ----------
    law
        The law at the runs of the table.
    observed
        Logarithms of the measured losses.
    robust
        The loss of the residuals.
    counts
        How often each run is counted; all once by default.
    relative
        Relative errors of single runs, in units of their common scale; equal by default.
    """

    def __init__(
        self,
        law: Law,
        observed: np.ndarray,
        robust: Robust,
        counts: np.ndarray | None = None,
        relative: np.ndarray | None = None,
    ) -> None:
        self.law, self.observed, self.robust = law, observed, robust
        self.counts = np.ones_like(observed) if counts is None else np.asarray(counts, float)
        self.relative = np.ones_like(observed) if relative is None else relative

    def parts(self, full: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Objective, gradient and Hessian."""
        size = self.law.form.size
        value, slope, curve = self.law.derivatives(full[:size])
        scale = np.exp(full[size]) * self.relative if self.robust.estimates_scale else self.relative
        z = (self.observed - value) / scale
        loss, first, second = self.robust.value(z)
        counts = self.counts
        total = float(counts @ loss)
        by_value = -counts * first / scale
        bend = counts * second / scale**2
        gradient = by_value @ slope
        hessian = (slope * bend[:, None]).T @ slope + np.tensordot(by_value, curve, 1)
        if not self.robust.estimates_scale:
            return total, gradient, hessian
        resolution = counts.sum() * (_SMALLEST_SCALE / np.exp(full[size])) ** 2
        total += counts.sum() * full[size] + resolution / 2
        by_scale = counts.sum() - counts @ (first * z) - resolution
        cross = (counts * (first + second * z) / scale) @ slope
        square = counts @ (second * z * z + first * z) + 2 * resolution
        hessian = np.block([[hessian, cross[:, None]], [cross[None, :], np.array([[square]])]])
        return total, np.append(gradient, by_scale), hessian

    def minimise(self, start: np.ndarray, transform: np.ndarray | None = None, shift: Any = 0.0) -> tuple[Any, float]:
        """Newton's method in a trust region; ``full = shift + transform @ free`` restricts it to a subspace."""
        matrix = np.eye(start.size) if transform is None else transform
        cache: dict[bytes, Any] = {}

        def parts(free: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            key = free.tobytes()
            if key not in cache:
                cache.clear()
                with np.errstate(over="ignore", invalid="ignore"):
                    total, gradient, hessian = self.parts(shift + matrix @ free)
                if not (np.isfinite(total) and np.isfinite(gradient).all() and np.isfinite(hessian).all()):
                    total, gradient, hessian = 1e300, np.zeros(free.size), np.eye(free.size)
                    cache[key] = total, gradient, hessian
                    return cache[key]
                cache[key] = total, matrix.T @ gradient, matrix.T @ hessian @ matrix
            return cache[key]

        found = minimize(
            lambda free: parts(free)[0],
            start,
            jac=lambda free: parts(free)[1],
            hess=lambda free: parts(free)[2],
            method="trust-exact",
            options={"gtol": 1e-6, "initial_trust_radius": 0.3, "maxiter": 300},
        )
        return found.x, float(found.fun)


def projected_starts(law: Law, observed: np.ndarray, counts: np.ndarray | None = None) -> list[np.ndarray]:
    """The best starts from a grid of exponents with nonnegative least squares for the coefficients."""
    weights = np.exp(-observed) * (1.0 if counts is None else np.sqrt(counts))
    target = np.exp(observed) * weights
    found = []
    grids: list[Any] = [_GRID] * len(law.form.exponents) + ([_REUSE_GRID] if law.form.reuse else [])
    for values in itertools.product(*grids):
        exponents, reuse = (values[:-1], values[-1]) if law.form.reuse else (values, None)
        coefficients, misfit = nnls(law.basis(exponents, reuse) * weights[:, None], target)
        found.append((misfit, values, coefficients))
    found.sort(key=lambda one: one[0])
    least = _SMALLEST_TERM * float(np.exp(np.median(observed)))
    return [
        np.concatenate([np.log(np.maximum(coefficients, least)), values])
        for _, values, coefficients in found[:_BEST_STARTS]
    ]


def fit(objective: Objective, starts: Sequence[np.ndarray]) -> Fit:
    """The best optimum over several starts."""
    results = []
    size = objective.law.form.size
    for start in starts:
        full = start
        if objective.robust.estimates_scale and start.size == size:
            residuals = objective.observed - objective.law.logs(start)
            spread = np.median(np.abs(residuals / objective.relative)) / 0.6745
            full = np.append(start, np.log(max(float(spread), _SMALLEST_SCALE)))
        if objective.robust.kind == HUBER:
            full = _descend_threshold(objective, start)
        results.append(objective.minimise(full))
    results.sort(key=lambda one: one[1])
    full, total = results[0]
    theta = full[:size]
    residuals = objective.observed - objective.law.logs(theta)
    if objective.robust.estimates_scale:
        scale = float(np.exp(full[size]))
    else:
        # Huber has no scale of its own: the normal-consistent median of the residuals.
        spread = np.median(np.abs(residuals / objective.relative)) / 0.6745
        scale = max(float(spread), _SMALLEST_SCALE)
    gradient = objective.parts(full)[1]
    unit = objective.robust.delta if objective.robust.kind == HUBER else 1.0
    converged = bool(np.abs(gradient).max() < _GRADIENT_TOLERANCE)
    return Fit(theta, scale, total * unit, residuals, converged, tuple(result[1] * unit for result in results))


def _descend_threshold(objective: Objective, start: np.ndarray) -> np.ndarray:
    """Start of a Huber fit: a smooth likelihood, then thresholds that fall tenfold, as small ones are not smooth."""
    smooth = Objective(objective.law, objective.observed, Robust(), objective.counts, objective.relative)
    theta = fit(smooth, [start]).theta
    delta = 1e-3
    while delta > objective.robust.delta:
        robust = Robust(HUBER, delta=delta)
        theta, _ = Objective(objective.law, objective.observed, robust, objective.counts, objective.relative).minimise(
            theta
        )
        delta /= 10
    return theta
