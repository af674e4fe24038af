"""Settings of the papers' figures: one preset or more for each figure that one or two settings of a model can show.

There is one file per paper.
"""

from solvable.explorer.presets import delayed_features, feature_scaling, layerwise, linear_grokking
from solvable.explorer.presets.preset import Preset

__all__ = ["PRESETS", "Preset", "presets_of"]

PRESETS: tuple[Preset, ...] = (
    *linear_grokking.presets(),
    *delayed_features.presets(),
    *layerwise.presets(),
    *feature_scaling.presets(),
)


def presets_of(model: str) -> list[Preset]:
    """The presets of one model."""
    return [preset for preset in PRESETS if preset.model == model]
