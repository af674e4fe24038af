"""Reading a store: tile by tile, every file checked, no lock needed."""

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.sweeps import layout as disk
from solvable.sweeps.schema import DONE, FAILED, PENDING, STATUS_NAMES, Axis, Output, StoreDamaged

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
        axis = Axis(about["dim"], columns, attrs)
        if axis.digest() != about["digest"]:
            raise StoreDamaged(f"the values of axis {axis.dim!r} in {self.path} were altered; {disk.START_AGAIN}")
        return axis

    def _read_column(self, name: str) -> np.ndarray:
        try:
            column = np.asarray(self.arrays[name][:])
        except Exception as error:
            message = f"the coordinate {name!r} in {self.path} cannot be read ({error}); {disk.START_AGAIN}"
            raise StoreDamaged(message) from error
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

    def tiles(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Every tile's number and region."""
        sizes, lengths = self.layout.sizes, self.layout.tile
        for index in itertools.product(*(range(count) for count in self.grid)):
            region = tuple(
                slice(number * length, min(size, (number + 1) * length))
                for number, length, size in zip(index, lengths, sizes, strict=True)
            )
            yield index, region

    def read_block(self, name: str, index: Sequence[int], region: tuple[slice, ...]) -> np.ndarray:
        """One tile of one array, its checksum checked."""
        try:
            return np.array(self.arrays[name][region])
        except OSError:
            raise
        except Exception as error:
            file = disk.chunk_file(self.path, self.layout, name, index)
            raise StoreDamaged(f"{file} is damaged ({error}); {REMEDY}") from error

    def read_tile_status(self, index: Sequence[int], region: tuple[slice, ...]) -> np.ndarray:
        """The states of a tile's cells; a tile that was never written has no file and is pending."""
        file = disk.chunk_file(self.path, self.layout, "status", index)
        if not file.exists():
            return np.zeros([span.stop - span.start for span in region], "uint8")
        status = self.read_block("status", index, region)
        if status.max(initial=0) > FAILED:
            raise StoreDamaged(f"{file} holds the unknown state {status.max()}; {REMEDY}")
        return status

    def check_tile_files(self, index: Sequence[int], status: np.ndarray) -> None:
        """Raise if a tile's status speaks of results whose files are gone."""
        names = [output.name for output in self.layout.outputs] if (status != PENDING).any() else []
        if (status == FAILED).any():
            names.append("error")
        for name in names:
            file = disk.chunk_file(self.path, self.layout, name, index)
            if not file.exists():
                raise StoreDamaged(f"{file} is missing though its cells are marked as computed; {REMEDY}")

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
                for where in zip(*np.nonzero(status == FAILED), strict=True):
                    yield self._parameters(region, where), disk.text_of(texts[where])

    def _parameters(self, region: tuple[slice, ...], where: Sequence[int]) -> dict[str, Any]:
        return {
            name: values[span.start + position].item()
            for axis, span, position in zip(self.axes, region, where, strict=True)
            for name, values in axis.coordinates.items()
        }

    def dataset(self) -> "xr.Dataset":
        """Everything stored so far, in memory, numeric axes in ascending order. Cells without result hold NaN or 0.

        ``status`` is 0 (pending), 1 (done) or 2 (failed); ``error`` (the texts) is there if a cell failed.
        """
        arrays, status, texts = self._read_all()
        if disk.read_layout(self.path).identity != self.layout.identity:
            raise ValueError(f"{self.path} was started again (overwrite) while it was read; read it once more")
        return self._assemble(arrays, status, texts)

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
                for where in zip(*np.nonzero(status == FAILED), strict=True):
                    here = tuple(span.start + position for span, position in zip(region, where, strict=True))
                    texts[here] = disk.text_of(errors[where])
        return arrays, all_status, texts

    def _assemble(self, arrays: dict[str, np.ndarray], status: np.ndarray, texts: np.ndarray | None) -> "xr.Dataset":
        import xarray as xr

        attributes = self.layout.attributes
        dims = self.layout.dims
        variables: dict[str, Any] = {
            output.name: ((*dims, *output.dims), arrays[output.name], dict(output.attrs))
            for output in self.layout.outputs
        }
        variables["status"] = (dims, status, self.layout.arrays["status"]["attributes"])
        if texts is not None:
            variables["error"] = (dims, texts.astype(str), {"long_name": "why the cell failed"})
        coords: dict[str, Any] = {
            name: (axis.dim, values, dict(axis.attrs.get(name, {})))
            for axis in self.axes
            for name, values in axis.coordinates.items()
        }
        for name in attributes["call_coordinates"]:
            coords[name] = (name, self._read_column(name), self.layout.arrays[name].get("attributes", {}))
        attrs = {"settings": json.dumps(attributes["settings"]), "fingerprint": attributes["fingerprint"]}
        dataset = xr.Dataset(variables, coords=coords, attrs=attrs)
        order = {axis.dim: np.argsort(axis.coordinates[axis.dim], kind="stable") for axis in self.axes if axis.sortable}
        return dataset.isel(order) if order else dataset
