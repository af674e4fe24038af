"""The tab that infers the law of a training log."""

import base64
from typing import TYPE_CHECKING, Any

import panel as pn

from solvable.explorer.components import Form, Runner, Upload, asset, choice, number
from solvable.explorer.inference import ENDINGS, HORIZONS, LAWS, received, sample_log
from solvable.explorer.latest import Later, Latest
from solvable.explorer.markup import notice
from solvable.explorer.workers import Workers

if TYPE_CHECKING:
    from solvable.explorer.view import View

UPLOAD_LIMIT = 8_000_000


class InferencePart:
    """Passes an uploaded log to a worker, and shows fit and forecast; again when another law is chosen."""

    def __init__(self, view: "View", workers: Workers, later: Later) -> None:
        self.upload = Upload(
            limit=UPLOAD_LIMIT,
            label="Training log or table of runs (.csv, .jsonl)",
            ident="log",
            accept=",".join(ENDINGS),
        )
        self.views = Form(
            fields=[
                choice("law", "Law", LAWS),
                choice("horizon", "Forecast", HORIZONS),
                number("warm_up", "Warm-up before the first record (steps)", "zero or more"),
            ],
            texts={"law": "power-law", "horizon": "10x", "warm_up": "0"},
            title="Law and forecast",
            prefix="i",
            layout="across",
        )
        self.sample = pn.widgets.FileDownload(
            callback=sample_log, filename="sample-log.csv", label="Sample log to try it with (warm-up: 2160 steps)"
        )
        self.runner = Runner(label="")
        self.report = pn.pane.HTML("", stylesheets=[asset("shown.css")], sizing_mode="stretch_width", margin=0)
        self.work = Latest(workers, later, "inference", lambda share: setattr(self.runner, "share", share))
        self._file: dict[str, Any] = {}
        view.watch(self.upload, "file", self._uploaded)
        view.watch(self.views, "edited", self._chosen)
        view.watch(self.runner, "pressed", lambda new: self.stop())

    def stop(self) -> None:
        self.work.stop()
        self.runner.status = ""

    def _chosen(self, change: dict[str, Any]) -> None:
        key, text = str(change.get("key")), str(change.get("text"))
        if key not in self.views.texts:
            return
        if key == "warm_up" and not text.strip().replace(".", "", 1).isdigit():
            self.views.errors = {key: f"warm_up must be a number of steps, zero or more, not {text[:40]!r}"}
            return
        self.views.errors = {}
        self.views.texts = {**self.views.texts, key: text.strip()}
        if self._file:
            self._uploaded(self._file)

    def _uploaded(self, file: dict[str, Any]) -> None:
        self.report.object, self.runner.error, self._file = "", "", {}
        name = str(file.get("name", ""))
        try:
            content = base64.b64decode(str(file.get("content", "")), validate=True)
            path = received(content, name, UPLOAD_LIMIT)
        except ValueError as error:
            self._failed(str(error))
            return
        self._file = dict(file)
        self.runner.status = f"fitting {name[:80]}"
        payload = {"path": str(path), "name": name[:80], **self.views.texts}
        self.work.ask(payload, True, done=self._inferred, failed=self._failed)

    def _inferred(self, report: str, notes: list[str]) -> None:
        self.runner.status = ""
        self.report.object = report + notice(notes)

    def _failed(self, words: str) -> None:
        self.runner.status = ""
        self.runner.error = words
