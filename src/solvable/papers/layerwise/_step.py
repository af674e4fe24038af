"""What the figures of fig. 2.2 share: the grid, how features are measured on it, and the printed dimensions."""

from typing import TYPE_CHECKING

import numpy as np

from solvable.diagnostics import FeatureReport, FeatureStatistics, features
from solvable.diagnostics.eigenbasis import eigenbasis
from solvable.plotting import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAYERS, WIDTH, POINTS = 4, 1000, 2000
# Middles of equal cells, in float64: sums over them are integrals, and the jump is on none of them.
INPUTS = np.linspace(-1, 1, POINTS + 1)[:-1] + 1 / POINTS
TARGET = (INPUTS > 0).astype(float)
NAMES = {"quality": "D_eff(Q*)", "utilisation": "D_eff(Q̂)", "intensity_plain": "D_eff(ρ)"}
# Table 2.1; only here does the thesis treat the first intensity like the others.
PRINTED_BEFORE = {"quality": 3.2, "utilisation": 1.8, "intensity_plain": 1.6}
PRINTED_AFTER = {"quality": 1.1, "utilisation": 1.0, "intensity_plain": 1.2}


def measure(hidden: np.ndarray, outputs: np.ndarray) -> FeatureReport:
    """The report of a network from its features and outputs on the grid."""
    sample = FeatureStatistics().update(hidden, outputs, TARGET)
    return features(sample, sample)


def first_functions(hidden: np.ndarray) -> np.ndarray:
    """The first three eigenfunctions on the grid, with mean square 1 and positive at the right end."""
    sample = FeatureStatistics().update(hidden, TARGET, TARGET)
    functions = hidden @ eigenbasis(sample, None).directions[:, :3]
    return functions / (np.sqrt(np.mean(functions**2, axis=0)) * np.where(functions[-1] < 0, -1, 1))


def draw_functions(panel: "Axes", functions: np.ndarray) -> None:
    """Draw the target and the first eigenfunctions, one column of ``functions`` each."""
    panel.plot(INPUTS, TARGET, color="grey", label="target, f*")
    for index, colour in enumerate(COLOURS[: functions.shape[1]]):
        label = f"eigenfunction e_{index + 1}"
        panel.plot(INPUTS, functions[:, index], color=colour, linestyle="--", label=label)
    panel.set_xlabel("input, x")
    panel.set_ylabel("function")
