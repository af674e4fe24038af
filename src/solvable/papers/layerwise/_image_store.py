"""Long trainings are stored on disk: several figures use the same one, and an interrupted run loses none of them.

The datasets that a report saves belong to one figure, and are saved when all of its trainings are done. At full scale
a figure has up to eleven trainings, and seven figures use the same ResNet18.
"""

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

# Seconds: shorter trainings are repeated.
LONG = 60.0
# The source files that a training depends on: a change to any of them makes the stored trainings invalid.
_CODE = ("networks", "diagnostics", "papers/layerwise/_image_training.py", "equinox.py")


def stored(setting: Any, make: Callable[[], xr.Dataset]) -> xr.Dataset:
    """The result of ``make`` for this setting, or that of an earlier run with the same code, device and JAX."""
    path = data_folder() / "trainings" / f"{_cache_key(setting)}.npz"
    if path.exists():
        try:
            return load(path)
        except ValueError as error:
            warnings.warn(f"{error}: trained anew", stacklevel=2)
            # The file is in our own cache; save would not replace a file that it does not recognise.
            path.unlink(missing_ok=True)
    made = make()
    if made.attrs.get("seconds", 0.0) > LONG:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(made, path)
    return made


def _cache_key(setting: Any) -> str:
    device = f"{jax.default_backend()} {jax.devices()[0].device_kind} {jax.__version__}"
    described = json.dumps([setting._asdict(), device, _code()], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:24]


@functools.cache
def _code() -> str:
    """A hash of the source files that a training depends on."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for part in _CODE:
        found = sorted((package / part).rglob("*.py")) if (package / part).is_dir() else [package / part]
        for file in found:
            digest.update(file.relative_to(package).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
