"""Build the shipped tables of feature scaling: ``python -m solvable.inference.build_tables FOLDER [TABLE ...]``.

Without noise some 900 curves are solved, in a quarter of an hour on one core; with noise 1600 curves in an hour. All
cores are used. Tables are ``infinite``, ``widths``, ``noise`` and ``lazy-noise``, by default all.
"""

import dataclasses
import functools
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from solvable.files import write_atomically
from solvable.inference import feature_curves
from solvable.inference.emulator import Axis, Emulator

TABLES = ("infinite", "widths", "noise", "lazy-noise")
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


def lazy_noise_ratio(capacity: float, source: float, noise: float) -> np.ndarray:
    """As :func:`solvable.inference.feature_curves.noise_ratio`, of lazy networks.

    Parameters
    ----------
    capacity, source
        Parameters of :class:`solvable.FeatureScaling`.
    noise
        Learning rate over batch size.
    """
    return feature_curves.noise_ratio(capacity, source, 0.0, noise)


def main(folder: Path, chosen: Sequence[str] = TABLES) -> None:
    """Build tables into a folder.

    Parameters
    ----------
    folder
        The folder, ``src/solvable/inference/tables`` to replace those of the package.
    chosen
        Names of the tables.
    """
    # Children start afresh: a forked child of a process that uses JAX may hang.
    with multiprocessing.get_context("spawn").Pool() as pool:
        for name in chosen:
            curve, axes, times, checks = _PLANS[name]()
            # Neighbours differ in the last axis: with noise in that, a process solves the noiseless curve once for all.
            mapped = functools.partial(pool.imap, chunksize=axes[-1].nodes.size)
            built = Emulator.build(curve, axes, times, checks=checks, progress=None, mapped=mapped)
            path = folder / f"feature-scaling-{name}.npz"
            write_atomically(path, built.to_bytes())
            if name == "widths":
                feature_curves.table.cache_clear()
                built = dataclasses.replace(built, error=_finite_error(built, _CHECKS))
                write_atomically(path, built.to_bytes())


_PLANS: dict[str, Callable[[], tuple[Callable[..., np.ndarray], tuple[Axis, ...], np.ndarray, int]]] = {
    "infinite": lambda: (infinite_ratio, feature_curves.axes(widths=False), feature_curves.TIMES, 2 * _CHECKS),
    "widths": lambda: (finite_ratio, feature_curves.axes(widths=True), feature_curves.PLACES, 0),
    "noise": lambda: (
        feature_curves.noise_ratio,
        feature_curves.noise_axes(lazy=False),
        feature_curves.TIMES,
        4 * _CHECKS,
    ),
    "lazy-noise": lambda: (lazy_noise_ratio, feature_curves.noise_axes(lazy=True), feature_curves.TIMES, 2 * _CHECKS),
}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or TABLES)
