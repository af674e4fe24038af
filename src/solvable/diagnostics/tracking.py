"""Feature metrics during training: the base class of the trackers for PyTorch and Equinox."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.diagnostics.collapse import collapse as measure_collapse
from solvable.diagnostics.features import features
from solvable.diagnostics.report import FeatureReport
from solvable.diagnostics.statistics import FeatureStatistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SPECTRA = ("intensity", "quality", "utilisation")
_COLLAPSE = {
    "within_class": ("within-class over between-class variance", "NC1"),
    "mean_norms": ("spread of the norms of the class means", "NC2"),
    "mean_angles": ("distance of the class means from a simplex", "NC2"),
    "self_duality": ("distance of the weights from the class means", "NC3"),
}


class History:
    """Reports during training, collected in one labelled dataset."""

    def __init__(self) -> None:
        self._measurements: list[xr.Dataset] = []

    def _record(
        self,
        epoch: float | None,
        train: FeatureStatistics,
        test: FeatureStatistics,
        last_layer: tuple[Any, Any] | None,
        numbers: dict[str, float],
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
        reserved = sorted(set(numbers) & {*measures.variables, *_COLLAPSE, "epoch"})
        if reserved:
            raise ValueError(f"{reserved[0]} is measured by the tracker: give your number another name")
        for name, (long_name, symbol) in _COLLAPSE.items() if collapse is not None else ():
            measures[name] = ((), getattr(collapse, name), {"long_name": long_name, "units": "1", "symbol": symbol})
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
        return report

    @property
    def history(self) -> xr.Dataset:
        """Every metric over ``epoch``; the spectra also over ``mode``, NaN beyond the rank of that epoch."""
        if not self._measurements:
            raise ValueError("nothing is tracked yet: call the tracker once per epoch")
        return xr.concat(self._measurements, "epoch", join="outer", data_vars="all", combine_attrs="override")

    def plot(self) -> "Figure":
        """Effective dimensions, distance from minimum features, neural collapse and your own numbers, over epochs."""
        from solvable.plotting import COLOURS, new_figure

        data = self.history
        given = [str(name) for name in data.data_vars if data[name].attrs.get("given")]
        groups = [names for names in ([name for name in _COLLAPSE if name in data], given) if names]
        figure, panels = new_figure(columns=2 + len(groups))
        for panel in panels:
            panel.set_prop_cycle(color=COLOURS)
        for name in _SPECTRA:
            _line(panels[0], data[f"effective_dimension_{name}"], name)
        _level(panels[0], data.attrs["target_rank"], "targets")
        panels[0].set(yscale="log", ylabel="effective dimension")
        _line(panels[1], data["mp_distance"], "distance κ_CKA")
        _level(panels[1], data.attrs["threshold"], "threshold")
        panels[1].set(ylabel="distance from minimum features", ylim=(0, 1))
        for panel, names in zip(panels[2:], groups, strict=True):
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
