"""Eqs. 14 and 15: the online limit of two neurons, as printed, corrected, and simulated with many samples.

As printed the equations lack the output scale α, one factor ε, and have a cubic term where a quadratic one belongs;
they do not depend on α at all.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.comparison import compare
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.delayed_features._shared import on_flow_time, paper_task, steps_near
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILON = 0.5
ALPHAS = (0.5, 1.0, 2.0)
TRAINING, LAST_TIME = GradientDescent(learning_rate=0.1), 4.0
# (dimension, samples per dimension, datasets)
SIZES = {"quick": (150, 60.0, 16), "full": (1000, 400.0, 20)}
COMPONENTS = {"A_1": ("alignment", (0, 0)), "C_11": ("overlap", (0, 0)), "C_12": ("overlap", (0, 1))}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The online limit as printed, and for each output scale as corrected and as simulated."""
    dimension, gamma, seeds = SIZES[scale]
    few = steps_near(np.linspace(1, LAST_TIME, 4), TRAINING.learning_rate)
    steps = np.arange(round(LAST_TIME / TRAINING.learning_rate) + 1)
    data = {"printed": _printed(TRAINING.flow_time(steps))}
    for place, alpha in enumerate(ALPHAS):
        model = paper_task(gamma, alpha, EPSILON)
        runs = model.simulate(few, TRAINING, dimension=dimension, seeds=seeds, key=15 + place)
        data[f"online-{alpha:g}"] = on_flow_time(model.predict(steps, TRAINING, solver=solvers.Online()))
        data[f"simulation-{alpha:g}"] = on_flow_time(runs)
    return data


def _printed(times: np.ndarray) -> xr.Dataset:
    """Eq. 15 as printed, from the same initial values as the other curves."""
    from scipy.integrate import solve_ivp

    start = paper_task(1.0, 1.0, EPSILON)
    alignment, overlap = start.initial_alignment[:, 0], start.initial_overlap
    neurons = alignment.size

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        a, c = state[:neurons], state[neurons:].reshape(neurons, neurons)
        brake = 1 - np.trace(c) / neurons
        da = EPSILON / 2 * brake * a - (1 + EPSILON**2 * c) @ a / neurons + EPSILON * a
        cubic = 2 * c @ c + EPSILON**2 * ((c**2) @ c + c @ (c**2))
        dc = EPSILON * brake * c - cubic / neurons + 2 * EPSILON * np.outer(a, a)
        return np.concatenate([da, dc.ravel()])

    path = solve_ivp(velocity, (0, times[-1]), np.concatenate([alignment, overlap.ravel()]), t_eval=times, rtol=1e-9)
    return xr.Dataset(
        {
            "alignment": (("time", "neuron", "index"), path.y[:neurons].T[:, :, None]),
            "overlap": (("time", "neuron", "other_neuron"), path.y[neurons:].T.reshape(-1, neurons, neurons)),
        },
        {"time": times},
        {"method": "eq. 15 as printed"},
    )


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The corrected equations agree with simulation, and the printed ones do not."""
    made: list[Claim] = []
    for alpha in ALPHAS:
        theory, simulation = data[f"online-{alpha:g}"], data[f"simulation-{alpha:g}"]
        comparison = compare(theory.sel(time=simulation.time), simulation)
        made += _component_claims(alpha, comparison, data["printed"], SIZES[scale_of(data)][1])
    return made


def _component_claims(alpha: float, comparison: xr.Dataset, printed: xr.Dataset, gamma: float) -> list[Claim]:
    made, misses = [], []
    for name in COMPONENTS:
        end = _component(comparison, name).isel(time=-1)
        error = float(end.sel(statistic="standard_error"))
        value, measured = (float(end.sel(statistic=kind)) for kind in ("theory", "simulation"))
        wrong = float(_component(printed, name).isel(time=-1))
        misses.append(abs(measured - wrong) / error)
        made.append(
            Claim(
                f"α = {alpha:g}: {name} at t = 4, simulated",
                measured,
                value,
                4 * error + 2 / gamma * max(abs(value), 1.0),
                "four standard errors over datasets (15 degrees of freedom: one in a thousand), and 2/γ for finite γ",
                printed=round(wrong, 3),
            )
        )
    because = "as printed the equations do not know α; the worst component, in standard errors over datasets"
    label = f"α = {alpha:g}: the printed equations miss the simulation, z-score"
    return [*made, Claim.at_least(label, max(misses), 10.0, because)]


def _component(data: xr.Dataset, name: str) -> xr.DataArray:
    variable, (row, column) = COMPONENTS[name]
    if variable == "alignment":
        return data.alignment.isel(neuron=row, index=column)
    return data.overlap.isel(neuron=row, other_neuron=column)


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Alignment and overlaps of two neurons over time: corrected, simulated and as printed."""
    figure, panels = new_figure(3)
    printed = data["printed"]
    for panel, name in zip(panels, COMPONENTS, strict=True):
        for colour, alpha in zip(COLOURS, ALPHAS, strict=False):
            draw_curve(panel, _component(data[f"online-{alpha:g}"], name), colour, f"α = {alpha:g}, corrected")
            draw_curve(panel, _component(data[f"simulation-{alpha:g}"], name), colour)
        values = _component(printed, name)
        panel.plot(printed.time, values, color="black", linestyle=":", label="as printed, any α")
        set_axis(panel, "x", data[f"online-{ALPHAS[0]:g}"].time)
        panel.set_ylabel(f"${name.replace('_', '_{')}}}$")
        panel.legend(fontsize="small")
    return figure
