"""The coordinate check: how far the outputs of each layer move in a few steps, against the width."""

from typing import Any

import numpy as np
import xarray as xr

from solvable.dataset import Meaning, make_dataset
from solvable.diagnostics.transfer_statistics import log_slopes

COORDINATE_MEANINGS = {
    "width": Meaning("width", "1", "n"),
    "seed": Meaning("seed: of the data and of the network", "1"),
    "layer": Meaning("layer", ""),
    "change": Meaning("root mean square of the change of its outputs", "1"),
    "initial": Meaning("root mean square of its outputs at the start", "1"),
    "slope": Meaning("exponent of the change in the width", "1"),
    "slope_error": Meaning("its standard error over seeds", "1"),
    "initial_slope": Meaning("exponent of the initial outputs in the width", "1"),
    "initial_slope_error": Meaning("its standard error over seeds", "1"),
}


def coordinate_check(
    widths: np.ndarray,
    layers: list[str],
    initial: np.ndarray,
    change: np.ndarray,
    learning_rate: float,
    steps: int,
) -> xr.Dataset:
    """The dataset of the coordinate check, from root mean squares with dims (width, layer, seed)."""
    variables: dict[str, Any] = {
        "initial": (("width", "layer", "seed"), initial),
        "change": (("width", "layer", "seed"), change),
    }
    for name, values in (("slope", change), ("initial_slope", initial)):
        slopes, errors = log_slopes(widths, values)
        variables |= {name: (("layer",), slopes), f"{name}_error": (("layer",), errors)}
    coordinates = {"width": widths, "layer": layers, "seed": np.arange(change.shape[2])}
    attributes = {"learning_rate": float(learning_rate), "steps": steps}
    return make_dataset(variables, coordinates, attributes, COORDINATE_MEANINGS, may_diverge=True)


def coordinate_rate(rates: np.ndarray, losses: np.ndarray, finite: np.ndarray) -> int:
    """The index of the rate of the coordinate check: the narrowest's best of those that are finite at every width.

    ``finite`` has dims (width, learning rate): whether all runs were finite after the steps of the check. Without such
    a rate, it is the lowest one.
    """
    allowed = finite.all(axis=0)
    if not allowed.any():
        return 0
    logs = np.log(losses[0]).mean(axis=1)
    order = np.where(np.isfinite(logs) & allowed, logs, np.inf)
    return int(np.argmin(order)) if np.isfinite(order).any() else int(np.argmax(allowed))
