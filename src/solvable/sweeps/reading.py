"""Reading a store: tile by tile, every file checked, no lock needed."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.sweeps import layout as disk
from solvable.sweeps.grid import Region, assemble, cell_parameters, tiles_of
from solvable.sweeps.schema import DONE, FAILED, PENDING, STATUS_NAMES, Axis, DamagedStoreError, Output, column_digest

if TYPE_CHECKING:
    import xarray as xr

REMEDY = "open the sweep with verify=True: damaged tiles are set back to pending and computed again"


class Reader:
    """A store open for reading. What a tile's status says is done was whole on disk before the status was written."""

    def __init__(self, path: Path, writable: bool = False) -> None:
        self.path = path
        self._writable = writable
        self.reopen()

    def reopen(self) -> None:
        """Read the root again: the axes may have grown."""
        self.layout = disk.read_layout(self.path)
        self.arrays = disk.open_arrays(self.path, list(self.layout.arrays), self._writable)
        self.axes = [self._read_axis(about) for about in self.layout.attributes["axes"]]

    def _read_axis(self, about: dict[str, Any]) -> Axis:
        columns = {name: self._read_column(name) for name in about["coordinates"]}
        attrs = {name: self.layout.arrays[name].get("attributes", {}) for name in columns}
        words = f"the values of axis {about['dim']!r} in {self.path} were altered; {disk.START_AGAIN}"
        try:
            axis = Axis(about["dim"], columns, attrs)
        except ValueError as error:
            raise DamagedStoreError(words) from error
        if axis.digest() != about["digest"]:
            raise DamagedStoreError(words)
        return axis

    def _read_column(self, name: str) -> np.ndarray:
        try:
            column = np.asarray(self.arrays[name][:])
        except Exception as error:
            message = f"the coordinate {name!r} in {self.path} cannot be read ({error}); {disk.START_AGAIN}"
            raise DamagedStoreError(message) from error
        return np.array(column.tolist(), dtype=str) if column.dtype.kind in "OT" else column

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def outputs(self) -> list[Output]:
        return self.layout.outputs

    @property
    def grid(self) -> tuple[int, ...]:
        """The number of tiles along each axis."""
        return tuple(-(-size // length) for size, length in zip(self.layout.sizes, self.layout.tile, strict=True))

    def tiles(self) -> Iterator[tuple[tuple[int, ...], Region]]:
        """Every tile's number and region."""
        return tiles_of(self.layout.sizes, self.layout.tile)

    def read_block(self, name: str, index: Sequence[int], region: Region) -> np.ndarray:
        """One tile of one array, its checksum checked."""
        try:
            return np.array(self.arrays[name][region])
        except OSError:
            raise
        except Exception as error:
            file = disk.chunk_file(self.path, self.layout, name, index)
            raise DamagedStoreError(f"{file} is damaged ({error}); {REMEDY}") from error

    def read_tile_status(self, index: Sequence[int], region: Region) -> np.ndarray:
        """The states of a tile's cells; a tile that was never written has no file and is pending."""
        file = disk.chunk_file(self.path, self.layout, "status", index)
        if not file.exists():
            return np.zeros([span.stop - span.start for span in region], "uint8")
        status = self.read_block("status", index, region)
        if status.max(initial=0) > FAILED:
            raise DamagedStoreError(f"{file} holds the unknown state {status.max()}; {REMEDY}")
        return status

    def check_tile_files(self, index: Sequence[int], status: np.ndarray) -> None:
        """Raise if a tile's status speaks of results whose files are gone."""
        names = [output.name for output in self.layout.outputs] if (status != PENDING).any() else []
        if (status == FAILED).any():
            names.append("error")
        for name in names:
            file = disk.chunk_file(self.path, self.layout, name, index)
            if not file.exists():
                raise DamagedStoreError(f"{file} is missing though its cells are marked as computed; {REMEDY}")

    def counts(self) -> dict[str, int]:
        """How many cells are done, failed, pending, and in all. One tile in memory at a time."""
        totals = np.zeros(3, dtype=int)
        for index, region in self.tiles():
            totals += np.bincount(self.read_tile_status(index, region).ravel(), minlength=3)
        named = dict(zip(STATUS_NAMES, totals.tolist(), strict=True))
        return {**named, "total": math.prod(self.layout.sizes)}

    def failures(self) -> Iterator[tuple[dict[str, Any], str]]:
        """The parameters of every failed cell and why it failed."""
        for index, region in self.tiles():
            status = self.read_tile_status(index, region)
            if (status == FAILED).any():
                texts = self.read_block("error", index, region)
                for where in _positions(status == FAILED):
                    yield cell_parameters(self.axes, _shifted(region, where)), disk.text_of(texts[where])

    def dataset(self) -> "xr.Dataset":
        """Everything stored so far, in memory, numeric axes in ascending order. Cells without result hold NaN or 0.

        ``status`` is 0 (pending), 1 (done) or 2 (failed); ``error`` (the texts) is there if a cell failed.
        """
        arrays, status, texts = self._read_all()
        if disk.read_layout(self.path).identity != self.layout.identity:
            raise ValueError(f"{self.path} was started again (overwrite) while it was read; read it once more")
        attributes = self.layout.attributes
        call_coordinates = {name: self._read_call_coordinate(name) for name in attributes["call_coordinates"]}
        return assemble(self.axes, self.outputs, call_coordinates, attributes["settings"], arrays, status, texts)

    def _read_call_coordinate(self, name: str) -> tuple[np.ndarray, dict[str, Any]]:
        column = self._read_column(name)
        if column_digest(column) != self.layout.attributes["call_coordinates"][name]["digest"]:
            raise DamagedStoreError(f"the coordinate {name!r} in {self.path} was altered; {disk.START_AGAIN}")
        return column, self.layout.arrays[name].get("attributes", {})

    def _read_all(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray | None]:
        sizes = self.layout.sizes
        outputs = self.layout.outputs
        arrays = {output.name: np.full((*sizes, *output.shape), output.fill, output.dtype) for output in outputs}
        all_status = np.zeros(sizes, "uint8")
        texts: np.ndarray | None = None
        for index, region in self.tiles():
            # The status first: outputs read after it are at least as new as it.
            status = self.read_tile_status(index, region)
            if not status.any():
                continue
            self.check_tile_files(index, status)
            all_status[region] = status
            for output in outputs:
                block = self.read_block(output.name, index, region)
                block[status != DONE] = output.fill
                arrays[output.name][region] = block
            if (status == FAILED).any():
                texts = np.full(sizes, "", dtype=object) if texts is None else texts
                errors = self.read_block("error", index, region)
                for where in _positions(status == FAILED):
                    texts[_shifted(region, where)] = disk.text_of(errors[where])
        return arrays, all_status, texts


def _positions(mask: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(where) for where in np.argwhere(mask).tolist()]


def _shifted(region: Region, where: Sequence[int]) -> tuple[int, ...]:
    return tuple(span.start + position for span, position in zip(region, where, strict=True))
