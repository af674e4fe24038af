"""``solvable demo``: theory and simulation of the linear estimator, compared at three aspect ratios."""

from typing import Any

import numpy as np
import xarray as xr

from solvable.cli import show
from solvable.cli.outputs import check_folder
from solvable.cli.streams import printing
from solvable.comparison import compare, first_crossing
from solvable.files import check_data_path, default_extension, save
from solvable.models.linear_estimator import LinearEstimator
from solvable.plotting import check_figure_path, plot, save_figure
from solvable.timegrid import log_times, whole_steps

ASPECT_RATIOS = (0.1, 0.9, 1.5)
_ACCURACY = 0.95
_DIMENSION = 1000
# A training set of ten thousand samples (aspect ratio 0.1) costs more than one of a thousand.
_SEEDS = {0.1: 10, 0.9: 16, 1.5: 16}


def run_demo(out: str) -> None:
    """Compare theory and simulation, print tables, and write a figure and the data into the folder ``out``."""
    folder = check_folder("out", out)
    data_path, figure_path = folder / f"linear-estimator{default_extension()}", folder / "linear-estimator.png"
    check_data_path(data_path)
    check_figure_path(figure_path)
    times = whole_steps(log_times(1, 1e5, 200))
    theories, simulations, comparisons = [], [], []
    crossings: list[list[Any]] = []
    for ratio in ASPECT_RATIOS:
        model = LinearEstimator(aspect_ratio=ratio)
        theory = model.predict(times)
        simulation = model.simulate(times, dimension=_DIMENSION, seeds=_SEEDS[ratio])
        theories.append(theory)
        simulations.append(simulation)
        comparisons.append(compare(theory, simulation))
        crossings += _crossing_rows(model, simulation)
    names = [f"λ = {ratio:g}" for ratio in ASPECT_RATIOS]
    labels = [f"{name} {kind}" for name in names for kind in ("theory", "simulation")]
    pairs = [dataset for pair in zip(theories, simulations, strict=True) for dataset in pair]
    pairs = [dataset if "seed" not in dataset.dims else dataset.isel(time=slice(None, None, 6)) for dataset in pairs]
    save_figure(plot(*pairs, labels=labels, title="Grokking in a linear estimator"), figure_path)
    joined = xr.concat(comparisons, xr.Variable("aspect_ratio", list(ASPECT_RATIOS)), combine_attrs="drop_conflicts")
    save(joined, data_path)
    with printing():
        _print_tables(comparisons, crossings)
        print(f"\nfigure: {figure_path}\ndata:   {data_path}")


def _print_tables(comparisons: list[xr.Dataset], crossings: list[list[Any]]) -> None:
    print(
        f"Linear estimator, input dimension {_DIMENSION}, learning rate 0.01, threshold 1e-3: theory in the limit of\n"
        "infinitely many inputs against gradient descent; mean over seeds, z = difference / standard error.\n"
    )
    _print_curves(comparisons)
    columns = ["aspect ratio", "accuracy", "theory (steps)", "simulation", "± standard error", "z", "seeds reaching it"]
    show.table(f"time at which an accuracy of {_ACCURACY:.0%} is reached", columns, crossings)
    print(
        "\nRows of one aspect ratio come from the same datasets, so that their z-scores move together. All times and\n"
        "curves at once, with a false-alarm rate of 1 %:"
    )
    for ratio, comparison in zip(ASPECT_RATIOS, comparisons, strict=True):
        print(f"aspect ratio {ratio:g}: {comparison.attrs['verdict']}")


def _print_curves(comparisons: list[xr.Dataset]) -> None:
    rows = []
    for ratio, comparison in zip(ASPECT_RATIOS, comparisons, strict=True):
        for time in (100, 1000, 10000, 100000):
            at = comparison.sel(time=time, method="nearest")
            row: list[Any] = [f"{ratio:g}", f"{float(at.time):g}"]
            for name in ("train_loss", "test_loss", "train_accuracy", "test_accuracy"):
                row += [float(at[name].sel(statistic=key)) for key in ("theory", "simulation")]
                row.append(f"{float(at[name].sel(statistic='z_score')):+.1f}")
            rows.append(row)
    columns = ["aspect ratio", "steps"]
    for name in ("train loss", "test loss", "train acc.", "test acc."):
        columns += [name, "simulated", "z"]
    show.table("losses and accuracies", columns, rows)
    print()


def _crossing_rows(model: LinearEstimator, simulation: xr.Dataset) -> list[list[Any]]:
    predicted = model.grokking_time(_ACCURACY)
    rows = []
    for kind in ("train", "test"):
        expected = float(predicted[f"{kind}_time"])
        found = first_crossing(simulation[f"{kind}_accuracy"], _ACCURACY).values
        reached = found[np.isfinite(found)]
        row: list[Any] = [f"{model.aspect_ratio:g}", kind, expected if np.isfinite(expected) else "never"]
        if reached.size > 1:
            error = reached.std(ddof=1) / np.sqrt(reached.size)
            row += [float(reached.mean()), float(error), f"{(reached.mean() - expected) / error:+.1f}"]
        else:
            row += ["never" if reached.size == 0 else float(reached[0]), "", ""]
        rows.append([*row, f"{reached.size} of {found.size}"])
    return rows
