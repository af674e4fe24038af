"""Fig. 3: correlations and responses of two neurons at finite γ, and alignments that the online limit misses.

The response of the signals to the fields is local in time only with many samples; with few, the past acts on, and the
overlaps and alignments part from the online limit.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.papers.claims import Claim, Scale
from solvable.papers.delayed_features._shared import (
    on_flow_time,
    paper_task,
    root_mean_square,
    steps_near,
    z_scores,
)
from solvable.plotting import COLOURS, draw_curve, draw_plane, new_figure, set_axis
from solvable.timegrid import log_times
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAMMA, ALPHA, EPSILON = 2.0, 1.0, 0.5
LEARNING_RATE, LAST_TIME = 0.2, 12.0
TRAINING = GradientDescent(LEARNING_RATE)
MANY = (20.0, 200.0)
# (samples of the response solver, samples of the latent solver, dimension, datasets)
SIZES = {"quick": (2048, 8192, 300, 16), "full": (8192, 65536, 3500, 10)}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory by two solvers, the online limit and simulation; and how local the response is at larger γ."""
    response_samples, latent_samples, dimension, seeds = SIZES[scale]
    steps = np.arange(round(LAST_TIME / LEARNING_RATE) + 1)
    few = steps_near(log_times(2 * LEARNING_RATE, LAST_TIME, 10), LEARNING_RATE)
    model, solver = paper_task(GAMMA, ALPHA, EPSILON), solvers.Response(samples=response_samples)
    latent = solvers.Latent(samples=latent_samples)
    responses = model.predict(steps, TRAINING, solver=solver, correlations=True, responses=True)
    shares = [nonlocal_share(responses)]
    for gamma in MANY:
        other = paper_task(gamma, ALPHA, EPSILON).predict(steps, TRAINING, solver=solver, responses=True)
        shares.append(nonlocal_share(other))
    about = {"long_name": "fraction of the last response that comes from earlier times", "units": "1"}
    return {
        "responses": on_flow_time(responses),
        "theory": on_flow_time(model.predict(steps, TRAINING, solver=latent)),
        "online": on_flow_time(model.predict(steps, TRAINING, solver=solvers.Online())),
        "simulation": on_flow_time(model.simulate(few, TRAINING, dimension=dimension, seeds=seeds, key=3)),
        "shares": xr.Dataset({"nonlocal_share": ("gamma", shares, about)}, {"gamma": [GAMMA, *MANY]}),
    }


def nonlocal_share(data: xr.Dataset) -> float:
    """Of the response of the signals at the last time to all fields, the fraction that comes from earlier ones."""
    rows = np.abs(data.field_response.isel(time=-1)).sum(("neuron", "other_neuron")).values
    return float(rows[:-1].sum() / rows.sum())


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Theory agrees with simulation and with itself, the online limit does not, and the response is not local."""
    theory = data["theory"]
    return [
        *_agreement(theory, data["simulation"], data["online"]),
        *_solver_claims(theory, data["responses"]),
        *_share_claims(data["shares"].nonlocal_share),
    ]


def _agreement(theory: xr.Dataset, simulation: xr.Dataset, online: xr.Dataset) -> list[Claim]:
    words = "the paper's words: not well predicted by it"
    later = simulation.sel(time=simulation.time > 0)
    made = []
    for name, panel in (("alignment", "(c)"), ("overlap", "(d)")):
        missed = root_mean_square([z_scores(online, simulation, name)])
        made += [
            Claim.agrees(f"{panel} {name} of theory and simulation agree", theory, later, name),
            Claim.at_least(
                f"{panel} {name}: online limit and simulation, root mean square z-score", missed, 5.0, words
            ),
        ]
    return made


def _solver_claims(theory: xr.Dataset, responses: xr.Dataset) -> list[Claim]:
    """The closure and the response equations are two routes to the same numbers."""
    made = []
    for name in ("train_loss", "test_loss", "alignment", "overlap"):
        error = np.hypot(theory[f"{name}_error"].values[1:], responses[f"{name}_error"].values[1:])
        difference = (theory[name] - responses[name]).values[1:]
        made.append(
            Claim(
                f"latent closure and responses: {name.replace('_', ' ')}, root mean square difference in errors",
                root_mean_square([difference / error]),
                0.0,
                4.0,
                "errors from four replicates each: t-variates of three degrees of freedom, one in thirty beyond this",
            )
        )
    return made


def _share_claims(shares: xr.DataArray) -> list[Claim]:
    some, many = MANY
    share = {gamma: float(shares.sel(gamma=gamma)) for gamma in (GAMMA, some, many)}
    return [
        Claim.at_least(
            f"γ = {GAMMA:g}: share of R^h from earlier times", share[GAMMA], 0.1, "non-diagonal: seen at sight"
        ),
        Claim(
            "power of γ with which that share falls, from γ = 20 to 200",
            float(np.log(share[some] / share[many]) / np.log(many / some)),
            1.0,
            0.15,
            "local in the limit, with a first correction in 1/γ; the next one bends the power at γ = 20",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Correlation and response over two times, alignments and overlaps over one."""
    figure, axes = new_figure(2, rows=2)
    for letter, panel in zip("abcd", axes.flat, strict=True):
        panel.set_title(f"({letter})", loc="left", fontsize="medium")
    first = data["responses"].isel(neuron=0, other_neuron=0)
    response = (first.field_response / LEARNING_RATE).where(first.earlier_time < first.time)
    _draw_plane(figure, axes[0, 0], first.weight_correlation, "C$^w_{11}$(t, s)", "linear")
    _draw_plane(figure, axes[0, 1], response, "R$^h_{11}$(t, s) for s < t, over dt", "signed")
    for name, panel in zip(("alignment", "overlap"), axes[1], strict=True):
        _draw_curves(panel, name, data)
    return figure


def _draw_plane(
    figure: "Figure", panel: "Axes", values: xr.DataArray, label: str, scale: Literal["linear", "signed"]
) -> None:
    shown = values.assign_attrs(long_name=label, symbol="", units="1")
    draw_plane(figure, panel, shown, "time", "earlier_time", scale=scale, contours=None, hatch=False)


def _draw_curves(panel: "Axes", name: str, data: Mapping[str, xr.Dataset]) -> None:
    for neuron in (0, 1):
        pick = {"neuron": neuron} | ({"index": 0} if name == "alignment" else {"other_neuron": neuron})
        colour, label = COLOURS[neuron], f"neuron {neuron + 1}"
        draw_curve(panel, data["theory"][name].isel(pick), colour, f"{label}, theory")
        draw_curve(panel, data["simulation"][name].isel(pick), colour, f"{label}, simulation")
        draw_curve(panel, data["online"][name].isel(pick), colour, f"{label}, online limit", dashed=True)
    set_axis(panel, "x", data["theory"].time)
    panel.set_ylabel("alignment with the target, A" if name == "alignment" else "squared length, C$^w$(t, t)")
    panel.legend(fontsize="x-small")
