"""Pages of stories: self-contained HTML with script, style and data in it, for servers, files, docs and notebooks."""

import base64
import functools
import html
import json
import re
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from solvable._version import __version__
from solvable.stories.catalogue import model_of, story_of
from solvable.stories.shipped import compressed, scene

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("figure.js", "system.js", "plane.js", "player.js")
# A band that covers this fraction of the time axis is what a thumbnail shows.
_BROAD = 0.1


@functools.cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def story_html(made: dict[str, Any], stories: str = "", free: str = "") -> str:
    """The page of one story.

    Parameters
    ----------
    made
        The scene.
    stories
        Address of the landing view; empty where there is none.
    free
        Address of the page with all controls, to which the texts of the setting are added; empty where there is none.
    """
    data = base64.b64encode(compressed(made)).decode()
    return _page(made["question"], "story.html", data, stories, free)


def landing_html(tiles: Iterable[dict[str, Any]], stories: str = "") -> str:
    """The landing view: a question and a thumbnail for each story.

    Parameters
    ----------
    tiles
        What :func:`tile` returns for each story.
    stories
        Address of the landing view itself.
    """
    return _page("How do neural networks learn?", "landing.html", json.dumps(list(tiles)), stories, "")


def _page(title: str, body: str, data: str, stories: str, free: str) -> str:
    return Template(_asset("page.html")).substitute(
        title=html.escape(f"{title} · solvable"),
        version=__version__,
        style=_shortened(_asset("player.css")),
        body=Template(_asset(body)).substitute(stories=html.escape(stories or "#")),
        links=_inside_script(json.dumps({"stories": stories, "free": free})),
        data=_inside_script(data),
        script="".join(_shortened(_asset(name)) for name in _SCRIPTS),
    )


def _shortened(text: str) -> str:
    """A script or a style sheet without indentation and without lines that hold a comment only."""
    return re.sub(r"(?m)^(?:[ ]*//.*\n|[ ]+)", "", text)


def _inside_script(text: str) -> str:
    """JSON inside a script element: nothing in it may end the element."""
    return text.replace("<", "\\u003c")


def tile(made: dict[str, Any], href: str) -> dict[str, Any]:
    """The tile of a story on the landing view: the curves of its first step with a broad band, else of the second step.

    Parameters
    ----------
    made
        The scene.
    href
        Address of the story.
    """
    steps = made["steps"]
    step = next((step for step in steps[:-1] if _widest_band(step) > _BROAD), steps[min(1, len(steps) - 1)])
    state = {
        "times": step["times"],
        "log_time": step["log_time"],
        "curves": step["curves"][:1],
        "marks": [mark for mark in step["marks"] if mark["kind"] == "band"],
    }
    told = {"model": made["model"], "question": made["question"], "summary": made["summary"], "href": href}
    return told | {"axis": made["axes"][0], "state": state}


def _widest_band(step: dict[str, Any]) -> float:
    """The width of the widest band of a step, as a fraction of its time axis."""
    scale = np.log if step["log_time"] else np.asarray
    first, last = step["times"][0], step["times"][-1]
    ends = [np.clip([mark["start"], mark["end"]], first, last) for mark in step["marks"] if mark["kind"] == "band"]
    return max((float((scale(end) - scale(start)) / (scale(last) - scale(first))) for start, end in ends), default=0.0)


def plain_tile(name: str, href: str) -> dict[str, Any]:
    """A tile without a thumbnail, for a story that has not been computed yet.

    Parameters
    ----------
    name
        Name of the story.
    href
        Address of the story.
    """
    question = story_of(name).question
    return {"model": model_of(name), "question": question, "summary": "", "href": href, "state": None}


class StoryPage:
    """A story in a notebook: the last line of a cell shows it, and :meth:`save` writes it to a file.

    Parameters
    ----------
    made
        The scene, as :func:`solvable.stories.build` returns it.
    height
        Height of the frame in a notebook, in pixels.
    """

    def __init__(self, made: dict[str, Any], height: int = 820) -> None:
        self.scene, self.height = made, height

    @property
    def html(self) -> str:
        """The page, which needs nothing besides itself."""
        return story_html(self.scene)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file.

        Parameters
        ----------
        path
            Where to; a file that is there is replaced.
        """
        from solvable.files import write_atomically

        return write_atomically(path, self.html)

    def _repr_html_(self) -> str:
        inside = html.escape(self.html)
        frame = f'width="100%" height="{self.height}" style="border: 0" title="{html.escape(self.scene["question"])}"'
        return f'<iframe srcdoc="{inside}" {frame} sandbox="allow-scripts allow-popups"></iframe>'

    def __repr__(self) -> str:
        return f"StoryPage({self.scene['model']!r}: {self.scene['question']})"


def show(model: Any) -> StoryPage:
    """A story, to be shown in a notebook.

    Parameters
    ----------
    model
        Name of a model, its class or an instance of it, for its first story; or the name of a story.

    >>> from solvable import stories
    >>> stories.show("linear-estimator")
    StoryPage('linear-estimator': Why does it understand long after it has memorised?)
    """
    return StoryPage(scene(getattr(model, "name", model)))
