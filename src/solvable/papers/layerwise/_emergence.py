"""Shared by the emergence files: networks on sparse parity, where a skill emerges, and the errors of predictions.

Network and task are those of appendix C.3: one hidden layer of ReLUs, all parameters Gaussian, zeros and ones as
inputs, and half the mean square as the loss (with the full mean square the thesis' learning rate of 0.05 is too large,
and training does not settle).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
import xarray as xr

from solvable.dataset import Meaning, make_dataset
from solvable.networks import MLP
from solvable.networks.tasks.parity import HeldOut, SparseParity
from solvable.papers.claims import Claim
from solvable.plotting import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HALF = 0.5
LOSS: Literal["half-mse"] = "half-mse"
# The table of appendix C.3; its text says .001, which emerges later (see fig5-1-network).
STD = 0.01
MEANINGS = {
    "strength": Meaning("relative skill strength", "1", "R_k / S"),
    "earlier_strength": Meaning("relative skill strength earlier in training", "1", "R_k / S"),
    "predicted_strength": Meaning("relative skill strength, predicted from one skill", "1", "R_k / S"),
    "emergence": Meaning("where a skill is half learned", "1"),
    "predicted": Meaning("where a skill should be half learned, from one skill", "1"),
    "error": Meaning("relative error of the prediction", "1"),
    "skill": Meaning("skill, by frequency", "1", "k"),
    "time": Meaning("step", "steps", "t"),
    "samples": Meaning("training samples", "1", "D"),
    "width": Meaning("width of the hidden layer", "1", "N"),
    "seed": Meaning("index of the random seed", "1"),
}


def network_maker(task: SparseParity, width: int) -> Callable[..., MLP]:
    """Networks of one hidden layer; ``std`` and ``active_width`` may be variants, others are ignored."""

    def network(key: jax.Array, std: Any = STD, active_width: Any = None, **_: Any) -> MLP:
        return MLP(task.inputs, 1, width=width, depth=2, key=key, std=std, active_width=active_width)

    return network


def held_out(task: SparseParity, points: int) -> HeldOut:
    """The points on which strengths are measured: the same for all runs, and never trained on."""
    return task.held_out(jax.random.key(2**31), points)


def crossing(positions: Any, curve: Any, fraction: float = HALF, log: bool = False) -> float:
    """The first position at which a relative strength reaches ``fraction``, by interpolation; NaN if it never does."""
    positions, curve = np.asarray(positions, float), np.asarray(curve, float)
    reached = np.flatnonzero(curve >= fraction)
    if not reached.size:
        return float("nan")
    first = reached[0]
    if first == 0:
        return float(positions[0])
    scale, back = (np.log, np.exp) if log else (lambda x: x, lambda x: x)
    low, high = scale(positions[first - 1 : first + 1])
    share = (fraction - curve[first - 1]) / (curve[first] - curve[first - 1])
    return float(back(low + share * (high - low)))


def crossings(positions: Any, curves: Any, log: bool = False) -> np.ndarray:
    """:func:`crossing` of curves (seed, position, skill), for each seed and skill."""
    return np.array([[crossing(positions, curve, log=log) for curve in run.T] for run in np.asarray(curves)])


def errors_of(predicted: Any, measured: Any) -> np.ndarray:
    """Relative errors of predictions, for each skill (and seed)."""
    return np.asarray(predicted) / np.asarray(measured) - 1


def median_claim(what: str, errors: np.ndarray, tolerance: float, because: str) -> Claim:
    """The median over seeds and skills 2, 3, ... of the absolute error. A skill that never emerged counts as infinite.

    ``errors`` have dims (seed, skill) or (skill,).
    """
    later = np.where(np.isnan(errors), np.inf, np.abs(errors))[..., 1:]
    bar = f"; standard error over seeds {_spread_of_median(later):.3f}" if errors.ndim == 2 else ""
    name = f"{what}: median size of the relative error, skills 2 to {errors.shape[-1]}"
    return Claim(name, float(np.median(later)), 0.0, tolerance, because + bar)


def _spread_of_median(sizes: np.ndarray, draws: int = 400) -> float:
    """Standard error of the median over seeds and skills, by a bootstrap over seeds."""
    rows = np.random.default_rng(0).integers(0, len(sizes), (draws, len(sizes)))
    medians = np.median(sizes[rows].reshape(draws, -1), axis=1)
    return float(medians.std()) if np.isfinite(medians).all() else float("inf")


def results(
    axis: str,
    positions: Any,
    strength: np.ndarray,
    measured: np.ndarray,
    predicted_curve: tuple[Any, np.ndarray],
    predicted: Any,
    attributes: Mapping[str, Any],
    earlier: np.ndarray | None = None,
) -> xr.Dataset:
    """Relative strengths of networks and where they emerge, with the predictions of both.

    Parameters
    ----------
    axis
        The resource along which skills emerge: a key of :data:`MEANINGS`.
    positions
        Values of the resource at which the networks were measured.
    strength
        Relative strengths of the networks (seed, position, skill).
    measured
        Where a skill is half learned, (seed, skill) or (skill,).
    predicted_curve
        Positions of the prediction, which may lie closer, and its relative strengths (position, skill).
    predicted
        Where a skill should be half learned, (skill,).
    attributes
        Attributes of the training.
    earlier
        Relative strengths earlier in training, with the same dims as ``strength``.
    """
    fine, curve = predicted_curve
    per_seed = ("seed", "skill") if measured.ndim == 2 else ("skill",)
    variables = {
        "strength": (("seed", axis, "skill"), strength),
        "predicted_strength": ((f"predicted_{axis}", "skill"), curve),
        "emergence": (per_seed, measured),
        "predicted": (("skill",), np.asarray(predicted)),
        "error": (per_seed, errors_of(predicted, measured)),
    }
    if earlier is not None:
        variables["earlier_strength"] = (("seed", axis, "skill"), earlier)
    coordinates = {
        "seed": np.arange(len(strength)),
        axis: np.asarray(positions, float),
        f"predicted_{axis}": np.asarray(fine, float),
        "skill": np.arange(1, strength.shape[-1] + 1),
    }
    meanings = MEANINGS | {f"predicted_{axis}": MEANINGS[axis]}
    return make_dataset(variables, coordinates, attributes, meanings)


def draw_strengths(panel: "Axes", data: xr.Dataset, axis: str, title: str, log: bool = False) -> None:
    """Networks: mean, dashed, with one standard deviation over seeds, as in the thesis; the prediction is solid."""
    few = data.sizes[axis] < 30
    for index, skill in enumerate(data.skill.values):
        colour = COLOURS[index]
        curves, positions = data.strength.sel(skill=skill), data[axis].values
        mean, spread = curves.mean("seed"), curves.std("seed", ddof=1)
        style: dict[str, Any] = {"color": colour, "linewidth": 1.4}
        panel.fill_between(positions, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
        panel.plot(positions, mean, linestyle="--", marker="o" if few else "", markersize=3, **style)
        expected = data.predicted_strength.sel(skill=skill)
        panel.plot(data[f"predicted_{axis}"], expected, label=f"k = {skill}", **style)
    panel.plot([], [], color="grey", linestyle="--", label="networks, ± 1 s.d.")
    panel.plot([], [], color="grey", label="model")
    panel.set_xlabel(f"{MEANINGS[axis].long_name}, {MEANINGS[axis].symbol}")
    panel.set_ylabel("relative skill strength, R_k / S")
    panel.set_ylim(-0.08, 1.15)
    panel.set_title(title, fontsize="medium")
    if data.sizes["skill"] > 1:
        # Outside: curves of several skills leave no corner free.
        panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    if log:
        from matplotlib.ticker import NullFormatter

        panel.set_xscale("log")
        panel.xaxis.set_minor_formatter(NullFormatter())
