"""Stories as files: a landing page and one page per story, which open without a server and without a network."""

import re
from collections.abc import Iterable
from pathlib import Path

from solvable.files import check_writable, write_atomically
from solvable.progress import progress_bar
from solvable.stories.catalogue import names, story_of
from solvable.stories.pages import landing_html, story_html, tile
from solvable.stories.shipped import scene

LANDING = "index.html"
_OURS = re.compile(r'<meta name="generator" content="solvable [^"]*">')
_HEAD = 2000


def export(folder: str | Path, model_names: Iterable[str] = (), progress: bool | None = None) -> list[Path]:
    """Write the landing page and some stories into a folder, and return the paths.

    Parameters
    ----------
    folder
        Where to; it is made if it is not there. Pages that ``export`` has written before are replaced, other files
        never.
    model_names
        Models whose stories are written, or names of single stories; all if empty.
    progress
        Whether to show a progress bar; None chooses.
    """
    chosen = list(dict.fromkeys(name for one in model_names for name in names(one) or [one])) or names()
    for name in chosen:
        story_of(name)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot write into {folder}: {error.strerror}; name another folder") from error
    paths = [folder / LANDING, *(folder / f"{name}.html" for name in chosen)]
    for path in paths:
        _refuse_foreign(path)
        check_writable(path)
    with progress_bar("exporting stories", len(chosen), progress, unit="stories") as advance:
        tiles = []
        for name, path in zip(chosen, paths[1:], strict=True):
            made = scene(name)
            write_atomically(path, story_html(made, stories=LANDING))
            tiles.append(tile(made, path.name))
            advance()
    write_atomically(paths[0], landing_html(tiles, stories=LANDING))
    return paths


def _refuse_foreign(path: Path) -> None:
    """Raise a ValueError if a file is there that is not a page of ours."""
    if path.is_file():
        with open(path, encoding="utf-8", errors="replace") as file:
            ours = _OURS.search(file.read(_HEAD))
        if not ours:
            raise ValueError(f"cannot write {path}: a file is there that solvable did not write; choose another folder")
