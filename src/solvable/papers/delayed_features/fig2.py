"""Fig. 2: theory and simulation of two neurons, at several sample ratios, output scales and quadratic shares.

The paper gives no values of its parameters beyond N = 2 and D = 3500; these show what it says of them. Its error bars
are standard deviations over ten datasets, ours standard errors of the mean.
"""

from typing import cast

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.papers.claims import Claim, Reproduction, Scale
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
Pair = tuple[xr.Dataset, xr.Dataset]


def reproduce(scale: Scale) -> Reproduction:
    figure, axes = new_figure(3)
    pairs: dict[Setting, Pair] = {}
    for letter, panel, (symbol, (_, values)) in zip("abc", axes, PANELS.items(), strict=True):
        panel.set_title(f"({letter})", loc="left", fontsize="medium")
        settings = settings_of(symbol)
        for colour, value, setting in zip(COLOURS, values, settings, strict=False):
            if setting not in pairs:
                pairs[setting] = _theory_and_simulation(setting, scale, key=len(pairs))
            draw_losses(panel, *pairs[setting], colour, f"{symbol} = {value:g}")
        set_axis(panel, "x", pairs[CENTRE][0].time, log=True)
        panel.set_ylabel("loss (dashed: training, solid: test)")
        log_losses(panel)
        panel.set_ylim(1e-3)
        panel.legend(fontsize="small")
    claims = _agreement(pairs) + _what_the_paper_says(pairs)
    named = {f"γ{g:g}-α{a:g}-ε{e:g}": pair for (g, a, e), pair in pairs.items()}
    datasets = {
        f"{kind}-{name}": pair[i] for name, pair in named.items() for i, kind in enumerate(("theory", "simulation"))
    }
    return Reproduction(datasets, figure, claims)


def settings_of(symbol: str) -> list[Setting]:
    """The parameters of a panel's curves: those of the centre but one."""
    place, values = PANELS[symbol]
    return [cast(Setting, (*CENTRE[:place], value, *CENTRE[place + 1 :])) for value in values]


def _theory_and_simulation(setting: Setting, scale: Scale, key: int) -> Pair:
    dimension, seeds, samples = SIZES[scale]
    # The signals are cubic in the fields, with a coefficient that grows with epsilon: so does the stable rate fall.
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


def _agreement(pairs: dict[Setting, Pair]) -> list[Claim]:
    """One claim for each setting and loss, at the times after the start, where both are the same by construction."""
    return [
        Claim.agrees(
            f"γ = {setting[0]:g}, α = {setting[1]:g}, ε = {setting[2]:g}: {name.replace('_', ' ')} of theory and "
            "simulation agree",
            theory,
            simulation.sel(time=simulation.time > 0),
            name,
        )
        for setting, (theory, simulation) in pairs.items()
        for name in LOSSES
    ]


def _what_the_paper_says(pairs: dict[Setting, Pair]) -> list[Claim]:
    theory = {setting: pair[0] for setting, pair in pairs.items()}
    gaps = {setting: float((data.test_loss - data.train_loss).isel(time=-1)) for setting, data in theory.items()}
    half = {
        setting: float(fall_time(data.train_loss, 0.5 * float(data.train_loss[0]))) for setting, data in theory.items()
    }
    by = {symbol: settings_of(symbol) for symbol in PANELS}
    order = "the paper's words; theory alone, differences many times its error"
    return [
        _steps("the gap between the losses grows as γ falls", [gaps[s] for s in reversed(by["γ"])], order),
        _steps("the gap grows with α", [gaps[s] for s in by["α"]], order),
        _steps("the training loss halves the later the smaller α", [half[s] for s in reversed(by["α"])], order),
        *_first_neuron(theory[by["ε"][0]], theory[by["ε"][-1]]),
    ]


def _steps(name: str, values: list[float], because: str) -> Claim:
    return Claim.ordered(name, values, because)


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
