"""Long trainings are kept on disk, so that figures share them and an interrupted `reproduce` loses none."""

import functools
import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import xarray as xr

from solvable.files import load, save
from solvable.networks import data_folder

# Seconds: shorter trainings are done again.
LONG = 60.0
# What a training depends on: a change of any of these files makes what is kept unknown.
_CODE = ("networks", "diagnostics", "papers/layerwise/_image_training.py", "equinox.py")


def kept(setting: Any, make: Callable[[], xr.Dataset]) -> xr.Dataset:
    """What ``make`` gives for this setting, or gave before on such a device with the same code."""
    path = data_folder() / "trainings" / f"{_name(setting)}.npz"
    if path.exists():
        try:
            return load(path)
        except ValueError as error:
            warnings.warn(f"{error}: trained anew", stacklevel=2)
            # It lies in our own cache; save would not replace what it does not recognise.
            path.unlink(missing_ok=True)
    made = make()
    if made.attrs.get("seconds", 0.0) > LONG:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(made, path)
    return made


def _name(setting: Any) -> str:
    device = f"{jax.default_backend()} {jax.devices()[0].device_kind} {jax.__version__}"
    described = json.dumps([setting._asdict(), device, _code()], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:24]


@functools.cache
def _code() -> str:
    """A fingerprint of the source files in question."""
    room = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for part in _CODE:
        found = sorted((room / part).rglob("*.py")) if (room / part).is_dir() else [room / part]
        for file in found:
            digest.update(file.relative_to(room).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
