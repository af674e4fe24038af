"""Checksums of single files: the last 64 bytes are the SHA-256 of all bytes before them."""

import hashlib
import importlib.util
from pathlib import Path
from typing import NamedTuple

import xarray as xr

MARK = b"solvable sha256 "
_DIGEST_LENGTH = 64
LENGTH = len(MARK) + _DIGEST_LENGTH


class UncheckedFileWarning(UserWarning):
    """A file has no checksum, so that damage to it would not be noticed."""


class Loaded(NamedTuple):
    """A dataset that was read, and whether its checksum was verified."""

    dataset: xr.Dataset
    verified: bool


def append(body: bytes) -> bytes:
    marked = body + MARK
    return marked + hashlib.sha256(marked).hexdigest().encode()


def is_present(data: bytes) -> bool:
    """Whether the bytes (or just the last of them) end in a checksum, which need not be right."""
    return data[-LENGTH:-_DIGEST_LENGTH] == MARK


def verify(data: bytes) -> None:
    """Raise a ValueError unless the bytes end in their checksum."""
    if not is_present(data):
        raise ValueError("its checksum is missing, though its format has one")
    if hashlib.sha256(data[:-_DIGEST_LENGTH]).hexdigest().encode() != data[-_DIGEST_LENGTH:]:
        raise ValueError("its contents do not match its checksum")


def is_in_file(path: Path) -> bool:
    """Whether a file ends in a checksum."""
    with open(path, "rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - LENGTH))
        return is_present(file.read())


def require_package(module: str, extension: str) -> None:
    """Raise an ImportError if the package for a format is not installed."""
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{extension} files need the package {module!r}, which is not installed: use .npz instead")
