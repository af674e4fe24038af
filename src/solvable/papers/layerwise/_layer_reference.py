"""What the figures of products of layers share: an integrator that knows no closed form, and theory against runs."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from scipy.integrate import solve_ivp

from solvable.comparison import compare
from solvable.models.diagonal_network import DiagonalNetwork
from solvable.models.scalar_network import ScalarNetwork
from solvable.papers.claims import Claim

Pull = Callable[[np.ndarray, np.ndarray], np.ndarray]
INTEGRATOR = "an eighth-order integrator at relative tolerance 1e-12, which knows no closed form"


def integrate_diagonal(model: DiagonalNetwork, times: np.ndarray) -> np.ndarray:
    """Strengths (time, mode) of the flow of eq. 3.6, by DOP853."""

    def pull(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return model.variances * (model.target_scales - a * b)

    first, second = _integrate(model.first, model.second, times, pull)
    return first * second


def integrate_scalar(model: ScalarNetwork, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Layers (time, unit) of the flow of the scalar network, by DOP853."""
    rate, scale = model.input_power / model.output_scale, model.output_scale
    return _integrate(model.first, model.second, times, lambda a, b: rate * (model.target - a @ b / scale))


def _integrate(first: np.ndarray, second: np.ndarray, times: np.ndarray, pull: Pull) -> tuple[np.ndarray, np.ndarray]:
    count = first.size

    def rates(_: float, layers: np.ndarray) -> np.ndarray:
        a, b = layers[:count], layers[count:]
        strength = pull(a, b)
        return np.concatenate([b * strength, a * strength])

    start = np.concatenate([first, second])
    solution = solve_ivp(rates, (0, times[-1]), start, "DOP853", times, rtol=1e-12, atol=1e-14)
    return solution.y[:count].T, solution.y[count:].T


def agreement(label: str, theory: xr.Dataset, simulation: xr.Dataset, variable: str, bias: float) -> Claim:
    """Theory and the mean over training sets differ by their noise, and by no more than ``bias`` beside it.

    The bias is what whole steps and finite samples shift the mean by; it is stated, not fitted.
    """
    statistics = compare(theory[[variable]], simulation[[variable]])[variable]
    noise = 4 * statistics.sel(statistic="standard_error")
    excess = float((abs(statistics.sel(statistic="difference")) - noise).max())
    return Claim(
        f"{label}: {variable.replace('_', ' ')} of the runs agrees (excess over 4 standard errors)",
        max(excess, 0.0),
        0.0,
        bias,
        "what the size of the steps and of the training sets shifts the mean by",
    )
