"""What is done before a store is used: half-made swaps finished or undone, litter swept, lost writes found."""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from solvable.sweeps import layout as disk
from solvable.sweeps import ownership
from solvable.sweeps.schema import FAILED, PENDING, DamagedStoreError

if TYPE_CHECKING:
    from solvable.sweeps.store import Store


def draft_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _aside_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def swap(draft: Path, path: Path) -> None:
    """Put a finished new store in place; an old one steps aside first. :func:`mend_swap` mends a kill in between."""
    aside = _aside_path(path)
    if path.exists():
        _refuse_foreign_name(aside)
        os.replace(path, aside)
    os.replace(draft, path)
    disk.flush(path.parent)
    with contextlib.suppress(OSError):
        ownership.remove(aside)


def mend_swap(path: Path) -> None:
    """Undo or finish what a killed coordinator left beside the store. Only for the holder of the lock."""
    aside = _aside_path(path)
    if ownership.may_be_removed(aside):
        if path.exists():
            ownership.remove(aside)
        elif ownership.is_sweep(aside):
            os.replace(aside, path)
    ownership.remove(draft_path(path))
    _refuse_foreign_name(draft_path(path))


def _refuse_foreign_name(path: Path) -> None:
    """A temporary name of ours that somebody else uses: what is there stays there."""
    if os.path.lexists(path):
        raise ValueError(f"{path} was not written by a sweep, but its name is needed; move it away")


def refuse_foreign_folder(path: Path) -> None:
    """Starting again deletes the folder: only a sweep's own (or an empty one) may go."""
    if path.is_dir() and not ownership.may_be_removed(path):
        what = "holds files that no sweep wrote" if ownership.is_sweep(path) else "is a folder that is no sweep store"
        raise ValueError(f"{path} {what}; it is not overwritten: choose another path")
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file, not a sweep store; choose another path")


def boot_identity() -> str | None:
    """Changes when the machine restarts; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _boot_file(path: Path) -> Path:
    return path / "status" / "boot.json"


def mark_boot(path: Path) -> None:
    # Should it be lost, the next coordinator verifies once more.
    disk.replace_file(_boot_file(path), json.dumps({"boot": boot_identity()}), durable=False)


def _restarted(path: Path) -> bool:
    try:
        before = json.loads(_boot_file(path).read_text())["boot"]
    except (OSError, ValueError, KeyError, TypeError):
        return True
    return before is None or before != boot_identity()


def recover(store: "Store", crashed: bool, verify: bool) -> list[str]:
    """Bring the files into the state the root describes. Returns what was repaired, in words.

    Only renames order the writes of a tile, and after a power cut a disk may have kept a later one and lost an
    earlier: so after a restart of the machine every finished tile is read and checked before it is believed.
    """
    verify = verify or _restarted(store.path)
    faults = disk.metadata_faults(store.path, store.layout)
    if faults and not verify:
        raise DamagedStoreError(
            f"{'; '.join(faults)}; open the sweep with verify=True to restore it from the root's copy"
        )
    if crashed or verify:
        for litter in store.path.rglob("*.partial"):
            litter.unlink(missing_ok=True)
    disk.restore_metadata(store.path, store.layout)
    repairs = faults
    if verify:
        repairs = faults + _reset_damaged_tiles(store)
        mark_boot(store.path)
    return repairs


def _reset_damaged_tiles(store: "Store") -> list[str]:
    repairs = []
    for index, region in store.tiles():
        shape = [span.stop - span.start for span in region]
        try:
            status = store.read_tile_status(index, region)
        except DamagedStoreError as damage:
            repairs.append(str(damage))
            store.arrays["status"][region] = np.zeros(shape, "uint8")
            continue
        if not status.any():
            continue
        try:
            store.check_tile_files(index, status)
            for output in store.layout.outputs:
                store.read_block(output.name, index, region)
            if (status == FAILED).any():
                store.read_block("error", index, region)
        except DamagedStoreError as damage:
            repairs.append(str(damage))
            store.arrays["status"][region] = np.full(shape, PENDING, "uint8")
    return repairs
