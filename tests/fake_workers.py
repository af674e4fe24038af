"""Workers of the page for tests without processes."""

from types import SimpleNamespace

from solvable.explorer import tasks


class FakeWorkers:
    """Workers that keep the jobs they are asked to do, for the test to answer."""

    def __init__(self) -> None:
        self.asked: list[SimpleNamespace] = []

    def submit(self, task: str, payload: dict, heavy: bool = False) -> SimpleNamespace:
        return SimpleNamespace(task=task, payload=payload, heavy=heavy, cancel=lambda: None)

    def begin(self, job: SimpleNamespace) -> None:
        self.asked.append(job)


def answer_to(job: SimpleNamespace) -> object:
    """What a worker would answer."""
    return tasks.run(job.task, job.payload, lambda partial: None)["result"]
