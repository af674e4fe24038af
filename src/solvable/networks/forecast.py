"""The forecast: how fast will this network learn these data? From its tangent kernel before training."""

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
from solvable.diagnostics.tangent import batches, check_inputs, network_of
from solvable.networks.forecast_cost import TIME_LIMIT, check_limit, check_time, forecast_seconds, in_words
from solvable.networks.forecast_notes import notes
from solvable.networks.forecast_report import ForecastReport
from solvable.networks.initialisations import Initial, initial_networks
from solvable.networks.layer_kernel import layer_kernel
from solvable.networks.mlp import MLP, Centred
from solvable.networks.spectral_laws import (
    FEWEST_MODES,
    Clearance,
    Estimate,
    Modes,
    Window,
    clearance,
    estimate,
    last_decade,
    neighbours,
    trusted_modes,
)
from solvable.precision import in_float64
from solvable.progress import Advance, progress_bar, progress_callback

Start = Literal["zero", "network"]
FEWEST_POINTS = 20
# Beyond so many points the kernel is approximated from this many of its columns.
MOST_POINTS, LANDMARKS = 4096, 2048
_SPLITS = 4
# Standard deviation over the median size of a Gaussian.
_BY_MEDIAN = 1.4826
_BATCH = 1024


class _Measured(NamedTuple):
    """One network's kernel, what it has to learn, the kernel's modes, and the network's own outputs' mean square."""

    kernel: xr.DataArray
    wanted: np.ndarray
    modes: Modes
    said: float

    @property
    def mean_square(self) -> float:
        return _mean_square(self.wanted)


class _Fit(NamedTuple):
    """What is fitted where, and how far the numbers move for each reason that they could have been others."""

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
    draws: int | None = None,
    start: Start = "zero",
    first: int | None = None,
    last: int | None = None,
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

    The kernel is measured on ``inputs`` and diagonalised, ``lambda_k ~ k^-alpha``, and the targets are projected on its
    modes, which hold the power ``~ k^(-alpha beta - 1)``. Capacity alpha and source beta give the exponents of
    :class:`solvable.FeatureScaling`: lazy training falls as ``t^-beta``, rich as ``t^(-beta max(1, 2/(1+beta)))``.

    ``model`` is an Equinox module of one input, a torch module or a JAX function ``apply(parameters, inputs)`` of a
    batch with its ``parameters``; or a function of ``key``, ``seed`` or nothing that makes one of these (or the pair
    ``apply, parameters``), which is called ``draws`` times (default 3): only then is the chance of initialisation in
    the errors. Targets are real numbers, one row an input, or integer labels, which become one-hot. Their mean is not
    taken out: the constant is a function to be learned as well, mostly in the first mode, which is never fitted.

    ``start="zero"`` is for networks that begin at zero, as in mean-field scaling or after
    :func:`solvable.networks.centred`; ``"network"`` forecasts the difference between the targets and this network's own
    outputs. Modes ``first`` to ``last`` are fitted; by default the last decade up to a tenth of the points. More than
    4096 inputs are approximated by 2048 ``landmarks`` (Nyström). ``outputs`` is as in
    :func:`solvable.diagnostics.ntk`; outputs are taken to learn independently, which holds when the network is wide.
    ``output_field`` chooses where the network returns several arrays, as there.

    The time that this takes is estimated first, and work beyond ``time_limit`` (600 s; None for no limit) is refused
    with advice. ``progress`` says the estimate.

    >>> import numpy as np
    >>> from solvable.networks import MLP
    >>> from solvable.networks.forecast import forecast
    >>> angle = (np.arange(200) + 0.5) * np.pi / 100
    >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> def network(key):
    ...     return MLP(2, 1, width=256, depth=2, key=key, parameterisation="ntk", bias_scale=0.5)
    >>> report = forecast(network, circle, np.sign(np.sin(angle)), draws=1)
    >>> report.power_law, report.phase
    (True, 'hard')
    """
    check_choice("start", start, get_args(Start))
    check_choice("outputs", outputs, ("trace", "sum"))
    check_limit(time_limit)
    _check_modes(first, last)
    inputs = check_inputs("inputs", inputs)
    size = len(inputs)
    if size < FEWEST_POINTS:
        raise ValueError(f"a power law cannot be told from {size} points: give at least {FEWEST_POINTS}, better 1000")
    if landmarks is None and size > MOST_POINTS:
        landmarks = LANDMARKS
    networks = initial_networks(model, parameters, draws, key)
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
    counted = goal.shape[1] if outputs == "trace" else 1
    seconds = forecast_seconds(
        networks,
        inputs,
        counted,
        landmarks=landmarks,
        by_layers=_by_layers_possible(networks[0], inputs, options),
        dtype=dtype,
        output_field=output_field,
    )
    check_time(seconds, time_limit, size, landmarks, counted)
    label = f"tangent kernels and spectra, about {in_words(seconds)}"
    with progress_bar(label, len(networks) + 1, progress) as advance:
        measured = []
        for network in networks:
            with _share_of(advance):
                measured.append(_measure(network, inputs, goal, start, options))
        fluctuation, width_noise = _width_noise(measured)
        if fluctuation == 0:
            measured = measured[:1]
        fit = _fit(measured, landmarks or size, width_noise, (first, last), key)
        advance()
    said = float(np.mean([one.said for one in measured])) / _mean_square(goal)
    report = _report(measured, fit, fluctuation, said, landmarks, start)
    return report.noting(*notes(report, networks[0], inputs, len(networks), fit.clear.last, output_field))


@contextmanager
def _share_of(advance: Advance) -> Iterator[None]:
    """Bars of the work inside move a longer bar by one."""
    done = 0.0

    def heard(share: float) -> None:
        nonlocal done
        if share > done:
            advance(share - done)
            done = share

    with progress_callback(heard):
        yield
    heard(1.0)


def _report(
    measured: list[_Measured], fit: _Fit, fluctuation: float, said: float, landmarks: int | None, start: str
) -> ForecastReport:
    modes = _same_modes(measured)
    attrs = measured[0].kernel.attrs
    power = np.array([one.power for one in modes])
    size, outputs = measured[0].wanted.shape
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
        outside=(np.array([one.mean_square for one in measured]) - power.sum(axis=1)).clip(0),
        noise=fit.clear.floor * size,
        kernel_fluctuation=fluctuation,
        output_share=said,
        points=size,
        outputs=outputs,
        parameters=int(attrs["parameters"]),
        landmarks=landmarks,
        start=start,
        precision=str(attrs["precision"]),
    )


def _check_modes(first: int | None, last: int | None) -> None:
    for name, value in (("first", first), ("last", last)):
        if value is not None:
            check_count(name, value)
    if first is not None and last is not None and not first < last:
        raise ValueError(f"first must be below last, not {first} and {last}")


def _goal(targets: Any, inputs: Any, network: Initial, field: Field | None) -> np.ndarray:
    """Targets as a matrix of float64, one row an input and one column an output; labels one-hot."""
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
                f"to {high}: a network of one output takes targets that are real numbers"
            )
        return np.eye(width)[array.astype(int)]
    array = array.reshape(len(array), -1).astype(float)
    if array.shape[1] != width:
        raise ValueError(f"the network has {width} outputs and the targets have {array.shape[1]}: they must be as many")
    if not np.isfinite(array).all():
        raise ValueError(f"targets are not finite in row {int(np.argmin(np.isfinite(array).all(1)))}: leave it out")
    if not array.any():
        raise ValueError("targets are all zero: there is nothing to learn")
    return array


def _mean_square(values: np.ndarray) -> float:
    return float(np.mean(np.sum(values**2, axis=1)))


def _measure(network: Initial, inputs: Any, goal: np.ndarray, start: str, options: dict[str, Any]) -> _Measured:
    seen = network_of(network.model, network.parameters, options["dtype"], options["output_field"])
    said = np.concatenate([seen.outputs(inputs[row]) for row in batches(len(inputs), _BATCH)])
    if not np.isfinite(said).all():
        row = int(np.argmin(np.isfinite(said).all(axis=1)))
        raise ValueError(f"the network is not finite on input {row}: look for NaN or overflow in inputs and weights")
    if _by_layers_possible(network, inputs, options):
        kernel = _by_layers(network, inputs)
    else:
        kernel = ntk(network.model, inputs, parameters=network.parameters, **options)
    # The trace and the sum are of all outputs together; each one learns by its own kernel.
    share = goal.shape[1] ** (0.5 if "component" in kernel.dims else 1.0)
    kernel = kernel.copy(data=kernel.values / share)
    kernel.attrs["parameters"] -= network.constants()
    wanted = goal - said if start == "network" else goal
    return _Measured(kernel, wanted, _modes(kernel, wanted), _mean_square(said))


def _by_layers_possible(network: Initial, inputs: Any, options: dict[str, Any]) -> bool:
    """Whether it is one of this package's own MLPs, which have a faster way to their kernel."""
    model = network.model.network if isinstance(network.model, Centred) else network.model
    plain = options["outputs"] == "trace" and options["landmarks"] is None and options["dtype"] == "float64"
    return plain and isinstance(model, MLP) and model.mask is None and np.ndim(inputs) == 2


def _by_layers(network: Initial, inputs: Any) -> xr.DataArray:
    model = network.model.network if isinstance(network.model, Centred) else network.model
    leaves = jax.tree.leaves(eqx.filter(network.model, eqx.is_inexact_array))
    attrs = {"precision": "float64", "outputs": "trace", "parameters": sum(leaf.size for leaf in leaves)}
    return xr.DataArray(np.asarray(layer_kernel(model, inputs)), dims=("input", "other_input"), attrs=attrs)


def _modes(kernel: xr.DataArray, wanted: np.ndarray) -> Modes:
    found = spectrum(kernel, wanted)
    eigenvalues = found.spectrum.values
    power = np.sum(found.coefficient.values**2, axis=1)
    if "component" in kernel.dims and kernel.attrs.get("precision") not in (None, "float64"):
        # Of a kernel, spectrum() knows what rounding makes; factors of one are made by dividing by small numbers.
        kept = eigenvalues > 10 * float(np.finfo(np.float32).eps) * eigenvalues[0]
        eigenvalues, power = eigenvalues[kept], power[kept]
    return Modes(eigenvalues, power)


def _same_modes(measured: list[_Measured]) -> list[Modes]:
    kept = min(one.modes.power.size for one in measured)
    return [Modes(one.modes.eigenvalues[:kept], one.modes.power[:kept]) for one in measured]


def _width_noise(measured: list[_Measured]) -> tuple[float, float]:
    """How far kernels of two networks are apart, ``|dK| / |K|`` over root two, and ``|dK|^2 / (Tr K)^2``, ~ 1/width."""
    if len(measured) == 1:
        return math.nan, 0.0
    pairs = itertools.combinations(measured, 2)
    squares = float(np.mean([kernel_change(a.kernel, b.kernel).distance ** 2 / 2 for a, b in pairs]))
    eigenvalues = measured[0].modes.eigenvalues
    return math.sqrt(squares), squares * float(np.sum(eigenvalues**2) / np.sum(eigenvalues) ** 2)


def _fit(
    measured: list[_Measured], points: int, width_noise: float, asked: tuple[int | None, int | None], key: int
) -> _Fit:
    each = [_shares(modes, own.wanted) for modes, own in zip(_same_modes(measured), measured, strict=True)]
    eigenvalues = np.exp(np.mean([np.log(one.eigenvalues) for one in each], axis=0))
    mean = Modes(eigenvalues, np.mean([one.power for one in each], axis=0))
    rank = mean.power.size
    if rank < FEWEST_MODES:
        nowhere = Window(math.nan, math.nan)
        return _Fit(Estimate(math.nan, math.nan), nowhere, nowhere, Clearance(0.0, math.nan), {})
    clear = clearance(mean, points, width_noise)
    trusted = trusted_modes(rank, points)
    window, power_window = (_window(most, *asked) for most in (trusted, min(trusted, clear.last)))

    def at(modes: Modes, own: Window = window, powers: Window = power_window) -> Estimate:
        return estimate(modes, own, powers, clear.floor)

    central = at(mean)
    others = neighbours(window, power_window, 2 * trusted)
    errors = {
        "fit": (central.capacity_error, central.source_error),
        "window": _distance([at(mean, own, powers) for own, powers in others], central),
        "sample": _sample_error(measured[0], at, key),
        "initialisation": _initial_error(measured, [at(one) for one in each], at, central),
    }
    if math.isnan(central.source):
        power_window = Window(math.nan, math.nan)
    return _Fit(central, window, power_window, clear, errors)


def _window(trusted: float, first: int | None, last: int | None) -> Window:
    window = last_decade(trusted if last is None else float(last))
    return window if first is None else Window(float(first), window.last)


def _shares(modes: Modes, wanted: np.ndarray) -> Modes:
    return Modes(modes.eigenvalues, modes.power / _mean_square(wanted))


def _pairs(estimates: list[Estimate]) -> np.ndarray:
    return np.array([(one.capacity, one.source) for one in estimates]).reshape(-1, 2)


def _distance(estimates: list[Estimate], central: Estimate) -> tuple[float, float]:
    """Root mean square distance from the central estimate."""
    away = _pairs(estimates) - _pairs([central])
    known = [column[np.isfinite(column)] for column in away.T]
    capacity, source = (math.sqrt(np.mean(column**2)) if column.size else math.nan for column in known)
    return capacity, source


def _sample_error(measured: _Measured, at: Any, key: int) -> tuple[float, float]:
    """From halves of the points: half their difference, errors being ~ 1/√n, and their shift, biases being ~ 1/n."""
    generator = np.random.default_rng(key)
    kernel, wanted = measured.kernel, measured.wanted
    found = []
    for _ in range(_SPLITS):
        order = generator.permutation(len(wanted))
        for half in (order[: len(wanted) // 2], order[len(wanted) // 2 :]):
            part = kernel.isel({dim: half for dim in kernel.dims if dim != "component"})
            found.append(at(_shares(_modes(part, wanted[half]), wanted[half])))
    pairs, whole = _pairs(found), _pairs([at(_shares(measured.modes, wanted))])[0]
    # Medians: one half in which a few modes happen to have no power is no measure of the error.
    apart = _BY_MEDIAN * np.median(np.abs(pairs[::2] - pairs[1::2]), axis=0) / 2
    capacity, source = np.hypot(apart, np.median(pairs, axis=0) - whole)
    return float(capacity), float(source)


def _initial_error(measured: list[_Measured], each: list[Estimate], at: Any, central: Estimate) -> tuple[float, float]:
    """How far another network would be, and the shift to the mean kernel, which is that of a wider network."""
    count = len(measured)
    if count == 1:
        return math.nan, math.nan
    error = _pairs(each).std(axis=0, ddof=1) * math.sqrt(1 + 1 / count)
    if "component" not in measured[0].kernel.dims:
        mean = measured[0].kernel.copy(data=np.mean([one.kernel.values for one in measured], axis=0))
        wider = at(_shares(_modes(mean, measured[0].wanted), measured[0].wanted))
        # Of a bias that goes as 1/width the mean of so many kernels still has one part.
        error = np.hypot(error, (_pairs([wider]) - _pairs([central]))[0] * count / (count - 1))
    return float(error[0]), float(error[1])
