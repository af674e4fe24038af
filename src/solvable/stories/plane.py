"""The plane of a story: the model's quantity over two of its controls, around the setting of the last step."""

from typing import Any

import numpy as np

from solvable.settings import Setting, planes
from solvable.settings.contours import contours, is_wide, regions
from solvable.stories.packing import SYSTEM_LEVELS, pack


def packed_plane(setting: Setting, sliders: tuple[str, ...]) -> dict[str, Any] | None:
    """The plane that the model states, as the player draws it; None for a model that has none there.

    Contours and names are in fractions of the width and the height. ``axes`` says for each axis which slider it is, or
    none, and the value of the setting.

    Parameters
    ----------
    setting
        The setting of the last step.
    sliders
        The sliders that the story hands over.
    """
    view = planes.usual(setting)
    try:
        plane = planes.compute(setting, view, lambda partial: None)
    except ValueError:
        return None
    if not np.isfinite(plane["z"]).any():
        return None
    wide = is_wide(plane["z"])
    return {
        **{name: plane[name] for name in ("label", "x_label", "y_label", "x_log", "y_log")},
        "wide": wide,
        **{axis: [float(f"{value:.6g}") for value in plane[axis]] for axis in "xy"},
        "z": pack(np.log10(plane["z"]) if wide else plane["z"], SYSTEM_LEVELS),
        "contours": [
            {"text": line.text, "x": _fractions(plane, "x", line.x), "y": _fractions(plane, "y", line.y)}
            for line in contours(plane)
        ],
        "regions": [
            {"text": one.text, "x": _fractions(plane, "x", one.x)[0], "y": _fractions(plane, "y", one.y)[0]}
            for one in regions(plane)
        ],
        "axes": [_axis(setting, view[key], sliders) for key in ("px", "py")],
    }


def _axis(setting: Setting, axis: str, sliders: tuple[str, ...]) -> dict[str, Any]:
    key = axis.partition(".")[0]
    # A list with several entries has one slider for all of them, which is not an axis.
    single = axis == key or setting.fields[key].entries(setting.text(key)) == 1
    return {"slider": sliders.index(key) if key in sliders and single else None, "value": planes.at(setting, axis)}


def _fractions(plane: dict[str, Any], axis: str, values: Any) -> list[float]:
    """Values as fractions of the side of the picture, in which all cells have the same size."""
    scale = np.log if plane[f"{axis}_log"] else np.asarray
    cells = plane[axis].size
    at = np.interp(scale(np.atleast_1d(values)), scale(plane[axis]), np.arange(cells))
    return [round(float(fraction), 3) for fraction in (at + 0.5) / cells]
