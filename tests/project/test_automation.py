"""The workflow of public forges, the commit hooks and the citation say what the Makefile and the papers say."""

import re
from typing import Any

import pytest
from paths import ROOT

from solvable import papers

yaml = pytest.importorskip("yaml")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def read(path: str) -> dict[Any, Any]:
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def test_every_job_runs_a_command_that_exists() -> None:
    targets = set(re.findall(r"^([a-z ]+):(?!=)", MAKEFILE, re.MULTILINE))
    targets = {name for line in targets for name in line.split()}
    jobs = read(".github/workflows/tests.yml")["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    made = {word for command in commands for word in re.findall(r"^make (\w+)", command)}
    assert made == {"oldest", "newest", "distributions"} <= targets
    assert ".ci/run" in commands
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


def test_hooks_are_the_linters() -> None:
    (recipe,) = re.findall(r"^lint:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    linters = re.findall(r"\$\(BIN\)/([\w-]+)( check| format)?", recipe)
    hooks = [hook["entry"] for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert [re.match(r"\.venv/bin/([\w-]+)( check| format)?", entry).groups("") for entry in hooks] == linters


def test_the_citation_names_every_paper() -> None:
    references = read("CITATION.cff")["references"]
    assert len({one["title"] for one in references}) == len(papers.papers())
    assert all(one["authors"] and 2020 < one["year"] < 2030 for one in references)
