"""The grid of a sweep, tile by tile: the base class of stores, and the store in memory."""

import itertools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.sweeps import schema
from solvable.sweeps.schema import DONE, FAILED, PENDING, Axis, CallCoordinates, Output

if TYPE_CHECKING:
    import xarray as xr

Region = tuple[slice, ...]
Index = tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """A block of the grid with cells to compute; ``cells`` are their positions in the flattened (C order) tile."""

    index: Index
    region: Region
    status: np.ndarray
    cells: np.ndarray

    def __len__(self) -> int:
        return len(self.cells)


def tiles_of(sizes: Sequence[int], lengths: Sequence[int]) -> Iterator[tuple[Index, Region]]:
    """The index and region of every tile, in C order."""
    counts = [-(-size // length) for size, length in zip(sizes, lengths, strict=True)]
    for index in itertools.product(*(range(count) for count in counts)):
        spans = zip(index, lengths, sizes, strict=True)
        yield index, tuple(slice(number * length, min(size, (number + 1) * length)) for number, length, size in spans)


class Grid(ABC):
    """The cells of a sweep, each pending, done or failed. Subclasses say how tiles are read and written."""

    name: str
    axes: list[Axis]
    outputs: list[Output]
    tile: tuple[int, ...]
    settings: Mapping[str, Any]

    @abstractmethod
    def read_status(self, index: Index, region: Region) -> np.ndarray:
        """The states of the cells of a tile."""

    @abstractmethod
    def read_block(self, name: str, index: Index, region: Region) -> np.ndarray:
        """One output of a tile."""

    @abstractmethod
    def read_errors(self, index: Index, region: Region) -> np.ndarray:
        """The error messages of a tile with failed cells, as an array of strings."""

    @abstractmethod
    def read_call_coordinates(self) -> CallCoordinates:
        """The coordinates of the dimensions that outputs have of their own."""

    def write(self, tile: Tile, values: Mapping[str, Any], errors: Sequence[str | None]) -> None:
        """Store a computed tile: row i of the values and error i (None for success) belong to ``tile.cells[i]``."""
        raise NotImplementedError(f"{self.name} is not open for writing")

    def check_files(self, index: Index, status: np.ndarray) -> None:  # noqa: B027
        """Raise an error if results are missing for cells that are marked as computed."""

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    def tiles(self) -> Iterator[tuple[Index, Region]]:
        return tiles_of(self.sizes, self.tile)

    def pending_tiles(self, retry_failed: bool = True) -> Iterator[Tile]:
        """Tiles with cells to compute, found one by one as they are asked for."""
        for index, region in self.tiles():
            status = self.read_status(index, region)
            self.check_files(index, status)
            waiting = status != DONE if retry_failed else status == PENDING
            if waiting.any():
                yield Tile(index, region, status, np.flatnonzero(waiting))

    def columns(self, tile: Tile) -> dict[str, np.ndarray]:
        """The parameters of the pending cells of a tile, one array per coordinate."""
        positions = np.unravel_index(tile.cells, tile.status.shape)
        return {
            name: values[span.start + where]
            for axis, span, where in zip(self.axes, tile.region, positions, strict=True)
            for name, values in axis.coordinates.items()
        }

    def counts(self) -> dict[str, int]:
        """The number of pending, done and failed cells, and of all cells."""
        totals = np.zeros(3, dtype=int)
        for index, region in self.tiles():
            totals += np.bincount(self.read_status(index, region).ravel(), minlength=3)
        return {**dict(zip(schema.STATUS_NAMES, totals.tolist(), strict=True)), "total": math.prod(self.sizes)}

    def failures(self) -> Iterator[tuple[dict[str, Any], str]]:
        """The parameters and the error message of every failed cell."""
        for index, region in self.tiles():
            status = self.read_status(index, region)
            tile = Tile(index, region, status, np.flatnonzero(status == FAILED))
            if len(tile):
                columns, texts = self.columns(tile), self.read_errors(index, region).ravel()[tile.cells]
                for position, text in enumerate(texts):
                    yield {name: values[position].item() for name, values in columns.items()}, text

    def dataset(self) -> "xr.Dataset":
        """Everything stored so far, with numeric axes in ascending order. Cells without result hold NaN or 0.

        ``status`` is 0 (pending), 1 (done) or 2 (failed). If cells failed, ``error`` has their messages.
        """
        import xarray as xr

        arrays = {output.name: output.empty(self.sizes) for output in self.outputs}
        all_status, texts = np.zeros(self.sizes, "uint8"), None
        orders = [axis.order() for axis in self.axes]
        ranks = [np.argsort(order) for order in orders]
        for index, region in self.tiles():
            # The status first: outputs that are read after it are at least as new.
            status = self.read_status(index, region)
            if not status.any():
                continue
            self.check_files(index, status)
            place = np.ix_(*(rank[span] for rank, span in zip(ranks, region, strict=True)))
            all_status[place] = status
            for output in self.outputs:
                block = self.read_block(output.name, index, region)
                block[status != DONE] = output.fill
                arrays[output.name][place] = block
            if (status == FAILED).any():
                # Objects instead of fixed-width strings: one long message would make every cell as wide.
                texts = np.full(self.sizes, "", dtype=object) if texts is None else texts
                texts[place] = np.where(status == FAILED, self.read_errors(index, region), "")
        dims = tuple(axis.dim for axis in self.axes)
        variables: dict[str, Any] = {
            output.name: ((*dims, *output.dims), arrays[output.name], dict(output.attrs)) for output in self.outputs
        }
        variables["status"] = (dims, all_status, schema.STATUS_ATTRS)
        if texts is not None:
            variables["error"] = (dims, texts, {"long_name": "why the cell failed"})
        coords: dict[str, Any] = {
            name: (axis.dim, values[order], dict(axis.attrs.get(name, {})))
            for axis, order in zip(self.axes, orders, strict=True)
            for name, values in axis.coordinates.items()
        }
        coords |= {name: (name, values, dict(about)) for name, (values, about) in self.read_call_coordinates().items()}
        attrs = {"settings": json.dumps(self.settings)}
        return xr.Dataset(variables, coords=coords, attrs=attrs)


def checked_rows(output: Output, values: Mapping[str, Any], count: int, failed: np.ndarray) -> np.ndarray:
    """One output of ``count`` computed cells in the stored type; failed cells hold the fill value."""
    if output.name not in values:
        raise ValueError(f"a tile came back without {output.name!r}; it has {sorted(values)}")
    rows = np.asarray(values[output.name])
    expected = (count, *output.shape)
    if rows.shape != expected or not np.can_cast(rows.dtype, output.dtype, "same_kind"):
        raise ValueError(f"{output.name!r} came back as {rows.dtype} {rows.shape}; expected {output.dtype} {expected}")
    rows = rows.astype(output.dtype)
    rows[failed] = output.fill
    return rows


class MemoryStore(Grid):
    """The cells of a sweep in memory, with the methods of a :class:`~solvable.sweeps.store.Store`."""

    name = "memory"

    def __init__(
        self,
        axes: Sequence[Axis],
        outputs: Sequence[Output],
        call_coordinates: CallCoordinates | None = None,
        settings: Mapping[str, Any] | None = None,
        tile: int | Sequence[int] = 256,
    ) -> None:
        self.axes, self.outputs = list(axes), list(outputs)
        self._call_coordinates = call_coordinates or {}
        schema.check_names(self.axes, self.outputs, self._call_coordinates)
        self.settings = dict(settings or {})
        self.tile = schema.tile_shape(tile, self.sizes)
        self._status = np.zeros(self.sizes, "uint8")
        self._errors = np.full(self.sizes, "", dtype=object)
        self._arrays = {output.name: output.empty(self.sizes) for output in self.outputs}

    def __enter__(self) -> "MemoryStore":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def read_status(self, index: Index, region: Region) -> np.ndarray:
        return self._status[region].copy()

    def read_block(self, name: str, index: Index, region: Region) -> np.ndarray:
        return self._arrays[name][region].copy()

    def read_errors(self, index: Index, region: Region) -> np.ndarray:
        return self._errors[region]

    def read_call_coordinates(self) -> CallCoordinates:
        return self._call_coordinates

    def write(self, tile: Tile, values: Mapping[str, Any], errors: Sequence[str | None]) -> None:
        failed = np.array([error is not None for error in errors], dtype=bool)
        local = np.unravel_index(tile.cells, tile.status.shape)
        where = tuple(span.start + position for span, position in zip(tile.region, local, strict=True))
        for output in self.outputs:
            self._arrays[output.name][where] = checked_rows(output, values, len(tile), failed)
        self._status[where] = np.where(failed, FAILED, DONE)
        self._errors[where] = np.array([error or "" for error in errors], dtype=object)
