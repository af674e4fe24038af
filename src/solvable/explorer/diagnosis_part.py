"""The tab that diagnoses a network from a file of its features."""

import base64
from typing import TYPE_CHECKING, Any

import panel as pn

from solvable.explorer.components import Runner, Upload, asset
from solvable.explorer.diagnosis import received, sample_file
from solvable.explorer.latest import Later, Latest
from solvable.explorer.markup import notice
from solvable.explorer.workers import Workers

if TYPE_CHECKING:
    from solvable.explorer.view import View

UPLOAD_LIMIT = 8_000_000


class DiagnosisPart:
    """Passes an uploaded file to a worker, and shows its report or the reason why it was refused."""

    def __init__(self, view: "View", workers: Workers, later: Later) -> None:
        self.upload = Upload(limit=UPLOAD_LIMIT)
        self.sample = pn.widgets.FileDownload(
            callback=sample_file, filename="sample-features.npz", label="Sample file to try it with (.npz)"
        )
        self.runner = Runner(label="")
        self.report = pn.pane.HTML("", stylesheets=[asset("shown.css")], sizing_mode="stretch_width", margin=0)
        self.work = Latest(workers, later, "diagnosis", lambda share: setattr(self.runner, "share", share))
        view.watch(self.upload, "file", self._uploaded)
        view.watch(self.runner, "pressed", lambda new: self.stop())

    def stop(self) -> None:
        self.work.stop()

    def _uploaded(self, file: dict[str, Any]) -> None:
        self.report.object, self.runner.error = "", ""
        try:
            content = base64.b64decode(str(file.get("content", "")), validate=True)
            path = received(content, UPLOAD_LIMIT)
        except ValueError as error:
            self._failed(str(error))
            return
        self.runner.status = f"reading {str(file.get('name', ''))[:80]}"
        self.work.ask({"path": str(path)}, True, done=self._diagnosed, failed=self._failed)

    def _diagnosed(self, report: str, notes: list[str]) -> None:
        self.runner.status = ""
        self.report.object = report + notice(notes)

    def _failed(self, words: str) -> None:
        self.runner.status = ""
        self.runner.error = words
