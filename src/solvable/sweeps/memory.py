"""A sweep that is kept in memory: what :class:`~solvable.sweeps.store.Store` is on disk, without the disk."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from solvable.sweeps.schema import DONE, FAILED, PENDING, STATUS_NAMES, Axis, CallCoordinates, Output, check_names
from solvable.sweeps.store import Tile


class MemoryStore:
    """Cells, their states and results as arrays."""

    name = "memory"

    def __init__(
        self,
        axes: Sequence[Axis],
        outputs: Sequence[Output],
        call_coordinates: CallCoordinates,
        tile: tuple[int, ...],
    ) -> None:
        check_names(axes, outputs, call_coordinates)
        self.axes, self.outputs, self.tile = list(axes), list(outputs), tile
        self._call_coordinates = call_coordinates
        self._sizes = tuple(axis.size for axis in axes)
        self._status = np.zeros(self._sizes, "uint8")
        self._errors: dict[tuple[int, ...], str] = {}
        self._values = {o.name: np.full((*self._sizes, *o.shape), o.fill, o.dtype) for o in outputs}

    def pending_tiles(self, retry_failed: bool = True) -> Iterator[Tile]:
        counts = [range(-(-size // length)) for size, length in zip(self._sizes, self.tile, strict=True)]
        for index in itertools.product(*counts):
            region = tuple(
                slice(place * length, min(size, (place + 1) * length))
                for place, length, size in zip(index, self.tile, self._sizes, strict=True)
            )
            status = self._status[region].copy()
            waiting = status != DONE if retry_failed else status == PENDING
            if waiting.any():
                yield Tile(index, region, status, np.flatnonzero(waiting))

    def columns(self, tile: Tile) -> dict[str, np.ndarray]:
        positions = np.unravel_index(tile.cells, tile.status.shape)
        return {
            name: values[span.start + where]
            for axis, span, where in zip(self.axes, tile.region, positions, strict=True)
            for name, values in axis.coordinates.items()
        }

    def write(self, tile: Tile, values: Mapping[str, Any], errors: Sequence[str | None]) -> None:
        positions = np.unravel_index(tile.cells, tile.status.shape)
        places = tuple(span.start + where for span, where in zip(tile.region, positions, strict=True))
        failed = np.array([error is not None for error in errors])
        for output in self.outputs:
            new = np.array(values[output.name], dtype=output.dtype)
            new[failed] = output.fill
            self._values[output.name][places] = new
        self._status[places] = np.where(failed, FAILED, DONE)
        for *place, error in zip(*places, errors, strict=True):
            if error is not None:
                self._errors[tuple(map(int, place))] = error

    def counts(self) -> dict[str, int]:
        totals = np.bincount(self._status.ravel(), minlength=3)
        return {**dict(zip(STATUS_NAMES, totals.tolist(), strict=True)), "total": self._status.size}

    def failures(self) -> Iterator[tuple[dict[str, Any], str]]:
        """The parameters of every failed cell and why it failed."""
        for place, error in self._errors.items():
            yield (
                {
                    name: values[position].item()
                    for axis, position in zip(self.axes, place, strict=True)
                    for name, values in axis.coordinates.items()
                },
                error,
            )

    def dataset(self) -> xr.Dataset:
        """The results; numeric axes in ascending order, as a store on disk has them."""
        dims = tuple(axis.dim for axis in self.axes)
        variables: dict[str, Any] = {
            output.name: ((*dims, *output.dims), self._values[output.name], dict(output.attrs))
            for output in self.outputs
        }
        meaning = {"long_name": "state of the cell", "flag_values": [0, 1, 2], "flag_meanings": "pending done failed"}
        variables["status"] = (dims, self._status, meaning)
        if self._errors:
            texts = np.full(self._sizes, "", dtype=object)
            for place, error in self._errors.items():
                texts[place] = error
            variables["error"] = (dims, texts.astype(str), {"long_name": "why the cell failed"})
        coords: dict[str, Any] = {
            name: (axis.dim, values, dict(axis.attrs.get(name, {})))
            for axis in self.axes
            for name, values in axis.coordinates.items()
        }
        coords |= {name: (name, values, dict(attrs)) for name, (values, attrs) in self._call_coordinates.items()}
        dataset = xr.Dataset(variables, coords=coords)
        order = {axis.dim: np.argsort(axis.coordinates[axis.dim], kind="stable") for axis in self.axes if axis.sortable}
        return dataset.isel(order) if order else dataset
