"""Campaigns: figures in processes of their own, stopped in time, and ledgers that forget nothing."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from solvable import papers
from solvable.cli import main
from solvable.papers.report import campaign, history
from solvable.papers.report.history import History, Row

CLAIM = {"name": "a slope", "measured": 0.5, "expected": 0.5, "tolerance": 0.1, "printed": None, "passed": True}


def row(figure: str = "eq12", **changes: object) -> Row:
    base = Row(figure, "finished", "2026-01-01 10:00 UTC", "aaa", "cpu", 3.0, claims=[dict(CLAIM)])
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_a_later_run_takes_the_place_of_an_earlier_one_and_keeps_an_account_of_what_failed() -> None:
    failed = dict(CLAIM) | {"measured": 0.9, "passed": False}
    ledger = History("linear-grokking").with_row(row(claims=[failed]))
    ledger = ledger.with_row(row(date="2026-01-02 10:00 UTC", commit="bbb"))
    found = ledger.rows["eq12"]
    assert (found.commit, found.passed, found.failed) == ("bbb", 1, [])
    (before,) = found.earlier
    assert (before["commit"], before["passed"]) == ("aaa", 0)
    assert before["failed"][0]["measured"] == 0.9


def test_a_run_that_did_not_finish_takes_the_place_of_none_that_did() -> None:
    stopped = row(status="stopped", date="2026-01-03 10:00 UTC", claims=[])
    ledger = History("linear-grokking").with_row(row()).with_row(stopped).with_row(stopped)
    assert ledger.rows["eq12"].status == "finished"
    assert [account["status"] for account in ledger.rows["eq12"].earlier] == ["stopped"]
    # But a finished one takes the place of one that was stopped.
    assert History("linear-grokking").with_row(stopped).with_row(row()).rows["eq12"].status == "finished"


def test_merging_the_same_ledger_twice_changes_nothing() -> None:
    other = History("linear-grokking").with_row(row(tree="t"), {"solvable": "1"})
    once = History("linear-grokking").merged(other)
    assert once.merged(other) == once == other


def test_ledgers_survive_their_files_and_foreign_files_are_refused(tmp_path: Path) -> None:
    ledger = History("linear-grokking").with_row(row(tree="t"), {"solvable": "1"})
    history.write(ledger, tmp_path)
    assert history.read_all(tmp_path)["linear-grokking"] == ledger
    assert history.read_all(tmp_path)["layerwise"].rows == {}
    (tmp_path / "layerwise.json").write_text('{"rows": 3}')
    with pytest.raises(ValueError, match="not a ledger"):
        history.read_all(tmp_path)
    with pytest.raises(ValueError, match="the ledger of linear-grokking, not of layerwise"):
        history.read(tmp_path / "linear-grokking.json", "layerwise")


def test_what_changed_since_is_named_by_module() -> None:
    name, tree = history.whole_tree()
    ledger = History("linear-grokking").with_row(row(tree=name), tree)
    assert ledger.changed("eq12") == []
    other = tree | {"solvable.numerics.roots": "0"}
    assert History("linear-grokking").with_row(row(tree=name), other).changed("eq12") == ["solvable.numerics.roots"]
    assert History("linear-grokking").with_row(row()).changed("eq12") is None


SCRIPTS = {
    "eq12": "import json, sys; json.dump(json.loads(sys.argv[2]), open(sys.argv[1] + '/claims.json', 'w'))",
    "eq16": "import time; time.sleep(600)",
    "eq19": "raise MemoryError('no room')",
}


class Scripted(campaign.Job):
    """A job whose process runs a few lines of Python instead of a figure."""

    @property
    def command(self) -> list[str]:
        about = {"paper": self.paper, "figure": self.figure, "title": "t", "seconds": 2.0, "cpu_seconds": 1.0}
        about |= {"finished": "2026-01-01 10:00 UTC", "reused": False, "data_from": None, "error": None, "files": {}}
        claims = [{"paper": self.paper, "figure": self.figure, "title": "t", "seconds": 2.0} | CLAIM]
        content = {"figures": [about | {"passed": 1, "failed": 0}], "claims": claims}
        content |= {"environment": {"device": "cpu", "Python": "3", "jax": "1"}}
        return [sys.executable, "-c", SCRIPTS[self.figure], str(self.folder), json.dumps(content)]


def test_one_finishes_one_raises_one_is_stopped_and_all_are_recorded(tmp_path: Path) -> None:
    jobs = [Scripted("linear-grokking", figure, "full", tmp_path / figure) for figure in ("eq12", "eq19", "eq16")]
    seen: list[int] = []
    campaign.run(jobs[:2], tmp_path, 300.0, 300.0, 2, "abc", lambda result, left: seen.append(left))
    campaign.run(jobs[2:], tmp_path, 0.5, 300.0, 1, "abc", lambda result, left: seen.append(left))
    ledger = history.read_all(tmp_path)["linear-grokking"]
    assert seen == [1, 0, 0]
    assert {name: found.status for name, found in ledger.rows.items()} == {
        "eq12": "finished",
        "eq16": "stopped",
        "eq19": "raised",
    }
    assert ledger.rows["eq19"].error == "MemoryError: no room"
    assert ledger.rows["eq12"].claims == [CLAIM]
    assert (ledger.rows["eq12"].commit, ledger.rows["eq12"].device) == ("abc", "cpu")
    assert ledger.rows["eq12"].command == "solvable reproduce linear-grokking eq12 --scale full"
    assert ledger.changed("eq12") == []


TERMINATED = """
import sys
from pathlib import Path
from solvable.papers.report import campaign

class Waiting(campaign.Job):
    @property
    def command(self):
        write = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
        return [sys.executable, "-c", write, str(self.folder / "pid")]

folder = Path(sys.argv[1])
campaign.run([Waiting("linear-grokking", "eq16", "full", folder)], folder, 600.0, 600.0, 1, "abc", print)
"""


def test_a_campaign_that_is_terminated_leaves_no_figure_behind(tmp_path: Path) -> None:
    """SIGTERM ended the campaign alone, and its figure went on for hours without a time limit."""
    process = subprocess.Popen([sys.executable, "-c", TERMINATED, str(tmp_path)])
    pid = tmp_path / "pid"
    until = time.monotonic() + 120
    while not (pid.exists() and pid.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_what_has_never_run_comes_first_and_what_is_current_last() -> None:
    name, tree = history.whole_tree()
    ledger = History("linear-grokking")
    ledger = ledger.with_row(row("eq12", tree=name), tree).with_row(row("eq16")).with_row(row("eq19", seconds=1.0))
    jobs = [campaign.Job("linear-grokking", figure, "full", Path()) for figure in ("eq12", "eq16", "eq19", "fig1")]
    ordered = [job.figure for job in campaign.order(jobs, {"linear-grokking": ledger})]
    assert ordered == ["fig1", "eq19", "eq16", "eq12"]


def test_status_has_a_row_for_every_figure_and_every_failure_has_an_ending(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "status", "--json"])
    assert ended.value.code == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == sum(len(papers.figures(paper)) for paper in papers.papers())
    explained = history.endings()
    missing = [(row["paper"], row["figure"], name) for row in rows for name in row["failed"]]
    assert [key for key in missing if key not in explained] == []


def test_bad_options_are_answered_in_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments in (["--limit", "0"], ["--processes", "0"], ["--scale", "huge"], ["--total", "nan"]):
        with pytest.raises(SystemExit) as ended:
            main(["campaign", "run", "linear-grokking", "--out", str(tmp_path / "out"), *arguments])
        assert ended.value.code != 0
        assert arguments[0][2:] in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["campaign", "merge", str(tmp_path / "nowhere"), "--into", str(tmp_path)])
    assert "is not a folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["campaign", "merge", str(tmp_path), "--into", str(tmp_path / "all")])
    assert "holds no ledger of a campaign" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["campaign", "run", "linear-grokking", "--out", str(tmp_path / "out"), "--ledgers", str(tmp_path / "no")])
    assert "there is no such folder" in capsys.readouterr().err
    # Nothing is made of what is refused.
    assert not (tmp_path / "no").exists()
    assert not (tmp_path / "all").exists()
