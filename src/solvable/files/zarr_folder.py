"""``.zarr``: a Zarr group in a folder, whose root lists every file with its checksum.

The list in the root also identifies the folder as a dataset of solvable: only such a folder, without any other files in
it, is ever replaced or removed.
"""

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from solvable.files.binary import without_encodings
from solvable.files.checksums import Loaded, require_package
from solvable.files.content import Content, parse_header, unpack

ROOT = "zarr.json"
_KEY = "solvable_dataset"
_FORMAT = "solvable-dataset-2"
_SWEEP_FORMAT = "solvable-sweep-"

Files = dict[str, bytes]


class DamagedDatasetError(ValueError):
    """A file of the folder is missing, or is not what was written."""


def zarr_files(content: Content) -> Files:
    """The files of the group, by their path in the folder; the root comes last."""
    require_package("zarr", ".zarr")
    import zarr
    from zarr.storage import MemoryStore

    # Zarr writes files in several threads and does not wait for the others when one fails, so that its threads would
    # go on writing into a folder that is being removed. In memory nothing fails; the files are then written one by one.
    stored: dict[str, Any] = {}
    store = MemoryStore(stored)
    extra = [name for name in content.coordinates if content.columns[name].dims != (name,) and " " not in name]
    attrs = {**content.attrs, "coordinates": " ".join(extra)} if extra else content.attrs
    zarr.create_group(store, attributes=json.loads(json.dumps(attrs)))
    for name, column in content.columns.items():
        text = column.values.dtype.kind == "U"
        array = zarr.create_array(
            store,
            name=name,
            shape=column.values.shape,
            dtype=str if text else column.values.dtype,
            dimension_names=column.dims,
            attributes=column.attrs,
        )
        array[...] = column.values.astype(object) if text else column.values
    files = {name: buffer.to_bytes() for name, buffer in stored.items() if name != ROOT}
    manifest = {
        "format": _FORMAT,
        "header": content.header,
        "files": {name: _sha(data) for name, data in files.items()},
    }
    return {**files, ROOT: _root(json.loads(stored[ROOT].to_bytes()), manifest)}


def _root(document: dict[str, Any], manifest: dict[str, Any]) -> bytes:
    manifest = {**manifest, "sha256": _root_digest(document, manifest)}
    attributes = {**document.get("attributes", {}), _KEY: json.dumps(manifest)}
    return json.dumps({**document, "attributes": attributes}, indent=1).encode()


def _root_digest(document: dict[str, Any], manifest: dict[str, Any]) -> str:
    return _sha(json.dumps([document, manifest], sort_keys=True).encode())


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _parse_manifest(root: bytes) -> dict[str, Any] | None:
    """The header and the list of files in a root document; None if the root is of a group of another program."""
    try:
        document = json.loads(root)
        text = document.get("attributes", {}).pop(_KEY, None)
    except (ValueError, AttributeError) as error:
        raise DamagedDatasetError(f"its {ROOT} is not that of a Zarr group") from error
    if text is None:
        if _FORMAT.encode() in root:
            raise DamagedDatasetError(f"its {ROOT} was altered")
        return None
    try:
        manifest = parse_header(text)
        same = manifest.pop("sha256") == _root_digest(document, manifest) and manifest["format"] == _FORMAT
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedDatasetError(f"its {ROOT} was altered") from error
    if not same:
        raise DamagedDatasetError(f"its {ROOT} does not match its checksum")
    return manifest


def read_zarr(path: Path, folder: int) -> Loaded:
    """Read and check a folder, which is also given as an open handle because it may be renamed meanwhile."""
    require_package("zarr", ".zarr")
    root = _read(folder, ROOT)
    if is_sweep_root(root):
        raise ValueError("it is a sweep store: read it with solvable.sweeps.load")
    manifest = _parse_manifest(root)
    if manifest is None:
        with xr.open_zarr(path, consolidated=False, chunks=None) as dataset:
            return Loaded(without_encodings(dataset.load()), False)
    files = {}
    for name, checksum in manifest["files"].items():
        if name.startswith("/") or ".." in name.split("/"):
            raise DamagedDatasetError(f"its {ROOT} names a file outside the folder")
        files[name] = _read(folder, name)
        if _sha(files[name]) != checksum:
            raise DamagedDatasetError(f"its file {name} does not match its checksum")
    return Loaded(unpack(manifest["header"], _arrays({**files, ROOT: root})), True)


def _read(folder: int, name: str) -> bytes:
    try:
        with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise DamagedDatasetError(f"its file {name} is missing") from None


def _arrays(files: Files) -> dict[str, np.ndarray]:
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import MemoryStore

    buffer = default_buffer_prototype().buffer
    group = zarr.open_group(MemoryStore({name: buffer.from_bytes(data) for name, data in files.items()}), mode="r")
    return {name: np.asarray(array[...]) for name, array in group.arrays()}


def is_sweep_root(root: bytes) -> bool:
    """Whether this is the root document of a sweep store, or was one before it was damaged."""
    try:
        found = json.loads(root)["attributes"]["format"]
        return isinstance(found, str) and found.startswith(_SWEEP_FORMAT)
    except (ValueError, KeyError, TypeError):
        return f'"{_SWEEP_FORMAT}'.encode() in root


def is_dataset(path: Path) -> bool:
    """Whether a folder is a dataset of solvable and contains nothing else."""
    try:
        check_replaceable(path)
    except (ValueError, OSError):
        return False
    return (path / ROOT).exists()


def check_replaceable(path: Path) -> None:
    """Raise a ValueError unless the path is free, or has an empty folder or a dataset of solvable."""
    while (identity := _identity(path)) is not None:
        try:
            _check_contents(path)
            return
        except (ValueError, FileNotFoundError):
            # Unless another process replaced it meanwhile.
            if _identity(path) == identity:
                raise


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _check_contents(path: Path) -> None:
    if not stat.S_ISDIR(path.stat().st_mode):
        raise ValueError(f"cannot write {path}: a file is there, not a dataset; move it away or choose another name")
    if not any(path.iterdir()):
        return
    root = (path / ROOT).read_bytes() if (path / ROOT).is_file() else b""
    if is_sweep_root(root):
        raise ValueError(f"cannot write {path}: it is a sweep store, which is not overwritten; choose another name")
    try:
        manifest = _parse_manifest(root) if root else None
    except DamagedDatasetError:
        manifest = None
    if manifest is None:
        raise ValueError(
            f"cannot write {path}: the folder there is not a dataset that this version of solvable wrote, and is not "
            "overwritten; move it away or choose another name"
        )
    found = {Path(base, name).relative_to(path).as_posix() for base, _, names in os.walk(path) for name in names}
    foreign = sorted(found - {ROOT, *manifest["files"]})
    if foreign:
        raise ValueError(
            f"cannot write {path}: the folder there also contains {foreign[0]}, which solvable did not write; "
            "move it away or choose another name"
        )
