"""Checkpoints of a training: one file of plain arrays, written whole or not at all, and checked when it is read."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from solvable.files import write_atomically

PyTree = Any


def fingerprint(settings: dict[str, Any], program: str, *trees: PyTree) -> str:
    """What must be equal for a training to go on: settings, the compiled program, and the arrays it starts from."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    digest.update(program.encode())
    for leaf in jax.tree.leaves(trees):
        if hasattr(leaf, "dtype"):
            array = _plain(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _plain(leaf: Any) -> np.ndarray:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _checksum(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """SHA-256 of all names, types, shapes and values, as bytes."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def write(path: Path, mark: str, step: int, state: PyTree, found: dict[str, np.ndarray]) -> None:
    """The state at a step, and what was measured before it."""
    arrays = {f"state/{index}": _plain(leaf) for index, leaf in enumerate(jax.tree.leaves(state))}
    arrays |= {f"found/{name}": values for name, values in found.items()}
    arrays["step"] = np.asarray(step)
    arrays["mark"] = np.frombuffer(mark.encode(), np.uint8)
    arrays["checksum"] = _checksum(arrays)
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    write_atomically(path, content.getvalue())


def read(path: Path, mark: str, state: PyTree) -> tuple[int, PyTree, dict[str, np.ndarray]] | None:
    """What was written, in the shape of ``state``; None if there is no file. A file of another training is refused."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        if not np.array_equal(arrays.pop("checksum"), _checksum(arrays)):
            raise ValueError("its contents do not match its checksum")
        written = arrays.pop("mark").tobytes().decode()
        step = int(arrays.pop("step"))
    except Exception as error:  # a damaged archive makes its readers raise almost anything
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else error
        raise ValueError(f"{path} is not a checkpoint that can be read ({reason}): delete it to train anew") from error
    if written != mark:
        raise ValueError(
            f"{path} belongs to a training with other settings, data, code or device: choose another path, or delete "
            "it to train anew"
        )
    leaves, structure = jax.tree.flatten(state)
    restored = [jax.device_put(arrays[f"state/{index}"]) for index in range(len(leaves))]
    found = {name.removeprefix("found/"): array for name, array in arrays.items() if name.startswith("found/")}
    return step, jax.tree.unflatten(structure, restored), found
