"""Files of features: .npz archives of plain numbers, read without unpickling, and the reports of what is in them."""

import os
import zipfile
from collections.abc import Iterator, Sequence

import numpy as np

from solvable.diagnostics.collapse import CollapseReport, collapse
from solvable.diagnostics.features import features
from solvable.diagnostics.report import FeatureReport
from solvable.diagnostics.statistics import FeatureStatistics

FEATURES = tuple(f"{part}_{name}" for part in ("train", "test") for name in ("features", "outputs", "labels"))
LAST_LAYER = ("weights", "bias")
BATCH = 1024


def read_arrays(
    path: str | os.PathLike[str],
    needed: Sequence[str],
    optional: Sequence[str] = (),
    *,
    name: str = "the file",
    most_bytes: float = np.inf,
) -> dict[str, np.ndarray]:
    """Arrays of an archive. What is missing, too large, not finite or no plain array is refused by its name.

    ``name`` is what the file is called in errors, ``most_bytes`` the size of all arrays together once unpacked: a
    small archive can hold very many zeros. Sizes are read from the headers before any array is.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{name} is no .npz file: write it with numpy.savez(path, {needed[0]}=..., ...)")
    try:
        with zipfile.ZipFile(path) as archive:
            held = {member.removesuffix(".npy"): member for member in archive.namelist() if member.endswith(".npy")}
            missing = [array for array in needed if array not in held]
            if missing:
                there = ", ".join(list(held)[:20]) or "nothing"
                raise ValueError(f"{name} has no array {missing[0]!r}; it needs {', '.join(needed)} and holds {there}")
            wanted = [array for array in (*needed, *optional) if array in held]
            size = sum(_declared(archive, held[array], array) for array in wanted)
            if size > most_bytes:
                raise ValueError(
                    f"the arrays of {name} take {size / 1e6:.0f} MB, more than the {most_bytes / 1e6:.0f} MB allowed "
                    "here: use Python"
                )
            return {array: _array(archive, held[array], array) for array in wanted}
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{name} is damaged and cannot be read: {error}") from error


def read_all_arrays(path: str | os.PathLike[str], *, name: str = "the file") -> dict[str, np.ndarray]:
    """Every array of an archive, by its name, without unpickling."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{name} is no .npz file: write it with numpy.savez(path, **arrays)")
    with zipfile.ZipFile(path) as archive:
        held = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
    if not held:
        raise ValueError(f"{name} holds no arrays: write it with numpy.savez(path, **arrays)")
    return read_arrays(path, held, name=name)


def _declared(archive: zipfile.ZipFile, member: str, name: str) -> int:
    """Bytes that an array says it has, from its header alone; anything but numbers is refused."""
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
    """The report of :data:`FEATURES`, and neural collapse if the last layer is among the arrays."""

    def gathered(part: str) -> FeatureStatistics:
        statistics = FeatureStatistics()
        for batch in batches(*(arrays[f"{part}_{name}"] for name in ("features", "outputs", "labels"))):
            statistics.update(*batch)
        return statistics

    train, test = gathered("train"), gathered("test")
    collapsed = None
    if "weights" in arrays:
        again = batches(arrays["train_features"])
        collapsed = collapse(train, arrays["weights"], arrays.get("bias"), batches=again)
    return features(train, test), collapsed


def batches(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Rows that belong together, some at a time."""
    lengths = {len(array) if array.ndim else 0 for array in arrays}
    if len(lengths) > 1:
        raise ValueError(f"arrays that belong together must have equally many rows, not {sorted(lengths)}")
    for start in range(0, len(arrays[0]), BATCH):
        yield tuple(array[start : start + BATCH] for array in arrays)
