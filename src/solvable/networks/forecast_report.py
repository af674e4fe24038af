"""The report of a forecast: exponents with errors, summary, dataset and JSON."""

import dataclasses
import functools
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.checks import check_choice
from solvable.dataset import Meaning, make_dataset
from solvable.display import Report
from solvable.models.feature_scaling import exponents
from solvable.timegrid import check_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from solvable.networks.run_forecast_report import RunForecast

QUANTITIES = (*exponents.QUANTITIES, "optimal-features")
_RESAMPLES = 2000
_ONE_SIGMA = (0.1587, 0.8413)
_ROWS = {
    "loss against time": "time",
    "loss against compute": "compute",
    "best size against compute": "optimal-features",
}
_ATTRIBUTES = ("phase", "points", "outputs", "networks", "parameters", "landmarks", "initial_outputs", "precision")
_SCALARS = {
    "capacity": Meaning("capacity", "1", "α"),
    "capacity_error": Meaning("error of the capacity", "1"),
    "source": Meaning("source", "1", "β"),
    "source_error": Meaning("error of the source", "1"),
    "first_mode": Meaning("first mode of the fit of the eigenvalues", "1"),
    "last_mode": Meaning("last mode of the fit of the eigenvalues", "1"),
    "power_first_mode": Meaning("first mode of the fit of the power", "1"),
    "power_last_mode": Meaning("last mode of the fit of the power", "1"),
    "scatter": Meaning("scatter of the logarithms of the eigenvalues about their line", "1"),
    "bend": Meaning("difference of slope between the halves of the window", "1"),
    "noise": Meaning("fraction of the targets' mean square that is equal in all modes", "1"),
    "kernel_fluctuation": Meaning("relative distance of a kernel from the mean over initialisations", "1"),
    "output_share": Meaning("mean square of the untrained outputs over that of the targets", "1"),
}
_MEANINGS = {
    **_SCALARS,
    "eigenvalue": Meaning("eigenvalue of the kernel", "1", "λ_k"),
    "power": Meaning("part of the targets' mean square", "1", "p_k"),
    "outside": Meaning("part of the targets' mean square in no mode", "1"),
    "exponent": Meaning("exponent of the loss", "1"),
    "exponent_low": Meaning("lower end of its interval", "1"),
    "exponent_high": Meaning("upper end of its interval", "1"),
    "mode": Meaning("mode", "1", "k"),
    "quantity": Meaning("quantity in which the loss falls", ""),
    "regime": Meaning("training regime", ""),
    "train_loss": Meaning("training loss, lazy", "1"),
    "train_loss_spread": Meaning("standard deviation over initialisations", "1"),
    "time": Meaning("learning rate times steps on half the squared error", "1", "t"),
}


class Interval(NamedTuple):
    """A number and its one-sigma interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f}   ({self.low:.3f} … {self.high:.3f})"


@dataclasses.dataclass(frozen=True, repr=False)
class ForecastReport(Report):
    """Capacity, source and their consequences, with one-sigma errors by origin.

    Parameters
    ----------
    capacity
        α of the eigenvalues, ``λ_k ~ k^-α``.
    source
        β of the target power, ``~ k^(-αβ-1)``.
    capacity_errors, source_errors
        Errors of the *fit*, of the choice of *window*, of the finite *sample*, and of the *initialisation* (NaN if
        not measured).
    first_mode, last_mode
        Modes between which the capacity was fitted.
    power_first_mode, power_last_mode
        Modes between which the source was fitted.
    scatter
        Scatter of the logarithms of the eigenvalues about their line.
    bend
        Difference of slope between the halves of the window.
    eigenvalues
        λ_k of the kernel of one output over the inputs, one row per network.
    power
        The part of the targets' mean square in mode k, one row per network.
    outside
        The part in no mode, which is never learned.
    noise
        The fraction of the mean square that is equal in all modes, as that of noise in the targets is.
    kernel_fluctuation
        The relative distance of the kernels of single networks from their mean.
    output_share
        The mean square of the untrained network's outputs over that of the targets.
    points
        Number of inputs of the kernel.
    outputs
        Number of outputs of the network.
    parameters
        Number of its parameters.
    landmarks
        Number of landmarks that approximate the kernel; None for the whole kernel.
    initial_outputs
        Whether the targets are those of a network that starts at zero or of this one, as in :func:`forecast`.
    precision
        Floating-point type of the kernel.
    notes
        Warnings.
    """

    capacity: float
    source: float
    capacity_errors: dict[str, float]
    source_errors: dict[str, float]
    first_mode: float
    last_mode: float
    power_first_mode: float
    power_last_mode: float
    scatter: float
    bend: float
    eigenvalues: np.ndarray
    power: np.ndarray
    outside: np.ndarray
    noise: float
    kernel_fluctuation: float
    output_share: float
    points: int
    outputs: int
    parameters: int
    landmarks: int | None
    initial_outputs: str
    precision: str
    notes: tuple[str, ...] = ()

    @property
    def capacity_error(self) -> float:
        """The error of the capacity from all origins."""
        return _total(self.capacity_errors)

    @property
    def source_error(self) -> float:
        """The error of the source from all origins."""
        return _total(self.source_errors)

    @property
    def networks(self) -> int:
        """How many initialisations were measured."""
        return len(self.eigenvalues)

    @property
    def power_law(self) -> bool:
        """Whether the theory applies: α > 1 and β > 0."""
        return self.capacity > 1 and self.source > 0

    @property
    def phase(self) -> str | None:
        """Hard (β < 1), easy or super-easy (β > 2 - 1/α) task; None without a power law."""
        if not self.power_law:
            return None
        return exponents.PHASES[int(exponents.phase_number(np.asarray(self.capacity), np.asarray(self.source)))]

    @property
    def phase_chances(self) -> dict[str, float]:
        """The probability of each phase, given the errors."""
        if not self.power_law:
            return {}
        numbers = exponents.phase_number(*self._resampled)
        return {name: float(np.mean(numbers == number)) for number, name in enumerate(exponents.PHASES)}

    @property
    def times(self) -> tuple[float, float]:
        """The times ``1 / λ`` between which the fitted modes are learned; the power law is extrapolated beyond them."""
        if not math.isfinite(self.power_last_mode):
            return math.nan, math.nan
        levels = np.exp(np.log(self.eigenvalues).mean(axis=0))
        modes = [min(levels.size, max(1, round(mode))) for mode in (self.power_first_mode, self.power_last_mode)]
        return float(1 / levels[modes[0] - 1]), float(1 / levels[modes[1] - 1])

    def exponent(self, quantity: str = "time", regime: str = "lazy") -> Interval:
        """The exponent with which the loss falls, and its one-sigma interval; NaN without a power law.

        Parameters
        ----------
        quantity
            One of the quantities of :meth:`solvable.FeatureScaling.exponents`, such as ``"time"`` (for which a source
            above 0 is enough) and ``"compute"``; or ``"optimal-features"``, for the exponent of the optimal number of
            features at given compute.
        regime
            ``"lazy"`` or ``"rich"``.
        """
        check_choice("quantity", quantity, QUANTITIES)
        check_choice("regime", regime, exponents.REGIMES)
        if not (self.power_law or (quantity == "time" and self.source > 0)):
            return Interval(math.nan, math.nan, math.nan)
        rich = regime == "rich"
        (value,) = _exponents(np.array([self.capacity]), np.array([self.source]), rich, quantity)
        low, high = np.quantile(_exponents(*self._resampled, rich, quantity), _ONE_SIGMA)
        return Interval(float(value), min(float(low), float(value)), max(float(high), float(value)))

    @functools.cached_property
    def _resampled(self) -> tuple[np.ndarray, np.ndarray]:
        """Capacities and sources drawn within their errors, where the theory holds."""
        drawn = np.random.default_rng(0).normal(size=(2, _RESAMPLES))
        errors = [error if math.isfinite(error) else 0.0 for error in (self.capacity_error, self.source_error)]
        capacities, sources = self.capacity + errors[0] * drawn[0], self.source + errors[1] * drawn[1]
        return np.maximum(capacities, 1 + 1e-6), np.maximum(sources, 1e-6)

    def lazy_curve(self, times: Any, *, learning_rate: float | None = None) -> xr.Dataset:
        """The loss on these inputs if the network stays lazy, without any fit: ``sum_k p_k exp(-2 λ_k t)``.

        The loss is the mean over inputs of the squared error, summed over outputs. For networks of several
        initialisations it is the mean, with the standard deviation as ``train_loss_spread``.

        Parameters
        ----------
        times
            Learning rate times steps of gradient descent on *half* of this loss. On the whole of it (and with
            ``loss="mse"`` of :func:`solvable.networks.train`) a step counts twice; a loss that is a mean over C outputs
            divides times by C.
        learning_rate
            Use finite steps, ``(1 - η λ_k)^(2 t / η)``; times should then be whole steps. By default gradient flow.
        """
        times = check_times(times)
        if learning_rate is None:
            decay = np.exp(-2 * self.eigenvalues[:, None] * times[:, None])
        else:
            steps = 2 * times / float(learning_rate)
            if not 0 < learning_rate * self.eigenvalues.max() < 2:
                largest = 2 / self.eigenvalues.max()
                raise ValueError(f"learning_rate must be positive and below {largest:.3g}, or descent diverges")
            decay = np.abs(1 - learning_rate * self.eigenvalues[:, None]) ** steps[:, None]
        losses = np.sum(self.power[:, None] * decay, axis=-1) + self.outside[:, None]
        spread = losses.std(axis=0, ddof=1) if self.networks > 1 else np.full(times.size, np.nan)
        variables = {"train_loss": (("time",), losses.mean(axis=0)), "train_loss_spread": (("time",), spread)}
        attributes = {"method": "tangent kernel", "initial_outputs": self.initial_outputs}
        return make_dataset(variables, {"time": times}, attributes, _MEANINGS)

    def update(self, steps: Any, losses: Any, training: Any, *, loss: str = "half-mse") -> "RunForecast":
        """Learn from the start of a run of this network: does it follow the lazy curve, and where will its loss be?

        See {doc}`/networks/forecast` for how, and for how well: the intervals were measured on trained networks.

        Parameters
        ----------
        steps
            Increasing steps at which the loss on the forecast's inputs was recorded, about evenly in their logarithm.
        losses
            The training loss at each of them.
        training
            How the network is trained: a learning rate, or such as ``GradientDescent(0.1, momentum=0.9)``. In
            mean-field parameterisation the learning rate is the one multiplied by ``learning_rate_scale``.
        loss
            What is minimised and recorded, as a mean over inputs: ``"half-mse"``, half of the squared error summed over
            outputs; ``"mse"``, the squared error averaged over outputs; or ``"squared"``, its sum.

        >>> import numpy as np
        >>> from solvable.networks import MLP, centred
        >>> from solvable.networks.forecast import forecast
        >>> angle = (np.arange(200) + 0.5) * np.pi / 100
        >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> def network(key):
        ...     return centred(MLP(2, 1, width=256, depth=2, key=key, parameterisation="ntk", bias_scale=0.5))
        >>> report = forecast(network, circle, np.sign(np.sin(angle)), seeds=1)
        >>> steps = np.unique(np.round(np.geomspace(1, 300, 50)))
        >>> twice_as_fast = report.lazy_curve(2 * 0.1 * steps).train_loss / 2
        >>> learned = report.update(steps, twice_as_fast, training=0.1)
        >>> learned.is_lazy, round(learned.speed, 1)
        (False, 2.0)
        """
        from solvable.networks.run_forecast import updated

        return updated(self, steps, losses, training, loss)

    @property
    def verdict(self) -> str:
        """Whether the forecast can be trusted, in one sentence."""
        if not self.notes:
            return "Nothing in this kernel speaks against the lazy forecast; whether training stays lazy, a run shows."
        more = f"; {len(self.notes)} warnings in all" if len(self.notes) > 1 else ""
        return f"Read the warnings before the numbers: {self.notes[0].split(': ')[0]}{more}."

    def _rows(self) -> list[tuple[str, str]]:
        outputs, networks = (
            f"{count} {name}{'s' * (count > 1)}"
            for count, name in ((self.outputs, "output"), (self.networks, "network"))
        )
        approximation = f" by {self.landmarks} landmarks" if self.landmarks else ""
        rows = [
            ("capacity α", _with_errors(self.capacity, self.capacity_error, self.capacity_errors)),
            ("source β", _with_errors(self.source, self.source_error, self.source_errors)),
            ("fitted modes", _modes(self.first_mode, self.last_mode)),
            ("fitted modes of the power", _modes(self.power_first_mode, self.power_last_mode)),
            ("measured on", f"{self.points} points{approximation}, {outputs}, {networks} of "
             f"{self.parameters} parameters, in {self.precision}"),
        ]  # fmt: skip
        if self.power_law:
            chances = ", ".join(f"{name} {100 * chance:.0f} %" for name, chance in self.phase_chances.items())
            rows.append(("task", f"{self.phase}   ({chances})"))
        for name, quantity in _ROWS.items():
            found = [(f"{name}, {regime}", self.exponent(quantity, regime)) for regime in exponents.REGIMES]
            rows += [(text, str(one)) for text, one in found if math.isfinite(one.value)]
        if self.source > 0:
            begin, end = self.times
            rows.append(("times of the fitted modes", f"{begin:.3g} … {end:.3g}   (learning rate times steps)"))
        if not self.power_law:
            rows.append(("no power law", "for lack of " + ("a capacity above 1" if self.source > 0 else "a source")))
        if self.noise > 0:
            rows.append(("noise in the targets", f"{100 * self.noise:.2g} % of their mean square"))
        # What speaks against the theory comes first.
        return [("verdict", self.verdict), *(("note", note) for note in self.notes), *rows]

    def __repr__(self) -> str:
        return (
            f"ForecastReport(capacity={self.capacity:.3f}±{self.capacity_error:.3f}, source={self.source:.3f}±"
            f"{self.source_error:.3f}, time exponent: lazy={self.exponent().value:.3f}, "
            f"rich={self.exponent('time', 'rich').value:.3f}, notes={len(self.notes)})"
        )

    def to_dataset(self) -> xr.Dataset:
        """Spectra over networks and modes, exponents with their intervals, and the numbers, with names and symbols."""
        found = np.array([[self.exponent(name, regime) for regime in exponents.REGIMES] for name in QUANTITIES])
        variables: dict[str, Any] = {
            "eigenvalue": (("network", "mode"), self.eigenvalues),
            "power": (("network", "mode"), self.power),
            "outside": (("network",), self.outside),
        }
        for i, name in enumerate(("exponent", "exponent_low", "exponent_high")):
            variables[name] = (("quantity", "regime"), found[..., i])
        variables |= {name: ((), getattr(self, name)) for name in _SCALARS}
        meanings = dict(_MEANINGS)
        for name in ("capacity", "source"):
            for part, value in getattr(self, f"{name}_errors").items():
                variables[f"{name}_error_{part}"] = ((), value)
                meanings[f"{name}_error_{part}"] = Meaning(f"{name}: error of the {part}", "1")
        modes = np.arange(1, self.eigenvalues.shape[1] + 1)
        coordinates = {"mode": modes, "quantity": list(QUANTITIES), "regime": list(exponents.REGIMES)}
        attributes = {name: getattr(self, name) for name in _ATTRIBUTES if getattr(self, name) is not None}
        attributes |= {"notes": "; ".join(self.notes), "version": __version__}
        return make_dataset(variables, coordinates, attributes, meanings)

    def to_json(self) -> str:
        """All numbers as a JSON string; unknown ones are null."""
        names = (*_SCALARS, "capacity_errors", "source_errors", *_ATTRIBUTES, "power_law", "phase_chances", "times")
        content: dict[str, Any] = {name: getattr(self, name) for name in (*names, "notes")}
        content["exponents"] = {
            regime: {name: self.exponent(name, regime)._asdict() for name in QUANTITIES} for regime in exponents.REGIMES
        }
        content |= {name: getattr(self, name).tolist() for name in ("eigenvalues", "power", "outside")}
        return json.dumps(_without_nan(content))

    def plot(self) -> "Figure":
        """Eigenvalues and the targets' power in all weaker modes against k, and the lazy loss with both forecasts."""
        from solvable.networks.forecast_picture import picture

        return picture(self)


def _exponents(capacities: np.ndarray, sources: np.ndarray, rich: bool, quantity: str) -> np.ndarray:
    if quantity == "optimal-features":
        pairs = zip(capacities.tolist(), sources.tolist(), strict=True)
        return np.array([exponents.features_share(capacity, source, rich) for capacity, source in pairs])
    return exponents.table(capacities, sources, rich)[quantity]


def _total(errors: dict[str, float]) -> float:
    known = [value for value in errors.values() if math.isfinite(value)]
    return math.hypot(*known) if known else math.nan


def _with_errors(value: float, error: float, parts: dict[str, float]) -> str:
    if not math.isfinite(value):
        return "unknown"
    listed = ", ".join(f"{name} {part:.3f}" if math.isfinite(part) else f"{name} ?" for name, part in parts.items())
    return f"{value:.3f} ± {error:.3f}   ({listed})"


def _modes(first: float, last: float) -> str:
    return f"{first:.0f} … {last:.0f}" if math.isfinite(last) else "none"


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
