"""What the figures share: the paper's task, theory compared with simulation, and the times at which losses fall.

The paper's time t is flow time: the number of steps times the learning rate. Models count steps; :func:`on_flow_time`
puts a dataset on the paper's axis.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable import activations
from solvable.comparison import compare, first_crossing
from solvable.extrapolation import check_sizes, inverse_size_weights
from solvable.models.committee import Committee
from solvable.papers.claims import Claim
from solvable.plotting import draw_curve, log_losses, set_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# <y^2> of the target y = h*^2 / 2: the loss of a network that knows nothing.
TARGET_SQUARE = 0.75
LEARNED = TARGET_SQUARE / 10
LOSSES = ("train_loss", "test_loss")


def paper_task(
    samples_per_dimension: float,
    output_scale: float,
    epsilon: float,
    alignment: Sequence[float] | np.ndarray = (0.3, -0.1),
    overlap: Any = ((1.0, 0.2), (0.2, 1.0)),
) -> Committee:
    """The network of eq. 1; two neurons that overlap a little, unless other ones are given."""
    return Committee(
        samples_per_dimension=samples_per_dimension,
        output_scale=output_scale,
        activation=activations.quadratic(epsilon),
        initial_alignment=np.asarray(alignment, float)[:, None],
        initial_overlap=np.asarray(overlap, float),
    )


def steps_near(times: Any, learning_rate: float) -> np.ndarray:
    """The distinct numbers of steps that come nearest to flow times."""
    return np.unique(np.round(np.asarray(times) / learning_rate))


def on_flow_time(data: xr.Dataset) -> xr.Dataset:
    """The dataset with flow time, the paper's t, as its times."""
    about = {"long_name": "training time", "units": "flow time"}
    passed = data.flow_time.values
    found = data.drop_vars("flow_time").assign_coords(time=("time", passed, {**about, "symbol": "t"}))
    if "earlier_time" in data.dims:
        found = found.assign_coords(earlier_time=("earlier_time", passed, {**about, "symbol": "s"}))
    return found


def z_scores(
    theory: xr.Dataset, simulation: xr.Dataset, name: str, allow_different: Collection[str] = ()
) -> np.ndarray:
    """Z-scores at the simulation's times after the start, where both are the same by construction."""
    times = simulation.time.values[simulation.time.values > 0]
    predicted = theory[[name, *_error_of(theory, name)]].sel(time=times)
    comparison = compare(predicted, simulation[[name]].sel(time=times), allow_different=allow_different)
    return np.asarray(comparison[name].sel(statistic="z_score").values)


def _error_of(theory: xr.Dataset, name: str) -> list[str]:
    return [f"{name}_error"] if f"{name}_error" in theory else []


def root_mean_square(scores: Iterable[np.ndarray]) -> float:
    return float(np.sqrt(np.mean(np.concatenate([np.ravel(part) for part in scores]) ** 2)))


def fall_time(losses: xr.DataArray, level: float = LEARNED) -> xr.DataArray:
    """The time at which a loss first falls to ``level``, interpolated on log axes; NaN if it never does."""
    depth = xr.apply_ufunc(lambda loss: -np.log(loss / level), losses.sel(time=losses.time > 0))
    return first_crossing(depth, 0.0)


def draw_losses(
    panel: "Axes", theory: xr.Dataset | None, simulation: xr.Dataset | None, colour: str, label: str
) -> None:
    """Draw theory as lines and simulation as points; training dashed and hollow."""
    for name in LOSSES:
        train = name == "train_loss"
        text = None if train else label
        if theory is not None:
            draw_curve(panel, theory[name], colour, text, dashed=train)
            text = None
        if simulation is not None:
            draw_curve(panel, simulation[name], colour, text, dashed=train)


def finish_losses(panel: "Axes", times: xr.DataArray) -> None:
    """Set axes and legend, and draw the level that counts as learned, for losses over long times."""
    panel.axhline(LEARNED, color="grey", linewidth=0.8, linestyle=":", label="a tenth of ⟨y²⟩")
    set_axis(panel, "x", times, log=True)
    panel.set_ylabel("loss (dashed: training, solid: test)")
    log_losses(panel)
    panel.legend(fontsize="small")


def is_delayed(label: str, theory: xr.Dataset) -> Claim:
    """The test loss falls much later than the training loss."""
    fitted, learned = (float(fall_time(theory[name])) for name in LOSSES)
    because = "half a decade between the curves: seen at sight"
    return Claim.at_least(f"{label}: time to learn over time to fit, theory", learned / fitted, 3.0, because)


def against_simulation(label: str, theory: xr.Dataset, *simulations: xr.Dataset) -> list[Claim]:
    """Losses at all times, and the times at which they fall to the level of what counts as learned.

    Theory is that of gradient flow, simulation gradient descent in steps that are short enough to count as a flow.
    Simulations of several dimensions are extrapolated to the infinite one.
    """
    size = "dimension" if len(simulations) > 1 else None
    limit = ", extrapolated in the dimension" if size else ""
    later = [runs.sel(time=runs.time > 0) for runs in simulations]
    made = [
        Claim.agrees(
            f"{label}: {name.replace('_', ' ')} of theory and simulation agree{limit}",
            theory,
            later if size else later[0],
            name,
            allow_different=["training"],
            extrapolate=size,
        )
        for name in LOSSES
    ]
    for name, what in zip(LOSSES, ("fit", "learn"), strict=True):
        found, error = limit_of_fall_times(theory, simulations, name)
        made.append(
            Claim(
                f"{label}: time to {what}, of the mean over datasets{limit}",
                found,
                float(fall_time(theory[name])),
                3 * float(np.hypot(error, fall_time_error(theory, name))),
                "three errors: over datasets (jackknife), and those of theory's loss where it crosses",
            )
        )
    return made


def limit_of_fall_times(theory: xr.Dataset, simulations: Sequence[xr.Dataset], name: str) -> tuple[float, float]:
    """The time at which the mean over datasets falls, and its error; for several dimensions in the infinite one."""
    dimensions, ordered = check_sizes(theory, list(simulations), "dimension" if len(simulations) > 1 else None)
    found, errors = np.array([mean_fall_time(runs[name]) for runs in ordered]).T
    if not dimensions:
        return float(found[0]), float(errors[0])
    weights, _ = inverse_size_weights(dimensions, errors)
    return float(weights @ found), float(np.hypot.reduce(weights * errors))


def mean_fall_time(losses: xr.DataArray) -> tuple[float, float]:
    """The time at which the mean over datasets falls to the level, as theory predicts it, and its jackknife error.

    The mean of the times is not used: a single dataset that takes longer than the run would make it infinite.
    """
    count = losses.sizes["seed"]
    total = losses.sum("seed")
    without = np.array([float(fall_time((total - losses.isel(seed=seed)) / (count - 1))) for seed in range(count)])
    return float(fall_time(total / count)), float(np.sqrt((count - 1) * np.var(without)))


def fall_time_error(theory: xr.Dataset, name: str) -> xr.DataArray:
    """Half the time between the crossings of the loss less and plus its error."""
    early, late = (fall_time(theory[name] + sign * theory[f"{name}_error"]) for sign in (-1, 1))
    return (late - early) / 2
