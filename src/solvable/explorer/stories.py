"""Stories on the live page: the landing view at ``/`` and each story at ``/story/<name>``.

Scenes that are shipped with the package are shown at once. Others, such as those of models from other packages, are
computed by a worker process on the first visit, while the visitor sees how far it is.
"""

import asyncio
import html
import threading
from typing import Any

from solvable import models, stories
from solvable.explorer.workers import Workers
from solvable.stories.pages import landing_html, plain_tile, story_html, tile

_STORY = "/story/"


class Stories:
    """The pages of all stories, and the scenes that are being computed."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._scenes: dict[str, dict[str, Any]] = {}
        self._shares: dict[str, float] = {}
        self._failures: dict[str, str] = {}

    def landing(self) -> str:
        """The landing view: every story, then the models that have none."""
        told = stories.names()
        tiles = [self._tile(name) for name in told]
        tiles += [_form_tile(model) for model in models.names() if not models.get(model).controls.stories]
        return landing_html(tiles, stories="/")

    def _tile(self, name: str) -> dict[str, Any]:
        made = self._scene(name)
        return plain_tile(name, _STORY + name) if made is None else tile(made, _STORY + name)

    def story(self, name: str) -> str | None:
        """The page of a story, or one that says how far its computation is; None if there is no such story."""
        if name not in stories.names():
            return None
        made = self._scene(name)
        return story_html(made, stories="/", free="/") if made is not None else self._waiting(name)

    def _scene(self, name: str) -> dict[str, Any] | None:
        return self._scenes.get(name) or stories.shipped(name)

    def _waiting(self, name: str) -> str:
        with self._lock:
            failure = self._failures.pop(name, None)
            if failure is None and name not in self._shares:
                self._shares[name] = 0.0
                self._begin(name)
        shown = html.escape(name)
        if failure is not None:
            return f"<!doctype html><title>solvable</title><p>The story of {shown} failed: {html.escape(failure)}</p>"
        share = self._shares.get(name, 1.0)
        return (
            f'<!doctype html><meta http-equiv="refresh" content="2"><title>{shown} · solvable</title>'
            f'<p role="status">The story of {shown} is being computed: {share:.0%}. This page reloads itself.</p>'
        )

    def _begin(self, name: str) -> None:
        job = self._workers.submit("scene", {"model": stories.model_of(name), "story": name}, heavy=True)
        job.on_progress = lambda share: self._shares.update({name: share})
        job.on_done = lambda made, notes: self._finished(name, made)
        job.on_failed = lambda words: self._failed(name, words)
        self._workers.begin(job)

    def _finished(self, name: str, made: dict[str, Any]) -> None:
        self._scenes[name] = made
        self._shares.pop(name, None)

    def _failed(self, name: str, words: str) -> None:
        self._failures[name] = words
        self._shares.pop(name, None)


def _form_tile(model: str) -> dict[str, Any]:
    """The tile of a model without a story, which leads to its form."""
    told = {"model": model, "question": model.replace("-", " "), "summary": models.names()[model]}
    return {**told, "href": f"/?model={model}", "state": None}


def add_stories(server: Any, workers: Workers) -> None:
    """Answer ``/`` without a query and ``/story/<name>``; everything else is left to the form of the models."""
    from tornado.routing import Matcher, Rule
    from tornado.web import RequestHandler

    told = Stories(workers)

    class Ours(Matcher):
        def match(self, request: Any) -> dict[str, Any] | None:
            landing = request.path == "/" and not request.query
            return {} if landing or request.path.startswith(_STORY) else None

    class Page(RequestHandler):
        async def get(self) -> None:
            # Models are imported on first use, which takes seconds: others are answered meanwhile.
            name = self.request.path.removeprefix(_STORY) if self.request.path != "/" else ""
            loop = asyncio.get_running_loop()
            page = await loop.run_in_executor(None, told.story, name) if name else None
            if page is None:
                self.set_status(404 if self.request.path != "/" else 200)
                page = await loop.run_in_executor(None, told.landing)
            self.set_header("Content-Type", "text/html; charset=utf-8")
            self.finish(page)

    router = server._tornado.default_router
    router.rules.insert(0, router.process_rule(Rule(Ours(), Page)))
    # The first visitor does not wait for the import of the models.
    threading.Thread(target=told.landing, daemon=True).start()
