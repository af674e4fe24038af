"""Named parameters of a scaling law, and the best division of compute between parameters and tokens."""

import math

import numpy as np
from scipy.optimize import minimize_scalar

from solvable.fits.scaling_objective import Law
from solvable.fits.scaling_table import Table

_COEFFICIENTS = ("A", "B")
# The best size with repeated data is searched within this factor (in logarithms) of the one without.
_SEARCH = 7.0


def directions(table: Table) -> dict[str, np.ndarray]:
    """Each named parameter as a linear function of the centred ones; of E, A, B and R* the logarithm."""
    form = table.form
    first = int(form.floor)
    terms = first + len(form.powers)
    unit = np.eye(form.size)
    found = {"E": unit[0]} if form.floor else {}
    for place, (quantity, exponent) in enumerate(form.powers):
        slope = unit[terms + form.exponents.index(exponent)]
        found[_COEFFICIENTS[place]] = unit[first + place] + math.log(table.pivots[quantity]) * slope
    found |= {name: unit[terms + place] for place, name in enumerate(form.exponents)}
    if form.reuse:
        found["R*"] = unit[-1]
    return found


def optimal_allocation(
    table: Table, theta: np.ndarray, budgets: np.ndarray, unique: float | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parameters, tokens and log loss that are best at each budget; ``unique`` bounds the unique tokens."""
    named = directions(table)
    # At the optimum alpha A N^-alpha = beta B D^-beta, with N D = C / 6.
    alpha, beta = (float(theta @ named[exponent]) for _, exponent in table.form.powers)
    if min(alpha, beta) <= 0:
        raise ValueError(f"exponents must be positive for an optimal size, not {alpha:.3g} and {beta:.3g}")
    log_a, log_b = (float(theta @ named[name]) for name in _COEFFICIENTS)
    product = np.log(budgets / table.flops)
    log_n = (log_a + math.log(alpha) - log_b - math.log(beta) + beta * product) / (alpha + beta)
    if unique is not None:
        log_n = np.array(
            [_with_reuse(table, theta, start, total, unique) for start, total in zip(log_n, product, strict=True)]
        )
    n, d = np.exp(log_n), np.exp(product - log_n)
    runs = {"parameters": n, "tokens": d, "unique_tokens": d if unique is None else np.minimum(unique, d)}
    return n, d, Law(table.form, table.at(runs)).logs(theta)


def _with_reuse(table: Table, theta: np.ndarray, start: float, product: float, unique: float) -> float:
    """Logarithm of the best size if there are no more than ``unique`` tokens, by a search around ``start``."""

    def loss(log_n: float) -> float:
        tokens = math.exp(product - log_n)
        runs = {"parameters": [math.exp(log_n)], "tokens": [tokens], "unique_tokens": [min(unique, tokens)]}
        return float(Law(table.form, table.at(runs)).logs(theta)[0])

    bounds = (start - _SEARCH, start + _SEARCH)
    return float(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6}).x)
