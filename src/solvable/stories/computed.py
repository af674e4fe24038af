"""What theory says about one setting of a story, before it is packed for the player."""

import dataclasses
from typing import Any

import numpy as np
import xarray as xr

from solvable.model import Model
from solvable.plotting.series import Curve, lines
from solvable.settings import Setting
from solvable.story import Explanation, Story, SystemView

# Curves are thinned to at most this many times.
_MOST_TIMES = 120


@dataclasses.dataclass(frozen=True)
class Computed:
    """What theory says about one setting: the curves of each panel, the explanation and the picture of the system."""

    setting: Setting
    model: Model
    times: np.ndarray
    panels: tuple[tuple[tuple[str, Curve], ...], ...]
    explanation: Explanation
    system: SystemView | None
    error: float


def compute(setting: Setting, story: Story) -> Computed:
    """Theory's curves for one setting, with what the model says about them."""
    model, training = setting.build(), setting.training()
    theory = model.predict(setting.times(), training, **setting.values("theory"))
    thinned = theory.isel(time=np.unique(np.linspace(0, theory.sizes["time"] - 1, _MOST_TIMES).round().astype(int)))
    panels = panels_of(thinned, story)
    controls = type(model).controls
    explain, picture = story.explain or controls.explain, story.system or controls.system
    explanation = Explanation("") if explain is None else explain(model, training, theory)
    times = np.asarray(thinned["time"].values, float)
    system = None if picture is None else picture(model, training, times)
    return Computed(setting, model, times, panels, explanation, system, _theory_error(theory))


def attempt(setting: Setting, story: Story) -> Computed | dict[str, Any]:
    """As :func:`compute`; settings that theory refuses have an error in words instead of curves."""
    try:
        setting.check()
        return compute(setting, story)
    except ValueError as error:
        return {"error": str(error), "texts": dict(setting.texts)}


def _theory_error(theory: xr.Dataset) -> float:
    error = float(theory.attrs.get("numerical_error", 0.0))
    return error if np.isfinite(error) else 0.0


def panels_of(theory: xr.Dataset, story: Story) -> tuple[tuple[tuple[str, Curve], ...], ...]:
    """The curves of each panel, with the names of their variables."""
    return tuple(tuple((name, curve) for name in panel for curve in lines(theory, name)) for panel in story.variables)
