"""Datasets: what every result of a model is, with names, units, numerical errors and provenance."""

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import pandas as pd
import xarray as xr

from solvable._version import __version__
from solvable.precision import require_float64
from solvable.training import Schedule, Training

if TYPE_CHECKING:
    from solvable.model import Model

# Longer arrays are not written out in the attributes of a dataset.
_LONGEST_LIST = 1000


@dataclasses.dataclass(frozen=True)
class Meaning:
    """What a variable is, for people and for plots, and whether infinity is one of its values.

    Parameters
    ----------
    long_name
        What the variable is, in a few words.
    units
        Its unit; ``"1"`` for plain numbers.
    symbol
        The letter that the paper gives it.
    may_be_infinite
        Whether infinity is one of its values.
    """

    long_name: str
    units: str
    symbol: str = ""
    may_be_infinite: bool = False


VARIABLES: Mapping[str, Meaning] = {
    "train_loss": Meaning("training loss per output", "1", "L_tr"),
    "test_loss": Meaning("test loss per output", "1", "L_gen"),
    "log_train_loss": Meaning("natural logarithm of the training loss", "1", "log L_tr"),
    "log_test_loss": Meaning("natural logarithm of the test loss", "1", "log L_gen"),
    "train_accuracy": Meaning("fraction of training samples within the threshold", "1", "A_tr"),
    "test_accuracy": Meaning("fraction of test samples within the threshold", "1", "A_gen"),
    "train_time": Meaning("time at which training accuracy is reached", "steps", "t*_tr"),
    "test_time": Meaning("time at which test accuracy is reached", "steps", "t*_gen"),
    "delay": Meaning("grokking delay", "steps", "Δt"),
    "train_reached": Meaning("whether the training accuracy is ever reached", "1"),
    "test_reached": Meaning("whether the test accuracy is ever reached", "1"),
    "time": Meaning("training time", "steps", "t"),
    "seed": Meaning("index of the drawn dataset and initialisation", "1"),
}


def make_dataset(
    variables: Mapping[str, Any],
    coordinates: Mapping[str, Any],
    attributes: Mapping[str, Any],
    meanings: Mapping[str, Meaning] = VARIABLES,
    may_diverge: bool = False,
    training: Training | None = None,
    samples: float | None = None,
) -> xr.Dataset:
    """Make a dataset in which every variable says what it is. Traced arrays are kept, others become NumPy arrays.

    Parameters
    ----------
    variables
        Values of each variable by name, or a pair of its dimensions and its values. Values without dimensions run over
        the first of the coordinates, as many as they have axes.
    coordinates
        Values of each coordinate, by name; each is its own dimension.
    attributes
        Where the dataset comes from: see :func:`provenance`.
    meanings
        What the variables are, where :data:`VARIABLES` does not say it.
    may_diverge
        Whether curves over time may be infinite or NaN. Otherwise such a curve is refused, with the parameter that is
        most likely to blame.
    training
        The training that the times belong to. It gives ``time`` its unit, and the coordinate ``flow_time`` beside it.
    samples
        Size of the training set, None if there is none. Where batches are drawn from it, the coordinate ``epochs``
        beside ``time`` says how often it has been passed.
    """

    def meaning_of(name: str) -> Meaning:
        return meanings.get(name) or _derived_meaning(name, meanings) or VARIABLES[name]

    def described(name: str, dims: tuple[str, ...], values: Any, index: bool = False) -> xr.Variable:
        meaning = meaning_of(name)
        attrs = {"long_name": meaning.long_name, "units": meaning.units}
        if meaning.symbol:
            attrs["symbol"] = meaning.symbol
        return labelled(dims, values, attrs, index)

    axes = tuple(coordinates)
    pairs = {
        name: value if isinstance(value, tuple) else (axes[: np.ndim(value)], value)
        for name, value in variables.items()
    }
    dataset = xr.Dataset(
        {name: described(name, *pair) for name, pair in pairs.items()},
        coords={name: described(name, (name,), values, index=True) for name, values in coordinates.items()},
        attrs=dict(attributes),
    )
    if training is not None and "time" in coordinates:
        dataset = _with_flow_time(dataset, training)
        passed = training.epochs(dataset.time.values, samples)
        if passed is not None:
            about = {"long_name": "passes over the training set", "units": "epochs", "symbol": "K"}
            dataset = dataset.assign_coords(epochs=labelled(("time",), passed, about))
    if not may_diverge and attributes.get("method") in ("theory", "simulation"):
        unbounded = {name for name in variables if meaning_of(name).may_be_infinite}
        _check_curves(dataset, unbounded)
    return dataset


def labelled(dims: tuple[str, ...], values: Any, attrs: Mapping[str, Any], index: bool = False) -> xr.Variable:
    """A variable of a dataset. Traced arrays are kept, others become NumPy arrays.

    Parameters
    ----------
    dims
        Names of the axes.
    values
        The numbers.
    attrs
        What they are.
    index
        Whether this is the coordinate of an axis.
    """
    array = values if isinstance(values, jax.core.Tracer) else np.asarray(values)
    # Without the fast path, and for its indices without pandas' own class, xarray imports Dask where that is installed,
    # to ask whether the array is one of Dask's: half a second of the first prediction.
    plain = array.dtype.kind in "biufc"
    if index and plain and array.size and not isinstance(array, jax.core.Tracer):
        return xr.IndexVariable(dims, pd.Index(array), dict(attrs), fastpath=True)
    return xr.Variable(dims, array, dict(attrs), fastpath=plain)


def _with_flow_time(dataset: xr.Dataset, training: Training) -> xr.Dataset:
    """The dataset with the unit of its times, and the flow time beside them."""
    times = dataset.time
    passed = training.flow_time(times.values)
    traced = isinstance(passed, jax.core.Tracer)
    if training.counts_steps:
        units = "steps"
    else:
        units = "flow time" if not traced and np.array_equal(passed, times.values) else "flow time / η"
    dataset["time"].attrs["units"] = units
    if traced:
        return dataset
    about = {"long_name": "flow time: sum of the learning rates", "units": "flow time", "symbol": "τ"}
    return dataset.assign_coords(flow_time=labelled(("time",), passed, about))


def _check_curves(dataset: xr.Dataset, unbounded: set[str]) -> None:
    """Refuse curves over time that are not finite, with the place and the most extreme parameter."""
    for name, curve in dataset.data_vars.items():
        if "time" not in curve.dims or isinstance(curve.data, jax.core.Tracer) or curve.dtype.kind != "f":
            continue
        bad = np.isnan(curve.values) if name in unbounded else ~np.isfinite(curve.values)
        if bad.any():
            place = tuple(int(index) for index in np.argwhere(bad)[0])
            time = float(dataset.time.values[place[curve.dims.index("time")]])
            raise ValueError(
                f"{name} is {float(curve.values[place]):g} at time {time:g}, because numbers on the way to it are "
                f"beyond the range of float64 (1e-308 to 1e308): {_remedy(dataset.attrs['parameters'], time)}"
            )


def _remedy(parameters: str, time: float) -> str:
    """Which number to change: the one that is furthest from one."""
    sizes = {"the last time": abs(time)}
    for name, value in json.loads(parameters).items():
        flat = np.ravel(np.array(value, dtype=object))
        found = [abs(number) for number in flat if type(number) in (int, float) and 0 < abs(number) < math.inf]
        if found:
            sizes[name] = max(found, key=_decades)
    worst = max(sizes, key=lambda name: _decades(sizes[name]))
    return f"bring {worst} = {sizes[worst]:g} nearer to 1, or change the units"


def _decades(size: float) -> float:
    """How many powers of ten a size is away from one."""
    return abs(math.log10(size)) if size > 0 else 0.0


def _derived_meaning(name: str, meanings: Mapping[str, Meaning]) -> Meaning | None:
    """What ``<name>_error`` and ``<name>_spread`` are, from what ``<name>`` is."""
    for suffix, text in (("_error", "numerical error of the "), ("_spread", "standard deviation over runs of the ")):
        about = name.removesuffix(suffix)
        if about != name and about in {**VARIABLES, **meanings}:
            of = {**VARIABLES, **meanings}[about]
            return Meaning(text + of.long_name, of.units)
    return None


class Stopwatch:
    """Seconds since it was made; made where work begins, which needs float64."""

    def __init__(self) -> None:
        require_float64()
        self._begin = time.perf_counter()

    def seconds(self) -> float:
        return round(time.perf_counter() - self._begin, 3)


def for_json(value: Any) -> Any:
    """Write short arrays in full; of long arrays, and of schedules, enough to tell them apart.

    Parameters
    ----------
    value
        An array, a schedule, a function or anything with a text.
    """
    if isinstance(value, Schedule):
        rates = {str(step): float(np.asarray(value(step))) for step in (0, 1, 10, 100, 1000, 10_000)}
        return {"schedule": repr(value), "at": rates}
    if not isinstance(value, np.ndarray):
        # A function prints its address, which differs from run to run; its name does not.
        return getattr(value, "__qualname__", None) or str(value)
    if value.size <= _LONGEST_LIST:
        return value.tolist()
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
    return {"shape": list(value.shape), "first": value.ravel()[:3].tolist(), "sha256": digest}


def provenance(
    model: "Model",
    method: str,
    settings: Mapping[str, Any],
    numerical_error: float | None = None,
    *,
    training: Training | None = None,
    error_scale: str = "value",
    system: Mapping[str, Any] | None = None,
) -> dict[str, str | float]:
    """Describe where a dataset came from, in attributes that every file format can hold.

    Public methods of models add ``seconds``, how long they took.

    Parameters
    ----------
    model
        The model, whose parameters are written down.
    method
        ``"theory"``, ``"simulation"``, ``"asymptotic theory"`` or another short description.
    settings
        Options of the solver or of the simulation.
    numerical_error
        Largest numerical error of the variables, relative to each value. Variables ``<name>_error`` say more where
        there are such, and are absolute.
    training
        How the model was trained. Its options are part of the ``system``.
    error_scale
        ``"maximum"`` if the numerical error is relative to the largest value of each variable, for curves that fall to
        zero and are known to an absolute accuracy only.
    system
        What ``parameters`` and ``training`` leave open: the sizes that the numbers are of (``dimension``, ``samples``,
        ...). ``compare`` refuses theory and simulation whose values differ under the same name. None means that theory
        is of the limit in which the value does not matter, such as infinitely many inputs.
    """
    attributes: dict[str, str | float] = {
        "model": model.name,
        "parameters": json.dumps(model.parameters(), default=for_json),
        "method": method,
        "solver": json.dumps(dict(settings), default=str),
        "version": __version__,
        "device": jax.devices()[0].device_kind,
    }
    if model.loss_convention:
        attributes["loss"] = model.loss_convention
    if training is not None:
        described = {"training": type(training).__name__, **training.parameters()}
        attributes["training"] = json.dumps(described, default=for_json)
        system = {**described, **(system or {})}
    if system is not None:
        attributes["system"] = json.dumps(dict(system), default=for_json)
    if numerical_error is not None:
        attributes["numerical_error"] = float(numerical_error)
        attributes["numerical_error_scale"] = error_scale
    return attributes
