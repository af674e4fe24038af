"""The datasets of a figure in a folder: one file per dataset and, written last, a record that lists them.

Files without a record count for nothing, so that a run that is interrupted while it saves leaves nothing that a later
one would take for finished.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import xarray as xr

from solvable.files import default_extension, load, save, write_atomically


@dataclass(frozen=True)
class StoredData:
    """The record of a figure's datasets. ``files`` are their names, in order, with their SHA-256 checksums.

    ``fingerprint`` is that of everything the datasets depend on. ``cpu_seconds`` are those of all threads: on a busy
    machine they say more about the work than the seconds on the clock.
    """

    paper: str
    figure: str
    scale: str
    fingerprint: str
    seconds: float
    cpu_seconds: float
    finished: str
    files: dict[str, str] = field(default_factory=dict)

    def is_whole(self, folder: Path) -> bool:
        """Whether every file is in the folder, undamaged."""
        return are_whole(folder, self.files)

    def load(self, folder: Path) -> dict[str, xr.Dataset]:
        """The datasets by name, in the order in which they were computed."""
        return {Path(name).stem.removeprefix(f"{self.figure}-"): load(folder / name) for name in self.files}


def record_path(folder: Path, figure: str) -> Path:
    # With a dot, which no name of a figure has: "fig5-1-data" is another figure.
    return folder / f"{figure}.data.json"


def store(folder: Path, about: StoredData, data: Mapping[str, xr.Dataset]) -> StoredData:
    """Write every dataset and last of all the record, which is returned; or nothing, if that fails."""
    names = [f"{about.figure}-{part}{default_extension()}" for part in data]
    try:
        for name, dataset in zip(names, data.values(), strict=True):
            save(dataset, folder / name)
        stored = replace(about, files={name: str(checksum(folder / name)) for name in names})
        text = json.dumps(asdict(stored), indent=2, ensure_ascii=False) + "\n"
        write_atomically(record_path(folder, about.figure), text)
    except BaseException:
        remove(folder, names)
        raise
    return stored


def read_record(folder: Path, figure: str) -> StoredData | None:
    """The record of a figure's datasets; none if there is none, or if it is not one that this version writes."""
    try:
        found = StoredData(**json.loads(record_path(folder, figure).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return found if found.figure == figure and are_names(found.files) else None


def are_names(files: object) -> bool:
    """Whether this is a dictionary of names. A record from elsewhere must not lead out of its folder."""
    return isinstance(files, dict) and all(Path(name).name == name for name in files)


def are_whole(folder: Path, files: Mapping[str, str]) -> bool:
    """Whether every file is in the folder with its checksum."""
    return all(checksum(folder / name) == expected for name, expected in files.items())


def checksum(path: Path) -> str | None:
    """The SHA-256 checksum of a file; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
