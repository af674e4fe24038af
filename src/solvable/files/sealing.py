"""Checksums of single files: the last 64 bytes are the SHA-256 of all bytes before them."""

import hashlib
import importlib.util
from pathlib import Path
from typing import NamedTuple

import xarray as xr

SEAL = b"solvable sha256 "
_DIGEST_LENGTH = 64
SEAL_LENGTH = len(SEAL) + _DIGEST_LENGTH


class UncheckedFileWarning(UserWarning):
    """A file carries no checksum, so that damage to it would not be noticed."""


class Found(NamedTuple):
    """A dataset that was read, and whether it was checked against a checksum."""

    dataset: xr.Dataset
    checked: bool


def seal(body: bytes) -> bytes:
    """The bytes with their checksum appended."""
    sealed = body + SEAL
    return sealed + hashlib.sha256(sealed).hexdigest().encode()


def is_sealed(data: bytes) -> bool:
    """Whether the bytes (or just the last of them) end in a checksum; it need not be right."""
    return data[-SEAL_LENGTH:-_DIGEST_LENGTH] == SEAL


def check_seal(data: bytes) -> None:
    """Raise a ValueError unless the bytes are those that were sealed."""
    if not is_sealed(data):
        raise ValueError("its checksum is missing, though its format has one")
    if hashlib.sha256(data[:-_DIGEST_LENGTH]).hexdigest().encode() != data[-_DIGEST_LENGTH:]:
        raise ValueError("its contents do not match its checksum")


def ends_in_seal(path: Path) -> bool:
    """Whether a file on the disk ends in a checksum."""
    with open(path, "rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - SEAL_LENGTH))
        return is_sealed(file.read())


def need(module: str, ending: str) -> None:
    """Raise an ImportError if the package for a format is not installed."""
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{ending} files need the package {module!r}, which is not installed: use .npz instead")
