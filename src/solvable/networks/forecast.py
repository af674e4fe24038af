"""The forecast: how fast a network will learn given data, from its tangent kernel before training."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import numpy as np
import xarray as xr

from solvable.checks import check_choice, check_count
from solvable.diagnostics.batches import to_numpy
from solvable.diagnostics.kernel_measures import kernel_change, spectrum
from solvable.diagnostics.kernels import ntk
from solvable.diagnostics.outputs import Field
from solvable.diagnostics.tangent import check_inputs, network_of, slices
from solvable.networks.forecast_checks import TIME_LIMIT, check_time, forecast_seconds, warnings_of
from solvable.networks.forecast_report import ForecastReport
from solvable.networks.initialisations import Initial, initial_networks
from solvable.networks.mlp import MLP, Centred, layer_kernel
from solvable.networks.spectral_laws import (
    FEWEST_MODES,
    Clearance,
    Estimate,
    Modes,
    Window,
    clearance,
    distance_from,
    estimate,
    last_decade,
    neighbours,
    pairs_of,
    trusted_modes,
)
from solvable.numerics.cost import in_time
from solvable.precision import in_float64
from solvable.progress import Advance, progress_bar, progress_callback

InitialOutputs = Literal["zero", "network"]
FEWEST_POINTS = 20
# Above this many points the kernel is approximated from this many of its columns.
MOST_POINTS, LANDMARKS = 4096, 2048
_SPLITS = 4
# Standard deviation of a Gaussian over its median absolute deviation.
_MEDIAN_TO_DEVIATION = 1.4826
_BATCH_SIZE = 1024


class _Measured(NamedTuple):
    """The kernel of one network, the function that it has to learn, its modes, and the mean square of its outputs."""

    kernel: xr.DataArray
    goal: np.ndarray
    modes: Modes
    output_square: float


class _Fit(NamedTuple):
    """The estimate, the windows of the fits, and the (capacity, source) errors by origin."""

    central: Estimate
    window: Window
    power_window: Window
    clear: Clearance
    errors: dict[str, tuple[float, float]]


@in_float64
def forecast(
    model: Any,
    inputs: Any,
    targets: Any,
    *,
    parameters: Any = None,
    seeds: int | None = None,
    initial_outputs: InitialOutputs = "zero",
    first_mode: int | None = None,
    last_mode: int | None = None,
    landmarks: int | None = None,
    outputs: Literal["trace", "sum"] = "trace",
    dtype: Literal["float32", "float64"] = "float64",
    key: int = 0,
    memory_limit: float | None = None,
    output_field: Field | None = None,
    time_limit: float | None = TIME_LIMIT,
    progress: bool | None = None,
) -> ForecastReport:
    """Forecast how the loss falls with time and compute, from the network's tangent kernel before training.

    The kernel is measured on the inputs and diagonalised, ``lambda_k ~ k^-alpha``, and the targets are projected on its
    modes, which contain the power ``~ k^(-alpha beta - 1)``. Capacity alpha and source beta give the exponents of
    :class:`solvable.FeatureScaling`: the loss falls as ``t^-beta`` in lazy training, and as
    ``t^(-beta max(1, 2/(1+beta)))`` in rich training. The outputs are assumed to learn independently, which holds for
    wide networks.

    Parameters
    ----------
    model
        An Equinox module of one input, a torch module or a JAX function ``apply(parameters, inputs)`` of a batch; or a
        function of ``key``, ``seed`` or nothing that makes one of these (or a pair ``apply, parameters``). Only with
        such a function do the errors include the randomness of initialisation.
    inputs
        The inputs, along the first axis; at least 20. A tuple or a mapping of arrays holds several inputs.
    targets
        Real numbers, one row per input, or integer labels, which become one-hot. Their mean is not subtracted: the
        constant has to be learned as well, mostly in the first mode, which is never fitted.
    parameters
        The parameters of a JAX function.
    seeds
        Number of initialisations that are measured, where ``model`` makes networks; 3 by default.
    initial_outputs
        ``"zero"`` for networks that start at zero, as in mean-field scaling or after
        :func:`solvable.networks.centred`; ``"network"`` forecasts the difference between the targets and the initial
        outputs of the network.
    first_mode, last_mode
        The modes that are fitted; by default the last decade up to a tenth of the points.
    landmarks
        Approximate the kernel from this many of its columns (Nyström); 2048 by default for more than 4096 inputs.
    outputs, memory_limit, output_field
        As in :func:`solvable.diagnostics.ntk`.
    dtype
        Precision of the kernel.
    key
        Random key of initialisations, landmarks and resampling.
    time_limit
        Seconds. The time that the forecast takes is estimated first, and more than this is rejected with advice; None
        for no limit.
    progress
        Whether to show a progress bar, with the estimated time; by default on a terminal.

    >>> import numpy as np
    >>> from solvable.networks import MLP
    >>> from solvable.networks.forecast import forecast
    >>> angle = (np.arange(200) + 0.5) * np.pi / 100
    >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> def network(key):
    ...     return MLP(2, 1, width=256, depth=2, key=key, parameterisation="ntk", bias_scale=0.5)
    >>> report = forecast(network, circle, np.sign(np.sin(angle)), seeds=1)
    >>> report.power_law, report.phase
    (True, 'hard')
    """
    check_choice("initial_outputs", initial_outputs, get_args(InitialOutputs))
    check_choice("outputs", outputs, ("trace", "sum"))
    if time_limit is not None and not (isinstance(time_limit, int | float) and time_limit > 0):
        raise ValueError(f"time_limit must be a positive number of seconds, or None for no limit, not {time_limit!r}")
    _check_modes(first_mode, last_mode)
    inputs = check_inputs("inputs", inputs)
    size = len(inputs)
    if size < FEWEST_POINTS:
        raise ValueError(f"a power law needs more than {size} points: give at least {FEWEST_POINTS}, better 1000")
    if landmarks is None and size > MOST_POINTS:
        landmarks = LANDMARKS
    networks = initial_networks(model, parameters, seeds, key)
    goal = _goal(targets, inputs, networks[0], output_field)
    options = {
        "output_field": output_field,
        "outputs": outputs,
        "landmarks": landmarks,
        "key": key,
        "dtype": dtype,
        "memory_limit": memory_limit,
        "progress": progress,
    }
    gradients = goal.shape[1] if outputs == "trace" else 1
    by_layers = _mlp_of(networks[0], inputs, options) is not None
    cost: dict[str, Any] = {
        "landmarks": landmarks,
        "by_layers": by_layers,
        "dtype": dtype,
        "output_field": output_field,
    }
    seconds = forecast_seconds(networks, inputs, gradients, **cost)
    check_time(seconds, time_limit, size, landmarks, gradients)
    label = f"tangent kernels and spectra, about {in_time(seconds)}"
    with progress_bar(label, len(networks) + 1, progress) as advance:
        measured = []
        for network in networks:
            with _one_unit_of(advance):
                measured.append(_measure(network, inputs, goal, initial_outputs, options))
        fluctuation, width_noise = _width_noise(measured)
        if fluctuation == 0:
            measured = measured[:1]
        fit = _fit(measured, landmarks or size, width_noise, (first_mode, last_mode), key)
        advance()
    output_share = float(np.mean([one.output_square for one in measured])) / _mean_square(goal)
    report = _report(measured, fit, fluctuation, output_share, landmarks, initial_outputs)
    notes = warnings_of(report, networks[0], inputs, len(networks), fit.clear.last, output_field)
    return dataclasses.replace(report, notes=tuple(notes))


@contextmanager
def _one_unit_of(advance: Advance) -> Iterator[None]:
    """Progress of the work inside moves a longer progress bar by one unit."""
    done = 0.0

    def listen(fraction: float) -> None:
        nonlocal done
        if fraction > done:
            advance(fraction - done)
            done = fraction

    with progress_callback(listen):
        yield
    listen(1.0)


def _report(
    measured: list[_Measured],
    fit: _Fit,
    fluctuation: float,
    output_share: float,
    landmarks: int | None,
    initial_outputs: str,
) -> ForecastReport:
    modes = _equal_ranks(measured)
    attrs = measured[0].kernel.attrs
    power = np.array([one.power for one in modes])
    size, outputs = measured[0].goal.shape
    return ForecastReport(
        capacity=fit.central.capacity,
        source=fit.central.source,
        capacity_errors={name: pair[0] for name, pair in fit.errors.items()},
        source_errors={name: pair[1] for name, pair in fit.errors.items()},
        first_mode=fit.window.first,
        last_mode=fit.window.last,
        power_first_mode=fit.power_window.first,
        power_last_mode=fit.power_window.last,
        scatter=fit.central.scatter,
        bend=fit.central.bend,
        eigenvalues=np.array([one.eigenvalues for one in modes]),
        power=power,
        outside=(np.array([_mean_square(one.goal) for one in measured]) - power.sum(axis=1)).clip(0),
        noise=fit.clear.floor * size,
        kernel_fluctuation=fluctuation,
        output_share=output_share,
        points=size,
        outputs=outputs,
        parameters=int(attrs["parameters"]),
        landmarks=landmarks,
        initial_outputs=initial_outputs,
        precision=str(attrs["precision"]),
    )


def _check_modes(first: int | None, last: int | None) -> None:
    for name, value in (("first_mode", first), ("last_mode", last)):
        if value is not None:
            check_count(name, value)
    if first is not None and last is not None and not first < last:
        raise ValueError(f"first_mode must be below last_mode, not {first} and {last}")


def _goal(targets: Any, inputs: Any, network: Initial, field: Field | None) -> np.ndarray:
    """Targets as a matrix of float64, one row per input and one column per output; labels one-hot."""
    array = to_numpy(targets)
    if array.dtype.kind not in "fiub" or array.ndim == 0 or not array.size:
        raise ValueError(f"targets must be numbers or labels for each input, not {array.shape} of {array.dtype}")
    if len(array) != len(inputs):
        raise ValueError(f"there are {len(inputs)} inputs and {len(array)} targets: each input needs one")
    width = network_of(network.model, network.parameters, None, field).outputs(inputs[:1]).shape[1]
    if array.ndim == 1 and array.dtype.kind in "iub":
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= width:
            raise ValueError(
                f"labels must be from 0 to {width - 1}, one for each of the network's {width} outputs, not from {low} "
                f"to {high}: a network of one output needs targets that are real numbers"
            )
        return np.eye(width)[array.astype(int)]
    array = array.reshape(len(array), -1).astype(float)
    if array.shape[1] != width:
        raise ValueError(f"the network has {width} outputs and the targets have {array.shape[1]}: these must be equal")
    if not np.isfinite(array).all():
        raise ValueError(f"targets are not finite in row {int(np.argmin(np.isfinite(array).all(1)))}: leave it out")
    if not array.any():
        raise ValueError("targets are all zero: there is nothing to learn")
    return array


def _mean_square(values: np.ndarray) -> float:
    return float(np.mean(np.sum(values**2, axis=1)))


def _measure(
    network: Initial, inputs: Any, targets: np.ndarray, initial_outputs: str, options: dict[str, Any]
) -> _Measured:
    function = network_of(network.model, network.parameters, options["dtype"], options["output_field"])
    outputs = np.concatenate([function.outputs(inputs[rows]) for rows in slices(len(inputs), _BATCH_SIZE)])
    if not np.isfinite(outputs).all():
        row = int(np.argmin(np.isfinite(outputs).all(axis=1)))
        raise ValueError(f"the network is not finite on input {row}: look for NaN or overflow in inputs and weights")
    mlp = _mlp_of(network, inputs, options)
    if mlp is None:
        kernel = ntk(network.model, inputs, parameters=network.parameters, **options)
    else:
        leaves = jax.tree.leaves(eqx.filter(network.model, eqx.is_inexact_array))
        attrs = {"precision": "float64", "outputs": "trace", "parameters": sum(leaf.size for leaf in leaves)}
        kernel = xr.DataArray(np.asarray(layer_kernel(mlp, inputs)), dims=("input", "other_input"), attrs=attrs)
    # The trace and the sum are those of all outputs together; each output learns by its own kernel.
    factor = targets.shape[1] ** (0.5 if "component" in kernel.dims else 1.0)
    kernel = kernel.copy(data=kernel.values / factor)
    kernel.attrs["parameters"] -= network.constants()
    goal = targets - outputs if initial_outputs == "network" else targets
    return _Measured(kernel, goal, _modes(kernel, goal), _mean_square(outputs))


def _mlp_of(network: Initial, inputs: Any, options: dict[str, Any]) -> MLP | None:
    """The MLP whose kernel can be computed layer by layer, which is faster; None for other networks and kernels."""
    model = network.model.network if isinstance(network.model, Centred) else network.model
    plain = options["outputs"] == "trace" and options["landmarks"] is None and options["dtype"] == "float64"
    possible = plain and isinstance(model, MLP) and model.mask is None and np.ndim(inputs) == 2
    return model if possible else None


def _modes(kernel: xr.DataArray, goal: np.ndarray) -> Modes:
    found = spectrum(kernel, goal)
    eigenvalues = found.spectrum.values
    power = np.sum(found.coefficient.values**2, axis=1)
    if "component" in kernel.dims and kernel.attrs.get("precision") not in (None, "float64"):
        # spectrum() knows the rounding of a kernel; its Nyström factors were also divided by small numbers.
        kept = eigenvalues > 10 * float(np.finfo(np.float32).eps) * eigenvalues[0]
        eigenvalues, power = eigenvalues[kept], power[kept]
    return Modes(eigenvalues, power)


def _equal_ranks(measured: list[_Measured]) -> list[Modes]:
    rank = min(one.modes.power.size for one in measured)
    return [Modes(one.modes.eigenvalues[:rank], one.modes.power[:rank]) for one in measured]


def _width_noise(measured: list[_Measured]) -> tuple[float, float]:
    """The distance of kernels of two networks, ``|dK| / |K|`` over root two, and ``|dK|^2 / (Tr K)^2``, ~ 1/width."""
    if len(measured) == 1:
        return math.nan, 0.0
    pairs = itertools.combinations(measured, 2)
    squares = float(np.mean([kernel_change(a.kernel, b.kernel).distance ** 2 / 2 for a, b in pairs]))
    eigenvalues = measured[0].modes.eigenvalues
    return math.sqrt(squares), squares * float(np.sum(eigenvalues**2) / np.sum(eigenvalues) ** 2)


def _fit(
    measured: list[_Measured], points: int, width_noise: float, asked: tuple[int | None, int | None], key: int
) -> _Fit:
    each = [_normalised(modes, one.goal) for modes, one in zip(_equal_ranks(measured), measured, strict=True)]
    eigenvalues = np.exp(np.mean([np.log(one.eigenvalues) for one in each], axis=0))
    mean = Modes(eigenvalues, np.mean([one.power for one in each], axis=0))
    rank = mean.power.size
    nowhere = Window(math.nan, math.nan)
    if rank < FEWEST_MODES:
        return _Fit(Estimate(math.nan, math.nan), nowhere, nowhere, Clearance(0.0, math.nan), {})
    clear = clearance(mean, points, width_noise)
    trusted = trusted_modes(rank, points)
    window, power_window = (_window(most, *asked) for most in (trusted, min(trusted, clear.last)))

    def at(modes: Modes, window: Window = window, power_window: Window = power_window) -> Estimate:
        return estimate(modes, window, power_window, clear.floor)

    central = at(mean)
    others = neighbours(window, power_window, 2 * trusted)
    errors = {
        "fit": (central.capacity_error, central.source_error),
        "window": distance_from(central, [at(mean, *windows) for windows in others]),
        "sample": _sample_error(measured[0], at, key),
        "initialisation": _initial_error(measured, [at(one) for one in each], at, central),
    }
    return _Fit(central, window, nowhere if math.isnan(central.source) else power_window, clear, errors)


def _window(trusted: float, first: int | None, last: int | None) -> Window:
    window = last_decade(trusted if last is None else float(last))
    return window if first is None else Window(float(first), window.last)


def _normalised(modes: Modes, goal: np.ndarray) -> Modes:
    """The modes with power as a fraction of the mean square."""
    return Modes(modes.eigenvalues, modes.power / _mean_square(goal))


def _sample_error(measured: _Measured, at: Any, key: int) -> tuple[float, float]:
    """From halves of the points: half their difference, for errors ~ 1/√n, and their shift, for biases ~ 1/n."""
    generator = np.random.default_rng(key)
    kernel, goal = measured.kernel, measured.goal
    found = []
    for _ in range(_SPLITS):
        order = generator.permutation(len(goal))
        for half in (order[: len(goal) // 2], order[len(goal) // 2 :]):
            part = kernel.isel({dim: half for dim in kernel.dims if dim != "component"})
            found.append(at(_normalised(_modes(part, goal[half]), goal[half])))
    pairs, whole = pairs_of(found), pairs_of([at(_normalised(measured.modes, goal))])[0]
    # Medians: one half in which a few modes happen to have no power does not represent the error.
    difference = _MEDIAN_TO_DEVIATION * np.median(np.abs(pairs[::2] - pairs[1::2]), axis=0) / 2
    capacity, source = np.hypot(difference, np.median(pairs, axis=0) - whole)
    return float(capacity), float(source)


def _initial_error(measured: list[_Measured], each: list[Estimate], at: Any, central: Estimate) -> tuple[float, float]:
    """The spread between initialisations, and the shift to the mean kernel, which is that of a wider network."""
    count = len(measured)
    if count == 1:
        return math.nan, math.nan
    error = pairs_of(each).std(axis=0, ddof=1) * math.sqrt(1 + 1 / count)
    if "component" not in measured[0].kernel.dims:
        mean = measured[0].kernel.copy(data=np.mean([one.kernel.values for one in measured], axis=0))
        wider = at(_normalised(_modes(mean, measured[0].goal), measured[0].goal))
        # The mean of this many kernels still contains one part of a bias ~ 1/width.
        error = np.hypot(error, (pairs_of([wider]) - pairs_of([central]))[0] * count / (count - 1))
    return float(error[0]), float(error[1])
