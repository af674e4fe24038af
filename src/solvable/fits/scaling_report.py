"""The report of a scaling law: parameters with intervals, predictions, optimal allocation, comparison, picture."""

import dataclasses
import functools
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import t as student_t

from solvable._version import __version__
from solvable.dataset import Meaning, make_dataset
from solvable.display import Report
from solvable.fits.scaling_allocation import directions, optimal_allocation
from solvable.fits.scaling_objective import NEGLIGIBLE, Law, Robust
from solvable.fits.scaling_table import Table
from solvable.fits.scaling_uncertainty import Backtest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEVELS = (0.68, 0.95)
# Few origins are independent: quantiles of Student's t with four degrees of freedom replace Gaussian ones.
_FACTORS = tuple(float(student_t.ppf((1 + level) / 2, 4)) for level in _LEVELS)
# Without a known discrepancy there is no interval beyond this multiple of the largest compute.
_FURTHEST = 3.0
_REUSE_DRAWS = 200
_SYMBOLS = {"parameters": "N", "tokens": "D", "compute": "C"}
_MEANINGS = {
    "estimate": Meaning("estimate", "1"),
    "standard_error": Meaning("standard error", "1"),
    "loss": Meaning("predicted loss", "1", "L"),
    "noise": Meaning("relative standard deviation from noise of single runs", "1"),
    "parameter_error": Meaning("relative standard deviation from the parameters", "1"),
    "discrepancy": Meaning("relative standard deviation from the discrepancy of the law", "1"),
    "optimal_parameters": Meaning("optimal number of parameters", "1", "N*"),
    "optimal_tokens": Meaning("optimal number of tokens", "1", "D*"),
    "parameter": Meaning("parameter", ""),
    "run": Meaning("run", "1"),
    "budget": Meaning("compute", "FLOP", "C"),
    "parameters": Meaning("parameters", "1", "N"),
    "tokens": Meaning("tokens", "1", "D"),
    "compute": Meaning("compute", "FLOP", "C"),
    "unique_tokens": Meaning("unique tokens", "1", "U"),
    **{
        f"{of}{side}{round(100 * level)}": Meaning(f"{word} end of a {100 * level:.0f} % interval of the {text}", "1")
        for of, text in (
            ("", "value"),
            ("loss_", "loss"),
            ("optimal_parameters_", "optimal parameters"),
            ("optimal_tokens_", "optimal tokens"),
        )
        for side, word in (("low", "lower"), ("high", "upper"))
        for level in _LEVELS
    },
}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ScalingLawReport(Report):
    """A scaling law fitted to a table of runs, with its errors; made by :func:`solvable.fits.scaling_law`.

    Parameters
    ----------
    table
        The runs.
    theta
        Best parameters in centred coordinates: logarithms of the terms at the pivot, then exponents.
    scale
        Scale of the residuals of the logarithm of the loss.
    objective
        The objective at the optimum.
    residuals
        Logarithm of the measured over the fitted loss, for every run.
    draws
        Parameters of resampled fits, in centred coordinates, ``[draw, parameter]``.
    intervals
        Where intervals come from: ``"bootstrap"``, ``"profile"`` or ``"sandwich"``.
    robust
        The loss of the residuals.
    profiles
        Profile intervals of parameters, in their logarithms for E, A and B.
    backtest
        Errors beyond rolling origins; None if the table is too small.
    discrepancy
        Relative error of the law per decade of compute beyond the data; None if unknown.
    notes
        Warnings, and what was guessed.
    """

    table: Table
    theta: np.ndarray
    scale: float
    objective: float
    residuals: np.ndarray
    draws: np.ndarray
    intervals: str
    robust: Robust
    profiles: Mapping[str, tuple[tuple[float, float], ...]]
    backtest: Backtest | None
    discrepancy: float | None
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(directions(self.table))

    def __getitem__(self, name: str) -> float:
        if name not in self.names:
            raise KeyError(f"{name!r} is not a parameter of this law; it has {', '.join(self.names)}")
        return float(self._natural(name, self.theta))

    def _natural(self, name: str, theta: np.ndarray) -> Any:
        value = theta @ directions(self.table)[name]
        return value if name in self.table.form.exponents else np.exp(value)

    @functools.cached_property
    def parameters(self) -> xr.Dataset:
        """Every parameter with its standard error, intervals, and whether the data determine it."""
        rows = {name: self._row(name) for name in self.names}
        fields = list(next(iter(rows.values())))
        variables = {field: (("parameter",), np.array([row[field] for row in rows.values()])) for field in fields}
        meanings = {**_MEANINGS, "identified": Meaning("whether the data determine it: yes, bound or no", "")}
        attributes = {"form": self.table.form.name, "intervals": self.intervals, "version": __version__}
        return make_dataset(variables, {"parameter": list(rows)}, attributes, meanings)

    def _row(self, name: str) -> dict[str, Any]:
        drawn = self._natural(name, self.draws)
        row: dict[str, Any] = {"estimate": self[name], "standard_error": float(drawn.std(ddof=1))}
        for number, level in enumerate(_LEVELS):
            if name in self.profiles:
                ends = self.profiles[name][number]
                low, high = ends if name in self.table.form.exponents else np.exp(ends)
            else:
                low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
            row |= {f"low{round(100 * level)}": float(low), f"high{round(100 * level)}": float(high)}
        smallest = NEGLIGIBLE * float(self.table.loss.min())
        if name in self.table.form.exponents:
            low_open, high_open = row["low95"] < 0, not math.isfinite(row["high95"])
        else:
            low_open, high_open = row["low95"] < smallest, not row["high95"] < np.inf
        row["identified"] = "no" if low_open and high_open else "bound" if low_open or high_open else "yes"
        return row

    def predict(
        self, parameters: Any = None, tokens: Any = None, *, compute: Any = None, unique_tokens: Any = None
    ) -> xr.Dataset:
        """Predict the loss of other runs, with 68 % and 95 % intervals and what they are made of.

        Parameters
        ----------
        parameters
            Numbers of parameters N.
        tokens
            Numbers of training tokens D.
        compute
            Compute C, in place of one of these two, or alone: then the compute-optimal run is predicted.
        unique_tokens
            Unique tokens U of a law of data reuse; by default none is repeated.

        Returns
        -------
        Dataset
            ``loss`` with intervals, and the relative standard deviations from ``noise`` of a single run, from the
            parameters (``parameter_error``), and from the ``discrepancy`` of the law beyond the data.
        """
        values = self._runs(parameters, tokens, compute, unique_tokens)
        law = Law(self.table.form, self.table.at(values))
        centre = law.logs(self.theta)
        drawn = np.array([law.logs(theta) for theta in self.draws])
        # The median absolute deviation is not ruled by single resamples that run away.
        spread = np.median(np.abs(drawn - centre), axis=0) / 0.6745
        distance = self._distance(values)
        unknown = (self.discrepancy is None) & (distance > math.log10(_FURTHEST))
        drift = (self.discrepancy or 0.0) * distance
        width = np.sqrt(self.scale**2 + spread**2 + drift**2)
        variables: dict[str, Any] = {"loss": np.exp(centre)}
        for factor, level in zip(_FACTORS, _LEVELS, strict=True):
            for side, sign in (("low", -1), ("high", 1)):
                end = np.exp(centre + sign * factor * width)
                variables[f"loss_{side}{round(100 * level)}"] = np.where(unknown, 0.0 if sign < 0 else np.inf, end)
        shares = {"noise": np.full(width.shape, self.scale), "parameter_error": spread, "discrepancy": drift}
        variables |= shares | values
        if unknown.any():
            warnings.warn(
                f"the prediction at {10 ** distance.max():.3g} times the largest compute of the table has no finite "
                "interval, because the discrepancy of the law is unknown: pass discrepancy= per decade to state it",
                stacklevel=2,
            )
        count = np.arange(centre.size)
        attributes = {"form": self.table.form.name, "method": "scaling law", "version": __version__}
        return make_dataset(
            {name: (("run",), value) for name, value in variables.items()}, {"run": count}, attributes, _MEANINGS
        )

    def _runs(self, parameters: Any, tokens: Any, compute: Any, unique: Any) -> dict[str, np.ndarray]:
        """The quantities of the runs to predict, as arrays of one shape."""
        form, flops = self.table.form, self.table.flops
        given = {"parameters": parameters, "tokens": tokens, "compute": compute}
        known = {name: _positive(name, value) for name, value in given.items() if value is not None}
        if form.name == "compute":
            if "compute" not in known and len(known) == 2:
                known["compute"] = flops * known["parameters"] * known["tokens"]
            if "compute" not in known:
                raise ValueError("a law in compute predicts from compute=, or from parameters and tokens")
        elif list(known) == ["compute"]:
            best = optimal_allocation(self.table, self.theta, np.atleast_1d(known["compute"]))
            known["parameters"], known["tokens"] = best[:2]
        elif len(known) == 2:
            if "tokens" not in known:
                known["tokens"] = known["compute"] / (flops * known["parameters"])
            elif "parameters" not in known:
                known["parameters"] = known["compute"] / (flops * known["tokens"])
            known["compute"] = flops * known["parameters"] * known["tokens"]
        else:
            raise ValueError(f"predict needs two of parameters, tokens and compute, or compute alone, not {len(known)}")
        if form.reuse:
            known["unique_tokens"] = known["tokens"] if unique is None else _positive("unique_tokens", unique)
            if (np.asarray(known["unique_tokens"]) > known["tokens"]).any():
                raise ValueError("unique_tokens must not exceed tokens: a token is seen once or more")
        arrays = np.broadcast_arrays(*(np.atleast_1d(value) for value in known.values()))
        return {name: np.asarray(array, float).ravel() for name, array in zip(known, arrays, strict=True)}

    def _distance(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Decades beyond the largest compute of the table; without compute, beyond the largest of each quantity."""
        name = "compute" if "compute" in self.table.values else self.table.form.quantities[0]
        return np.maximum(0.0, np.log10(values[name] / self.table.values[name].max()))

    def compute_optimal(self, budgets: Any, *, unique_tokens: float | None = None) -> xr.Dataset:
        """Divide a budget of compute optimally between parameters and tokens, with intervals of both and of the loss.

        Parameters
        ----------
        budgets
            Compute in floating-point operations; ``C = 6 N D``.
        unique_tokens
            For a law of data reuse, how many unique tokens there are; by default as many as are used.

        Returns
        -------
        Dataset
            ``optimal_parameters``, ``optimal_tokens`` and ``loss`` over ``budget``, with 68 % and 95 % intervals.
        """
        if self.table.form.name == "compute":
            raise ValueError("a law in compute alone does not know how to divide it: fit form='parameters-tokens'")
        budgets = np.atleast_1d(_positive("budgets", budgets)).ravel()
        if unique_tokens is not None and not self.table.form.reuse:
            raise ValueError("unique_tokens matters to form='data-reuse' only: fit that form, or leave it out")

        def optimum(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            return optimal_allocation(self.table, theta, budgets, unique_tokens)

        terms = int(self.table.form.floor) + len(self.table.form.powers)
        usable = (self.draws[:, terms : terms + len(self.table.form.exponents)] > 0).all(1)
        # With repeated data every draw is a search of its own.
        chosen = self.draws[usable][: None if unique_tokens is None else _REUSE_DRAWS]
        drawn = [optimum(theta) for theta in chosen]
        best = optimum(self.theta)
        variables: dict[str, Any] = {}
        for place, name in enumerate(("optimal_parameters", "optimal_tokens")):
            values = np.array([one[place] for one in drawn])
            variables[name] = best[place]
            for level in _LEVELS:
                low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
                variables |= {f"{name}_low{round(100 * level)}": low, f"{name}_high{round(100 * level)}": high}
        unique = {} if unique_tokens is None else {"unique_tokens": np.minimum(unique_tokens, best[1])}
        predicted = self.predict(best[0], best[1], **unique)
        names = ["loss", *(f"loss_{side}{round(100 * level)}" for level in _LEVELS for side in ("low", "high"))]
        variables |= {name: predicted[name].values for name in names}
        attributes = {"form": self.table.form.name, "flops": self.table.flops, "version": __version__}
        return make_dataset(
            {name: (("budget",), value) for name, value in variables.items()},
            {"budget": budgets},
            attributes,
            _MEANINGS,
        )

    def compare(self, forms: Sequence[str] = ("equal-exponents", "without-floor", "compute")) -> xr.Dataset:
        """Compare with other forms of the law by how well they predict runs of larger compute.

        Parameters
        ----------
        forms
            Names of other forms, as in :func:`solvable.fits.scaling_law`.

        Returns
        -------
        Dataset
            Over ``form``: the expected log score of runs beyond rolling origins (``score``, higher is better) with the
            error of its difference from the best, the root-mean-square error there, and AIC and BIC, which do not
            decide. ``verdict`` says "best", "undecided" (within two errors of the best) or "worse".
        """
        from solvable.fits.scaling_comparison import compare_forms

        return compare_forms(self.table, self.robust, (self.table.form.name, *forms))

    def _rows(self) -> list[tuple[str, str]]:
        symbols = ", ".join(f"{_SYMBOLS[name]} = {name}" for name in self.table.form.quantities)
        rows = [("law", f"{self.table.form.formula}   ({symbols})")]
        for name in self.names:
            row = self._row(name)
            ends = f"95 %: {row['low95']:.4g} … {row['high95']:.4g}"
            text = f"{row['estimate']:.5g} ± {row['standard_error']:.2g}   ({ends})"
            rows.append(
                (name, text + ("" if row["identified"] == "yes" else f"   not determined: {row['identified']}"))
            )
        rows.append(
            ("fitted to", f"{self.table.loss.size} runs, {self.intervals} intervals, robust={self.robust.kind}")
        )
        rows.append(("residuals", f"{100 * self.scale:.2g} % of the loss"))
        if self.discrepancy is not None:
            source = "stated" if self.backtest is None else f"{self.backtest.error.size} predictions beyond an origin"
            rows.append(("discrepancy per decade", f"{100 * self.discrepancy:.2g} % of the loss   ({source})"))
        if self.table.form.name != "compute" and "compute" in self.table.values:
            budget = 10 * float(self.table.values["compute"].max())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                best = self.compute_optimal(budget).isel(budget=0)
            rows.append(
                ("best run at ten times the compute", f"C = {budget:.3g}: N = {float(best.optimal_parameters):.3g} "
                 f"({float(best.optimal_parameters_low95):.2g} … {float(best.optimal_parameters_high95):.2g}), "
                 f"loss {float(best.loss):.4g} ({float(best.loss_low95):.4g} … {float(best.loss_high95):.4g})")
            )  # fmt: skip
        return [*rows, *(("note", note) for note in self.notes)]

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={self[name]:.4g}" for name in self.names)
        return (
            f"ScalingLawReport({self.table.form.name}: {numbers}, runs={self.table.loss.size}, notes={len(self.notes)})"
        )

    def to_dataset(self) -> xr.Dataset:
        """Everything that :meth:`save` keeps: runs, residuals, draws, intervals and errors beyond rolling origins."""
        from solvable.fits.scaling_files import to_dataset

        return to_dataset(self)

    def to_json(self) -> str:
        """Parameters with intervals, notes and the fit, as a JSON string; infinite and unknown numbers are null."""

        def plain(value: Any) -> Any:
            return None if isinstance(value, float) and not math.isfinite(value) else value

        rows = {name: {key: plain(value) for key, value in self._row(name).items()} for name in self.names}
        content = {
            "form": self.table.form.name,
            "formula": self.table.form.formula,
            "runs": int(self.table.loss.size),
            "parameters": rows,
            "scale": self.scale,
            "objective": self.objective,
            "intervals": self.intervals,
            "discrepancy_per_decade": self.discrepancy,
            "notes": list(self.notes),
        }
        return json.dumps(content)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report atomically; :meth:`load` restores it.

        Parameters
        ----------
        path
            Where to write, ``.nc``, ``.zarr``, ``.npz`` or ``.csv``.
        """
        from solvable.files import save

        return save(self.to_dataset(), path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "ScalingLawReport":
        """Read a report that :meth:`save` wrote.

        Parameters
        ----------
        path
            The file.
        """
        from solvable.files import load
        from solvable.fits.scaling_files import from_dataset

        return from_dataset(load(path), str(path))

    def plot(self) -> "Figure":
        """Losses over compute with the forecast and its interval, residuals, and draws of the exponents."""
        from solvable.fits.scaling_picture import draw

        return draw(self)


def _positive(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value, float)
    if array.size == 0 or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"{name} must be positive and finite, not {value!r}")
    return array
