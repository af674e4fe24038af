"""The report of :func:`solvable.diagnostics.stability`."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.diagnostics.lanczos import Density
from solvable.diagnostics.update_rule import UpdateRule
from solvable.display import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Fractions of the edge between which training is called at the edge.
BELOW, ABOVE = 0.9, 1.1
# Relative errors above which the report says that more work is needed.
POOR = 0.05
# The lowest error that is stated, in units of the rounding of the precision.
_ROUNDING = 8
_GRID = 400


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class StabilityReport(Report):
    """The measurements of :func:`stability`.

    Parameters
    ----------
    eigenvalues
        The largest eigenvalues of the Hessian H of the training loss with its coupled weight decay; of
        ``S^(1/2) H S^(1/2)`` where the optimiser multiplies gradients by a diagonal S, as Adam does.
    errors
        Their estimated numerical errors.
    residuals
        An eigenvalue lies within this distance of each of them, up to rounding.
    smallest
        The smallest eigenvalue that was seen; below zero the loss is curved downwards.
    gauss_newton, gauss_newton_errors
        The same for the Gauss-Newton matrix, which leaves out the curvature of the network itself.
    statistical_error
        The standard error of the largest eigenvalue over batches, if these are a sample of more data; None for one.
    rule
        The optimiser; None if no learning rate was given.
    loss, loss_name, gradient_norm
        The training loss, what it is, and the norm of its gradient.
    density
        Nodes of the spectral density, if it was asked for.
    trace, trace_error
        Estimate of the trace and its standard error over probes, if the density was asked for.
    cost, density_cost
        The work of the eigenvalues and of the density, in gradients of the whole training loss.
    samples, batches, parameters
        Numbers of samples, of batches and of trained parameters.
    precision, converted_from
        Floating-point type of the computation, and the half precision that the parameters had, if they did.
    vector
        The sum of the leading eigenvectors, from which a later measurement can start.
    """

    eigenvalues: np.ndarray
    errors: np.ndarray
    residuals: np.ndarray
    smallest: float
    gauss_newton: np.ndarray
    gauss_newton_errors: np.ndarray
    statistical_error: float | None
    rule: UpdateRule | None
    loss: float
    loss_name: str
    gradient_norm: float
    density: Density | None
    trace: float | None
    trace_error: float | None
    cost: float
    density_cost: float
    samples: int
    batches: int
    parameters: int
    precision: str
    converted_from: str
    vector: np.ndarray

    @property
    def sharpness(self) -> float:
        """The largest eigenvalue."""
        return float(self.eigenvalues[0])

    @property
    def error(self) -> float:
        """Its estimated numerical error, at least that of rounding."""
        unit = float(np.finfo(self.precision).eps)
        return max(float(self.errors[0]), _ROUNDING * unit * abs(self.sharpness))

    @property
    def preconditioned(self) -> bool:
        """Whether the curvature is that in the units of an adaptive optimiser."""
        return self.rule is not None and self.rule.scale is not None

    @property
    def edge(self) -> float | None:
        """The largest curvature at which the optimiser is stable; None without a learning rate."""
        return None if self.rule is None else self.rule.edge

    @property
    def edge_fraction(self) -> float | None:
        """The largest eigenvalue over the edge, ``learning_rate * sharpness / 2`` for plain gradient descent."""
        return None if self.rule is None else self.sharpness / self.rule.edge

    @property
    def stable_learning_rate(self) -> float:
        """The largest stable learning rate at this curvature; of plain gradient descent if no rule was given."""
        return (self.rule or UpdateRule(1.0)).stable_learning_rate(self.sharpness)

    @property
    def regime(self) -> str:
        """``"stable"`` below 0.9 of the edge, ``"unstable"`` above 1.1, ``"edge of stability"``, or ``"unknown"``."""
        fraction = self.edge_fraction
        if fraction is None:
            return "unknown"
        return "stable" if fraction < BELOW else "unstable" if fraction > ABOVE else "edge of stability"

    @property
    def verdict(self) -> str:
        """One sentence."""
        which = "preconditioned Hessian" if self.preconditioned else "Hessian"
        measured = f"The largest eigenvalue of the {which} is {number_with_error(self.sharpness, self.error)}"
        if self.sharpness <= 0:
            return f"{measured}: the loss is curved upwards in no direction that was found, and there is no edge."
        if self.rule is None:
            return f"{measured}; gradient descent is stable up to a learning rate of {self.stable_learning_rate:.3g}."
        if self.rule.learning_rate == 0:
            return f"{measured}; {self.rule.describe()} does not move."
        where = {
            "stable": "",
            "edge of stability": ", at the edge of stability",
            "unstable": ", beyond the edge: steps grow along the steepest direction until the curvature falls",
        }[self.regime]
        fraction = 100 * (self.edge_fraction or 0.0)
        shown = f"{fraction:.0f}" if fraction >= 1 else f"{fraction:.2g}"
        edge = f"{self.rule.describe()} is stable up to {_plain(self.rule.edge)}"
        return f"{measured}; {edge}: {shown} % of the edge{where}."

    def _rows(self) -> list[tuple[str, str]]:
        which = "preconditioned Hessian" if self.preconditioned else "Hessian"
        rows = [
            ("verdict", self.verdict),
            (f"eigenvalues of the {which}", _list(self.eigenvalues, self.errors)),
            ("  smallest one seen", f"{self.smallest:.4g}"),
            ("  bound by the residual", ", ".join(f"{value:.2g}" for value in self.residuals)),
            ("eigenvalues of Gauss-Newton", _list(self.gauss_newton, self.gauss_newton_errors)),
        ]
        if self.error > POOR * abs(self.sharpness):
            rows.append(("accuracy", "low, and the largest eigenvalue may be larger: raise budget=, or pass start="))
        if self.statistical_error is not None:
            text = f"± {self.statistical_error:.2g} over {self.batches} batches, if they are a sample of more data"
            rows.append(("statistical error", text))
        rows.append(("stable learning rate", f"{self.stable_learning_rate:.4g}"))
        rows.append(("training loss", f"{self.loss:.4g} ({self.loss_name}), gradient {self.gradient_norm:.3g}"))
        if self.trace is not None and self.trace_error is not None:
            rows.append(("trace", number_with_error(self.trace, self.trace_error)))
        cost = f"{self.cost:.1f} gradients of the training loss"
        rows.append(("cost", cost + (f", and {self.density_cost:.0f} for the density" if self.density_cost else "")))
        half = f" (parameters in {self.converted_from})" if self.converted_from else ""
        on = f"{self.samples} samples, {self.parameters} parameters, in {self.precision}{half}"
        rows.append(("measured on", on))
        return rows

    def __repr__(self) -> str:
        fraction = "" if self.edge_fraction is None else f", {100 * self.edge_fraction:.0f} % of the edge"
        return f"StabilityReport(sharpness={number_with_error(self.sharpness, self.error)}{fraction})"

    def numbers(self) -> dict[str, float]:
        """The numbers that a tracker stores."""
        found = {
            "sharpness": self.sharpness,
            "sharpness_error": self.error,
            "gauss_newton_sharpness": float(self.gauss_newton[0]),
        }
        if self.edge is not None and self.edge_fraction is not None:
            found |= {"edge_of_stability": self.edge, "edge_fraction": self.edge_fraction}
        return found

    def to_dataset(self) -> xr.Dataset:
        """Eigenvalues over ``mode`` with their errors, the edge, and the density over ``eigenvalue`` if measured."""
        units = {"units": "1"}
        both = {"eigenvalue_of_hessian": self.eigenvalues, "eigenvalue_of_hessian_error": self.errors}
        both |= {"eigenvalue_of_hessian_residual": self.residuals, "eigenvalue_of_gauss_newton": self.gauss_newton}
        both |= {"eigenvalue_of_gauss_newton_error": self.gauss_newton_errors}
        longest = max(len(values) for values in both.values())
        variables = {
            name: (
                ("mode",),
                np.append(values, np.full(longest - len(values), np.nan)),
                {"long_name": name.replace("_", " "), **units},
            )
            for name, values in both.items()
        }
        single = {**self.numbers(), "stable_learning_rate": self.stable_learning_rate, "loss": self.loss}
        single |= {"smallest_eigenvalue": self.smallest, "gradient_norm": self.gradient_norm}
        given = {
            "statistical_error": self.statistical_error,
            "trace": self.trace,
            "trace_error": self.trace_error,
        }
        single |= {name: value for name, value in given.items() if value is not None}
        data = xr.Dataset(
            {name: ((), value, {"long_name": name.replace("_", " "), **units}) for name, value in single.items()}
        ).assign({name: xr.Variable(*parts) for name, parts in variables.items()})
        data = data.assign_coords(mode=np.arange(1, longest + 1))
        if self.density is not None:
            grid, width = self._grid()
            mean, error = self.density.on(grid, width)
            data = data.assign_coords(eigenvalue=("eigenvalue", grid, {"long_name": "eigenvalue", **units}))
            data["density"] = ("eigenvalue", mean, {"long_name": "density of eigenvalues", "width": width, **units})
            data["density_error"] = ("eigenvalue", error, {"long_name": "standard error over probes", **units})
        data.attrs = {
            "method": "diagnostics",
            "loss": self.loss_name,
            "preconditioned": int(self.preconditioned),
            "optimizer": "" if self.rule is None else self.rule.describe(),
            "cost": self.cost,
            "samples": self.samples,
            "parameters": self.parameters,
            "precision": self.precision,
            "version": __version__,
        }
        return data

    def _grid(self) -> tuple[np.ndarray, float]:
        """Points at which the density is shown, and the width of the Gaussians that smooth it."""
        assert self.density is not None
        low = min(self.smallest, *(float(nodes[-1]) for nodes in self.density.nodes))
        high = max(self.sharpness, *(float(nodes[0]) for nodes in self.density.nodes))
        width = (high - low) / 100 if high > low else max(abs(high), 1.0) / 100
        return np.linspace(low - 4 * width, high + 4 * width, _GRID), width

    def plot(self) -> "Figure":
        """The eigenvalues with their errors and the edge, and the density of the spectrum if it was measured."""
        from solvable.plotting import COLOURS, new_figure

        figure, panels = new_figure(columns=1 if self.density is None else 2)
        for values, errors, colour, label in (
            (self.eigenvalues, self.errors, COLOURS[0], "Hessian"),
            (self.gauss_newton, self.gauss_newton_errors, COLOURS[1], "Gauss-Newton"),
        ):
            modes = np.arange(1, len(values) + 1)
            panels[0].errorbar(modes, values, errors, fmt="o", color=colour, label=label, capsize=3)
        if self.edge is not None and math.isfinite(self.edge):
            panels[0].axhline(self.edge, color="0.4", linestyle="--", linewidth=1, label="edge of stability")
        name = "eigenvalue, preconditioned" if self.preconditioned else "eigenvalue"
        panels[0].set(xlabel="mode", ylabel=name, xticks=np.arange(1, len(self.eigenvalues) + 1))
        panels[0].legend(fontsize="small")
        if self.density is not None:
            data = self.to_dataset()
            grid, mean, error = (data[name].values for name in ("eigenvalue", "density", "density_error"))
            floor = 1 / (20 * self.parameters * data["density"].attrs["width"])
            low, high = np.maximum(mean - error, floor), np.maximum(mean + error, floor)
            panels[1].fill_between(grid, low, high, color=COLOURS[0], alpha=0.3, label="standard error")
            panels[1].plot(grid, np.maximum(mean, floor), color=COLOURS[0])
            if self.edge is not None and self.edge < 1.5 * grid[-1]:
                panels[1].axvline(self.edge, color="0.4", linestyle="--", linewidth=1, label="edge of stability")
            panels[1].set(yscale="log", xlabel=name, ylabel="density of eigenvalues")
            panels[1].legend(fontsize="small")
        return figure


def number_with_error(value: float, error: float) -> str:
    """A number to the digits that its error allows, with the error.

    >>> number_with_error(41.237, 0.31)
    '41.2 ± 0.3'
    """
    if not (math.isfinite(value) and math.isfinite(error)) or error <= 0:
        return f"{value:.4g}"
    digits = -math.floor(math.log10(error))
    if digits > 6 or abs(value) >= 1e6 or (value and abs(value) < 1e-3):
        return f"{value:.6g} ± {error:.1g}"
    return f"{value:.{max(digits, 0)}f} ± {round(error, digits):.{max(digits, 0)}f}"


def _plain(value: float) -> str:
    """Four digits, and whole numbers below a million in full."""
    return f"{value:.0f}" if 1e4 <= value < 1e6 else f"{value:.4g}"


def _list(values: np.ndarray, errors: np.ndarray) -> str:
    return ", ".join(number_with_error(float(value), float(error)) for value, error in zip(values, errors, strict=True))
