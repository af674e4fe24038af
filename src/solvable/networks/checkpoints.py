"""Checkpoints of a training: one file of plain arrays, written atomically, and verified by a checksum when read."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from solvable.files import checksums, write_atomically

PyTree = Any


def fingerprint(settings: dict[str, Any], program: str, *trees: PyTree) -> str:
    """Hash of all that must be equal for a training to be resumed: settings, compiled program and initial arrays."""
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


def write(path: Path, fingerprint: str, step: int, state: PyTree, found: dict[str, np.ndarray]) -> None:
    """Write the state at a step, and all measurements until then."""
    arrays = {f"state/{index}": _plain(leaf) for index, leaf in enumerate(jax.tree.leaves(state))}
    arrays |= {f"found/{name}": values for name, values in found.items()}
    content = io.BytesIO()
    np.savez(content, step=step, fingerprint=fingerprint, **arrays)  # type: ignore[arg-type]
    write_atomically(path, checksums.append(content.getvalue()))


def read(path: Path, fingerprint: str, state: PyTree) -> tuple[int, PyTree, dict[str, np.ndarray]] | None:
    """Step, state (in the structure of ``state``) and measurements; None if there is no file.

    A checkpoint of another training, or of another version of this package, is rejected.
    """
    if not path.exists():
        return None
    try:
        content = path.read_bytes()
        checksums.verify(content)
        with np.load(io.BytesIO(content[: -checksums.LENGTH]), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        step, written = int(arrays["step"]), str(arrays["fingerprint"])
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is not a readable checkpoint ({error}): delete it to start again") from error
    if written != fingerprint:
        raise ValueError(
            f"{path} belongs to a training with other settings, data, code or device: choose another path, or delete "
            "it to start again"
        )
    leaves, structure = jax.tree.flatten(state)
    restored = [jax.device_put(arrays[f"state/{index}"]) for index in range(len(leaves))]
    found = {name.removeprefix("found/"): array for name, array in arrays.items() if name.startswith("found/")}
    return step, jax.tree.unflatten(structure, restored), found
