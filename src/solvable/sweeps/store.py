"""A crash-safe store for a grid of cells: pending, done or failed, and never anything in between.

One coordinator holds the lock and is the only writer. A tile is a block of cells, and one chunk file of each array;
its outputs are replaced first and its status last, each by a rename, so a kill at any moment leaves a tile either
finished or to be done again. See docs/sweeps/store.md.
"""

import contextlib
import errno
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.sweeps import layout as disk
from solvable.sweeps import ownership, recovery
from solvable.sweeps.grid import Tile, cell_columns, checked_rows
from solvable.sweeps.lock import Lock
from solvable.sweeps.reading import Reader
from solvable.sweeps.schema import (
    DONE,
    FAILED,
    PENDING,
    Axis,
    CallCoordinates,
    ChangedSettingsError,
    Output,
    check_names,
    differences,
    tile_shape,
)

if TYPE_CHECKING:
    import xarray as xr


class Store(Reader):
    """A sweep on disk, open for writing. Holds the lock until closed; use it in a ``with`` statement."""

    def __init__(self, path: Path, lock: Lock) -> None:
        super().__init__(path, writable=True)
        self._lock = lock
        self.repairs: list[str] = []
        self._counts: dict[str, int] | None = None

    @classmethod
    def create_or_open(
        cls,
        path: str | os.PathLike[str],
        axes: Sequence[Axis],
        outputs: Sequence[Output],
        call_coordinates: CallCoordinates | None = None,
        settings: Mapping[str, Any] | None = None,
        tile: int | Sequence[int] = 256,
        *,
        overwrite: bool = False,
        verify: bool = False,
        steal_lock: bool = False,
    ) -> "Store":
        """Create the store, or open it, extend it by the axis values it lacks and find what a crash left behind.

        ``settings`` (any JSON) must equal those the store was created with; ``overwrite`` starts again. ``tile`` is
        the number of cells (or the block) computed and written at once; an existing store keeps its own. ``verify``
        reads every finished tile and sets damaged ones back to pending; it runs by itself after a restart of the
        machine. ``steal_lock`` takes over from a coordinator on another machine that has long been silent.
        """
        disk.need("zarr")
        path = Path(path)
        call_coordinates = call_coordinates or {}
        check_names(axes, outputs, call_coordinates)
        wanted = disk.plain_json(settings or {}, "settings")
        shape = tile_shape(tile, [axis.size for axis in axes])
        lock = Lock(path, steal=steal_lock)
        try:
            with explained(path, "nothing that was stored is lost"):
                recovery.mend_swap(path)
                if overwrite or not path.exists():
                    recovery.refuse_foreign_folder(path)
                    draft = recovery.draft_path(path)
                    try:
                        disk.build(draft, axes, outputs, call_coordinates, wanted, shape)
                        recovery.mark_boot(draft)
                        recovery.swap(draft, path)
                    finally:
                        with contextlib.suppress(OSError):
                            ownership.remove(draft)
                store = cls(path, lock)
                store._refuse_changes(axes, outputs, call_coordinates, wanted)
                store.repairs = recovery.recover(store, crashed=lock.recovered_from is not None, verify=verify)
                store._extend(axes)
                return store
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        self._lock.release()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_changes(
        self,
        axes: Sequence[Axis],
        outputs: Sequence[Output],
        call_coordinates: CallCoordinates,
        settings: Mapping[str, Any],
    ) -> None:
        stored = self.layout.attributes
        found = differences(stored["settings"], settings)
        old_axes = {axis["dim"]: sorted(axis["coordinates"]) for axis in stored["axes"]}
        found += differences(old_axes, {axis.dim: sorted(axis.coordinates) for axis in axes}, "axes")
        if not found and [axis.dim for axis in axes] != list(old_axes):
            found += [f"order of axes: stored {list(old_axes)}, now {[axis.dim for axis in axes]}"]
        old_outputs = {about["name"]: {**about, "attrs": None} for about in stored["outputs"]}
        new_outputs = {about["name"]: {**about, "attrs": None} for about in disk.describe_outputs(outputs)}
        found += differences(old_outputs, new_outputs, "outputs")
        now = disk.describe_call_coordinates(call_coordinates)
        found += differences(stored["call_coordinates"], now, "call coordinates")
        if found:
            raise ChangedSettingsError(
                f"{self.path} was computed with other settings ({'; '.join(found)}); "
                "give the stored ones, choose another store, or start again with overwrite=True"
            )

    def _extend(self, axes: Sequence[Axis]) -> None:
        """Append axis values the store lacks. Only the last step, replacing the root, makes them count."""
        longer = [stored.extended_by(asked) for stored, asked in zip(self.axes, axes, strict=True)]
        if all(new.size == old.size for new, old in zip(longer, self.axes, strict=True)):
            return
        layout = self.layout.with_axes(longer)
        for new, old in zip(longer, self.axes, strict=True):
            if new.size > old.size:
                for name, values in new.coordinates.items():
                    disk.write_metadata(self.path, name, layout.arrays[name])
                    disk.write_column(self.path, name, values)
        disk.publish(self.path, layout)
        self.reopen()
        self._counts = None

    def pending_tiles(self, retry_failed: bool = True) -> Iterator[Tile]:
        """Tiles with something to compute, found one status file at a time as they are asked for."""
        for index, region in self.tiles():
            status = self.read_tile_status(index, region)
            self.check_tile_files(index, status)
            waiting = status != DONE if retry_failed else status == PENDING
            if waiting.any():
                yield Tile(index, region, status, np.flatnonzero(waiting))

    def columns(self, tile: Tile) -> dict[str, np.ndarray]:
        """The parameters of a tile's pending cells, one array per coordinate."""
        return cell_columns(self.axes, tile)

    def write(self, tile: Tile, values: Mapping[str, Any], errors: Sequence[str | None]) -> None:
        """Store a computed tile: ``values[name][i]`` and ``errors[i]`` (None if it went well) of ``tile.cells[i]``.

        Outputs first, error texts next, the status last: a kill in between leaves the tile pending.
        """
        failed = np.array([error is not None for error in errors], dtype=bool)
        if len(failed) != len(tile):
            raise ValueError(f"{len(failed)} error entries for the {len(tile)} pending cells of tile {tile.index}")
        blocks = {output.name: self._block(tile, output, values, failed) for output in self.layout.outputs}
        if failed.any():
            blocks["error"] = self._error_block(tile, errors)
        status = tile.status.copy()
        status.reshape(-1)[tile.cells] = np.where(failed, FAILED, DONE)
        # Counted anew from the files unless this write comes to its end.
        counts, self._counts = self._counts, None
        with explained(self.path, "the cells that were stored are safe: run again to go on"):
            for name, block in blocks.items():
                self._replace_chunk(tile, name, block)
            self.arrays["status"][tile.region] = status
        if counts is not None:
            before = tile.status.reshape(-1)[tile.cells]
            counts["pending"] -= int((before == PENDING).sum())
            counts["failed"] += int(failed.sum()) - int((before == FAILED).sum())
            counts["done"] += int((~failed).sum())
        self._counts = counts

    def _replace_chunk(self, tile: Tile, name: str, block: np.ndarray) -> None:
        """Write one tile of one array. A file that replaces another is forced to the disk before the status is written.

        After a power cut a lost first version is missing or fails its checksum; but where a second version is lost
        the first is still whole, and would be believed.
        """
        file = disk.chunk_file(self.path, self.layout, name, tile.index)
        replaces = file.exists()
        self.arrays[name][tile.region] = block
        if replaces:
            disk.flush(file)
            disk.flush(file.parent)

    def _block(self, tile: Tile, output: Output, values: Mapping[str, Any], failed: np.ndarray) -> np.ndarray:
        new = checked_rows(output, values, len(tile), failed)
        if tile.status.any():
            block = self.read_block(output.name, tile.index, tile.region)
        else:
            block = np.full((*tile.status.shape, *output.shape), output.fill, output.dtype)
        block.reshape(-1, *output.shape)[tile.cells] = new
        return block

    def _error_block(self, tile: Tile, errors: Sequence[str | None]) -> np.ndarray:
        if (tile.status == FAILED).any():
            block = self.read_block("error", tile.index, tile.region)
        else:
            block = np.zeros((*tile.status.shape, disk.ERROR_BYTES), "uint8")
        flat = block.reshape(-1, disk.ERROR_BYTES)
        for cell, text in zip(tile.cells, errors, strict=True):
            flat[cell] = 0
            if text is not None:
                cut = disk.cut_text(text or "failed without a message")
                flat[cell, : len(cut)] = np.frombuffer(cut, "uint8")
        return block

    def counts(self) -> dict[str, int]:
        """How many cells are done, failed, pending, and in all."""
        if self._counts is None:
            self._counts = super().counts()
        return dict(self._counts)


@contextlib.contextmanager
def explained(path: Path, comfort: str) -> Iterator[None]:
    """Disk trouble in words: what could not be written, why, and what it means for what is stored."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            words = "the disk is full or the file too large"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            words = "it is not writable"
        else:
            raise
        raise type(error)(error.errno, f"cannot write {path}: {words} ({error.strerror}); {comfort}") from error


def read_status(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Counts, settings, axes and owner of a store, without its lock; it may be growing meanwhile."""
    from solvable.sweeps.lock import is_running, owner

    reader = Reader(Path(path))
    holder = owner(reader.path)
    if holder is not None:
        holder["running"] = is_running(holder)
    return {
        **reader.counts(),
        "path": str(path),
        "sizes": dict(zip(reader.layout.dims, reader.layout.sizes, strict=True)),
        "tiles": math.prod(reader.grid),
        "tile": reader.layout.tile,
        "outputs": [output.name for output in reader.layout.outputs],
        "settings": reader.layout.attributes["settings"],
        "lock": holder,
        "failures": list(itertools.islice(reader.failures(), 5)),
    }


def open_store(path: str | os.PathLike[str]) -> "xr.Dataset":
    """The dataset of a store as it is now, without its lock."""
    return Reader(Path(path)).dataset()
