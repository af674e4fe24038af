"""Build the shipped tables of feature scaling: ``python -m solvable.inference.build_tables FOLDER``.

Some 900 curves are solved, in a quarter of an hour on one core.
"""

import dataclasses
import sys
from pathlib import Path

import numpy as np

from solvable.files import write_atomically
from solvable.inference import feature_curves
from solvable.inference.emulator import Emulator

_CHECKS = 6


def infinite_ratio(capacity: float, source: float, richness: float) -> np.ndarray:
    """Logarithm of the rich curve over the lazy one, of infinitely many features.

    Parameters
    ----------
    capacity, source, richness
        Parameters of :class:`solvable.FeatureScaling`.
    """
    exact = feature_curves.exact_infinite(capacity, source, richness)
    return exact - feature_curves.exact_lazy(capacity, source)


def finite_ratio(capacity: float, source: float, richness: float, width: float) -> np.ndarray:
    """Logarithm of the curve of finitely many features over its approximation, at the places of the table.

    Parameters
    ----------
    capacity, source, richness
        Parameters of :class:`solvable.FeatureScaling`.
    width
        Number of features.
    """
    infinite = feature_curves.exact_infinite(capacity, source, richness)
    exact = feature_curves.exact_finite(capacity, source, richness, width)
    return feature_curves.width_ratio(exact, infinite, capacity, source, width)


def _finite_error(emulator: Emulator, count: int, seed: int = 5) -> float:
    """Largest error of the curves, not of the ratios, at random points."""
    generator, worst = np.random.default_rng(seed), 0.0
    for _ in range(count):
        logs = [np.log([axis.nodes[0], axis.nodes[-1]]) for axis in emulator.axes]
        point = [float(np.exp(generator.uniform(*ends))) for ends in logs]
        point[-1] = float(round(point[-1]))
        exact = feature_curves.exact(*point)
        worst = max(worst, float(np.abs(feature_curves.emulated(*point) - exact).max()))
    return worst


def main(folder: Path) -> None:
    """Build both tables into a folder.

    Parameters
    ----------
    folder
        The folder, ``src/solvable/inference/tables`` to replace those of the package.
    """
    infinite = Emulator.build(
        infinite_ratio, feature_curves.axes(widths=False), feature_curves.TIMES, checks=2 * _CHECKS, progress=None
    )
    write_atomically(folder / "feature-scaling-infinite.npz", infinite.to_bytes())
    axes = feature_curves.axes(widths=True)
    finite = Emulator.build(finite_ratio, axes, feature_curves.PLACES, checks=0, progress=None)
    path = folder / "feature-scaling-widths.npz"
    write_atomically(path, finite.to_bytes())
    feature_curves.table.cache_clear()
    error = _finite_error(finite, _CHECKS)
    write_atomically(path, dataclasses.replace(finite, error=error).to_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
