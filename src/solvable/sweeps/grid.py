"""Tiles of a grid: where they lie, which parameters their cells have, and how arrays over them become a dataset."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.sweeps.schema import Axis, CallCoordinates, Output, digest

if TYPE_CHECKING:
    import xarray as xr

Region = tuple[slice, ...]
STATUS_ATTRS = {"long_name": "state of the cell", "flag_values": [0, 1, 2], "flag_meanings": "pending done failed"}


@dataclass(frozen=True)
class Tile:
    """A block of the grid with cells to compute."""

    index: tuple[int, ...]
    region: Region
    status: np.ndarray
    cells: np.ndarray
    """Positions of the pending cells in the flattened (C order) tile."""

    def __len__(self) -> int:
        return len(self.cells)


def tiles_of(sizes: Sequence[int], lengths: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Region]]:
    """Every tile's number and region, in C order."""
    counts = [-(-size // length) for size, length in zip(sizes, lengths, strict=True)]
    for index in itertools.product(*(range(count) for count in counts)):
        spans = zip(index, lengths, sizes, strict=True)
        yield index, tuple(slice(number * length, min(size, (number + 1) * length)) for number, length, size in spans)


def cell_columns(axes: Sequence[Axis], tile: Tile) -> dict[str, np.ndarray]:
    """The parameters of a tile's pending cells, one array per coordinate."""
    positions = np.unravel_index(tile.cells, tile.status.shape)
    return {
        name: values[span.start + where]
        for axis, span, where in zip(axes, tile.region, positions, strict=True)
        for name, values in axis.coordinates.items()
    }


def cell_parameters(axes: Sequence[Axis], cell: Sequence[int]) -> dict[str, Any]:
    """The parameters of one cell."""
    return {
        name: values[position].item()
        for axis, position in zip(axes, cell, strict=True)
        for name, values in axis.coordinates.items()
    }


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


def assemble(
    axes: Sequence[Axis],
    outputs: Sequence[Output],
    call_coordinates: CallCoordinates,
    settings: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    status: np.ndarray,
    texts: np.ndarray | None,
) -> "xr.Dataset":
    """Arrays over the grid as a dataset, numeric axes in ascending order."""
    import xarray as xr

    dims = tuple(axis.dim for axis in axes)
    variables: dict[str, Any] = {
        output.name: ((*dims, *output.dims), arrays[output.name], dict(output.attrs)) for output in outputs
    }
    variables["status"] = (dims, status, STATUS_ATTRS)
    if texts is not None:
        # Objects, not fixed-width text: one long message would make every cell as wide.
        variables["error"] = (dims, texts, {"long_name": "why the cell failed"})
    coords: dict[str, Any] = {
        name: (axis.dim, values, dict(axis.attrs.get(name, {})))
        for axis in axes
        for name, values in axis.coordinates.items()
    }
    coords |= {name: (name, values, dict(attrs)) for name, (values, attrs) in call_coordinates.items()}
    attrs = {"settings": json.dumps(settings), "fingerprint": digest(settings)}
    dataset = xr.Dataset(variables, coords=coords, attrs=attrs)
    order = {axis.dim: np.argsort(axis.coordinates[axis.dim], kind="stable") for axis in axes if axis.sortable}
    return dataset.isel(order) if order else dataset
