"""A stranger's file of features: refused unless it is small, whole and made of plain numbers; then its report."""

import base64
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

_NEEDED = tuple(f"{part}_{name}" for part in ("train", "test") for name in ("features", "outputs", "labels"))
_OPTIONAL = ("weights", "bias")
# Bytes of all arrays together once they are unpacked: a small file can hold very many zeros.
_UNPACKED = 200_000_000
_BATCH = 1024


def received(content: bytes, limit: int) -> Path:
    """Keep what a visitor sent in a temporary file for a worker, or say why not; nothing of it is read here."""
    if not content:
        raise ValueError("the file is empty")
    if len(content) > limit:
        raise ValueError(f"the file has {len(content) / 1e6:.1f} MB, more than the {limit / 1e6:.0f} MB a page takes")
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise ValueError(f"this is no .npz file: write it with numpy.savez(path, {_NEEDED[0]}=..., ...)")
    handle, path = tempfile.mkstemp(prefix="solvable-features-", suffix=".npz")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return Path(path)


def diagnose(path: str) -> str:
    """The report of a file of features as HTML; the file is removed, come what may."""
    try:
        arrays = read(path)
    finally:
        Path(path).unlink(missing_ok=True)
    report, collapsed = _reports(arrays)
    parts = [f"<h3>Features: {escape(report.regime)}</h3><pre>{escape(report.summary())}</pre>"]
    if collapsed is not None:
        parts.append(f"<h3>Neural collapse</h3><pre>{escape(collapsed.summary())}</pre>")
    parts.append(_picture(report.plot()))
    return "".join(parts)


def read(path: str) -> dict[str, np.ndarray]:
    """The arrays of the file, never unpickled; what is missing, too large or no plain array is named."""
    try:
        with zipfile.ZipFile(path) as archive:
            held = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
            missing = [name for name in _NEEDED if name not in held]
            if missing:
                there = ", ".join(list(held)[:20]) or "nothing"
                raise ValueError(
                    f"the file has no array {missing[0]!r}; it needs {', '.join(_NEEDED)} and holds {there}"
                )
            wanted = [name for name in (*_NEEDED, *_OPTIONAL) if name in held]
            size = sum(_declared(archive, held[name], name) for name in wanted)
            if size > _UNPACKED:
                raise ValueError(
                    f"the arrays take {size / 1e6:.0f} MB, a page takes {_UNPACKED / 1e6:.0f} MB: use Python"
                )
            return {name: _array(archive, held[name], name) for name in wanted}
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"the file is damaged and cannot be read: {error}") from error


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


def _reports(arrays: dict[str, np.ndarray]) -> tuple[Any, Any]:
    from solvable import diagnostics

    def gathered(part: str) -> Any:
        statistics = diagnostics.FeatureStatistics()
        for batch in _batches([arrays[f"{part}_{name}"] for name in ("features", "outputs", "labels")]):
            statistics.update(*batch)
        return statistics

    train, test = gathered("train"), gathered("test")
    collapsed = None
    if "weights" in arrays:
        again = (batch[0] for batch in _batches([arrays["train_features"]]))
        collapsed = diagnostics.collapse(train, arrays["weights"], arrays.get("bias"), batches=again)
    return diagnostics.features(train, test), collapsed


def _batches(arrays: list[np.ndarray]) -> Iterator[tuple[np.ndarray, ...]]:
    lengths = {len(array) if array.ndim else 0 for array in arrays}
    if len(lengths) > 1:
        raise ValueError(f"features, outputs and labels must have equally many rows, not {sorted(lengths)}")
    for start in range(0, len(arrays[0]), _BATCH):
        yield tuple(array[start : start + _BATCH] for array in arrays)


def _picture(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="Quality, utilisation and intensity of the features" src="data:image/svg+xml;base64,{data}">'
