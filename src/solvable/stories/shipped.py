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
from solvable.stories.scene import build, changed_steps, fingerprint, name_of

FOLDER = Path(__file__).parent / "data"


def compressed(scene: dict[str, Any]) -> bytes:
    """A scene as compressed JSON, the same bytes for the same scene."""
    text = json.dumps(scene, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return gzip.compress(text.encode(), mtime=0)


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.json.gz"


def write(scene: dict[str, Any]) -> Path:
    """Store a scene in the package."""
    FOLDER.mkdir(exist_ok=True)
    return files.write_atomically(path_of(name_of(scene)), compressed(scene))


def renew(name: str) -> Path:
    """Give the stored scene the present fingerprint; a ValueError names the steps that come out differently now."""
    stored = json.loads(gzip.decompress(path_of(name).read_bytes()))
    changed = changed_steps(stored)
    if changed:
        raise ValueError(f"steps {changed} of the story of {name} have changed: build its scene anew")
    return write(stored | {"fingerprint": fingerprint(name)})


@functools.lru_cache(maxsize=16)
def shipped(name: str) -> dict[str, Any] | None:
    """The scene of a story that is shipped, or None if there is none for the story as it is now.

    Parameters
    ----------
    name
        Name of the story: that of a model for its first one.
    """
    try:
        found = json.loads(gzip.decompress(path_of(name).read_bytes()))
    except FileNotFoundError:
        return None
    return found if found["fingerprint"] == fingerprint(name) else None


@functools.lru_cache(maxsize=16)
def scene(name: str) -> dict[str, Any]:
    """The scene of a story: the one that is shipped or, if there is none, a new one.

    Parameters
    ----------
    name
        Name of the story: that of a model for its first one.
    """
    return shipped(name) or build(name)
