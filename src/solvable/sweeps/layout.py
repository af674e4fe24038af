"""How a sweep lies on disk: one Zarr v3 group whose root ``zarr.json`` is the only thing ever believed.

The root holds the settings, the axes and a copy of every array's metadata, with a checksum over all of it. Replacing
that one file by a rename publishes a new store or a longer axis; until then nothing of it counts.
"""

import contextlib
import importlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from solvable.sweeps.grid import STATUS_ATTRS
from solvable.sweeps.ownership import is_sweep
from solvable.sweeps.schema import (
    Axis,
    CallCoordinates,
    DamagedStoreError,
    Output,
    canonical_json,
    column_digest,
    digest,
    plain_column,
)

FORMAT = "solvable-sweep-1"
ERROR_BYTES = 256
COLUMN_ROOM = 4096
# An all-NaN result is a result: by default its chunk would get no file and look unwritten.
KEEP_EMPTY_CHUNKS = {"array.write_empty_chunks": True}
START_AGAIN = "restore it from a copy, or start again with overwrite=True"


def need(module: str) -> Any:
    """Import an optional package, or say how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f"stored sweeps need {package!r}: pip install solvable[sweep]") from error


@dataclass(frozen=True)
class Layout:
    """The root document of a store, read and checked."""

    attributes: dict[str, Any]
    arrays: dict[str, dict[str, Any]]

    @property
    def identity(self) -> str:
        return self.attributes["identity"]

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(axis["dim"] for axis in self.attributes["axes"])

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(axis["size"] for axis in self.attributes["axes"])

    @property
    def tile(self) -> tuple[int, ...]:
        return tuple(self.attributes["tile"])

    @property
    def outputs(self) -> list[Output]:
        return [
            Output(about["name"], tuple(about["dims"]), tuple(about["shape"]), about["dtype"], about["attrs"])
            for about in self.attributes["outputs"]
        ]

    def with_axes(self, axes: Sequence[Axis]) -> "Layout":
        """The same store with longer axes."""
        sizes = {axis.dim: axis.size for axis in axes}
        arrays = {}
        for name, metadata in self.arrays.items():
            dims = metadata["dimension_names"]
            shape = [sizes.get(dim, length) for dim, length in zip(dims, metadata["shape"], strict=True)]
            arrays[name] = {**metadata, "shape": shape}
        return Layout({**self.attributes, "axes": describe_axes(axes)}, arrays)


def describe_axes(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    return [
        {
            "dim": axis.dim,
            "size": axis.size,
            "digest": axis.digest(),
            "coordinates": {name: values.dtype.kind for name, values in axis.coordinates.items()},
        }
        for axis in axes
    ]


def describe_outputs(outputs: Sequence[Output]) -> list[dict[str, Any]]:
    return [
        {
            "name": output.name,
            "dims": list(output.dims),
            "shape": list(output.shape),
            "dtype": np.dtype(output.dtype).name,
            "attrs": json.loads(json.dumps(dict(output.attrs))),
        }
        for output in outputs
    ]


def describe_call_coordinates(call_coordinates: CallCoordinates) -> dict[str, Any]:
    return {
        name: {"size": len(np.asarray(values)), "digest": column_digest(plain_column(name, values))}
        for name, (values, _) in call_coordinates.items()
    }


def build(
    folder: Path,
    axes: Sequence[Axis],
    outputs: Sequence[Output],
    call_coordinates: CallCoordinates,
    settings: Mapping[str, Any],
    tile: tuple[int, ...],
) -> Layout:
    """Make a whole empty store in a folder that does not exist yet; its root is written last."""
    folder.mkdir()
    # Says whose folder this is, should we be killed; without checksum it is never believed.
    unfinished = {"zarr_format": 3, "node_type": "group", "attributes": {"format": FORMAT, "unfinished": True}}
    replace_file(folder / "zarr.json", json.dumps(unfinished), durable=False)
    dims = tuple(axis.dim for axis in axes)
    sizes = tuple(axis.size for axis in axes)
    for axis in axes:
        for name, values in axis.coordinates.items():
            room = max(axis.size, COLUMN_ROOM)
            _create(folder, name, (axis.dim,), values.shape, (room,), values.dtype, None, axis.attrs.get(name, {}))
    for name, (values, attrs) in call_coordinates.items():
        column = plain_column(name, values)
        _create(folder, name, (name,), column.shape, column.shape, column.dtype, None, attrs)
        write_column(folder, name, column)
    zipped = " ".join(name for axis in axes for name in axis.coordinates if name != axis.dim)
    for output in outputs:
        chunk = (*tile, *(max(1, length) for length in output.shape))
        shape = (*sizes, *output.shape)
        # The CF convention for coordinates that are no dimension: any reader of Zarr then finds them.
        attrs = {**output.attrs, "coordinates": zipped} if zipped else output.attrs
        _create(folder, output.name, (*dims, *output.dims), shape, chunk, output.dtype, output.fill, attrs)
    _create(folder, "status", dims, sizes, tile, "uint8", 0, STATUS_ATTRS)
    about = {"long_name": "why the cell failed, as UTF-8 bytes"}
    _create(folder, "error", (*dims, "byte"), (*sizes, ERROR_BYTES), (*tile, ERROR_BYTES), "uint8", 0, about)
    for axis in axes:
        for name, values in axis.coordinates.items():
            write_column(folder, name, values)
    attributes = {
        "format": FORMAT,
        "identity": uuid.uuid4().hex,
        "settings": settings,
        "fingerprint": digest(settings),
        "tile": list(tile),
        "axes": describe_axes(axes),
        "outputs": describe_outputs(outputs),
        "call_coordinates": describe_call_coordinates(call_coordinates),
    }
    arrays = {path.parent.name: json.loads(path.read_text()) for path in sorted(folder.glob("*/zarr.json"))}
    layout = Layout(attributes, arrays)
    publish(folder, layout)
    return layout


def _create(
    folder: Path,
    name: str,
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    chunk: tuple[int, ...],
    dtype: Any,
    fill: Any,
    attrs: Mapping[str, Any],
) -> None:
    zarr, codecs, storage = need("zarr"), need("zarr.codecs"), need("zarr.storage")
    kind = np.dtype(dtype)
    # Zarr writes the files of one call side by side and does not wait for the others when one fails: their threads
    # would go on in a folder that is being cleared. So it only composes the metadata, and we write the file.
    documents: dict[str, Any] = {}
    zarr.create_array(
        store=storage.MemoryStore(documents),
        shape=shape,
        chunks=chunk,
        dtype=str if kind.kind == "U" else kind,
        fill_value=fill,
        dimension_names=dims,
        compressors=[codecs.ZstdCodec(level=1), codecs.Crc32cCodec()],
        attributes=json.loads(json.dumps(dict(attrs))),
    )
    write_metadata(folder, name, json.loads(documents["zarr.json"].to_bytes()))


def open_arrays(folder: Path, names: Sequence[str], writable: bool) -> dict[str, Any]:
    """Arrays as the root describes them, whatever their own metadata files say."""
    zarr = need("zarr")
    with zarr.config.set(KEEP_EMPTY_CHUNKS):
        group = zarr.open_group(str(folder), mode="r+" if writable else "r", use_consolidated=True)
        return {name: group[name] for name in names}


def write_column(folder: Path, name: str, values: np.ndarray) -> None:
    """Write a whole coordinate and see it on the disk."""
    zarr = need("zarr")
    with zarr.config.set(KEEP_EMPTY_CHUNKS):
        array = zarr.open_array(str(folder / name), mode="r+")
        # One chunk a call, so that nothing is still being written when one of them fails (see _create).
        for start in range(0, len(values), array.chunks[0]):
            part = slice(start, start + array.chunks[0])
            array[part] = values[part]
    files = [path for path in (folder / name / "c").iterdir() if path.suffix != ".partial"]
    for path in (*files, folder / name / "c", folder / name):
        flush(path)


def write_metadata(folder: Path, name: str, metadata: Mapping[str, Any]) -> None:
    # Not forced to the disk: should it be lost, the root has a copy.
    (folder / name).mkdir(exist_ok=True)
    replace_file(folder / name / "zarr.json", json.dumps(metadata, indent=1), durable=False)


def publish(folder: Path, layout: Layout) -> None:
    """Replace the root document: from here on the store is what ``layout`` says."""
    attributes = {key: value for key, value in layout.attributes.items() if key != "checksum"}
    attributes["checksum"] = digest([attributes, layout.arrays])
    document = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": attributes,
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": layout.arrays},
    }
    restore_metadata(folder, layout)
    replace_file(folder / "zarr.json", json.dumps(document, indent=1), durable=True)


def read_layout(folder: Path) -> Layout:
    """The root document, or an error in words if it is not whole."""
    try:
        document = json.loads((folder / "zarr.json").read_text())
        attributes, arrays = document["attributes"], document["consolidated_metadata"]["metadata"]
        stored, version = attributes["checksum"], attributes["format"]
    except NotADirectoryError:
        raise ValueError(f"{folder} is a file, not a sweep store; choose another path") from None
    except FileNotFoundError:
        if not folder.exists():
            raise FileNotFoundError(f"there is no store {folder}") from None
        if not is_sweep(folder):
            raise ValueError(f"{folder} is not a sweep store; choose another path") from None
        raise DamagedStoreError(f"{folder} has no zarr.json: it was damaged; {START_AGAIN}") from None
    except (ValueError, KeyError, TypeError) as error:
        if not is_sweep(folder):
            raise ValueError(f"{folder} is not a sweep store; choose another path") from None
        raise DamagedStoreError(
            f"{folder / 'zarr.json'} is damaged or no sweep's ({error!r}); {START_AGAIN}"
        ) from error
    if version != FORMAT:
        raise DamagedStoreError(f"{folder} has the format {version!r}, this package writes {FORMAT!r}; {START_AGAIN}")
    if stored != digest([{key: value for key, value in attributes.items() if key != "checksum"}, arrays]):
        raise DamagedStoreError(f"{folder / 'zarr.json'} was altered: its checksum does not match; {START_AGAIN}")
    return Layout(attributes, arrays)


def metadata_faults(folder: Path, layout: Layout) -> list[str]:
    """What is wrong with the arrays' own metadata files; a mere difference in length is an unfinished extension."""
    faults = []
    for name, expected in layout.arrays.items():
        path = folder / name / "zarr.json"
        try:
            found = json.loads(path.read_text())
            same = canonical_json({**found, "shape": 0}) == canonical_json({**expected, "shape": 0})
        except (OSError, ValueError, TypeError) as error:
            faults.append(f"{path} is missing or damaged ({type(error).__name__})")
        else:
            if not same:
                faults.append(f"{path} was altered")
    return faults


def restore_metadata(folder: Path, layout: Layout) -> None:
    """Make the arrays' own metadata files say what the root says."""
    for name, expected in layout.arrays.items():
        try:
            same = canonical_json(json.loads((folder / name / "zarr.json").read_text())) == canonical_json(expected)
        except (OSError, ValueError):
            same = False
        if not same:
            write_metadata(folder, name, expected)


def chunk_file(folder: Path, layout: Layout, name: str, index: Sequence[int]) -> Path:
    """The file of one tile of one array; the call's own dimensions are one chunk each."""
    extra = len(layout.arrays[name]["shape"]) - len(index)
    return folder.joinpath(name, "c", *(str(number) for number in (*index, *[0] * extra)))


def replace_file(path: Path, text: str, durable: bool) -> None:
    """Write a small file whole or not at all; if durable, see it on the disk."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with open(draft, "w") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    if durable:
        flush(path.parent)


def flush(path: Path) -> None:
    """Force a file or a folder's list of names to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cut_text(text: str) -> bytes:
    """A text as at most ``ERROR_BYTES`` bytes of UTF-8, never cut inside a character."""
    return text.encode()[:ERROR_BYTES].decode(errors="ignore").encode()


def text_of(data: np.ndarray) -> str:
    return data.tobytes().rstrip(b"\0").decode(errors="replace")


def plain_json(value: Any, name: str) -> Any:
    """A value as it comes back from JSON, or an error that says it cannot go there."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be plain JSON (numbers, texts, lists, dictionaries): {error}") from error
