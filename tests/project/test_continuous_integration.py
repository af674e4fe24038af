"""The judge of claims in continuous integration: what fails must be on the list, and what was not run is named."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from paths import ROOT

from solvable.papers import Claim

SCRIPT = ROOT / ".ci" / "claims.py"


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("claims_judge", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "REPORT", tmp_path)
    monkeypatch.setattr(module, "KNOWN", tmp_path / "known-failures.txt")
    module.KNOWN.write_text("# none\n")
    return module


def claim(name: str, passed: bool) -> dict[str, Any]:
    made = Claim(name, 1.0, 1.05 if passed else 2.0, 0.1, "by definition")
    return {"paper": "linear-grokking", "figure": "eq12", **made.to_dict()}


def reproducing(judge: ModuleType, monkeypatch: pytest.MonkeyPatch, *claims: dict[str, Any], error: str = "") -> None:
    """Reproduction replaced by one that finishes a figure with these claims, or with an error."""
    ledger = {
        "passed": sum(one["passed"] for one in claims),
        "failed": sum(not one["passed"] for one in claims),
        "errors": int(bool(error)),
        "figures": [{"paper": "linear-grokking", "figure": "eq12", "error": error or None}],
        "claims": list(claims),
    }
    monkeypatch.setattr(
        judge, "run", lambda names, limit: (judge.REPORT / "claims.json").write_text(json.dumps(ledger))
    )


def test_claims_that_hold(
    judge: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reproducing(judge, monkeypatch, claim("delay", True))
    assert judge.main(9, ["linear-grokking", "eq12", "eq16"]) == 0
    text = capsys.readouterr().out
    assert "1 held, 0 failed and 0 figures raised (0 of these known), in 1 of 2 figures" in text
    assert "not run within 9 s:\n  linear-grokking eq16" in text


def test_a_failure_must_be_known(
    judge: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reproducing(judge, monkeypatch, claim("delay", False), claim("plateau", True))
    assert judge.main(9, ["linear-grokking", "eq12"]) == 1
    assert "failed:\n  linear-grokking eq12: delay (measured 1.0, expected 2 ± 0.1)" in capsys.readouterr().out
    judge.KNOWN.write_text("linear-grokking eq12: delay\nlinear-grokking eq12: plateau\nlinear-grokking eq16: other\n")
    assert judge.main(9, ["linear-grokking", "eq12"]) == 0
    text = capsys.readouterr().out
    assert "(1 of these known)" in text
    # A figure that was not run says nothing about its failures.
    assert text.endswith("remove them from known-failures.txt:\n  linear-grokking eq12: plateau\n")


def test_bounds_are_told_as_bounds(judge: ModuleType) -> None:
    bound = Claim.at_least("ratio", 1.5, 3.0, "by definition")
    where = {"paper": "linear-grokking", "figure": "eq12"}
    found = judge.failures({"figures": [], "claims": [{**where, **bound.to_dict()}]})
    assert found == {"linear-grokking eq12: ratio": "measured 1.5, expected ≥ 3"}


def test_figures_that_raise(judge: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    reproducing(judge, monkeypatch, error="Traceback\nValueError: no")
    assert judge.main(9, ["linear-grokking", "eq12"]) == 1
    judge.KNOWN.write_text("linear-grokking eq12 raised\n")
    assert judge.main(9, ["linear-grokking", "eq12"]) == 0


def test_nothing_finished_is_a_failure(judge: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "run", lambda names, limit: None)
    assert judge.main(9, ["linear-grokking"]) == 1
