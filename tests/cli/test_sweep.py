"""``solvable sweep`` as a user meets it: from a grid to a store and a picture, and back after an interruption."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import solvable
from solvable import GradientDescent, LinearEstimator
from solvable.checks import rules
from solvable.cli import main
from solvable.cli.sweep import _fixed
from solvable.model import Model, parameter
from solvable.ranges import parse_box, parse_values
from solvable.sweeps import layout, load, status
from solvable.sweeps.design import as_design

PLANE = ("sweep", "linear-estimator", "--over", "aspect-ratio=0.2:1.4:4", "--over", "weight_decay=1e-5:1e-3:3log")


def run(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


def test_from_a_grid_to_a_picture(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    store = str(tmp_path / "plane.zarr")
    command = (*PLANE, "--quantity", "grokking-time", "--option", "accuracy=0.9", "--store", store)
    code, out, err = run(capsys, *command, "--plot", str(tmp_path / "plane.svg"), "--out", str(tmp_path / "plane.npz"))
    assert code == 0
    assert "grokking_time of linear-estimator over 4 aspect_ratio x 3 weight_decay" in out
    assert "figure:" in err
    assert (tmp_path / "plane.svg").stat().st_size > 0
    plane = load(store)
    expected = LinearEstimator(0.2).grokking_time(0.9, GradientDescent(0.01, weight_decay=1e-4)).delay
    assert float(plane.delay.sel(aspect_ratio=0.2, weight_decay=1e-4, method="nearest")) == float(expected)
    np.testing.assert_array_equal(solvable.load(tmp_path / "plane.npz").delay, plane.delay)
    code, out, _ = run(capsys, "sweep", "--status", store)
    assert code == 0
    assert "done     12" in out
    code, out, _ = run(capsys, "sweep", "--status", store, "--json")
    assert json.loads(out)["done"] == 12
    code, _, err = run(capsys, *command, "--learning-rate", "0.02")
    assert code == 2
    assert "training.learning_rate: stored 0.01, now 0.02" in err


@pytest.mark.parametrize(
    ("axes", "named"),
    [
        (("--over", "aspect_ratio=0.2,0.4"), "aspect_ratio:"),
        (("--over", "weight_decay=0,1", "--over", "aspect_ratio=1,2"), "weight_decay x aspect_ratio:"),
        (
            ("--over", "aspect_ratio=1,2", "--over", "weight_decay=0,1", "--over", "outputs=1,2"),
            "aspect_ratio x weight_decay x outputs:",
        ),
        (("--zip", "aspect_ratio=1,2", "--zip", "weight_decay=0,1"), "aspect_ratio_weight_decay:"),
    ],
)
def test_a_store_with_other_axes_is_refused_in_words(
    capsys: pytest.CaptureFixture, tmp_path: Path, axes: tuple, named: str
) -> None:
    store = tmp_path / "plane.zarr"
    solvable.sweep(LinearEstimator(0.5), {"aspect_ratio": [1.0], "weight_decay": [0.1]}, "limit", store=store)
    for extra in ((), ("--dry-run",)):
        code, out, err = run(
            capsys, "sweep", "linear-estimator", *axes, "--quantity", "limit", "--store", str(store), *extra
        )
        assert (code, out) == (2, "")
        assert f"error: {store} has the axes aspect_ratio x weight_decay, but this sweep has {named}" in err


def test_a_store_of_an_older_version_is_shown_but_not_continued(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    """Before there were trainings, the learning rate was a field of the model."""
    store = tmp_path / "plane.zarr"
    command = (*PLANE, "--quantity", "limit", "--store", str(store))
    assert run(capsys, *command)[0] == 0
    found = layout.read_layout(store)
    settings = {
        name: value for name, value in found.attributes["settings"].items() if name not in ("training", "version")
    }
    settings["parameters"] = {**settings["parameters"], "learning_rate": 0.01}
    layout.publish(store, layout.Layout({**found.attributes, "settings": settings}, found.arrays))
    code, out, _ = run(capsys, "sweep", "--status", str(store))
    assert (code, "limit of linear-estimator, version unknown" in out) == (0, True)
    for extra in ((), ("--dry-run",)):
        code, out, err = run(capsys, *command, *extra)
        assert (code, out) == (2, "")
        assert err.startswith(
            f"error: {store} was written by an older version of solvable, in which learning_rate was "
        )
        assert err.count("\n") == 1
    layout.publish(store, layout.Layout({**found.attributes, "format": "solvable-sweep-0"}, found.arrays))
    for arguments in (command, ("sweep", "--status", str(store))):
        code, out, err = run(capsys, *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "was written by an older version of solvable" in err
    assert run(capsys, *command, "--overwrite")[0] == 0


def test_a_table_of_strings(capsys: pytest.CaptureFixture) -> None:
    """Fewer distinct strings than there are columns of the table."""
    code, out, err = run(
        capsys, "sweep", "feature-scaling", "--over", "capacity=1.2,2", "--over", "source=0.3", "--quantity", "phase"
    )
    assert code == 0, err
    assert "hard" in out


def test_a_sweep_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour a cell, 25 of them: more than a day is refused unless what is computed is kept."""
    from solvable.sweeps import sweeping

    measure = sweeping.measure
    monkeypatch.setattr(sweeping, "measure", lambda cells, design: (measure(cells, design)[0], 3600.0))
    grid = {"aspect_ratio": np.linspace(0.1, 1, 25)}
    with pytest.raises(ValueError, match=r"\(25 cells\) would take about .* hours, longer than"):
        solvable.sweep(LinearEstimator(0.5), grid, "limit", engine="serial")


def test_a_plan_costs_nothing(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    command = (*PLANE, "--quantity", "limit", "--store", str(tmp_path / "plane.zarr"), "--dry-run")
    code, out, _ = run(capsys, *command)
    assert code == 0
    assert "12 cells, 12 to compute" in out
    code, out, _ = run(capsys, *command, "--json")
    assert json.loads(out)["sizes"] == {"aspect_ratio": 4, "weight_decay": 3}
    assert list(tmp_path.iterdir()) == []


def test_designs_names_and_vectors(capsys: pytest.CaptureFixture) -> None:
    def found(*arguments: str) -> dict:
        code, out, err = run(capsys, "sweep", *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    box = ("--over", "aspect_ratio=0.1:2", "--over", "weight_decay=1e-4:1:log", "--over", "outputs=1,2")
    drawn = found("linear-estimator", *box, "--sobol", "4", "--quantity", "limit")
    assert drawn["dims"] == {"outputs": 2, "sample": 4}
    drawn = found("linear-estimator", *box, "--latin-hypercube", "3", "--quantity", "limit", "--design-key", "1")
    assert drawn["dims"] == {"outputs": 2, "sample": 3}
    pairs = ("--zip", "aspect_ratio=0.5,2", "--zip", "weight_decay=0.1,0.2")
    assert found("linear-estimator", *pairs, "--quantity", "limit")["dims"] == {"aspect_ratio_weight_decay": 2}
    phases = found("feature-scaling", "--over", "capacity=1.2,2", "--over", "source=0.3", "--quantity", "phase")
    assert phases["data_vars"]["phase"]["data"] == [["hard"], ["hard"]]
    kinds = found("skills", "--exponent", "0.5", "--over", "kind=multilinear,linear", "--quantity", "exponents")
    assert kinds["coords"]["kind"]["data"] == ["multilinear", "linear"]
    layers = found(
        "scalar-network", "--over", "initial_first=0.1,0.2;0.3,0.4", "--initial-second", "0.1,0.1", "--target", "1",
        "--quantity", "final-growth",
    )  # fmt: skip
    assert layers["coords"]["initial_first"]["data"] == ["[0.1, 0.2]", "[0.3, 0.4]"]
    curves = found(
        "scalar-network", "--initial-first", "0.1,0.2", "--initial-second", "0.1,0.1", "--over", "target=1,2",
        "--option", "times=0,1",
    )  # fmt: skip
    assert curves["dims"]["time"] == 2


def test_failed_cells_are_told_and_fail_the_command(capsys: pytest.CaptureFixture) -> None:
    arguments = ("--over", "label_noise=0,0.1", "--aspect-ratio", "0.5", "--quantity", "critical-aspect-ratio")
    code, out, err = run(capsys, "sweep", "linear-estimator", *arguments)
    assert code == 1
    assert err.startswith("warning: 1 of 2 cells failed: label_noise = 0.1: ValueError: critical_aspect_ratio is")
    assert "critical_aspect_ratio" in out


SLOW_QUANTITY = """
import sys, time
from solvable import LinearEstimator
from solvable.cli import main
def slow(self):
    time.sleep(0.06)
    return self.aspect_ratio
LinearEstimator.slow = slow
main(sys.argv[1:])
"""


def test_ctrl_c_leaves_a_store_that_resumes(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    store = tmp_path / "plane.zarr"
    arguments = ("sweep", "linear-estimator", "--over", "aspect_ratio=0.1:2:40", "--quantity", "slow")
    arguments = (*arguments, "--store", str(store), "--engine", "serial", "--tile", "1")
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_QUANTITY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (store.exists() and status(store)["done"]):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same sweep again" in err
    counts = status(store)
    assert 0 < counts["done"] < 40
    finished = subprocess.run([sys.executable, "-c", SLOW_QUANTITY, *arguments], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    plane = load(store)
    np.testing.assert_array_equal(plane.slow, plane.aspect_ratio)
    assert plane.sizes["aspect_ratio"] == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("linear-estimator",), "Missing option '--over'"),
        (("linear-estimator", "--over", "weight_decay"), "must look like"),
        (("linear-estimator", "--over", "aspect_ratio=0.1:2"), "must look like 1:1e5:200log"),
        (("linear-estimator", "--over", "aspect_ratio=0.1,-2", "--quantity", "limit"), "positive finite number"),
        (("linear-estimator", "--over", "aspekt=0.1,2", "--aspect-ratio", "1"), "no parameter 'aspekt'"),
        (("linear-estimator", "--over", "aspect_ratio=0.1,2", "--sobol", "4"), "a random design needs ranges"),
        (("linear-estimator", "--over", "aspect_ratio=1:2", "--sobol", "4", "--latin-hypercube", "4"), "not both"),
        (("linear-estimator", "--over", "aspect_ratio=1,2", "--quantity", "magic"), "no quantity 'magic'"),
        (("linear-estimator", "--over", "aspect_ratio=1,2", "--quantity", "limit", "--store", "a.nc"), ".zarr"),
        (("linear-estimator", "--over", "aspect_ratio=1,2", "--engine", "magic"), "engine must be one of"),
        (("linear-estimator", "--over", "aspect_ratio=1,2", "--plot", "a.txt"), "must end in one of .png"),
        (("linear-estimater", "--over", "aspect_ratio=1,2"), "did you mean 'linear-estimator'"),
        (("--status", "nowhere.zarr"), "nowhere.zarr"),
    ],
)
def test_mistakes_end_in_one_line(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "sweep", *arguments)
    errors = err.splitlines()
    assert code == 2
    assert out == ""
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert message in errors[0]
    assert list(tmp_path.iterdir()) == []


def test_a_scheduler_that_does_not_answer(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    import distributed

    def silent(*_: object, **__: object) -> None:
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", silent)
    code, _, err = run(capsys, *PLANE, "--quantity", "limit", "--scheduler", "tcp://127.0.0.1:1")
    assert code == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in err


def test_lists_as_people_type_them() -> None:
    assert parse_values("1:3:3", "--over") == [1.0, 2.0, 3.0]
    assert parse_values("1,2.5,none", "--over") == [1, 2.5, None]
    assert parse_values("relu, quadratic(0.5)", "--over") == ["relu", "quadratic(0.5)"]
    assert parse_values("1,2;3,4", "--over") == [[1.0, 2.0], [3.0, 4.0]]
    assert parse_box("0.1:2", "--over") == (0.1, 2.0)
    assert parse_box("1e-3:2:log", "--over") == (1e-3, 2.0, "log")
    assert parse_box("1:2:5", "--over") is None
    assert parse_box("1,2", "--over") is None
    with pytest.raises(ValueError, match="must look like 0.05:3"):
        parse_box("a:b", "--over")


def test_the_command_without_a_model_shows_its_help(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = run(capsys, "sweep")
    assert code == 0
    assert "--status" in out
    assert "linear-estimator" in out
    code, out, _ = run(capsys, "sweep", "skills", "--help")
    assert code == 0
    for flag in ("--over", "--zip", "--sobol", "--latin-hypercube", "--quantity", "--scheduler", "--exponent"):
        assert flag in out


def test_a_misspelt_parameter_is_named() -> None:
    class Required(Model):
        """A model of somebody else's, one of whose parameters has no default."""

        name: ClassVar[str] = "required"
        ratio: float = parameter("a ratio", rules.positive, symbol="r")

    with pytest.raises(ValueError, match="Missing option '--ratio'.*'ratoi' is not one of its parameters"):
        _fixed(Required, {}, [], as_design({"ratoi": [0.1, 0.2]}))
