"""Whether the best learning rate transfers across widths: the report, with errors, and its verdict in words."""

import dataclasses
import functools
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import t as student

from solvable._version import __version__
from solvable.dataset import Meaning, make_dataset
from solvable.diagnostics.transfer_coordinates import COORDINATE_MEANINGS
from solvable.diagnostics.transfer_statistics import (
    Drift,
    Limit,
    Optimum,
    Penalty,
    find_drift,
    find_limit,
    find_optimum,
    find_penalty,
    usable_range,
)
from solvable.display import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.95
# An interval of the drift that contains zero, and is longer to each side than this many octaves per doubling of the
# width, decides nothing: it may contain the drift of standard parameterisation as well.
_LARGEST_HALF_WIDTH = 0.5
# A best rate that settles as one over the width transfers from where it is this many octaves from its limit.
_NEAR_LIMIT = 0.5
# Fewest widths that tell a drift from a rate that settles, and that show a drift when others lie outside the grid.
_FEWEST_SETTLING, _FEWEST_LOCATED = 4, 3
# Slopes of activations that are smaller than this are small, whatever their error.
_FLAT = 0.1
_MEANINGS = {
    **COORDINATE_MEANINGS,
    "loss": Meaning("final loss", "1", "L"),
    "diverged": Meaning("number of diverged runs", "1"),
    "log2_best_rate": Meaning("binary logarithm of the best learning rate", "1", "log₂ η*"),
    "log2_best_rate_error": Meaning("its standard error, by bootstrap over seeds", "1"),
    "log2_best_rate_curvature_error": Meaning("its standard error, from the parabola's curvature", "1"),
    "status": Meaning("where the minimum lies in the grid", ""),
    "drift": Meaning("octaves of the best rate per doubling of the width", "1"),
    "drift_error": Meaning("its standard error", "1"),
    "chi_square": Meaning("chi-square of the straight line", "1", "χ²"),
    "chi_square_probability": Meaning("probability of a larger chi-square", "1"),
    "penalty": Meaning("relative loss of the widest network at the narrowest's best rate", "1", may_be_infinite=True),
    "penalty_error": Meaning("its standard error", "1"),
    "stable_rate": Meaning("largest stable rate at the start, from the tangent kernel", "1", "2/λ"),
    "parameters": Meaning("number of parameters", "1"),
    "learning_rate": Meaning("learning rate", "1", "η"),
    "log2_limit_rate": Meaning("binary logarithm of the best rate of infinitely wide networks", "1", "log₂ η∞"),
    "limit_coefficient": Meaning("octaves of the narrowest network's best rate above it", "1"),
    "limit_coefficient_error": Meaning("its standard error", "1"),
    "limit_probability": Meaning("probability of a larger chi-square of the line in one over the width", "1"),
}


@dataclasses.dataclass(frozen=True, repr=False)
class TransferReport(Report):
    """Best learning rates over widths, their drift, what it costs, and the coordinate check.

    Parameters
    ----------
    widths, learning_rates
        The grid, both ascending.
    losses
        Final losses, dims (width, learning rate, seed); NaN for runs that diverged.
    parameters
        Number of parameters at each width.
    loss_name
        Which loss it is: ``"test_loss"`` or ``"train_loss"``.
    settings
        What was trained, and how, in words.
    reach
        Octaves on each side of the grid's minimum that the parabola uses.
    coordinates
        The coordinate check: how far the outputs of each layer moved in a few steps. None if it was not made.
    stable_rates
        2 / λ of the tangent kernel at the start, one per width; None if not computed.
    """

    widths: np.ndarray
    learning_rates: np.ndarray
    losses: np.ndarray
    parameters: np.ndarray
    loss_name: str
    settings: dict[str, Any]
    reach: float = 2.0
    coordinates: xr.Dataset | None = None
    stable_rates: np.ndarray | None = None

    @functools.cached_property
    def _found(self) -> tuple[list[Optimum], list[np.ndarray]]:
        with np.errstate(divide="ignore"):
            logs = np.log(self.losses)
        pairs = [find_optimum(np.log2(self.learning_rates), one, self.reach) for one in logs]
        return [one for one, _ in pairs], [drawn for _, drawn in pairs]

    @property
    def seeds(self) -> int:
        """Number of paired seeds."""
        return self.losses.shape[2]

    @property
    def diverged(self) -> np.ndarray:
        """Number of diverged runs, dims (width, learning rate)."""
        return np.asarray(np.isnan(self.losses).sum(axis=2))

    @property
    def optima(self) -> list[Optimum]:
        """The optimum of each width."""
        return self._found[0]

    @functools.cached_property
    def drift(self) -> Drift | None:
        """Octaves of the best rate per doubling of the width, over the widths whose best rate lies in the grid.

        None if it does not for some width, unless the others drift towards that end of the grid.
        """
        located = self._located
        if located.sum() < (2 if located.all() else _FEWEST_LOCATED):
            return None
        drift = find_drift(np.log2(self.widths[located]), *self._found_at(located), self.seeds)
        return drift if located.all() or self._goes_on(drift) else None

    @functools.cached_property
    def limit(self) -> Limit | None:
        """The best rate of infinitely wide networks, if that of finite ones differs from it as one over the width.

        None for fewer than four widths, or if the best rate of some width lies outside the grid. Whether the rates lie
        on this line is what its ``probability`` says.
        """
        located = self._located
        if not located.all() or located.size < _FEWEST_SETTLING:
            return None
        return find_limit(self.widths, *self._found_at(located), self.seeds)

    @property
    def _located(self) -> np.ndarray:
        return np.array([one.is_located for one in self.optima])

    def _found_at(self, chosen: np.ndarray) -> tuple[list[Optimum], np.ndarray]:
        places = np.flatnonzero(chosen)
        return [self.optima[place] for place in places], np.array([self._found[1][place] for place in places])

    def _goes_on(self, drift: Drift) -> bool:
        """Whether widths whose best rate lies outside the grid are where the drift of the others leads."""
        if abs(drift.slope) <= self._factor * drift.error:
            return False
        first, last = np.flatnonzero(self._located)[[0, -1]]
        before, after = ("lower edge", "upper edge") if drift.slope > 0 else ("upper edge", "lower edge")
        for place, one in enumerate(self.optima):
            expected = before if place < first else after if place > last else None
            if not one.is_located and one.status != expected:
                return False
        return True

    @property
    def settles(self) -> bool:
        """Whether the best rate approaches a limit as one over the width, and a line in log2(width) is refused.

        Both by chi-square, at 5 %. At least two widths must be within half an octave of the limit.
        """
        drift, limit = self.drift, self.limit
        if drift is None or limit is None:
            return False
        refused = drift.probability < 1 - LEVEL <= limit.probability
        return bool(refused and (self._from_limit <= _NEAR_LIMIT).sum() > 1)

    @property
    def _from_limit(self) -> np.ndarray:
        """Octaves between the best rate of each width and its limit, by the line in one over the width."""
        assert self.limit is not None
        return np.asarray(np.abs(self.limit.coefficient) * self.widths[0] / self.widths)

    @property
    def transfers_from(self) -> int | None:
        """The narrowest width from which on the best rate transfers; None if it does not, or that cannot be decided."""
        if not self.transfers:
            return None
        return int(self.widths[np.argmax(self._from_limit <= _NEAR_LIMIT)] if self.settles else self.widths[0])

    @functools.cached_property
    def penalty(self) -> Penalty | None:
        """What the narrowest network's best rate costs the widest one; None unless both have an optimum."""
        optima, drawn = self._found
        if not (optima[0].is_located and optima[-1].is_located):
            return None
        ends = (optima[0], optima[-1]), (drawn[0], drawn[-1])
        return find_penalty(np.log2(self.learning_rates), np.log(self.losses[-1]), *ends[0], ends[1])

    @property
    def stable_drift(self) -> float | None:
        """Octaves of the largest stable rate per doubling of the width: what theory says about the start."""
        if self.stable_rates is None:
            return None
        return float(np.polyfit(np.log2(self.widths), np.log2(self.stable_rates), 1)[0])

    @property
    def transfers(self) -> bool | None:
        """Whether the drift is consistent with zero, or the best rate settles; None if that cannot be decided."""
        drift = self.drift
        if drift is None:
            return None
        half_width = self._factor * drift.error
        if abs(drift.slope) > half_width:
            return self.settles
        return True if half_width <= _LARGEST_HALF_WIDTH else None

    @property
    def verdict(self) -> str:
        """The drift in a sentence, and what to do if it cannot be decided."""
        drift = self.drift
        if drift is None:
            return f"cannot be decided: {self._remedies(located=False)[0]}"
        measured = f"{_signed(drift.slope)} ± {drift.error:.2f} octaves per doubling of the width"
        if self.transfers is None:
            return (
                f"cannot be decided: the best rate moved by {measured}; the error is larger than half an octave per "
                f"doubling: use more seeds{', finer rates' if self._remedies(located=True) else ''} or more widths"
            )
        if not self.transfers:
            ends = self.widths[self._located][[0, -1]]
            between = "" if self._located.all() else f" from {ends[0]} to {ends[1]}, and then leaves the grid"
            return f"the best rate moves by {measured}{between}: it does not transfer"
        if abs(drift.slope) <= self._factor * drift.error:
            return f"the best rate moved by {measured}: consistent with transfer"
        assert self.limit is not None
        side = "above" if self.limit.coefficient > 0 else "below"
        away = f"{abs(self.limit.coefficient):.2f} ± {self.limit.error:.2f} octaves {side} its limit"
        return (
            f"the best rate settles as one over the width, from {away} at width {self.widths[0]}: it transfers from "
            f"width {self.transfers_from} on"
        )

    @property
    def coordinate_verdict(self) -> str:
        """The coordinate check in a sentence."""
        if self.coordinates is None:
            return "not made"
        words = []
        for layer, slope, error in self._slopes("slope"):
            if not math.isfinite(slope):
                words.append(f"{layer} did not move in every run")
            elif abs(slope) <= max(_FLAT, self._factor * error):
                words.append(f"{layer} moves alike at all widths ({_signed(slope)} ± {error:.2f})")
            else:
                verb = "more" if slope > 0 else "less"
                words.append(f"{layer} moves {verb} in wider networks ({_signed(slope)} ± {error:.2f})")
        return "; ".join(words)

    @property
    def _factor(self) -> float:
        """Standard errors in half an interval of 95 %: Student's t, as errors come from a few seeds."""
        return float(student.ppf((1 + LEVEL) / 2, self.seeds - 1))

    def _slopes(self, name: str) -> list[tuple[str, float, float]]:
        assert self.coordinates is not None
        found = self.coordinates
        return [
            (str(layer), float(found[name].sel(layer=layer)), float(found[f"{name}_error"].sel(layer=layer)))
            for layer in found.layer.values
        ]

    def _remedies(self, located: bool) -> list[str]:
        """What is wrong with the grid, and the remedy, for each width whose best rate is bracketed, or not located."""
        found = []
        for width, one, logs in zip(self.widths, self.optima, self.losses, strict=True):
            rates = self.learning_rates
            where = f"at width {width} the best rate"
            if one.is_located != located:
                continue
            if one.status == "lower edge":
                found.append(
                    f"{where} lies at the lower edge of the grid, {rates[0]:.3g}: extend the grid to {rates[0] / 8:.3g}"
                )
            elif one.status == "upper edge":
                found.append(
                    f"{where} lies at the upper edge of the grid, {rates[-1]:.3g}: "
                    f"extend the grid to {8 * rates[-1]:.3g}"
                )
            elif one.status == "divergence":
                last = usable_range(logs)[1]
                found.append(
                    f"{where} is the largest at which no run diverged, {rates[last]:.3g}: add rates between it and "
                    f"{rates[last + 1]:.3g}"
                )
            elif one.status == "diverged":
                found.append(
                    f"at width {width} runs diverged at every low rate: extend the grid to {rates[0] / 64:.3g}"
                )
        return found

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("transfer", self.verdict)]
        rows += [("edge of the grid", text) for text in self._remedies(located=False)]
        rows += [("bounded by divergence", text) for text in self._remedies(located=True)]
        penalty = self.penalty
        if penalty is not None:
            rows.append((f"rate of width {self.widths[0]} at width {self.widths[-1]}", self._penalty_text(penalty)))
        for width, one, diverged in zip(self.widths, self.optima, self.diverged, strict=True):
            lost = f", {diverged.sum()} run{'s' if diverged.sum() > 1 else ''} diverged" if diverged.any() else ""
            rows.append((f"best rate at width {width}", _optimum_text(one, self.learning_rates) + lost))
        drift = self.drift
        if drift is not None and drift.freedom:
            bent = "; not straight" if drift.probability < 1 - LEVEL else ""
            chance = f"p = {drift.probability:.2g}{bent}"
            rows.append(("straight line", f"χ² = {drift.chi_square:.1f} for {drift.freedom}   ({chance})"))
        if self.limit is not None:
            rows.append(("line in one over the width", self._limit_text(self.limit)))
        if self.stable_drift is not None:
            rows.append(("drift of the stable rate, in theory", f"{_signed(self.stable_drift)} octaves per doubling"))
        if self.coordinates is not None:
            rows.append(("coordinate check", self.coordinate_verdict))
        trained = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        measured = f"mean log {self.loss_name.replace('_', ' ')} of {self.seeds} paired seeds"
        rows.append(("measured", f"{measured}; {trained}"))
        return rows

    def _limit_text(self, limit: Limit) -> str:
        away = f"width {self.widths[0]} {_signed(limit.coefficient)} ± {limit.error:.2f} octaves from it"
        square = f"χ² = {limit.chi_square:.1f} for {limit.freedom}   (p = {limit.probability:.2g})"
        return f"{square}; limit {2**limit.log2_rate:.3g}, {away}"

    def _penalty_text(self, penalty: Penalty) -> str:
        if math.isinf(penalty.value):
            return "the widest network diverges, or has no rate this large in the grid"
        return f"{100 * penalty.value:+.1f} ± {100 * penalty.error:.1f} % of the loss".replace("-", "−")

    def __repr__(self) -> str:
        return f"TransferReport({self.verdict})"

    def to_dataset(self) -> xr.Dataset:
        """Losses, optima, drift, penalty and coordinate check, with names."""
        optima, drift, penalty = self.optima, self.drift, self.penalty
        variables: dict[str, Any] = {
            "loss": (("width", "learning_rate", "seed"), self.losses),
            "diverged": (("width", "learning_rate"), self.diverged),
            "log2_best_rate": (("width",), [one.log2_rate for one in optima]),
            "log2_best_rate_error": (("width",), [one.error for one in optima]),
            "log2_best_rate_curvature_error": (("width",), [one.curvature_error for one in optima]),
            "status": (("width",), [one.status for one in optima]),
            "parameters": (("width",), self.parameters),
        }
        if drift is not None:
            variables |= {"drift": ((), drift.slope), "drift_error": ((), drift.error)}
            variables |= {"chi_square": ((), drift.chi_square), "chi_square_probability": ((), drift.probability)}
        if self.limit is not None:
            names = ("log2_limit_rate", "limit_coefficient", "limit_coefficient_error")
            values = (self.limit.log2_rate, self.limit.coefficient, self.limit.error)
            variables |= {name: ((), value) for name, value in zip(names, values, strict=True)}
            variables["limit_probability"] = ((), self.limit.probability)
        if penalty is not None:
            variables |= {"penalty": ((), penalty.value), "penalty_error": ((), penalty.error)}
        if self.stable_rates is not None:
            variables["stable_rate"] = (("width",), self.stable_rates)
        coordinates: dict[str, Any] = {
            "width": self.widths,
            "learning_rate": self.learning_rates,
            "seed": np.arange(self.seeds),
        }
        if self.coordinates is not None:
            coordinates["layer"] = self.coordinates.layer.values
            variables |= {str(name): (value.dims, value.values) for name, value in self.coordinates.data_vars.items()}
        attributes = {"verdict": self.verdict, "loss": self.loss_name, "version": __version__}
        attributes |= {name: str(value) for name, value in self.settings.items()}
        return make_dataset(variables, coordinates, attributes, _MEANINGS, may_diverge=True)

    def to_json(self) -> str:
        """The report as a JSON string; numbers that are not finite are null, except that divergence has a status."""
        found: dict[str, Any] = {
            "verdict": self.verdict,
            "transfers": self.transfers,
            "widths": self.widths.tolist(),
            "learning_rates": self.learning_rates.tolist(),
            "seeds": self.seeds,
            "optima": [one._asdict() for one in self.optima],
            "diverged": self.diverged.tolist(),
            "mean_log_loss": np.log(self.losses).mean(axis=2).tolist(),
            "drift": None if self.drift is None else self.drift._asdict(),
            "limit": None if self.limit is None else self.limit._asdict(),
            "transfers_from": self.transfers_from,
            "penalty": None if self.penalty is None else self.penalty._asdict(),
            "stable_rates": None if self.stable_rates is None else self.stable_rates.tolist(),
            "stable_drift": self.stable_drift,
            "settings": {name: str(value) for name, value in self.settings.items()},
        }
        if self.coordinates is not None:
            found["coordinates"] = {
                "steps": self.coordinates.attrs["steps"],
                "learning_rate": self.coordinates.attrs["learning_rate"],
                "slopes": {layer: [slope, error] for layer, slope, error in self._slopes("slope")},
            }
        return json.dumps(_finite(found))

    def plot(self) -> "Figure":
        """Loss against learning rate at every width, and the best rate against the width with theory's stable rate."""
        from solvable.diagnostics.transfer_picture import draw

        return draw(self)


def _optimum_text(one: Optimum, rates: np.ndarray) -> str:
    if not one.is_located:
        return f"not in the grid: {one.status}"
    origin = f"parabola through {one.last - one.first + 1} rates" if one.status == "interior" else "next to divergence"
    return f"{2**one.log2_rate:.3g}   (2^({one.log2_rate:.2f} ± {one.error:.2f}), {origin})"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−").replace("+", "")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
