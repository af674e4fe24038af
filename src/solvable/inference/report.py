"""The report of an inference: parameters with intervals, what is not determined, curves, forecasts, comparison."""

import dataclasses
import functools
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.display import Report, table
from solvable.inference import prediction
from solvable.inference.discrepancy import Backtest
from solvable.inference.draws import Draws
from solvable.inference.fitting import Fit
from solvable.inference.identifiability import Identifiability
from solvable.inference.misfit import Misfit, residual_rows
from solvable.inference.noise import Noise
from solvable.inference.profiles import LEVELS, Profile
from solvable.inference.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from solvable.training import Training

_ENDS = ("low68", "high68", "low95", "high95")


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class InferenceReport(Report):
    """What training curves say about a law. Made by :func:`solvable.infer`.

    Parameters
    ----------
    fit
        The fit: runs, law, noise and the best point.
    profiles
        Profile likelihood of each fitted number.
    identifiability
        Singular values, sloppy directions and correlations at the optimum.
    misfit
        The test of the residuals against smooth curves that the law cannot follow.
    draws
        Samples of the fitted numbers.
    backtest
        Fits to early parts of the runs, held against the rest.
    unidentified
        What the curves do not determine, and what would determine it, in words.
    warnings
        Warnings.
    noise_kind
        Kind of the noise that was asked for.
    emulator_error
        Largest relative error of the emulator at the optimum, which the solver corrected; 0 without an emulator.
    siblings
        The same as ``backtest`` for finished runs like these; without origins where none were given.
    """

    fit: Fit
    profiles: Mapping[str, Profile]
    identifiability: Identifiability
    misfit: Misfit
    draws: Draws
    backtest: Backtest
    unidentified: tuple[str, ...]
    warnings: tuple[str, ...]
    noise_kind: str
    emulator_error: float = 0.0
    siblings: Backtest = dataclasses.field(default_factory=lambda: Backtest([]))

    @property
    def discrepancy(self) -> float:
        """Relative error of the law per decade of extrapolation: the larger one of these runs' and their siblings'."""
        known = [one.slope for one in (self.backtest, self.siblings) if one.origins]
        return max(known, default=math.nan)

    @property
    def tested_decades(self) -> float:
        """The longest extrapolation, in decades, that was held against later records."""
        return max(self.backtest.reach, self.siblings.reach)

    @property
    def law(self) -> str:
        """Name of the law."""
        return self.fit.problem.law.name

    @property
    def runs(self) -> list[Run]:
        """The runs that were fitted."""
        return self.fit.problem.runs

    @property
    def noise(self) -> Noise:
        """The estimated noise."""
        return self.fit.problem.noise

    @functools.cached_property
    def parameters(self) -> xr.Dataset:
        """Estimates with intervals over ``parameter``, and whether the curves determine each: yes, bound or no."""
        problem = self.fit.problem
        labels = problem.labels
        estimates = self._values(self.fit.best.coordinates, self.fit.best.coefficients)
        ends = np.array([self._ends(number, label) for number, label in enumerate(labels)]).reshape(-1, 4)
        about = {p.name: (p.help, p.unit) for p in problem.law.parameters}
        about |= {term: (problem.law.term_help.get(term, ""), "loss") for term in problem.law.terms}
        texts = [about[label.partition("[")[0]] for label in labels]
        identified = [self.profiles[label].identified if label in self.profiles else "" for label in labels]
        variables: dict[str, Any] = {"estimate": ("parameter", estimates, {"long_name": "estimate", "units": "1"})}
        for number, name in enumerate(_ENDS):
            side = "lower" if name.startswith("low") else "upper"
            text = f"{side} end of the {name[-2:]} % interval"
            variables[name] = ("parameter", ends[:, number], {"long_name": text, "units": "1"})
        variables["identified"] = (
            "parameter",
            np.array(identified, dtype=str),
            {"long_name": "determined", "units": ""},
        )
        variables["unit"] = ("parameter", np.array([unit for _, unit in texts], dtype=str))
        variables["help"] = ("parameter", np.array([text for text, _ in texts], dtype=str))
        attributes = {"law": self.law, "version": __version__, "emulator_error": self.emulator_error}
        return xr.Dataset(variables, {"parameter": np.array(labels, dtype=str)}, attributes)

    def _values(self, coordinates: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        space = self.fit.problem.space
        outward = [one.parameter.outward(x) for one, x in zip(space, coordinates, strict=True)]
        return np.array([*outward, *coefficients])

    def _ends(self, number: int, label: str) -> tuple[float, ...]:
        if self.draws.method == "NUTS":
            values = self.draw_values()[:, number]
            pairs = [np.quantile(values, [(1 - level) / 2, (1 + level) / 2]) for level in LEVELS]
            return tuple(float(end) for pair in pairs for end in pair)
        if label not in self.profiles:
            return (math.nan,) * 4
        one = self.profiles[label]
        return tuple(end for level in range(len(LEVELS)) for end in (one.low.ends[level], one.high.ends[level]))

    def draw_values(self) -> np.ndarray:
        """Draws of all fitted numbers, one row per draw, in the order of ``parameters``."""
        pairs = zip(self.draws.coordinates, self.draws.coefficients, strict=True)
        return np.array([self._values(*pair) for pair in pairs])

    @property
    def correlations(self) -> xr.DataArray:
        """Correlations of the fitted numbers (of logarithms, where a number is fitted as one) at the optimum."""
        labels = np.array(self.identifiability.labels, dtype=str)
        coordinates = {"parameter": labels, "other": labels}
        return xr.DataArray(self.identifiability.correlations, coordinates, ("parameter", "other"), "correlation")

    @property
    def alternatives(self) -> list[dict[str, float]]:
        """Other optima that explain the data as well, as parameters by name."""
        labels = self.fit.problem.labels
        values = [self._values(one.coordinates, one.coefficients).tolist() for one in self.fit.others]
        return [dict(zip(labels, row, strict=True)) for row in values]

    @property
    def residuals(self) -> xr.Dataset:
        """Diagnostics of the residuals of each run, relative to the loss."""
        rows = residual_rows(self.fit)
        names = np.array([run.name for run in self.runs], dtype=str)
        return xr.Dataset({key: ("run", np.array([row[key] for row in rows])) for key in rows[0]}, {"run": names})

    def predict(
        self,
        at: Any,
        *,
        run: str | None = None,
        training: "Training | None" = None,
        sizes: Mapping[str, float] | None = None,
        discrepancy: float | None = None,
    ) -> xr.Dataset:
        """Forecast the loss, with an interval that is split into noise, parameters and discrepancy of the law.

        Parameters
        ----------
        at
            Steps, or a text such as ``"10x"`` for ten times the last step.
        run
            The run to continue; by default the first.
        training
            Another training, whose schedule is followed instead of the run's own.
        sizes
            Sizes that differ from the run's, such as ``{"width": 512}``.
        discrepancy
            Relative error of the law per decade of extrapolation, in place of the one that was measured.

        Returns
        -------
        Dataset
            ``loss`` with the ends of its 68 % and 95 % intervals, and the relative standard deviations ``noise``,
            ``parameters`` and ``discrepancy``, over ``time``.
        """
        return prediction.predict(self, at, run, training, sizes, discrepancy)

    @functools.cached_property
    def curves(self) -> list[xr.Dataset]:
        """The fitted curve of each run at its own steps, with a band and the residuals."""
        return prediction.fitted_curves(self)

    def compare(self, *others: Any) -> xr.Dataset:
        """Compare this law with others by how well fits to early data predict the rest.

        Parameters
        ----------
        *others
            Names of laws, laws or models, as in :func:`solvable.infer`; or reports of the same runs.

        Returns
        -------
        Dataset
            Over ``law``: the mean log score of held-out data (higher is better), the root mean square error of the
            held-out losses, AIC, the number of fitted numbers and the chance of the misfit test. ``attrs["verdict"]``
            says in words which law is preferred, or that the data do not decide.
        """
        from solvable.inference.comparison import compare

        return compare(self, others)

    def _rows(self) -> list[tuple[str, str]]:
        shown = self.parameters
        runs = f"{len(self.runs)} run{'s' if len(self.runs) != 1 else ''}"
        rows = [("law", f"{self.law}, {runs}, {self.fit.problem.points} records")]
        for label in shown.parameter.values:
            one = shown.sel(parameter=label)
            text = f"{float(one.estimate):.4g}"
            if math.isfinite(float(one.low95)):
                text += f"   ({float(one.low95):.4g} … {float(one.high95):.4g}, 95 %)"
            if str(one.identified.values) not in ("", "yes"):
                text += "   NOT DETERMINED" if str(one.identified.values) == "no" else "   ONLY BOUNDED"
            rows.append((str(label), text))
        tail = "Gaussian" if math.isinf(self.noise.freedom) else f"Student-t ({self.noise.freedom:g})"
        rows.append(
            ("noise", f"{100 * self.noise.scale:.2g} % per record, {tail}, correlation {self.noise.correlation:.2f}")
        )
        if self.draws.method == "NUTS":
            text = f"R-hat {self.draws.mixing:.3f}, {self.draws.effective:.0f} effective draws"
            rows.append(("posterior by NUTS", text))
        for label, past in (("discrepancy of the law", self.backtest), ("discrepancy in siblings", self.siblings)):
            if past.origins:
                text = f"{100 * past.slope:.2g} % of the loss per decade"
                rows.append((label, f"{text}   (tested over {past.reach:.1f} decades)"))
        if self.emulator_error:
            rows.append(("emulator", f"corrected by the solver by at most {100 * self.emulator_error:.2g} %"))
        rows += [("not determined", sentence) for sentence in self.unidentified]
        return [*rows, *(("warning", warning) for warning in self.warnings)]

    def __repr__(self) -> str:
        pairs = zip(self.parameters.parameter.values, self.parameters.estimate.values, strict=True)
        values = ", ".join(f"{name}={float(value):.4g}" for name, value in pairs)
        return f"InferenceReport({self.law}: {values}; warnings={len(self.warnings)})"

    def _repr_html_(self) -> str:
        """For notebooks: the parameters, then everything else."""
        shown = self.parameters
        rows = []
        for label in shown.parameter.values:
            one = shown.sel(parameter=label)
            interval = f"{float(one.low95):.4g} … {float(one.high95):.4g}"
            rows.append(
                (label, f"{float(one.estimate):.4g}", interval, str(one.identified.values), str(one.help.values))
            )
        head = ("parameter", "estimate", "95 % interval", "determined", "meaning")
        rest = [row for row in self._rows() if row[0] not in shown.parameter.values]
        return table(f"InferenceReport ({self.law})", head, rows) + table("", (), rest)

    def plot(self, at: Any = "10x") -> "Figure":
        """Draw the curves with fit and forecast, the residuals, and the profile of each parameter.

        Parameters
        ----------
        at
            How far to draw the forecast, as in :meth:`predict`; None for no forecast.
        """
        from solvable.inference.figures import draw_report

        return draw_report(self, at)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as a dataset, without pickles; :meth:`load` reads it.

        Parameters
        ----------
        path
            Where to write, with the extension of a format of :func:`solvable.save`.
        """
        from solvable.files import save
        from solvable.inference.storage import to_dataset

        return save(to_dataset(self), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any = None) -> "InferenceReport":
        """Read a report that :meth:`save` wrote.

        Parameters
        ----------
        path
            The file.
        model
            The law, where it has no name of :func:`solvable.inference.law_names`.
        """
        from solvable.files import load
        from solvable.inference.storage import from_dataset

        return from_dataset(load(path), model)
