"""A sweep that is kept in memory only."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from solvable.sweeps.grid import Grid, Index, Region, Tile, checked_rows
from solvable.sweeps.schema import DONE, FAILED, Axis, CallCoordinates, Output, check_names, tile_shape


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
        check_names(self.axes, self.outputs, self._call_coordinates)
        self.settings = dict(settings or {})
        self.tile = tile_shape(tile, self.sizes)
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
