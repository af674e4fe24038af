"""A sweep that is kept in memory only: the same verbs as the store, no file."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.sweeps.grid import Tile, assemble, cell_columns, cell_parameters, checked_rows, tiles_of
from solvable.sweeps.schema import (
    DONE,
    FAILED,
    PENDING,
    STATUS_NAMES,
    Axis,
    CallCoordinates,
    Output,
    check_names,
    tile_shape,
)

if TYPE_CHECKING:
    import xarray as xr


class MemoryStore:
    """Cells in memory; for sweeps that are small enough to be done again."""

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
        check_names(self.axes, self.outputs, self._call_coordinates)
        self._settings = dict(settings or {})
        self._sizes = tuple(axis.size for axis in self.axes)
        self._tile = tile_shape(tile, self._sizes)
        self._status = np.full(self._sizes, PENDING, "uint8")
        self._errors: dict[tuple[int, ...], str] = {}
        self._arrays = {
            output.name: np.full((*self._sizes, *output.shape), output.fill, output.dtype) for output in self.outputs
        }

    def __enter__(self) -> "MemoryStore":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close: here so that both kinds of store are used alike."""

    def pending_tiles(self, retry_failed: bool = True) -> Iterator[Tile]:
        for index, region in tiles_of(self._sizes, self._tile):
            status = self._status[region].copy()
            waiting = status != DONE if retry_failed else status == PENDING
            if waiting.any():
                yield Tile(index, region, status, np.flatnonzero(waiting))

    def columns(self, tile: Tile) -> dict[str, np.ndarray]:
        return cell_columns(self.axes, tile)

    def write(self, tile: Tile, values: Mapping[str, Any], errors: Sequence[str | None]) -> None:
        failed = np.array([error is not None for error in errors], dtype=bool)
        local = np.unravel_index(tile.cells, tile.status.shape)
        where = tuple(span.start + position for span, position in zip(tile.region, local, strict=True))
        for output in self.outputs:
            self._arrays[output.name][where] = checked_rows(output, values, len(tile), failed)
        self._status[where] = np.where(failed, FAILED, DONE)
        for *cell, error in zip(*(positions.tolist() for positions in where), errors, strict=True):
            if error is not None:
                self._errors[tuple(cell)] = error

    def counts(self) -> dict[str, int]:
        numbers = np.bincount(self._status.ravel(), minlength=3).tolist()
        return {**dict(zip(STATUS_NAMES, numbers, strict=True)), "total": self._status.size}

    def failures(self) -> Iterator[tuple[dict[str, Any], str]]:
        for cell in self._failed_cells():
            yield cell_parameters(self.axes, cell), self._errors[cell]

    def _failed_cells(self) -> list[tuple[int, ...]]:
        return [tuple(cell) for cell in np.argwhere(self._status == FAILED).tolist()]

    def dataset(self) -> "xr.Dataset":
        texts = None
        if (self._status == FAILED).any():
            texts = np.full(self._sizes, "", dtype=object)
            for cell in self._failed_cells():
                texts[cell] = self._errors[cell]
        return assemble(
            self.axes, self.outputs, self._call_coordinates, self._settings, self._arrays, self._status, texts
        )
