"""Files of features and weights: .npz archives of plain numbers, read without unpickling."""

import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.diagnostics.batches import ArrayBatches
from solvable.diagnostics.collapse import CollapseReport, collapse
from solvable.diagnostics.features import features
from solvable.diagnostics.precision import precision_of
from solvable.diagnostics.report import FeatureReport
from solvable.diagnostics.statistics import FeatureStatistics
from solvable.diagnostics.tangent import is_torch

_PARTS = ("features", "outputs", "labels")
FEATURES = tuple(f"{part}_{name}" for part in ("train", "test") for name in _PARTS)
LAST_LAYER = ("weights", "bias")


def read_arrays(
    path: str | os.PathLike[str],
    needed: Sequence[str] | None = None,
    optional: Sequence[str] = (),
    *,
    name: str = "the file",
    most_bytes: float = np.inf,
) -> dict[str, np.ndarray]:
    """Read arrays of an archive: those ``needed`` (None: all), and the ``optional`` ones if they are there.

    Arrays that are missing, not finite or not numeric raise a ValueError, in which ``name`` is the file, and so do more
    than ``most_bytes`` after unpacking: a small archive can contain very many zeros. Sizes are read from the headers.
    """
    example = f"{needed[0]}=..., ..." if needed else "**arrays"
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{name} is not an .npz file: write it with numpy.savez(path, {example})")
    try:
        with zipfile.ZipFile(path) as archive:
            held = {member.removesuffix(".npy"): member for member in archive.namelist() if member.endswith(".npy")}
            if needed is None and not held:
                raise ValueError(f"{name} holds no arrays: write it with numpy.savez(path, {example})")
            needed = list(held) if needed is None else needed
            missing = [array for array in needed if array not in held]
            if missing:
                found = ", ".join(list(held)[:20]) or "nothing"
                raise ValueError(f"{name} has no array {missing[0]!r}; it needs {', '.join(needed)} and holds {found}")
            chosen = [array for array in (*needed, *optional) if array in held]
            size = sum(_stated_bytes(archive, held[array], array) for array in chosen)
            if size > most_bytes:
                raise ValueError(
                    f"the arrays of {name} take {size / 1e6:.0f} MB, more than the {most_bytes / 1e6:.0f} MB allowed "
                    "here: use Python"
                )
            return {array: _array(archive, held[array], array) for array in chosen}
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{name} is damaged and cannot be read: {error}") from error


def _stated_bytes(archive: zipfile.ZipFile, member: str, name: str) -> int:
    """The size of an array according to its header; anything but numbers is rejected."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = reader(file)
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects, which could run code when read: save it as an array of numbers")
    if dtype.kind not in "fiub":
        raise ValueError(f"{name} must be an array of numbers, not of {dtype}")
    return int(np.prod(shape, dtype=object)) * dtype.itemsize


def _array(archive: zipfile.ZipFile, member: str, name: str) -> np.ndarray:
    with archive.open(member) as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} has entries that are not finite numbers")
    return array


def reports(arrays: dict[str, np.ndarray]) -> tuple[FeatureReport, CollapseReport | None]:
    """The report of :data:`FEATURES`, and that of neural collapse if the last layer is among the arrays."""
    train, test = FeatureStatistics(), FeatureStatistics()
    for part, statistics in (("train", train), ("test", test)):
        for batch in ArrayBatches(*(arrays[f"{part}_{name}"] for name in _PARTS)):
            statistics.update(*batch)
    collapsed = None
    if "weights" in arrays:
        again = ArrayBatches(arrays["train_features"])
        collapsed = collapse(train, arrays["weights"], arrays.get("bias"), batches=again)
    return features(train, test), collapsed


def with_arrays(network: Any, arrays: Mapping[str, np.ndarray], name: str = "the file") -> Any:
    """The network with these weights, in its own precision.

    Names are those of ``state_dict()`` in PyTorch, and paths in Equinox as they are written in Python, such as
    ``layers[0].weight``. Every weight must be present in the shape that it has in the network, and nothing else.
    """
    torch = sys.modules["torch"] if is_torch(network) else None
    if torch is not None:
        expected = dict(network.state_dict())
    else:
        leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(network, eqx.is_array))
        expected = {_path(path): leaf for path, leaf in leaves}
    missing = [key for key in expected if key not in arrays]
    unknown = [key for key in arrays if key not in expected]
    if missing or unknown:
        parts = [f"it lacks {_some(missing)}"] if missing else []
        parts += [f"the network has no {_some(unknown)}"] if unknown else []
        raise ValueError(f"{name} does not fit the network: {', and '.join(parts)}; the network has {_some(expected)}")
    for key, value in expected.items():
        if tuple(arrays[key].shape) != tuple(value.shape):
            shapes = f"shape {tuple(arrays[key].shape)} where the network has {tuple(value.shape)}"
            raise ValueError(f"{name} does not fit the network: {key!r} has {shapes}")
    if torch is not None:
        network.load_state_dict({key: torch.tensor(value) for key, value in arrays.items()})
        return network
    with precision_of(network):
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: jnp.asarray(arrays[_path(path)], leaf.dtype) if eqx.is_array(leaf) else leaf, network
        )


def _path(path: Any) -> str:
    return jax.tree_util.keystr(path).lstrip(".")


def _some(names: Any, most: int = 4) -> str:
    names = [repr(name) for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
