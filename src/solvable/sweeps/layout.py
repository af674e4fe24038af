"""The files of a sweep store: one Zarr v3 group, whose root ``zarr.json`` is the only file that is trusted.

The root holds the settings, the axes and a copy of every array's metadata, with a checksum over all of it. A new store
or a longer axis takes effect when that one file is replaced by a rename, and not before.
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

from solvable.files.zarr_folder import ROOT, is_sweep_root
from solvable.sweeps import schema
from solvable.sweeps.schema import Axis, CallCoordinates, DamagedStoreError, Output

FORMAT = "solvable-sweep-1"
ERROR_BYTES = 256
# Coordinates have chunks of at least this length, so that they can grow within one file.
COLUMN_CHUNK = 4096
# Without it a chunk of fill values, such as a result that is NaN everywhere, gets no file and looks as if never
# written.
KEEP_EMPTY_CHUNKS = {"array.write_empty_chunks": True}
START_AGAIN = "restore it from a copy, or start again with overwrite=True"


def need(module: str) -> Any:
    """Import an optional package, or raise an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"stored sweeps need {module.split('.')[0]!r}: pip install solvable[sweep]") from error


@dataclass(frozen=True)
class Layout:
    """The root document of a store, read and checked."""

    attributes: dict[str, Any]
    arrays: dict[str, dict[str, Any]]

    def with_axes(self, axes: Sequence[Axis]) -> "Layout":
        """The same store with longer axes."""
        sizes = {axis.dim: axis.size for axis in axes}
        arrays = {}
        for name, metadata in self.arrays.items():
            dims = metadata["dimension_names"]
            shape = [sizes.get(dim, length) for dim, length in zip(dims, metadata["shape"], strict=True)]
            arrays[name] = {**metadata, "shape": shape}
        return Layout({**self.attributes, "axes": [axis.describe() for axis in axes]}, arrays)


def describe(
    axes: Sequence[Axis], outputs: Sequence[Output], call_coordinates: CallCoordinates, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What a store contains, as JSON."""
    columns = {name: schema.plain_column(name, values) for name, (values, _) in call_coordinates.items()}
    return {
        "settings": settings,
        "axes": [axis.describe() for axis in axes],
        "outputs": [output.describe() for output in outputs],
        "call_coordinates": {
            name: {"size": len(column), "digest": schema.column_digest(column)} for name, column in columns.items()
        },
    }


def build(
    folder: Path,
    axes: Sequence[Axis],
    outputs: Sequence[Output],
    call_coordinates: CallCoordinates,
    settings: Mapping[str, Any],
    tile: tuple[int, ...],
) -> None:
    """Create an empty store in a new folder; its root is written last."""
    folder.mkdir()
    # Identifies the folder if this process is killed. Without a checksum it is never trusted.
    unfinished = {"zarr_format": 3, "node_type": "group", "attributes": {"format": FORMAT, "unfinished": True}}
    replace_file(folder / ROOT, json.dumps(unfinished), durable=False)
    dims, sizes = tuple(axis.dim for axis in axes), tuple(axis.size for axis in axes)
    for axis in axes:
        for name, values in axis.coordinates.items():
            chunk = (max(axis.size, COLUMN_CHUNK),)
            _create(folder, name, (axis.dim,), values.shape, chunk, values.dtype, None, axis.attrs.get(name, {}))
            write_column(folder, name, values)
    for name, (values, attrs) in call_coordinates.items():
        column = schema.plain_column(name, values)
        _create(folder, name, (name,), column.shape, column.shape, column.dtype, None, attrs)
        write_column(folder, name, column)
    zipped = " ".join(name for axis in axes for name in axis.coordinates if name != axis.dim)
    for output in outputs:
        chunks = (*tile, *(max(1, length) for length in output.shape))
        # The CF convention for coordinates that are not dimensions, by which any reader of Zarr finds them.
        attrs = {**output.attrs, "coordinates": zipped} if zipped else output.attrs
        shape = (*sizes, *output.shape)
        _create(folder, output.name, (*dims, *output.dims), shape, chunks, output.dtype, output.fill, attrs)
    _create(folder, "status", dims, sizes, tile, "uint8", 0, schema.STATUS_ATTRS)
    about = {"long_name": "why the cell failed, as UTF-8 bytes"}
    _create(folder, "error", (*dims, "byte"), (*sizes, ERROR_BYTES), (*tile, ERROR_BYTES), "uint8", 0, about)
    attributes = {
        "format": FORMAT,
        "identity": uuid.uuid4().hex,
        "tile": list(tile),
        **describe(axes, outputs, call_coordinates, settings),
    }
    arrays = {path.parent.name: json.loads(path.read_text()) for path in sorted(folder.glob(f"*/{ROOT}"))}
    publish(folder, Layout(attributes, arrays))


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
    # Zarr writes files in several threads and does not wait for the others when one fails: they would go on writing
    # into a folder that is being removed. Therefore it only composes the metadata, which are then written here.
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
    write_metadata(folder, name, json.loads(documents[ROOT].to_bytes()))


def open_arrays(folder: Path, names: Sequence[str], writable: bool) -> dict[str, Any]:
    """Open arrays as the root describes them; the metadata files of the arrays are ignored."""
    zarr = need("zarr")
    with zarr.config.set(KEEP_EMPTY_CHUNKS):
        group = zarr.open_group(str(folder), mode="r+" if writable else "r", use_consolidated=True)
        return {name: group[name] for name in names}


def write_column(folder: Path, name: str, values: np.ndarray) -> None:
    """Write a whole coordinate and flush it to the disk."""
    zarr = need("zarr")
    with zarr.config.set(KEEP_EMPTY_CHUNKS):
        array = zarr.open_array(str(folder / name), mode="r+")
        # One chunk per call, so that nothing is still being written when one of them fails (see _create).
        for start in range(0, len(values), array.chunks[0]):
            part = slice(start, start + array.chunks[0])
            array[part] = values[part]
    files = [path for path in (folder / name / "c").iterdir() if path.suffix != ".partial"]
    for path in (*files, folder / name / "c", folder / name):
        flush(path)


def write_metadata(folder: Path, name: str, metadata: Mapping[str, Any]) -> None:
    # Not flushed to the disk: if it is lost, the root has a copy.
    (folder / name).mkdir(exist_ok=True)
    replace_file(folder / name / ROOT, json.dumps(metadata, indent=1), durable=False)


def publish(folder: Path, layout: Layout) -> None:
    """Replace the root document: from here on the store is what ``layout`` says."""
    attributes = {key: value for key, value in layout.attributes.items() if key != "checksum"}
    attributes["checksum"] = schema.digest([attributes, layout.arrays])
    document = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": attributes,
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": layout.arrays},
    }
    check_metadata(folder, layout, restore=True)
    replace_file(folder / ROOT, json.dumps(document, indent=1), durable=True)


def read_layout(folder: Path) -> Layout:
    """Read the root document, or raise an error that says what is wrong with it."""
    try:
        document = json.loads((folder / ROOT).read_text())
        attributes, version = document["attributes"], document["attributes"]["format"]
        if version == FORMAT:
            arrays, checksum = document["consolidated_metadata"]["metadata"], attributes["checksum"]
    except NotADirectoryError:
        raise ValueError(f"{folder} is a file, not a sweep store; choose another path") from None
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        if not folder.exists():
            raise FileNotFoundError(f"there is no store {folder}") from None
        if not is_sweep(folder):
            raise ValueError(f"{folder} is not a sweep store; choose another path") from None
        what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged ({error!r})"
        raise DamagedStoreError(f"{folder / ROOT} {what}; {START_AGAIN}") from error
    if version != FORMAT:
        if not is_sweep(folder):
            raise ValueError(f"{folder} is not a sweep store; choose another path")
        raise schema.StoreVersionError(
            f"{folder} was written by {'an older' if str(version) < FORMAT else 'a newer'} version of solvable (store "
            f"format {version!r}, not {FORMAT!r}): read it with that version, choose another path, or start again with "
            "overwrite=True"
        )
    if checksum != schema.digest([{key: value for key, value in attributes.items() if key != "checksum"}, arrays]):
        raise DamagedStoreError(f"{folder / ROOT} was altered: its checksum does not match; {START_AGAIN}")
    return Layout(attributes, arrays)


def is_sweep(folder: Path) -> bool:
    """Whether a folder is a sweep store, finished or not, or was one before it was damaged."""
    with contextlib.suppress(OSError):
        if is_sweep_root((folder / ROOT).read_bytes()):
            return True
    try:
        return json.loads((folder / "status" / ROOT).read_text())["attributes"] == schema.STATUS_ATTRS
    except (OSError, ValueError, KeyError, TypeError):
        return False


def check_metadata(folder: Path, layout: Layout, restore: bool) -> list[str]:
    """Compare the metadata files of the arrays with the copies in the root; ``restore`` rewrites those that differ.

    Returns what is wrong with them. A difference in length alone is an unfinished extension, not a fault.
    """
    faults = []
    for name, expected in layout.arrays.items():
        path = folder / name / ROOT
        try:
            found = json.loads(path.read_text())
            if schema.canonical_json(found) == schema.canonical_json(expected):
                continue
            if schema.canonical_json({**found, "shape": 0}) != schema.canonical_json({**expected, "shape": 0}):
                faults.append(f"{path} was altered")
        except (OSError, ValueError, TypeError) as error:
            faults.append(f"{path} is missing or damaged ({type(error).__name__})")
        if restore:
            write_metadata(folder, name, expected)
    return faults


def chunk_file(folder: Path, layout: Layout, name: str, index: Sequence[int]) -> Path:
    """The file of one tile of one array; dimensions of the output itself have a single chunk."""
    extra = len(layout.arrays[name]["shape"]) - len(index)
    return folder.joinpath(name, "c", *(str(number) for number in (*index, *[0] * extra)))


def replace_file(path: Path, text: str, durable: bool) -> None:
    """Write a small file atomically; if durable, also flush it to the disk."""
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
    """Flush a file, or the list of names of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def truncated_text(text: str) -> bytes:
    """A string as at most ``ERROR_BYTES`` bytes of UTF-8, never cut inside a character."""
    return text.encode()[:ERROR_BYTES].decode(errors="ignore").encode()
