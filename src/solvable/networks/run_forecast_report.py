"""The report of a forecast that has learned from the run: verdict, predictions with intervals, dataset and picture."""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.dataset import Meaning, make_dataset
from solvable.display import Report
from solvable.inference.backtest import LEVELS
from solvable.inference.prediction import steps_of
from solvable.inference.runs import Run
from solvable.networks.forecast_report import ForecastReport
from solvable.networks.run_forecast import Clock, Continuation, weights_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Multiples of the width at which the 68 % and the 95 % interval end, below and above the forecast: conformal on the 239
# networks "joint-3" of docs/results/make/run_forecast.py, at the step ten times the 300 known. The outer tails are
# equal in probability, not in length: networks leave a plateau without notice, and then learn fast. They hold 96.7 %,
# because tasks differ: with a task left out, coverage at 95 % has a standard error of 1.7 % over tasks.
FACTORS = ((0.80, 0.80), (5.73, 1.28))
# The least error per decade, on the same networks with tasks left out: of 0.1 to 0.5, larger ones than this improve the
# interval score by less than 2 %.
LEAST_ERROR = 0.3
# A loss this close to the lazy curve, or within this many errors of it, follows it.
_CLOSE, _ERRORS = 0.05, 3.0
# The last records whose mean is compared with the lazy curve: from this fraction of the last time on.
_LAST = 1 / 1.25
_UNMOVED = 0.05
# Beyond this factor of the time known, nothing was calibrated.
_FAR = 10.0
_WORDS = {
    "loss": Meaning("forecast of the training loss", "1"),
    "lazy_loss": Meaning("loss if the network had stayed lazy", "1"),
    "width": Meaning("relative width of the forecast", "1"),
    "time": Meaning("step", "1"),
    "measured_loss": Meaning("measured training loss", "1"),
    "measured_lazy_loss": Meaning("loss at the same time if the network had stayed lazy", "1"),
    "step": Meaning("step", "1"),
    "weight": Meaning("weight of the continuation", "1"),
    "error_per_decade": Meaning("relative error per decade on the run itself", "1"),
    "continuation": Meaning("continuation of the run", ""),
} | {
    f"{side}{100 * level:.0f}": Meaning(f"{word} end of the {100 * level:.0f} % interval", "1")
    for level in LEVELS
    for side, word in (("low", "lower"), ("high", "upper"))
}


@dataclasses.dataclass(frozen=True, repr=False)
class RunForecast(Report):
    """Whether a run follows its lazy curve, and where its loss will be; from :meth:`ForecastReport.update`.

    Parameters
    ----------
    forecast
        The forecast before training.
    run
        The records, as squared errors over kernel time.
    lazy
        The lazy curve at the records.
    continuations
        The lazy, the steady and the growing continuation, and the power law, each fitted to the run and tested on it.
    speed
        The time in which the initial kernel would reach the last loss, over the time that the run took; infinite where
        it never would.
    loss
        Convention of the losses.
    clock
        How steps become kernel time.
    notes
        Warnings.
    """

    forecast: ForecastReport
    run: Run
    lazy: np.ndarray
    continuations: Mapping[str, Continuation]
    speed: float
    loss: str
    clock: Clock
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def weights(self) -> dict[str, float]:
        """The weight of each continuation in the forecast."""
        return weights_of(self.continuations)

    @property
    def noise(self) -> float:
        """Relative standard deviation of the records about the continuation that fits them best."""
        return min(one.fit.problem.noise.deviation for one in self.continuations.values())

    @functools.cached_property
    def deviation(self) -> tuple[float, float]:
        """The logarithm of the last losses over the lazy curve, and its standard error from the noise."""
        last = self.run.flow_time >= _LAST * self.run.flow_time[-1]
        return float(np.log(self.run.loss / self.lazy)[last].mean()), self.noise / math.sqrt(last.sum())

    @property
    def is_lazy(self) -> bool:
        """Whether the last losses agree with the lazy curve."""
        ratio, error = self.deviation
        return abs(ratio) <= max(_CLOSE, _ERRORS * error)

    @property
    def verdict(self) -> str:
        """Whether the early training followed the lazy curve, in one sentence."""
        ratio, _ = self.deviation
        percent = 100 * abs(math.expm1(ratio))
        begin = f"After {self.run.steps[-1]:g} steps"
        if self.is_lazy:
            if float(np.log(self.lazy[0] / self.lazy[-1])) < _UNMOVED:
                return f"{begin} the network has learned too little to tell whether it follows its lazy curve."
            return (
                f"{begin} this network follows its initial kernel (the loss is within {max(percent, 1):.0f} % of the "
                "lazy curve): the lazy forecast applies so far."
            )
        faster = ratio < 0
        return (
            f"{begin} this network is learning {'faster' if faster else 'more slowly'} than its initial kernel "
            f"{'allows' if faster else 'does'} (the loss is {percent:.0f} % {'below' if faster else 'above'} the lazy "
            "curve): the lazy forecast no longer applies."
        )

    def predict(self, at: Any = "10x") -> xr.Dataset:
        """The loss at later steps, with intervals at 68 % and 95 %.

        Parameters
        ----------
        at
            Increasing steps, or a text such as ``"10x"``: that many times the last step.

        Returns
        -------
        Dataset
            Over ``time``, in steps: ``loss`` in the convention of the records, ``low68``, ``high68``, ``low95``,
            ``high95``, the relative ``width``, and ``lazy_loss`` of the initial kernel.
        """
        steps = steps_of(at, self.run)
        if self.clock.training.counts_steps:
            steps = np.unique(np.round(steps))
        wanted = Run("run", steps, np.full(steps.size, np.nan), flow_time=self.clock.times(steps))
        distance = np.maximum(np.log10(np.maximum(wanted.flow_time, 1e-300) / self.run.flow_time[-1]), 0.0)
        share = np.array(list(self.weights.values()))
        logs = np.log([one.losses(wanted) for one in self.continuations.values()])
        # No continuation rises above where the run is.
        beyond = wanted.flow_time >= (1 - 1e-9) * self.run.flow_time[-1]
        logs[:, beyond] = np.minimum(logs[:, beyond], math.log(self.run.loss[-1]))
        middle = share @ logs
        disagreement = share @ (logs - middle) ** 2
        slope = float(share @ [one.error_per_decade for one in self.continuations.values()])
        width = np.sqrt(self.noise**2 + disagreement + (slope**2 + LEAST_ERROR**2) * distance**2)
        loss = np.exp(middle) / self.clock.scale
        variables: dict[str, Any] = {"loss": loss, "width": width, "lazy_loss": self.lazy_loss(wanted.flow_time)}
        for level, (below, above) in zip(LEVELS, FACTORS, strict=True):
            # Within the records, the width is that of their noise and of the fits.
            variables[f"low{100 * level:.0f}"] = loss * np.exp(-below * width)
            # No interval reaches above the first record: such a run would have diverged.
            top = np.maximum(self.run.loss.max() / self.clock.scale, loss)
            variables[f"high{100 * level:.0f}"] = np.minimum(loss * np.exp(np.minimum(above * width, 600)), top)
        found = {name: (("time",), values) for name, values in variables.items()}
        return make_dataset(found, {"time": steps}, self._attributes(), _WORDS)

    def lazy_loss(self, times: np.ndarray) -> np.ndarray:
        """The lazy curve at kernel times, in the convention of the records.

        Parameters
        ----------
        times
            Kernel times.
        """
        from solvable.networks.run_laws import lazy_losses

        return lazy_losses(self.forecast, times, self.clock.learning_rate) / self.clock.scale

    def _attributes(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "loss": self.loss,
            "last_step": float(self.run.steps[-1]),
            "notes": "; ".join(self.notes),
            "version": __version__,
        }

    def _rows(self) -> list[tuple[str, str]]:
        at = self.predict(f"{_FAR:g}x").isel(time=0)
        tried = ", ".join(
            f"{name} {100 * self.weights[name]:.0f} % (error {one.error_per_decade:.2g} per decade)"
            for name, one in self.continuations.items()
        )
        speed = f"{self.speed:.3g} times that of its initial kernel"
        if not math.isfinite(self.speed):
            speed = f"the initial kernel {'never' if self.speed > 0 else 'starts below and never'} has this loss"
        return [
            ("verdict", self.verdict),
            *(("note", note) for note in self.notes),
            (f"loss at step {float(at.time):g}", f"{float(at.loss):.4g}"),
            *((f"  {100 * level:.0f} % interval", " … ".join(f"{float(at[f'{side}{100 * level:.0f}']):.4g}"
               for side in ("low", "high"))) for level in LEVELS),
            ("  if it had stayed lazy", f"{float(at.lazy_loss):.4g}"),
            ("average speed of learning so far", speed),
            ("continuations", tried),
            ("records", f"{self.run.size} up to step {self.run.steps[-1]:g}, loss {self._measured()[-1]:.4g}"),
        ]  # fmt: skip

    def _measured(self) -> np.ndarray:
        return self.run.loss / self.clock.scale

    def __repr__(self) -> str:
        at = self.predict()
        low, high = (float(at[name][-1]) for name in ("low68", "high68"))
        return (
            f"RunForecast(lazy={self.is_lazy}, loss at step {float(at.time[-1]):g}={float(at.loss[-1]):.4g} "
            f"({low:.4g} … {high:.4g}), notes={len(self.notes)})"
        )

    def to_dataset(self) -> xr.Dataset:
        """Records with the lazy curve, the forecast up to ten times the last step, and the continuations' weights."""
        last = float(self.run.steps[-1])
        ahead = self.predict(np.unique(np.round(np.geomspace(last, _FAR * last, 41))))
        names = list(self.continuations)
        errors = [one.error_per_decade for one in self.continuations.values()]
        variables: dict[str, Any] = {str(name): (("time",), value.values) for name, value in ahead.data_vars.items()}
        variables |= {
            "measured_loss": (("step",), self._measured()),
            "measured_lazy_loss": (("step",), self.lazy / self.clock.scale),
            "weight": (("continuation",), np.array([self.weights[name] for name in names])),
            "error_per_decade": (("continuation",), np.array(errors)),
        }
        coordinates = {"time": ahead.time.values, "step": self.run.steps, "continuation": names}
        return make_dataset(variables, coordinates, self._attributes(), _WORDS)

    def to_json(self) -> str:
        """Verdict, weights, and the forecast at ten times the last step, as a JSON string; unknown numbers are null."""
        at = self.predict().isel(time=0)
        content: dict[str, Any] = {
            "verdict": self.verdict,
            "is_lazy": self.is_lazy,
            "deviation": math.expm1(self.deviation[0]),
            "speed": self.speed if math.isfinite(self.speed) else None,
            "last_step": float(self.run.steps[-1]),
            "forecast": {str(name): float(value) for name, value in at.data_vars.items()} | {"step": float(at.time)},
            "weights": self.weights,
            "notes": self.notes,
        }
        return json.dumps(content)

    def plot(self) -> "Figure":
        """The records, the lazy curve, and the forecast with its intervals, up to ten times the last step."""
        from solvable.plotting import new_figure

        figure, (ax,) = new_figure(1, width=6.4)
        draw(ax, self)
        return figure

    def clock_table(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps and their kernel times, up to ten times the last step."""
        grid = np.unique(np.round(np.geomspace(1, _FAR * self.run.steps[-1], 400)))
        return grid, self.clock.times(grid)


def draw(ax: Any, report: RunForecast) -> None:
    """Draw records, lazy curve and forecast of a run.

    Parameters
    ----------
    ax
        The axes.
    report
        The forecast.
    """
    from solvable.plotting import COLOURS

    data = report.to_dataset()
    times = np.geomspace(float(report.run.steps[0]), float(data.time[-1]), 161)
    lazy = report.lazy_loss(np.interp(times, *report.clock_table()))
    ax.plot(times, lazy, color=COLOURS[0], label="lazy, from the kernel before training")
    for level, strength in zip(LEVELS[::-1], (0.15, 0.35), strict=True):
        ends = (data[f"{side}{100 * level:.0f}"] for side in ("low", "high"))
        label = f"{100 * level:.0f} % interval"
        ax.fill_between(data.time, *ends, color=COLOURS[1], alpha=strength, linewidth=0, label=label)
    ax.plot(data.time, data.loss, color=COLOURS[1], label="forecast")
    ax.plot(data.step, data.measured_loss, "o", color="black", markersize=3, label="records")
    floor = min(float(data.low68.min()), float(data.measured_loss.min())) / 3
    ax.set(xscale="log", yscale="log", xlabel="step", ylabel="training loss", ylim=(floor, None))
    ax.legend(fontsize="small")
