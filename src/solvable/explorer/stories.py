"""Stories on the live page: the landing view at ``/`` and each story at ``/story/<model>``.

Scenes that are shipped with the package are shown at once. Others, such as those of models from other packages, are
computed by a worker process on the first visit, while the visitor sees how far it is.
"""

import asyncio
import html
import threading
from typing import Any

from solvable import models
from solvable.explorer.workers import Workers
from solvable.stories.pages import landing_html, plain_tile, story_html, tile
from solvable.stories.shipped import shipped

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
        tiles = [self._tile(model) for model in models.names()]
        return landing_html(sorted(tiles, key=lambda one: one["state"] is None), stories="/")

    def _tile(self, model: str) -> dict[str, Any]:
        made = self._scene(model)
        if made is not None:
            return tile(made, _STORY + model)
        if models.get(model).controls.stories:
            return plain_tile(model, _STORY + model)
        told = {"model": model, "question": model.replace("-", " "), "summary": models.names()[model]}
        return {**told, "href": f"/?model={model}", "state": None}

    def story(self, model: str) -> str | None:
        """The page of a story, or one that says how far its computation is; None if there is no such story."""
        if model not in models.names() or not models.get(model).controls.stories:
            return None
        made = self._scene(model)
        return story_html(made, stories="/", free="/") if made is not None else self._waiting(model)

    def _scene(self, model: str) -> dict[str, Any] | None:
        if not models.get(model).controls.stories:
            return None
        return self._scenes.get(model) or shipped(model)

    def _waiting(self, model: str) -> str:
        with self._lock:
            failure = self._failures.pop(model, None)
            if failure is None and model not in self._shares:
                self._shares[model] = 0.0
                self._begin(model)
        name = html.escape(model)
        if failure is not None:
            return f"<!doctype html><title>solvable</title><p>The story of {name} failed: {html.escape(failure)}</p>"
        share = self._shares.get(model, 1.0)
        return (
            f'<!doctype html><meta http-equiv="refresh" content="2"><title>{name} · solvable</title>'
            f'<p role="status">The story of {name} is being computed: {share:.0%}. This page reloads itself.</p>'
        )

    def _begin(self, model: str) -> None:
        job = self._workers.submit("scene", {"model": model}, heavy=True)
        job.on_progress = lambda share: self._shares.update({model: share})
        job.on_done = lambda made, notes: self._finished(model, made)
        job.on_failed = lambda words: self._failed(model, words)
        self._workers.begin(job)

    def _finished(self, model: str, made: dict[str, Any]) -> None:
        self._scenes[model] = made
        self._shares.pop(model, None)

    def _failed(self, model: str, words: str) -> None:
        self._failures[model] = words
        self._shares.pop(model, None)


def add_stories(server: Any, workers: Workers) -> None:
    """Answer ``/`` without a query and ``/story/<model>``; everything else is left to the form of the models."""
    from tornado.routing import Matcher, Rule
    from tornado.web import RequestHandler

    stories = Stories(workers)

    class Ours(Matcher):
        def match(self, request: Any) -> dict[str, Any] | None:
            landing = request.path == "/" and not request.query
            return {} if landing or request.path.startswith(_STORY) else None

    class Page(RequestHandler):
        async def get(self) -> None:
            # Models are imported on first use, which takes seconds: others are answered meanwhile.
            model = self.request.path.removeprefix(_STORY) if self.request.path != "/" else ""
            loop = asyncio.get_running_loop()
            page = await loop.run_in_executor(None, stories.story, model) if model else None
            if page is None:
                self.set_status(404 if self.request.path != "/" else 200)
                page = await loop.run_in_executor(None, stories.landing)
            self.set_header("Content-Type", "text/html; charset=utf-8")
            self.finish(page)

    router = server._tornado.default_router
    router.rules.insert(0, router.process_rule(Rule(Ours(), Page)))
    # The first visitor does not wait for the import of the models.
    threading.Thread(target=stories.landing, daemon=True).start()
