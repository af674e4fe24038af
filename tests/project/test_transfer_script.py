"""The script of the figure on transfer: what was finished is kept, and the ledger alone makes table and picture."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("transfer_figure", ROOT / "docs/figures/make/transfer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_group_that_is_cut_off_has_a_report_of_what_was_finished(script, tmp_path, monkeypatch):
    group, widths = ("adam", "maximal-update"), (4, 8, 16)
    scale = {"seeds": 4, "spacing": 2.0, "runs_per_group": None}
    monkeypatch.setattr(script, "STEPS", 20)
    # Cut off after two of three widths.
    monkeypatch.setitem(script.SCALES, "test", {"widths": {"adam": widths[:2]}, **scale})
    script.train_group("test", *group, tmp_path, finished_only=False)
    monkeypatch.setitem(script.SCALES, "test", {"widths": {"adam": widths}, **scale})
    script.train_group("test", *group, tmp_path, finished_only=True)
    ledger = tmp_path / "ledger.json"
    script.write_ledger("test", tmp_path, ledger, "abc", "command", 1.0)
    content = json.loads(ledger.read_text())
    assert "adam, maximal-update" in content["unfinished"]
    assert content["reports"]["maximal-update, adam"]["widths"] == [4, 8]
    # Wider networks may be left out; the same command again trains the third width.
    before = script.group_path(tmp_path, *group).read_bytes()
    script.train_group("test", *group, tmp_path, finished_only=False, widest=8)
    assert script.group_path(tmp_path, *group).read_bytes() == before
    script.train_group("test", *group, tmp_path, finished_only=False)
    assert script.group_path(tmp_path, *group).read_bytes() != before
    script.write_ledger("test", tmp_path, ledger, "abc", "command", 1.0)
    content = json.loads(ledger.read_text())
    one = content["reports"]["maximal-update, adam"]
    assert "adam, maximal-update" not in content["unfinished"]
    assert set(one["seconds"]) == {"4", "8", "16"}
    assert content["commit"] == "abc"
    # The ledger's losses, of six digits, give the report again.
    (report,) = script.read_ledger(ledger).values()
    assert report.verdict == one["verdict"]
    row = script.table({"maximal-update, adam": report}).splitlines()[-1]
    # So few steps are too few for the grid.
    assert row == "| maximal-update | Adam | outside the grid | outside the grid | upper edge … upper edge | unknown |"
    names = ("standard, sgd", "maximal-update, sgd", "standard, adam", "maximal-update, adam")
    script.draw(dict.fromkeys(names, report), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_the_page_states_what_the_ledger_of_the_full_run_says(script):
    """The table of the page is made by the script, once there is a full run."""
    ledger = ROOT / "docs/results/ledgers/transfer-full.json"
    if not ledger.exists():
        pytest.skip("transfer has not been run at full scale")
    page = (ROOT / "docs/networks/transfer.md").read_text("utf-8")
    for line in script.table(script.read_ledger(ledger)).splitlines():
        assert line in page
