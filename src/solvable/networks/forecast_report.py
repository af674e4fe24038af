"""What a kernel at initialisation says of the training to come, for people, plots, tables and files."""

import dataclasses
import functools
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.diagnostics.lines import Lines
from solvable.models.feature_scaling import exponents
from solvable.timegrid import check_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = (*exponents.QUANTITIES, "optimal-features")
_RESAMPLES = 2000
_ONE_SIGMA = (0.1587, 0.8413)


class Interval(NamedTuple):
    """A number and the ends of an interval that holds it with about two chances in three."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f}   ({self.low:.3f} … {self.high:.3f})"


@dataclasses.dataclass(frozen=True, repr=False)
class ForecastReport(Lines):
    """Capacity, source and what follows, with one-sigma errors taken apart by where they come from.

    - ``capacity`` α and ``source`` β: eigenvalues ``λ_k ~ k^-α`` and target power ``~ k^(-αβ-1)`` in the modes
      ``first_mode … last_mode`` and ``power_first_mode … power_last_mode``;
    - ``capacity_errors`` and ``source_errors``: of the *fit*, of the choice of *window*, of the finite *sample*, of the
      *initialisation* (NaN where not measured);
    - ``eigenvalues`` and ``power``, one row a network: λ_k of the kernel of one output over the inputs, and the part of
      the targets' mean square in mode k; ``outside`` is what lies in no mode and is never learned;
    - ``noise``, the share of the mean square that is spread over all modes alike, as noise in the targets is;
    - ``kernel_fluctuation``, how far kernels of single networks are from their mean, relatively;
    - ``output_share``, the mean square of the untrained network's outputs over that of the targets;
    - ``notes`` say in words what to mind.
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
    start: str
    precision: str
    notes: tuple[str, ...] = ()

    @property
    def capacity_error(self) -> float:
        """All errors of the capacity together."""
        return _together(self.capacity_errors)

    @property
    def source_error(self) -> float:
        """All errors of the source together."""
        return _together(self.source_errors)

    @property
    def networks(self) -> int:
        """How many initialisations were measured."""
        return len(self.eigenvalues)

    @property
    def power_law(self) -> bool:
        """Whether the theory has something to say: α > 1 and β > 0."""
        return self.capacity > 1 and self.source > 0

    @property
    def phase(self) -> str | None:
        """Hard (β < 1), easy or super-easy (β > 2 - 1/α) task; None without power law."""
        if not self.power_law:
            return None
        return exponents.PHASES[int(exponents.phase_number(np.asarray(self.capacity), np.asarray(self.source)))]

    @property
    def phase_chances(self) -> dict[str, float]:
        """How likely each phase is, given the errors."""
        if not self.power_law:
            return {}
        numbers = exponents.phase_number(*self._drawn)
        return {name: float(np.mean(numbers == number)) for number, name in enumerate(exponents.PHASES)}

    @property
    def times(self) -> tuple[float, float]:
        """Between which times the fitted modes are learned, ``1 / λ``: before and after, the power law is a guess."""
        if not math.isfinite(self.power_last_mode):
            return math.nan, math.nan
        levels = np.exp(np.log(self.eigenvalues).mean(axis=0))
        places = [min(levels.size, max(1, round(mode))) for mode in (self.power_first_mode, self.power_last_mode)]
        return float(1 / levels[places[0] - 1]), float(1 / levels[places[1] - 1])

    def exponent(self, quantity: str = "time", regime: str = "lazy") -> Interval:
        """The exponent with which the loss falls in ``quantity``, and its one-sigma interval; NaN without power law.

        A source above 0 is enough for ``"time"``; the others need a capacity above 1 too. Quantities are those of
        :meth:`solvable.FeatureScaling.exponents`, of which ``"time"`` and ``"compute"`` matter most, and
        ``"optimal-features"``, the exponent of the best number of features at given compute.
        """
        for name, value, known in (("quantity", quantity, QUANTITIES), ("regime", regime, exponents.REGIMES)):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")
        if not (self.power_law or (quantity == "time" and self.source > 0)):
            return Interval(math.nan, math.nan, math.nan)
        rich = regime == "rich"
        (value,) = _table(np.array([self.capacity]), np.array([self.source]), rich, quantity)
        low, high = np.quantile(_table(*self._drawn, rich, quantity), _ONE_SIGMA)
        return Interval(float(value), min(float(low), float(value)), max(float(high), float(value)))

    @functools.cached_property
    def _drawn(self) -> tuple[np.ndarray, np.ndarray]:
        """Capacities and sources within the errors, where the theory holds."""
        drawn = np.random.default_rng(0).normal(size=(2, _RESAMPLES))
        capacities = self.capacity + _known(self.capacity_error) * drawn[0]
        sources = self.source + _known(self.source_error) * drawn[1]
        return np.maximum(capacities, 1 + 1e-6), np.maximum(sources, 1e-6)

    def lazy_curve(self, times: Any, *, learning_rate: float | None = None) -> xr.Dataset:
        """The loss on these very inputs if the network stays lazy, with nothing fitted: ``sum_k p_k exp(-2 λ_k t)``.

        The loss is the mean over inputs of the squared error, summed over outputs. Time is learning rate times steps
        of gradient descent on *half* of it; on the whole of it (and with ``loss="mse"`` of
        :func:`solvable.networks.train`) a step counts twice. A loss that is a mean over C outputs divides times by C.
        With ``learning_rate`` the steps are finite, ``(1 - η λ_k)^(2 t / η)``, and times should be whole steps.

        Networks of several initialisations give the mean, and their spread (standard deviation).
        """
        times = check_times(times)
        if learning_rate is None:
            faded = np.exp(-2 * self.eigenvalues[:, None] * times[:, None])
        else:
            steps = 2 * times / float(learning_rate)
            if not 0 < learning_rate * self.eigenvalues.max() < 2:
                most = 2 / self.eigenvalues.max()
                raise ValueError(f"learning_rate must be positive and below {most:.3g}, or descent diverges")
            faded = np.abs(1 - learning_rate * self.eigenvalues[:, None]) ** steps[:, None]
        losses = np.sum(self.power[:, None] * faded, axis=-1) + self.outside[:, None]
        spread = losses.std(axis=0, ddof=1) if self.networks > 1 else np.full(times.size, np.nan)
        variables = {
            "train_loss": ("time", losses.mean(axis=0), {"long_name": "training loss, lazy", "units": "1"}),
            "train_loss_spread": ("time", spread, {"long_name": "spread over initialisations", "units": "1"}),
        }
        axis = {"long_name": "learning rate times steps on half the squared error", "units": "1", "symbol": "t"}
        return xr.Dataset(variables, {"time": ("time", times, axis)}, {"method": "tangent kernel", "start": self.start})

    def noting(self, *more: str) -> "ForecastReport":
        """The same report with more notes."""
        return dataclasses.replace(self, notes=(*self.notes, *more))

    def _lines(self) -> list[tuple[str, str]]:
        outputs, networks = (
            f"{count} {name}{'s' * (count > 1)}"
            for count, name in ((self.outputs, "output"), (self.networks, "network"))
        )
        approximated = f" by {self.landmarks} landmarks" if self.landmarks else ""
        lines = [
            ("capacity α", _with_errors(self.capacity, self.capacity_error, self.capacity_errors)),
            ("source β", _with_errors(self.source, self.source_error, self.source_errors)),
            ("fitted modes", _modes(self.first_mode, self.last_mode)),
            ("fitted modes of the power", _modes(self.power_first_mode, self.power_last_mode)),
            ("measured on", f"{self.points} points{approximated}, {outputs}, {networks} of "
             f"{self.parameters} parameters, in {self.precision}"),
        ]  # fmt: skip
        if self.power_law:
            chances = ", ".join(f"{name} {100 * chance:.0f} %" for name, chance in self.phase_chances.items())
            lines.append(("task", f"{self.phase}   ({chances})"))
        for name, quantity in _LINES.items():
            found = [(f"{name}, {regime}", self.exponent(quantity, regime)) for regime in exponents.REGIMES]
            lines += [(text, str(one)) for text, one in found if math.isfinite(one.value)]
        if self.source > 0:
            begin, end = self.times
            lines.append(("times of the fitted modes", f"{begin:.3g} … {end:.3g}   (learning rate times steps)"))
        if not self.power_law:
            lines.append(("no power law", "for want of " + ("a capacity above 1" if self.source > 0 else "a source")))
        if self.noise > 0:
            lines.append(("noise in the targets", f"{100 * self.noise:.2g} % of their mean square"))
        return [*lines, *(("note", note) for note in self.notes)]

    def __repr__(self) -> str:
        return (
            f"ForecastReport(capacity={self.capacity:.3f}±{self.capacity_error:.3f}, source={self.source:.3f}±"
            f"{self.source_error:.3f}, time exponent: lazy={self.exponent().value:.3f}, "
            f"rich={self.exponent('time', 'rich').value:.3f}, notes={len(self.notes)})"
        )

    def to_dataset(self) -> xr.Dataset:
        """Spectra over networks and modes, exponents with their intervals, and the numbers, each with its meaning."""
        found = np.array([[self.exponent(name, regime) for regime in exponents.REGIMES] for name in QUANTITIES])
        variables: dict[str, Any] = {
            "eigenvalue": (("network", "mode"), self.eigenvalues, _meaning("eigenvalue of the kernel", "λ_k")),
            "power": (("network", "mode"), self.power, _meaning("part of the targets' mean square", "p_k")),
            "outside": ("network", self.outside, _meaning("part of the targets' mean square in no mode")),
        }
        for place, name in enumerate(("exponent", "exponent_low", "exponent_high")):
            text = ("exponent of the loss", "lower end of its interval", "upper end of its interval")[place]
            variables[name] = (("quantity", "regime"), found[..., place], _meaning(text))
        for name, (text, symbol) in _SCALARS.items():
            variables[name] = ((), getattr(self, name), _meaning(text, symbol))
        for name in ("capacity", "source"):
            parts = getattr(self, f"{name}_errors")
            variables |= {f"{name}_error_{part}": ((), value, _meaning(f"{name}: error of the {part}"))
                          for part, value in parts.items()}  # fmt: skip
        modes = np.arange(1, self.eigenvalues.shape[1] + 1)
        coordinates = {
            "mode": ("mode", modes, _meaning("mode", "k")),
            "quantity": list(QUANTITIES),
            "regime": list(exponents.REGIMES),
        }
        attributes = {name: getattr(self, name) for name in _ATTRIBUTES if getattr(self, name) is not None}
        attributes |= {"notes": "; ".join(self.notes), "version": __version__}
        return xr.Dataset(variables, coordinates, attributes)

    def to_json(self) -> str:
        """All numbers as JSON text; what is not known is null."""
        content: dict[str, Any] = {
            name: getattr(self, name) for name in (*_SCALARS, "capacity_errors", "source_errors", *_ATTRIBUTES)
        }
        content["power_law"], content["phase_chances"] = self.power_law, self.phase_chances
        content["times"] = self.times
        content["exponents"] = {
            regime: {name: self.exponent(name, regime)._asdict() for name in QUANTITIES} for regime in exponents.REGIMES
        }
        content["notes"] = self.notes
        content |= {name: getattr(self, name).tolist() for name in ("eigenvalues", "power", "outside")}
        return json.dumps(_without_nan(content))

    def plot(self) -> "Figure":
        """Eigenvalues and target power with the fitted laws, and the lazy loss with both forecasts."""
        from solvable.networks.forecast_picture import three_panels

        return three_panels(self)


_LINES = {
    "loss against time": "time",
    "loss against compute": "compute",
    "best size against compute": "optimal-features",
}
_SCALARS: dict[str, tuple[str, str]] = {
    "capacity": ("capacity", "α"),
    "capacity_error": ("error of the capacity", ""),
    "source": ("source", "β"),
    "source_error": ("error of the source", ""),
    "first_mode": ("first mode of the fit of the eigenvalues", ""),
    "last_mode": ("last mode of the fit of the eigenvalues", ""),
    "power_first_mode": ("first mode of the fit of the power", ""),
    "power_last_mode": ("last mode of the fit of the power", ""),
    "scatter": ("scatter of the logarithms of the eigenvalues about their line", ""),
    "bend": ("difference of slope between the halves of the window", ""),
    "noise": ("share of the targets' mean square that is spread over all modes alike", ""),
    "kernel_fluctuation": ("relative distance of a kernel from the mean over initialisations", ""),
    "output_share": ("mean square of the untrained outputs over that of the targets", ""),
}
_ATTRIBUTES = ("phase", "points", "outputs", "networks", "parameters", "landmarks", "start", "precision")


def _table(capacities: np.ndarray, sources: np.ndarray, rich: bool, quantity: str) -> np.ndarray:
    if quantity == "optimal-features":
        pairs = zip(capacities.tolist(), sources.tolist(), strict=True)
        return np.array([exponents.features_share(capacity, source, rich) for capacity, source in pairs])
    return exponents.table(capacities, sources, rich)[quantity]


def _together(errors: dict[str, float]) -> float:
    known = [value for value in errors.values() if math.isfinite(value)]
    return math.sqrt(sum(value**2 for value in known)) if known else math.nan


def _known(error: float) -> float:
    return error if math.isfinite(error) else 0.0


def _with_errors(value: float, error: float, parts: dict[str, float]) -> str:
    if not math.isfinite(value):
        return "not to be told"
    told = ", ".join(f"{name} {part:.3f}" if math.isfinite(part) else f"{name} ?" for name, part in parts.items())
    return f"{value:.3f} ± {error:.3f}   ({told})"


def _modes(first: float, last: float) -> str:
    return f"{first:.0f} … {last:.0f}" if math.isfinite(last) else "none"


def _meaning(text: str, symbol: str = "") -> dict[str, str]:
    return {"long_name": text, "units": "1"} | ({"symbol": symbol} if symbol else {})


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
