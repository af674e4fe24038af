"""Feature measures along training: one row a measurement, whatever trained the network."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.diagnostics.collapse import CollapseReport
from solvable.diagnostics.report import FeatureReport

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
    """Reports along training, kept as one labelled dataset."""

    def __init__(self) -> None:
        self._rows: list[xr.Dataset] = []

    def record(
        self, epoch: float | None, report: FeatureReport, collapse: CollapseReport | None = None, **numbers: float
    ) -> None:
        """Add a measurement; ``numbers`` (losses, accuracies) are kept beside it. Without an epoch they are counted."""
        last = float(self._rows[-1]["epoch"]) if self._rows else -np.inf
        if epoch is None:
            epoch = last + 1 if self._rows else 0.0
        if not epoch > last:
            raise ValueError(f"epoch must grow from one measurement to the next, but {epoch:g} came after {last:g}")
        whole = report.to_dataset()
        measures = whole[[name for name in whole.data_vars if not str(name).startswith("cumulative")]]
        measures["regime"] = ((), report.regime, {"long_name": "regime", "units": ""})
        taken = sorted(set(numbers) & {*measures.variables, *_COLLAPSE, "epoch"})
        if taken:
            raise ValueError(f"{taken[0]} is measured by the tracker: give your number another name")
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
        self._rows.append(measures.assign_coords(epoch=((), float(epoch), {"long_name": "epoch", "units": ""})))

    def to_dataset(self) -> xr.Dataset:
        """Every measure over ``epoch``; the spectra also over ``mode``, NaN beyond the rank of that epoch."""
        if not self._rows:
            raise ValueError("nothing is tracked yet: call the tracker once an epoch")
        return xr.concat(self._rows, "epoch", join="outer", data_vars="all", combine_attrs="override")

    def plot(self) -> "Figure":
        """Effective dimensions, distance from minimum features, neural collapse and the numbers given, over epochs."""
        from solvable.plotting import COLOURS, new_figure

        data = self.to_dataset()
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
