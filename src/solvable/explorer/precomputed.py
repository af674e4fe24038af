"""Curves of presets whose theory takes minutes, shipped with the package.

Each file says with which version and when it was computed, and the page says so too. After a change of the theory of
these models, ``python -m solvable.explorer.precomputed`` renews them.
"""

import datetime
import gzip
import hashlib
import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

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


def store(setting: Setting) -> Path:
    """Compute the curves of a setting and store them in the package."""
    about = {"version": __version__, "made": datetime.date.today().isoformat(), "texts": dict(setting.texts)}
    text = json.dumps({**about, "curves": theory_of(setting).to_dict()}, separators=(",", ":"))
    FOLDER.mkdir(exist_ok=True)
    return files.write_atomically(path_of(setting), gzip.compress(text.encode(), mtime=0))


def heavy_presets() -> list[Any]:
    """The presets that take minutes: committees of many neurons, over thousands of steps."""
    from solvable.explorer.presets import PRESETS

    return [preset for preset in PRESETS if preset.figure in ("grokking", "wide") and preset.model == "committee"]


if __name__ == "__main__":
    for chosen in heavy_presets():
        if not sys.argv[1:] or any(word in chosen.label for word in sys.argv[1:]):
            made = store(chosen.state().a)
            print(f"{chosen.label}: {made.name}, {made.stat().st_size / 1000:.0f} kB", flush=True)
