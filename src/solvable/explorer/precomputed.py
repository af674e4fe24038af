"""Curves of presets whose theory takes minutes, shipped with the package.

Each file says with which version and when it was computed, and the page says so too. After a change of the theory of
these models, ``python -m solvable.explorer.precomputed`` renews them.
"""

import datetime
import gzip
import hashlib
import json
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from solvable import files
from solvable._version import __version__
from solvable.settings import Setting, theory_of

FOLDER = Path(__file__).parent / "data"
# Everything that determines the curves; options of the simulation do not.
_ROLES = ("parameter", "training", "times", "theory")


def path_of(setting: Setting) -> Path:
    """Where the curves of a setting are, if they are shipped."""
    told = [setting.model, *((key, setting.text(key)) for key, field in setting.fields.items() if field.role in _ROLES)]
    return FOLDER / f"{setting.model}-{hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]}.json.gz"


def is_shipped(setting: Setting) -> bool:
    return path_of(setting).exists()


@lru_cache(maxsize=16)
def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def shipped_curves(setting: Setting) -> tuple[xr.Dataset, str] | None:
    """The curves of a setting and words that say where they come from; None if they are not shipped."""
    if not is_shipped(setting):
        return None
    found = _read(path_of(setting))
    when = f"with solvable {found['version']} on {found['made']}"
    words = f"These curves take minutes and were computed beforehand, {when}."
    return xr.Dataset.from_dict(found["curves"]), words


def store(setting: Setting, folder: Path = FOLDER) -> Path:
    """Compute the curves of a setting and store them, in the package unless another folder is given."""
    about = {"version": __version__, "made": datetime.date.today().isoformat(), "texts": dict(setting.texts)}
    # Six digits are more than a picture shows, and than the theory's own error leaves.
    curves = theory_of(setting).map(_rounded, keep_attrs=True)
    text = json.dumps({**about, "curves": curves.to_dict()}, separators=(",", ":"))
    folder.mkdir(exist_ok=True)
    return files.write_atomically(folder / path_of(setting).name, gzip.compress(text.encode(), mtime=0))


def _rounded(values: xr.DataArray) -> xr.DataArray:
    if values.dtype.kind != "f":
        return values
    return values.copy(data=np.array([float(f"{value:.6g}") for value in values.values.flat]).reshape(values.shape))


def heavy_presets() -> list[Any]:
    """The presets that take minutes: committees of many neurons, over thousands of steps."""
    from solvable.explorer.presets import PRESETS

    return [preset for preset in PRESETS if preset.figure in ("grokking", "wide") and preset.model == "committee"]


if __name__ == "__main__":
    # Where the environment names a folder OUT, files go there: a machine without this repository may compute them.
    where = Path(os.environ.get("OUT", FOLDER))
    for chosen in heavy_presets():
        if not sys.argv[1:] or any(word in chosen.label for word in sys.argv[1:]):
            made = store(chosen.state().a, where)
            print(f"{chosen.label}: {made.name}, {made.stat().st_size / 1000:.0f} kB", flush=True)
