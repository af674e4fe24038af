"""Chebyshev emulators: curves of an expensive theory over a box of its parameters, computed once and kept on disk."""

import dataclasses
import functools
import hashlib
import io
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from solvable._version import __version__
from solvable.files import write_atomically
from solvable.progress import progress_bar


@dataclasses.dataclass(frozen=True)
class Axis:
    """A parameter of an emulator, with its Chebyshev nodes.

    Parameters
    ----------
    name
        Name of the parameter.
    nodes
        Values at which the theory was solved, increasing.
    log
        Whether the emulator is a polynomial in the logarithm of the parameter.
    shift
        Added to the parameter before its logarithm is taken, so that the parameter may be zero.
    """

    name: str
    nodes: np.ndarray
    log: bool = False
    shift: float = 0.0

    @classmethod
    def between(cls, name: str, low: float, high: float, count: int, log: bool = False, shift: float = 0.0) -> "Axis":
        """Chebyshev nodes that include both ends.

        Parameters
        ----------
        name
            Name of the parameter.
        low, high
            Ends of the box.
        count
            Number of nodes.
        log
            Whether the emulator is a polynomial in the logarithm.
        shift
            Added to the parameter before its logarithm is taken.
        """
        ends = np.log([low + shift, high + shift]) if log else np.array([low, high], float)
        nodes = ends.mean() - (ends[1] - ends[0]) / 2 * np.cos(np.pi * np.arange(count) / (count - 1))
        nodes = np.exp(nodes) - shift if log else nodes
        nodes[[0, -1]] = low, high
        return cls(name, nodes, log, shift)

    def coordinate(self, value: Any, log: Callable[[Any], Any] = np.log) -> Any:
        """The coordinate in which the emulator is a polynomial.

        Parameters
        ----------
        value
            Values of the parameter.
        log
            The logarithm, ``jax.numpy.log`` for numbers that JAX traces.
        """
        return log(value + self.shift) if self.log else value

    @property
    def positions(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes in the fitted coordinate, and their barycentric weights."""
        found = self.__dict__.get("_barycentric")
        if found is None:
            nodes = np.asarray(self.coordinate(self.nodes), float)
            apart = (nodes[:, None] - nodes) * 4 / (nodes[-1] - nodes[0])
            np.fill_diagonal(apart, 1.0)
            found = (nodes, 1 / apart.prod(axis=1))
            object.__setattr__(self, "_barycentric", found)
        return found

    def shares(self, value: float) -> np.ndarray:
        """The weight of each node in the interpolating polynomial at a value.

        Parameters
        ----------
        value
            Value of the parameter.
        """
        nodes, weights = self.positions
        away = self.coordinate(value) - nodes
        hit = np.abs(away) < 1e-13
        if hit.any():
            return hit.astype(float)
        ratio = weights / away
        return ratio / ratio.sum()


@dataclasses.dataclass(frozen=True)
class Emulator:
    """Curves over times, as a polynomial in the parameters.

    Parameters
    ----------
    axes
        The parameters.
    times
        Increasing times of the curves.
    values
        Curves at the nodes, the dimensions of the axes first and the times last.
    error
        The largest difference from the theory at points that are not nodes.

    >>> import numpy as np
    >>> from solvable.inference.emulator import Axis, Emulator
    >>> axis = Axis.between("rate", 0.1, 10.0, 9, log=True)
    >>> times = np.array([0.1, 1.0])
    >>> emulator = Emulator((axis,), times, np.array([-rate * times for rate in axis.nodes]))
    >>> emulator(rate=2.0).round(3).tolist()
    [-0.2, -2.0]
    """

    axes: tuple[Axis, ...]
    times: np.ndarray
    values: np.ndarray
    error: float = float("nan")

    def __call__(self, **parameters: float) -> np.ndarray:
        """The curve at a point of the box.

        Parameters
        ----------
        **parameters
            Values of all parameters by name.
        """
        found = self.values
        for axis in self.axes:
            found = np.tensordot(axis.shares(parameters[axis.name]), found, axes=1)
        return found

    @classmethod
    def build(
        cls,
        curve: Callable[..., np.ndarray],
        axes: Sequence[Axis],
        times: np.ndarray,
        *,
        checks: int = 6,
        seed: int = 0,
        progress: bool | None = False,
        mapped: Callable[..., Iterable[np.ndarray]] = map,
    ) -> "Emulator":
        """Solve the theory at all nodes, and at a few random points for the error.

        Parameters
        ----------
        curve
            Function of the parameters by name that returns the curve at ``times``.
        axes
            The parameters.
        times
            Increasing times.
        checks
            Number of random points at which the error is measured.
        seed
            Random seed of those points.
        progress
            Whether to show a progress bar; None shows one on a terminal.
        mapped
            How the curves are computed: ``map``, or the ``imap`` of a pool of processes.
        """
        shape = tuple(axis.nodes.size for axis in axes)
        values = np.empty((int(np.prod(shape)), times.size))
        generator = np.random.default_rng(seed)
        nodes = [
            dict(zip([axis.name for axis in axes], map(float, point), strict=True))
            for point in itertools.product(*(axis.nodes for axis in axes))
        ]
        between = [{axis.name: _between(axis, generator.random()) for axis in axes} for _ in range(checks)]
        solve = functools.partial(_solved, curve)
        with progress_bar("building an emulator", float(len(nodes) + checks), progress) as advance:
            for place, found in enumerate(mapped(solve, nodes)):
                values[place] = found
                advance(1.0)
            emulator, worst = cls(tuple(axes), times, values.reshape(*shape, times.size)), 0.0
            for point, found in zip(between, mapped(solve, between), strict=True):
                worst = max(worst, float(np.max(np.abs(emulator(**point) - found))))
                advance(1.0)
        return dataclasses.replace(emulator, error=worst)

    def to_bytes(self) -> bytes:
        """The emulator as the content of an ``.npz`` file."""
        about = [{"name": axis.name, "log": axis.log, "shift": axis.shift} for axis in self.axes]
        nodes = {f"axis_{number}": axis.nodes for number, axis in enumerate(self.axes)}
        out = io.BytesIO()
        np.savez_compressed(
            out, times=self.times, values=self.values.astype(np.float32), error=self.error, axes=json.dumps(about),
            allow_pickle=False, **nodes,
        )  # fmt: skip
        return out.getvalue()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Emulator":
        """Read an emulator from an ``.npz`` file, without unpickling.

        Parameters
        ----------
        path
            The file.
        """
        with np.load(path, allow_pickle=False) as content:
            about = json.loads(str(content["axes"]))
            axes = tuple(
                Axis(
                    one["name"],
                    np.asarray(content[f"axis_{number}"], float),
                    bool(one["log"]),
                    float(one.get("shift", 0.0)),
                )
                for number, one in enumerate(about)
            )
            times, values = np.asarray(content["times"], float), np.asarray(content["values"], float)
            return cls(axes, times, values, float(content["error"]))


def _between(axis: Axis, share: float) -> float:
    low, high = axis.positions[0][[0, -1]]
    place = low + (high - low) * share
    return float(np.exp(place) - axis.shift if axis.log else place)


def _solved(curve: Callable[..., np.ndarray], point: Mapping[str, float]) -> np.ndarray:
    return curve(**point)


def cache_folder() -> Path:
    """The folder of emulators: ``$SOLVABLE_CACHE``, else ``solvable/emulators`` in the user's cache."""
    chosen = os.environ.get("SOLVABLE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        home = "~/Library/Caches"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "solvable" / "emulators"


def cached(
    name: str, description: Mapping[str, object], build: Callable[[], Emulator], folder: Path | None = None
) -> Emulator:
    """The emulator of this description from the user's cache, or built and written there.

    A file that cannot be read is built again; a folder that cannot be written to only costs the next call its time.

    Parameters
    ----------
    name
        Beginning of the file's name.
    description
        What determines the emulator, as plain numbers and texts: the cache key, together with the package's version.
    build
        Makes the emulator.
    folder
        The folder; by default that of :func:`cache_folder`.
    """
    text = json.dumps({**description, "version": __version__}, sort_keys=True, default=str)
    path = (folder or cache_folder()) / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"
    if path.exists():
        try:
            return Emulator.read(path)
        except (OSError, ValueError, KeyError):
            path.unlink(missing_ok=True)
    emulator = build()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, emulator.to_bytes())
    except OSError:
        pass
    return emulator
