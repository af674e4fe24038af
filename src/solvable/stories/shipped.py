"""Scenes that are shipped with the package, so that the first picture needs no computation.

Each file says with which version, when and from which story (by its fingerprint) it was computed. A file whose
fingerprint is not that of the present story is not used. ``python -m solvable.stories build`` computes them again, and
``renew`` keeps those whose steps come out as before.
"""

import functools
import gzip
import json
from pathlib import Path
from typing import Any

from solvable import files
from solvable.stories.scene import build, changed_steps, fingerprint

FOLDER = Path(__file__).parent / "data"


def compressed(scene: dict[str, Any]) -> bytes:
    """A scene as compressed JSON, the same bytes for the same scene."""
    text = json.dumps(scene, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return gzip.compress(text.encode(), mtime=0)


def path_of(model: str) -> Path:
    return FOLDER / f"{model}.json.gz"


def write(scene: dict[str, Any]) -> Path:
    """Store a scene in the package."""
    FOLDER.mkdir(exist_ok=True)
    return files.write_atomically(path_of(scene["model"]), compressed(scene))


def renew(model: str) -> Path:
    """Give the stored scene the present fingerprint; a ValueError names the steps that come out differently now."""
    stored = json.loads(gzip.decompress(path_of(model).read_bytes()))
    changed = changed_steps(stored)
    if changed:
        raise ValueError(f"steps {changed} of the story of {model} have changed: build its scene anew")
    return write(stored | {"fingerprint": fingerprint(model)})


@functools.lru_cache(maxsize=16)
def shipped(model: str) -> dict[str, Any] | None:
    """The scene of a model that is shipped, or None if there is none for the story as it is now.

    Parameters
    ----------
    model
        Name of a model that has a story.
    """
    try:
        found = json.loads(gzip.decompress(path_of(model).read_bytes()))
    except FileNotFoundError:
        return None
    return found if found["fingerprint"] == fingerprint(model) else None


@functools.lru_cache(maxsize=16)
def scene(model: str) -> dict[str, Any]:
    """The scene of a model: the one that is shipped or, if there is none, a new one.

    Parameters
    ----------
    model
        Name of a model that has a story.
    """
    return shipped(model) or build(model)
