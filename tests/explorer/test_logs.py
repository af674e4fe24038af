"""Uploaded logs and tables: the report and forecast of the library, and refusals in words."""

import base64
import io

import numpy as np
import pytest

from solvable.explorer import inference, tasks


def test_every_task_has_a_time_limit() -> None:
    from solvable.settings.limits import SECONDS

    assert set(tasks.TASKS) == set(SECONDS)


def test_a_log_gives_the_librarys_report_and_forecast() -> None:
    import solvable

    content = inference.sample_log().getvalue()
    path = inference.received(content, "mine.csv", 1_000_000)
    page = inference.infer_log(str(path), "mine.csv", "power-law-steps", "2x")
    assert not path.exists(), "uploads are not kept"
    assert path.stem not in page, "the visitor's own name of the file is shown"
    picture = base64.b64decode(page.partition("base64,")[2].partition('"')[0]).decode()
    assert path.stem not in picture
    rows = np.genfromtxt(io.BytesIO(content), delimiter=",", names=True)
    table = {"step": rows["step"], "loss": rows["loss"], "learning_rate": rows["learning_rate"]}
    forecast = solvable.infer(solvable.read_curves(table), "power-law-steps").predict("2x")
    assert f"loss {forecast.loss.item():.4g}" in page
    assert "data:image/svg+xml" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_a_table_of_runs_gives_its_scaling_law() -> None:
    from solvable.inference import example_table

    table = example_table().to_dataframe().sort_values("loss").iloc[:-5]
    path = inference.received(table.to_csv(index=False).encode(), "runs.csv", 1_000_000)
    page = inference.infer_log(str(path), "runs.csv", "scaling-law", "10x")
    assert "best size" in page
    assert "alpha" in page


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("empty.csv", b"", "empty"),
        ("weights.pkl", b"x", "must end in one of .csv"),
        ("long.csv", b"x" * 2_000_001, "more than the 2 MB"),
    ],
)
def test_what_is_no_log_is_not_even_kept(name: str, content: bytes, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        inference.received(content, name, 2_000_000)


def test_a_log_that_cannot_be_read_is_named_as_the_visitor_knows_it() -> None:
    path = inference.received(b"step,loss\n1,2\n", "short.csv", 1000)
    with pytest.raises(ValueError, match="run 'short' has 1 records"):
        inference.infer_log(str(path), "short.csv", "power-law", "2x")
    assert not path.exists()
