"""A crash-safe store for a grid of cells, each pending, done or failed.

One coordinator holds the lock and is the only writer. A tile is a block of cells, and one chunk file of each array. Its
outputs are replaced first and its status last, each by a rename, so that a kill at any moment leaves a tile either
finished or still to be computed. See docs/sweeps/store.md.
"""

import contextlib
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.files.atomic import explain_os_errors
from solvable.sweeps import layout as disk
from solvable.sweeps import lock, recovery, schema
from solvable.sweeps.grid import Grid, Index, Region, Tile, checked_rows
from solvable.sweeps.schema import DONE, FAILED, PENDING, Axis, CallCoordinates, DamagedStoreError, Output

if TYPE_CHECKING:
    import xarray as xr

_VERIFY = "open the sweep with verify=True: damaged tiles are set back to pending and computed again"


class Reader(Grid):
    """A store opened for reading, without its lock. Results are written before the status that calls them done."""

    def __init__(self, path: str | os.PathLike[str], writable: bool = False) -> None:
        self.path = Path(path)
        self.name = str(path)
        self._writable = writable
        self.reopen()

    def reopen(self) -> None:
        """Read the root again: the axes may have grown."""
        self.layout = disk.read_layout(self.path)
        attributes = self.layout.attributes
        self.outputs = [Output.from_description(about) for about in attributes["outputs"]]
        self.tile, self.settings = tuple(attributes["tile"]), attributes["settings"]
        self.arrays = disk.open_arrays(self.path, list(self.layout.arrays), self._writable)
        self.axes = [self._read_axis(about) for about in attributes["axes"]]

    def _read_axis(self, about: dict[str, Any]) -> Axis:
        columns = {name: self._read_column(name) for name in about["coordinates"]}
        attrs = {name: self.layout.arrays[name].get("attributes", {}) for name in columns}
        altered = f"the values of axis {about['dim']!r} in {self.path} were altered; {disk.START_AGAIN}"
        try:
            axis = Axis(about["dim"], columns, attrs)
        except ValueError as error:
            raise DamagedStoreError(altered) from error
        if axis.describe()["digest"] != about["digest"]:
            raise DamagedStoreError(altered)
        return axis

    def _read_column(self, name: str) -> np.ndarray:
        try:
            column = np.asarray(self.arrays[name][:])
        except Exception as error:
            message = f"the coordinate {name!r} in {self.path} cannot be read ({error}); {disk.START_AGAIN}"
            raise DamagedStoreError(message) from error
        return np.array(column.tolist(), dtype=str) if column.dtype.kind in "OT" else column

    def read_block(self, name: str, index: Index, region: Region) -> np.ndarray:
        """One tile of one array, with its checksum verified."""
        try:
            return np.array(self.arrays[name][region])
        except OSError:
            raise
        except Exception as error:
            raise DamagedStoreError(f"{self._file(name, index)} is damaged ({error}); {_VERIFY}") from error

    def _file(self, name: str, index: Index) -> Path:
        return disk.chunk_file(self.path, self.layout, name, index)

    def read_status(self, index: Index, region: Region) -> np.ndarray:
        """The states of the cells of a tile. A tile that was never written has no file and is pending."""
        if not self._file("status", index).exists():
            return np.zeros([span.stop - span.start for span in region], "uint8")
        status = self.read_block("status", index, region)
        if status.max(initial=0) > FAILED:
            raise DamagedStoreError(
                f"{self._file('status', index)} contains the unknown state {status.max()}; {_VERIFY}"
            )
        return status

    def read_errors(self, index: Index, region: Region) -> np.ndarray:
        rows = self.read_block("error", index, region)
        texts = [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in rows.reshape(-1, disk.ERROR_BYTES)]
        return np.array(texts, dtype=object).reshape(rows.shape[:-1])

    def check_files(self, index: Index, status: np.ndarray) -> None:
        names = [output.name for output in self.outputs] if (status != PENDING).any() else []
        if (status == FAILED).any():
            names.append("error")
        for name in names:
            if not self._file(name, index).exists():
                raise DamagedStoreError(
                    f"{self._file(name, index)} is missing though its cells are marked as computed; {_VERIFY}"
                )

    def read_call_coordinates(self) -> CallCoordinates:
        found = {}
        for name, about in self.layout.attributes["call_coordinates"].items():
            column = self._read_column(name)
            if schema.column_digest(column) != about["digest"]:
                raise DamagedStoreError(f"the coordinate {name!r} in {self.path} was altered; {disk.START_AGAIN}")
            found[name] = (column, self.layout.arrays[name].get("attributes", {}))
        return found

    def dataset(self) -> "xr.Dataset":
        dataset = super().dataset()
        if disk.read_layout(self.path).attributes["identity"] != self.layout.attributes["identity"]:
            raise ValueError(f"{self.path} was started again (overwrite) while it was read; read it once more")
        return dataset


class Store(Reader):
    """A sweep on disk, opened for writing. Holds the lock until closed; use it in a ``with`` statement."""

    def __init__(self, path: Path, held: lock.Lock) -> None:
        super().__init__(path, writable=True)
        self._lock = held
        self.repairs: list[str] = []

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
        """Create a store; or open it, recover from a crash and add the axis values that it lacks.

        ``call_coordinates`` are values and attributes of the dimensions of the outputs. ``settings`` (any JSON) must
        equal those with which the store was created; ``overwrite`` starts again. ``tile`` is the number of cells, or
        the shape of the block, that is computed and written at once; an existing store keeps its own. ``verify`` reads
        every finished tile and sets damaged ones back to pending, which is also done after a restart of the machine.
        ``steal_lock`` takes over from a coordinator on another machine whose last heartbeat is old.
        """
        disk.need("zarr")
        path = Path(path)
        call_coordinates = call_coordinates or {}
        schema.check_names(axes, outputs, call_coordinates)
        settings = schema.plain_json(settings or {}, "settings")
        shape = schema.tile_shape(tile, [axis.size for axis in axes])
        held = lock.Lock(path, steal=steal_lock)
        try:
            with explain_os_errors(path, "nothing that was stored is lost"):
                recovery.finish_replacement(path)
                if overwrite or not path.exists():
                    recovery.check_replaceable(path)
                    draft = recovery.draft_path(path)
                    try:
                        disk.build(draft, axes, outputs, call_coordinates, settings, shape)
                        recovery.record_boot(draft)
                        recovery.replace_store(draft, path)
                    finally:
                        with contextlib.suppress(OSError):
                            recovery.remove_store(draft)
                store = cls(path, held)
                store._check_settings(axes, outputs, call_coordinates, settings)
                store.repairs = recovery.recover(store, crashed=held.previous is not None, verify=verify)
                store._extend(axes)
                return store
        except BaseException:
            held.release()
            raise

    def close(self) -> None:
        self._lock.release()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_settings(
        self,
        axes: Sequence[Axis],
        outputs: Sequence[Output],
        call_coordinates: CallCoordinates,
        settings: Mapping[str, Any],
    ) -> None:
        """Raise an error unless the store was created with the same settings, axes and outputs."""
        new = disk.describe(axes, outputs, call_coordinates, settings)
        old, new = (
            {
                **about["settings"],
                "axes": {axis["dim"]: sorted(axis["coordinates"]) for axis in about["axes"]},
                "order of axes": [axis["dim"] for axis in about["axes"]],
                "outputs": {output["name"]: {**output, "attrs": None} for output in about["outputs"]},
                "call coordinates": about["call_coordinates"],
            }
            for about in (self.layout.attributes, new)
        )
        found = schema.differences(old, new)
        if found:
            raise schema.ChangedSettingsError(
                f"{self.path} was computed with other settings ({'; '.join(found)}); "
                "give the stored ones, choose another store, or start again with overwrite=True"
            )

    def _extend(self, axes: Sequence[Axis]) -> None:
        """Append the axis values that the store lacks. They take effect with the last step, the new root."""
        longer = [stored.extended_by(asked) for stored, asked in zip(self.axes, axes, strict=True)]
        grown = [new for new, old in zip(longer, self.axes, strict=True) if new.size > old.size]
        if not grown:
            return
        layout = self.layout.with_axes(longer)
        for axis in grown:
            for name, values in axis.coordinates.items():
                disk.write_metadata(self.path, name, layout.arrays[name])
                disk.write_column(self.path, name, values)
        disk.publish(self.path, layout)
        self.reopen()

    def write(self, tile: Tile, values: Mapping[str, Any], errors: Sequence[str | None]) -> None:
        """Store a computed tile: outputs first, then error messages, the status last.

        A kill in between leaves the tile pending.
        """
        failed = np.array([error is not None for error in errors], dtype=bool)
        if len(failed) != len(tile):
            raise ValueError(f"{len(failed)} error entries for the {len(tile)} pending cells of tile {tile.index}")
        blocks = {output.name: self._block(tile, output, values, failed) for output in self.outputs}
        if failed.any():
            blocks["error"] = self._error_block(tile, errors)
        status = tile.status.copy()
        status.reshape(-1)[tile.cells] = np.where(failed, FAILED, DONE)
        with explain_os_errors(self.path, "the cells that were stored are safe: run again to continue"):
            for name, block in blocks.items():
                self._replace_chunk(tile, name, block)
            self.arrays["status"][tile.region] = status

    def _replace_chunk(self, tile: Tile, name: str, block: np.ndarray) -> None:
        """Write one tile of one array. A file that replaces another is flushed before the status is written.

        After a power cut, a lost first version is missing or fails its checksum. If a second version is lost, however,
        the first version is intact and would be trusted.
        """
        file = self._file(name, tile.index)
        replaces = file.exists()
        self.arrays[name][tile.region] = block
        if replaces:
            disk.flush(file)
            disk.flush(file.parent)

    def _block(self, tile: Tile, output: Output, values: Mapping[str, Any], failed: np.ndarray) -> np.ndarray:
        new = checked_rows(output, values, len(tile), failed)
        written = tile.status.any()
        block = self.read_block(output.name, tile.index, tile.region) if written else output.empty(tile.status.shape)
        block.reshape(-1, *output.shape)[tile.cells] = new
        return block

    def _error_block(self, tile: Tile, errors: Sequence[str | None]) -> np.ndarray:
        if (tile.status == FAILED).any():
            block = self.read_block("error", tile.index, tile.region)
        else:
            block = np.zeros((*tile.status.shape, disk.ERROR_BYTES), "uint8")
        rows = block.reshape(-1, disk.ERROR_BYTES)
        for cell, text in zip(tile.cells, errors, strict=True):
            data = b"" if text is None else disk.truncated_text(text or "failed without a message")
            rows[cell] = np.frombuffer(data.ljust(disk.ERROR_BYTES, b"\0"), "uint8")
        return block


def status(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Counts, settings, axes and lock of a store, which may be growing meanwhile. Does not take the lock.

    Parameters
    ----------
    path
        The folder of the store.
    """
    reader = Reader(path)
    holder = lock.owner(reader.path)
    if holder is not None:
        holder["running"] = lock.is_running(holder)
    return {
        **reader.counts(),
        "path": str(path),
        "sizes": {axis.dim: axis.size for axis in reader.axes},
        "tiles": sum(1 for _ in reader.tiles()),
        "tile": reader.tile,
        "outputs": [output.name for output in reader.outputs],
        "settings": reader.settings,
        "lock": holder,
        "failures": list(itertools.islice(reader.failures(), 5)),
    }


def open_store(path: str | os.PathLike[str]) -> "xr.Dataset":
    """The dataset of a store as it is now. Does not take the lock."""
    return Reader(path).dataset()
