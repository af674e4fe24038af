"""Image sets that a person downloads: an archive is read, checked and kept, and nothing in it is unpickled or unpacked.

CIFAR-100 in its binary version has two members of records: a coarse label (0 to 19), a fine label (0 to 99), and 3072
bytes of a 32 x 32 image, red, green and blue, each in reading order.
"""

import hashlib
import os
import tarfile
import zlib
from pathlib import Path

import numpy as np

from solvable.networks.data.cache import data_folder, write_archive
from solvable.networks.data.catalogue import CATALOGUE, ImageSet, find
from solvable.networks.data.routes import PARTS, Arrays

_PIXELS = 3 * 32 * 32
_COARSE = 20
# The binary version as published; TensorFlow Datasets and others list the same sum.
PUBLISHED = {"cifar-100": "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"}
# No archive holds more bytes than this, and no more members.
_MOST_BYTES, _MOST_MEMBERS = 1 << 29, 64


def add_images(
    name: str, file: str | os.PathLike[str], *, folder: str | os.PathLike[str] | None = None
) -> tuple[Path, str]:
    """Read an image set from an archive on this machine, check it, and keep it. Returns its file and its source.

    The archive is not unpacked: two members are read by name, in memory, and must have the right numbers of records and
    of images of each class. The published archive is recognised by its sha256; of another one, which may only have been
    packed again, the source says that its structure alone was checked.

    Parameters
    ----------
    name
        ``"cifar-100"``.
    file
        The archive ``cifar-100-binary.tar.gz``. The Python version, which is pickled, is refused.
    folder
        As in :func:`load_images`.
    """
    image_set = find(name)
    if image_set.archive is None:
        able = ", ".join(one.name for one in CATALOGUE.values() if one.archive)
        raise ValueError(f"{name} is fetched, not added: run `solvable data fetch {name}` (sets to add: {able})")
    path = Path(file).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: give the archive {image_set.archive} that you downloaded")
    try:
        arrays = _read(image_set, path)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(":")
        raise ValueError(f"{path.name} cannot be read as {image_set.archive}: {reason}") from error
    source = f"{path.name}, {_identity(path, PUBLISHED.get(name))}"
    kept = data_folder(folder) / f"{name}.npz"
    sums = np.array([hashlib.sha256(arrays[part].tobytes()).hexdigest() for part in PARTS])
    write_archive(kept, source=np.array(source), sha256=sums, **arrays)
    return kept, source


def _identity(path: Path, published: str | None) -> str:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found == published:
        return "the published archive by its sha256"
    return "structure checked only: its sha256 is not that of the published archive"


def _read(image_set: ImageSet, path: Path) -> Arrays:
    """The four arrays, from the members that end in ``train.bin`` and ``test.bin`` of one folder."""
    contents: dict[str, bytes] = {}
    total = count = 0
    folder = str(image_set.archive).removesuffix(".tar.gz")
    wanted = {f"{folder}/{part}.bin": part for part in ("train", "test")}
    with tarfile.open(path, "r:*") as tar:
        for member in tar:
            total, count = total + member.size, count + 1
            if total > _MOST_BYTES or count > _MOST_MEMBERS:
                raise ValueError(f"{path.name} is not {image_set.archive}: it unpacks to more than that archive holds")
            name = member.name.removeprefix("./")
            if name.startswith("cifar-100-python/"):
                raise ValueError(
                    f"{path.name} is the Python version, whose files are pickled and never opened here: "
                    f"download the binary version, {image_set.archive}"
                )
            if name not in wanted:
                continue
            stream = tar.extractfile(member) if member.isfile() else None
            if stream is None:
                raise ValueError(f"{path.name}: {name} is not a regular file: download {image_set.archive} again")
            contents[wanted[name]] = stream.read()
    missing = [name for name, part in wanted.items() if part not in contents]
    if missing:
        raise ValueError(f"{path.name} has no member {missing[0]}: give the binary version, {image_set.archive}")
    parts = [_records(image_set, part, contents[part]) for part in ("train", "test")]
    _check_hierarchy([coarse for _, _, coarse in parts], [fine for _, fine, _ in parts])
    return dict(zip(PARTS, (array for images, fine, _ in parts for array in (images, fine)), strict=True))


def _records(image_set: ImageSet, part: str, content: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images (n, row, column, channel), fine labels and coarse labels of one member, after checks."""
    count, classes = getattr(image_set, part), len(image_set.classes)
    if len(content) != count * (2 + _PIXELS):
        raise ValueError(
            f"{part}.bin has {len(content)} bytes and {count} records have {count * (2 + _PIXELS)}: "
            f"download {image_set.archive} again"
        )
    records = np.frombuffer(content, np.uint8).reshape(count, 2 + _PIXELS)
    coarse, fine = records[:, 0], records[:, 1]
    each = np.bincount(fine, minlength=classes)
    if each.size != classes or (each != count // classes).any():
        raise ValueError(
            f"{part}.bin does not have {count // classes} images of each of {classes} classes: "
            f"download {image_set.archive} again"
        )
    images = np.ascontiguousarray(np.moveaxis(records[:, 2:].reshape(-1, 3, 32, 32), 1, -1))
    return images, fine.copy(), coarse.copy()


def _check_hierarchy(coarse: list[np.ndarray], fine: list[np.ndarray]) -> None:
    """Every class belongs to one of 20 groups of equally many classes, the same in both parts."""
    pairs = np.unique(np.stack([np.concatenate(coarse), np.concatenate(fine)]), axis=1)
    groups, classes = np.bincount(pairs[0]), np.bincount(pairs[1])
    if (classes != 1).any() or groups.size > _COARSE or np.unique(groups[groups > 0]).size != 1:
        raise ValueError("coarse and fine labels do not belong together: download cifar-100-binary.tar.gz again")
