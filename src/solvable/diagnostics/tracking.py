"""Feature metrics during training: the base class of the trackers for PyTorch and Equinox."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.diagnostics.collapse import collapse as measure_collapse
from solvable.diagnostics.features import features
from solvable.diagnostics.logs import log_of
from solvable.diagnostics.report import FeatureReport
from solvable.diagnostics.stability import options_of
from solvable.diagnostics.stability_report import StabilityReport
from solvable.diagnostics.statistics import FeatureStatistics
from solvable.diagnostics.update_rule import NoStepYetError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SPECTRA = ("intensity", "quality", "utilisation")
_COLLAPSE = {
    "within_class": ("within-class over between-class variance", "NC1"),
    "mean_norms": ("spread of the norms of the class means", "NC2"),
    "mean_angles": ("distance of the class means from a simplex", "NC2"),
    "self_duality": ("distance of the weights from the class means", "NC3"),
}


_STABILITY = {
    "sharpness": ("largest eigenvalue of the Hessian", "λ_max"),
    "sharpness_error": ("numerical error of the largest eigenvalue", ""),
    "gauss_newton_sharpness": ("largest eigenvalue of the Gauss-Newton matrix", "λ_GN"),
    "edge_of_stability": ("largest stable curvature", ""),
    "edge_fraction": ("largest eigenvalue over the edge of stability", ""),
}


class History:
    """Reports during training, collected in one labelled dataset, and written to a log."""

    def __init__(self, stability: Any = None, log: Any = None) -> None:
        self._measurements: list[xr.Dataset] = []
        self._stability, self._log = stability, log_of(log)
        self._last_stability: StabilityReport | None = None
        if not callable(stability):
            options_of(stability)

    @property
    def stability(self) -> StabilityReport | None:
        """The latest report of stability, if it is measured."""
        return self._last_stability

    def _measure_stability(self, measure: Callable[..., StabilityReport]) -> StabilityReport | None:
        """The stability now, which starts from the eigenvectors of the measurement before.

        None before the first step of an adaptive optimiser, so that training with a tracker can start.
        """
        options = options_of(self._stability)
        if options is None:
            return None
        try:
            self._last_stability = measure(**{"start": self._last_stability, **options})
        except NoStepYetError:
            return None
        return self._last_stability

    def _record(
        self,
        epoch: float | None,
        train: FeatureStatistics,
        test: FeatureStatistics,
        last_layer: tuple[Any, Any] | None,
        numbers: dict[str, float],
        stability: StabilityReport | None = None,
    ) -> FeatureReport:
        """Add a measurement, of neural collapse as well if the weights and bias of the last layer are given.

        ``numbers`` (losses, accuracies) are stored with it. Without an epoch, measurements are counted.
        """
        last = float(self._measurements[-1]["epoch"]) if self._measurements else -np.inf
        if epoch is None:
            epoch = last + 1 if self._measurements else 0.0
        if not epoch > last:
            raise ValueError(f"epochs must increase from one measurement to the next, but {epoch:g} follows {last:g}")
        report = features(train, test)
        collapse = None if last_layer is None else measure_collapse(train, *last_layer)
        measures = report.to_dataset()
        measures = measures.drop_vars([name for name in measures.data_vars if str(name).startswith("cumulative")])
        measures["regime"] = ((), report.regime, {"long_name": "regime", "units": ""})
        reserved = sorted(set(numbers) & {*measures.variables, *_COLLAPSE, *_STABILITY, "epoch"})
        if reserved:
            raise ValueError(f"{reserved[0]} is measured by the tracker: give your number another name")
        for name, (long_name, symbol) in _COLLAPSE.items() if collapse is not None else ():
            measures[name] = ((), getattr(collapse, name), {"long_name": long_name, "units": "1", "symbol": symbol})
        for name, value in (stability.numbers() if stability is not None else {}).items():
            long_name, symbol = _STABILITY[name]
            measures[name] = ((), value, {"long_name": long_name, "units": "1", "symbol": symbol})
        for name, value in numbers.items():
            attributes = {"long_name": name.replace("_", " "), "units": "", "given": "by the user"}
            measures[name] = ((), float(value), attributes)
        measures.attrs = {
            "method": "diagnostics",
            "threshold": report.threshold,
            "target_rank": report.target_rank,
            "version": __version__,
        }
        coordinate = ((), float(epoch), {"long_name": "epoch", "units": ""})
        self._measurements.append(measures.assign_coords(epoch=coordinate))
        if self._log is not None:
            single = {str(name): values for name, values in measures.data_vars.items() if not values.dims}
            kept = {name: float(values) for name, values in single.items() if values.dtype.kind in "fiu"}
            self._log.write(float(epoch), kept)
        return report

    @property
    def history(self) -> xr.Dataset:
        """Every metric over ``epoch``; the spectra also over ``mode``, NaN beyond the rank of that epoch."""
        if not self._measurements:
            raise ValueError("nothing is tracked yet: call the tracker once per epoch")
        return xr.concat(self._measurements, "epoch", join="outer", data_vars="all", combine_attrs="override")

    def plot(self) -> "Figure":
        """Effective dimensions, distance from minimum features, collapse, stability and your own numbers."""
        from solvable.plotting import COLOURS, new_figure

        data = self.history
        given = [str(name) for name in data.data_vars if data[name].attrs.get("given")]
        groups = [names for names in ([name for name in _COLLAPSE if name in data], given) if names]
        measured = "sharpness" in data
        figure, panels = new_figure(columns=2 + len(groups) + measured)
        for panel in panels:
            panel.set_prop_cycle(color=COLOURS)
        for name in _SPECTRA:
            _line(panels[0], data[f"effective_dimension_{name}"], name)
        _level(panels[0], data.attrs["target_rank"], "targets")
        panels[0].set(yscale="log", ylabel="effective dimension")
        _line(panels[1], data["mp_distance"], "distance κ_CKA")
        _level(panels[1], data.attrs["threshold"], "threshold")
        panels[1].set(ylabel="distance from minimum features", ylim=(0, 1))
        if measured:
            _line(panels[-1], data["sharpness"], "largest eigenvalue of the Hessian")
            _line(panels[-1], data["gauss_newton_sharpness"], "of the Gauss-Newton matrix")
            if "edge_of_stability" in data:
                edge = data["edge_of_stability"]
                panels[-1].plot(edge["epoch"], edge, color="0.4", linestyle="--", label="edge of stability")
            panels[-1].set(ylabel="curvature of the training loss", yscale="log")
        for panel, names in zip(panels[2:], groups, strict=False):
            for name in names:
                values = data[name]
                _line(panel, values, values.attrs.get("symbol", "") + " " + name.replace("_", " "))
            if all((data[name].dropna("epoch") > 0).all() for name in names):
                panel.set_yscale("log")
        for panel in panels:
            panel.set_xlabel("epoch")
            panel.legend(fontsize="small")
        return figure


def _line(panel: "object", values: xr.DataArray, label: str) -> None:
    panel.plot(values["epoch"], values, marker="o", markersize=3, label=label.strip())  # type: ignore[attr-defined]


def _level(panel: "object", height: float, label: str) -> None:
    panel.axhline(height, color="0.5", linewidth=0.9, linestyle=":", label=label)  # type: ignore[attr-defined]
