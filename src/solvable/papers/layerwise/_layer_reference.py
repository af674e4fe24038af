"""What the figures of products of layers share: an independent integrator, and theory against gradient descent."""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from scipy.integrate import solve_ivp

from solvable.models.diagonal_network import DiagonalNetwork
from solvable.models.scalar_network import ScalarNetwork
from solvable.papers.claims import Claim
from solvable.training import GradientDescent, GradientFlow

Pull = Callable[[np.ndarray, np.ndarray], np.ndarray]
INTEGRATOR = "an eighth-order integrator at relative tolerance 1e-12, which knows no closed form"


def integrate_diagonal(model: DiagonalNetwork, times: np.ndarray) -> np.ndarray:
    """Strengths (time, mode) of the flow of eq. 3.6, by DOP853."""

    def pull(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return model.variances * (model.target_scales - a * b)

    first, second = _integrate(model.initial_first, model.initial_second, times, pull)
    return first * second


def integrate_scalar(model: ScalarNetwork, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Layers (time, neuron) of the flow of the scalar network, by DOP853."""
    rate, scale = model.input_power / model.output_scale, model.output_scale
    start = model.initial_first, model.initial_second
    return _integrate(*start, times, lambda a, b: rate * (model.target - a @ b / scale))


def _integrate(first: np.ndarray, second: np.ndarray, times: np.ndarray, pull: Pull) -> tuple[np.ndarray, np.ndarray]:
    count = first.size

    def rates(_: float, layers: np.ndarray) -> np.ndarray:
        a, b = layers[:count], layers[count:]
        strength = pull(a, b)
        return np.concatenate([b * strength, a * strength])

    start = np.concatenate([first, second])
    solution = solve_ivp(rates, (0, times[-1]), start, "DOP853", times, rtol=1e-12, atol=1e-14)
    return solution.y[:count].T, solution.y[count:].T


def descend(
    model: DiagonalNetwork | ScalarNetwork, flow_times: np.ndarray, learning_rate: float, **options: Any
) -> tuple[xr.Dataset, xr.Dataset]:
    """Theory for the flow, and runs of gradient descent, at the whole steps nearest to the given flow times."""
    steps = np.round(flow_times / learning_rate)
    runs = model.simulate(steps, GradientDescent(learning_rate), **options)
    return model.predict(steps, GradientFlow(learning_rate)), runs


def on_flow_time(curves: xr.Dataset) -> xr.Dataset:
    """The same curves with flow time in place of steps, for drawing."""
    return curves.assign_coords(time=("time", curves.flow_time.values, curves.flow_time.attrs))


def agreement(label: str, theory: xr.Dataset, simulation: xr.Dataset, variable: str, bias: float) -> Claim:
    """Claim that gradient flow and the mean of gradient descent over training sets agree in a variable.

    Whole steps and finite samples shift the mean. ``bias`` bounds this shift; it is stated, not fitted.
    """
    return Claim.agrees(
        f"{label}: {variable.replace('_', ' ')} of the runs agrees",
        theory,
        simulation,
        variable,
        "the bias is what the size of the steps and of the training sets shifts the mean by",
        absolute_bias=bias,
        allow_different=["training"],
    )
