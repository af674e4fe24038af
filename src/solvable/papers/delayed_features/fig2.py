"""Fig. 2: theory and simulation of two neurons, at several sample ratios, output scales and quadratic shares.

The paper gives no values of its parameters beyond N = 2 and D = 3500; these show what it says of them. Its error bars
are standard deviations over ten datasets, ours standard errors of the mean.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.papers.claims import Claim, Scale
from solvable.papers.delayed_features._shared import (
    LOSSES,
    draw_losses,
    fall_time,
    on_flow_time,
    paper_task,
    steps_near,
)
from solvable.plotting import COLOURS, log_losses, new_figure, set_axis
from solvable.timegrid import log_times
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# (samples per dimension, output scale, epsilon)
CENTRE = (2.0, 1.0, 0.5)
PANELS = {
    "γ": (0, (0.5, 2.0, 8.0)),
    "α": (1, (0.5, 1.0, 2.0)),
    "ε": (2, (0.1, 0.5, 1.0)),
}
LAST_TIME = 12.0
# (dimension, datasets, samples of the theory)
SIZES = {"quick": (300, 12, 4096), "full": (3500, 10, 65536)}

Setting = tuple[float, float, float]


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and simulation in each setting."""
    data: dict[str, xr.Dataset] = {}
    for key, setting in enumerate(all_settings()):
        theory, simulation = _theory_and_simulation(setting, scale, key)
        data |= {f"theory-{name_of(setting)}": theory, f"simulation-{name_of(setting)}": simulation}
    return data


def all_settings() -> list[Setting]:
    """The settings of all panels, each once."""
    return list(dict.fromkeys(setting for symbol in PANELS for setting in settings_of(symbol)))


def name_of(setting: Setting) -> str:
    """The part of the names of datasets that says which setting they are of."""
    return "γ{:g}-α{:g}-ε{:g}".format(*setting)


def pair(data: Mapping[str, xr.Dataset], setting: Setting) -> tuple[xr.Dataset, xr.Dataset]:
    """Theory and simulation in a setting."""
    return data[f"theory-{name_of(setting)}"], data[f"simulation-{name_of(setting)}"]


def settings_of(symbol: str) -> list[Setting]:
    """The parameters of a panel's curves: those of the centre but one."""
    place, values = PANELS[symbol]
    return [cast(Setting, (*CENTRE[:place], value, *CENTRE[place + 1 :])) for value in values]


def _theory_and_simulation(setting: Setting, scale: Scale, key: int) -> tuple[xr.Dataset, xr.Dataset]:
    dimension, seeds, samples = SIZES[scale]
    # The signals are cubic in the fields, with a coefficient that grows with epsilon: the stable rate falls with it.
    training = GradientDescent(0.05 if setting[2] >= 1 else 0.1)
    model = paper_task(*setting)
    # Multiples of 0.1 in flow time, whatever the learning rate.
    few, many = (np.round(0.1 / training.learning_rate) * steps_near(times, 0.1) for times in _times())
    theory = model.predict(np.union1d(few, many), training, solver=solvers.Latent(samples=samples))
    simulation = model.simulate(few, training, dimension=dimension, seeds=seeds, key=key)
    return on_flow_time(theory), on_flow_time(simulation)


def _times() -> tuple[np.ndarray, np.ndarray]:
    """Flow times of the simulation, and those that make smooth curves of theory."""
    return log_times(0.4, LAST_TIME, 10), log_times(0.1, LAST_TIME, 50)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Theory agrees with simulation, and shows what the paper says."""
    return _agreement(data) + _what_the_paper_says(data)


def _agreement(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """One claim per setting and loss, at the times after the start, where both are the same by construction."""
    made = []
    for setting in all_settings():
        theory, simulation = pair(data, setting)
        label = "γ = {:g}, α = {:g}, ε = {:g}".format(*setting)
        for name in LOSSES:
            text = f"{label}: {name.replace('_', ' ')} of theory and simulation agree"
            made.append(Claim.agrees(text, theory, simulation.sel(time=simulation.time > 0), name))
    return made


def _what_the_paper_says(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    theory = {setting: data[f"theory-{name_of(setting)}"] for setting in all_settings()}

    def gap(setting: Setting) -> float:
        return float((theory[setting].test_loss - theory[setting].train_loss).isel(time=-1))

    def half_time(setting: Setting) -> float:
        loss = theory[setting].train_loss
        return float(fall_time(loss, 0.5 * float(loss[0])))

    gammas, alphas, epsilons = (settings_of(symbol) for symbol in PANELS)
    order = "the paper's words; theory alone, differences many times its error"
    return [
        Claim.ordered("the gap between the losses grows as γ falls", map(gap, reversed(gammas)), order),
        Claim.ordered("the gap grows with α", map(gap, alphas), order),
        Claim.ordered("the training loss halves the later the smaller α", map(half_time, reversed(alphas)), order),
        *_first_neuron(theory[epsilons[0]], theory[epsilons[-1]]),
    ]


def _first_neuron(small: xr.Dataset, large: xr.Dataset) -> list[Claim]:
    """With a small epsilon alignment first falls and grows later; with a large one it grows at once."""
    start, because = 0.3, "the paper's words; in units of theory's error"

    def rise(data: xr.Dataset, place: int) -> float:
        value = data.alignment.isel(neuron=0, index=0, time=place)
        return float((value - start) / data.alignment_error.isel(neuron=0, index=0, time=place))

    least = int(small.alignment.isel(neuron=0, index=0).argmin("time"))
    return [
        Claim.at_least(
            "ε = 0.1: alignment of the first neuron falls at first, z-score", -rise(small, least), 3.0, because
        ),
        Claim.at_least("ε = 0.1: it ends higher than it began, z-score", rise(small, -1), 3.0, because),
        Claim.at_least("ε = 1: alignment of the first neuron grows at once, z-score", rise(large, 2), 3.0, because),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses over time; in each panel one parameter varies."""
    figure, panels = new_figure(3)
    for letter, panel, (symbol, (_, values)) in zip("abc", panels, PANELS.items(), strict=True):
        panel.set_title(f"({letter})", loc="left", fontsize="medium")
        for colour, value, setting in zip(COLOURS, values, settings_of(symbol), strict=False):
            theory, simulation = pair(data, setting)
            draw_losses(panel, theory, simulation, colour, f"{symbol} = {value:g}")
        set_axis(panel, "x", data[f"theory-{name_of(CENTRE)}"].time, log=True)
        panel.set_ylabel("loss (dashed: training, solid: test)")
        log_losses(panel)
        panel.set_ylim(1e-3)
        panel.legend(fontsize="small")
    return figure
