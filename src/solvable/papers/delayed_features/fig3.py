"""Fig. 3: correlations and responses of two neurons at finite γ, and alignments that the online limit misses.

The response of the signals to the fields is local in time only with many samples; with few, the past acts on, and the
overlaps and alignments part from the online limit.
"""

import numpy as np
import xarray as xr

from solvable import solvers
from solvable.papers.claims import Claim, Reproduction, Scale
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

GAMMA, ALPHA, EPSILON = 2.0, 1.0, 0.5
LEARNING_RATE, LAST_TIME = 0.2, 12.0
TRAINING = GradientDescent(LEARNING_RATE)
MANY = (20.0, 200.0)
# (samples of the response solver, samples of the latent solver, dimension, datasets)
SIZES = {"quick": (2048, 8192, 300, 16), "full": (8192, 65536, 3500, 10)}


def reproduce(scale: Scale) -> Reproduction:
    response_samples, latent_samples, dimension, seeds = SIZES[scale]
    figure, axes = new_figure(2, rows=2)
    for letter, panel in zip("abcd", axes.flat, strict=True):
        panel.set_title(f"({letter})", loc="left", fontsize="medium")
    steps = np.arange(round(LAST_TIME / LEARNING_RATE) + 1)
    model = paper_task(GAMMA, ALPHA, EPSILON)
    solver = solvers.Response(samples=response_samples)
    responses = on_flow_time(model.predict(steps, TRAINING, solver=solver, correlations=True, responses=True))
    theory = on_flow_time(model.predict(steps, TRAINING, solver=solvers.Latent(samples=latent_samples)))
    online = on_flow_time(model.predict(steps, TRAINING, solver=solvers.Online()))
    few = steps_near(log_times(2 * LEARNING_RATE, LAST_TIME, 10), LEARNING_RATE)
    simulation = on_flow_time(model.simulate(few, TRAINING, dimension=dimension, seeds=seeds, key=3))
    _draw_plane(figure, axes[0, 0], responses.weight_correlation.isel(neuron=0, other_neuron=0), "C$^w_{11}$(t, s)")
    nonlocal_part = responses.field_response.isel(neuron=0, other_neuron=0)
    below = np.tril(np.ones((steps.size, steps.size)), -1)
    _draw_plane(
        figure, axes[0, 1], (nonlocal_part * below) / LEARNING_RATE, "R$^h_{11}$(t, s) for s < t, over dt", signed=True
    )
    _draw_curves(axes[1], theory, simulation, online)
    share = {GAMMA: nonlocal_share(responses)}
    for gamma in MANY:
        other = paper_task(gamma, ALPHA, EPSILON)
        share[gamma] = nonlocal_share(other.predict(steps, TRAINING, solver=solver, responses=True))
    claims = _agreement(theory, simulation, online) + _solver_claims(theory, responses) + _share_claims(share)
    datasets = {"responses": responses, "theory": theory, "online": online, "simulation": simulation}
    return Reproduction(datasets, figure, claims)


def nonlocal_share(data: xr.Dataset) -> float:
    """Of the response of the signals at the last time to all fields, the share that came from earlier ones."""
    rows = np.abs(data.field_response.isel(time=-1)).sum(("neuron", "other_neuron")).values
    return float(rows[:-1].sum() / rows.sum())


def _agreement(theory: xr.Dataset, simulation: xr.Dataset, online: xr.Dataset) -> list[Claim]:
    words = "the paper's words: not well predicted by it"
    later = simulation.sel(time=simulation.time > 0)
    claims = []
    for name, panel in (("alignment", "(c)"), ("overlap", "(d)")):
        missed = root_mean_square([z_scores(online, simulation, name)])
        claims += [
            Claim.agrees(f"{panel} {name} of theory and simulation agree", theory, later, name),
            Claim.at_least(
                f"{panel} {name}: online limit and simulation, root mean square z-score", missed, 5.0, words
            ),
        ]
    return claims


def _solver_claims(theory: xr.Dataset, responses: xr.Dataset) -> list[Claim]:
    """The closure and the response equations are two routes to the same numbers."""
    claims = []
    for name in ("train_loss", "test_loss", "alignment", "overlap"):
        error = np.hypot(theory[f"{name}_error"].values[1:], responses[f"{name}_error"].values[1:])
        difference = (theory[name] - responses[name]).values[1:]
        claims.append(
            Claim(
                f"latent closure and responses: {name.replace('_', ' ')}, root mean square difference in errors",
                root_mean_square([difference / error]),
                0.0,
                4.0,
                "errors from four replicates each: t-variates of three degrees of freedom, one in thirty beyond this",
            )
        )
    return claims


def _share_claims(share: dict[float, float]) -> list[Claim]:
    some, many = MANY
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


def _draw_plane(figure, panel, values: xr.DataArray, label: str, signed: bool = False) -> None:  # type: ignore[no-untyped-def]
    earlier = values.earlier_time < values.time if signed else True
    shown = values.where(earlier).assign_attrs(long_name=label, symbol="", units="1")
    scale = "signed" if signed else "linear"
    draw_plane(figure, panel, shown, "time", "earlier_time", scale=scale, contours=None, hatch=False)


def _draw_curves(panels, theory: xr.Dataset, simulation: xr.Dataset, online: xr.Dataset) -> None:  # type: ignore[no-untyped-def]
    for name, panel in zip(("alignment", "overlap"), panels, strict=True):
        for neuron in (0, 1):
            pick = {"neuron": neuron} | ({"index": 0} if name == "alignment" else {"other_neuron": neuron})
            colour, label = COLOURS[neuron], f"neuron {neuron + 1}"
            draw_curve(panel, theory[name].isel(pick), colour, f"{label}, theory")
            draw_curve(panel, simulation[name].isel(pick), colour, f"{label}, simulation")
            draw_curve(panel, online[name].isel(pick), colour, f"{label}, online limit", dashed=True)
        set_axis(panel, "x", theory.time)
        panel.set_ylabel("alignment with the target, A" if name == "alignment" else "squared length, C$^w$(t, t)")
        panel.legend(fontsize="x-small")
