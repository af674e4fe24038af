"""The command line as a user meets it: flags from the models, files, JSON, one-line errors."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import solvable
from solvable import LinearEstimator, models
from solvable.checks import rules
from solvable.cli import cost, main
from solvable.cli.flags import field_flags, given_fields
from solvable.cli.sweep import _fixed
from solvable.model import Model, parameter
from solvable.numerics.cost import check_cost, free_memory, in_time
from solvable.ranges import parse_axis, parse_range
from solvable.sweeps.design import as_design
from solvable.timegrid import whole_steps


def run(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


def test_predict_prints_writes_and_draws(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    code, out, err = run(
        capsys, "predict", "linear-estimator", "--aspect-ratio", "0.9", "--times", "1:1e5:2log",
        "--out", str(tmp_path / "run.nc"), "--plot", str(tmp_path / "run.png"),
    )  # fmt: skip
    assert code == 0
    assert "train loss" in out
    assert str(tmp_path / "run.nc") in err
    saved = solvable.load(tmp_path / "run.nc")
    expected = LinearEstimator(aspect_ratio=0.9).predict(whole_steps(np.geomspace(1, 1e5, 2)))
    np.testing.assert_array_equal(saved.test_loss, expected.test_loss)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_json_is_for_machines(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = run(
        capsys, "grokking-time", "linear-estimator", "--aspect-ratio", "1.5", "--json",
        "--training", "flow", "--learning-rate", "0.01",
    )  # fmt: skip
    assert code == 0
    values = json.loads(out)["data_vars"]
    assert values["test_time"]["data"] is None
    assert values["train_time"]["data"] == pytest.approx(765.4645, rel=1e-6)
    assert values["test_reached"]["data"] is False


def test_simulate_rounds_to_whole_steps(capsys: pytest.CaptureFixture) -> None:
    code, out, err = run(
        capsys, "simulate", "linear-estimator", "--aspect-ratio", "0.5", "--times", "1:10:4log",
        "--dimension", "20", "--seeds", "3", "--json",
    )  # fmt: skip
    assert code == 0
    assert "rounded to 4 whole steps" in err
    assert json.loads(out)["coords"]["time"]["data"] == [1.0, 2.0, 5.0, 10.0]


def test_compare_shows_z_scores(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = run(
        capsys, "compare", "linear-estimator", "--aspect-ratio", "0.5", "--times", "1,10",
        "--dimension", "30", "--seeds", "4",
    )  # fmt: skip
    assert code == 0
    assert "test loss z" in out
    assert len(out.splitlines()) >= 4
    assert out.splitlines()[-1].startswith("theory and simulation agree: ")


def test_compare_extrapolates_sizes(capsys: pytest.CaptureFixture) -> None:
    command = ("compare", "linear-estimator", "--aspect-ratio", "0.5", "--times", "10,40", "--seeds", "20")
    code, out, _ = run(capsys, *command, "--extrapolate", "dimension=20,60")
    assert code == 0
    assert "extrapolated from dimension 20 and 60" in out.splitlines()[-1]
    assert "the finite-size term at dimension 60 is" in out.splitlines()[-1]
    for value, message in (
        ("width=20,60", "has no size 'width' to extrapolate; it has dimension"),
        ("dimension=20,20", "give two different sizes or more"),
        ("dimension=20,many", "write whole numbers, such as dimension=300,1000"),
    ):
        code, _, err = run(capsys, *command, "--extrapolate", value)
        assert code != 0
        assert message in err


def test_phase_diagram(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    code, out, _ = run(
        capsys, "phase-diagram", "linear-estimator", "--x", "aspect-ratio=0.2:1.4:4", "--y",
        "weight_decay=1e-5:1e-3:3log", "--plot", str(tmp_path / "plane.svg"), "--out", str(tmp_path / "plane.npz"),
    )  # fmt: skip
    assert code == 0
    assert "cells" in out
    plane = solvable.load(tmp_path / "plane.npz")
    assert dict(plane.sizes) == {"aspect_ratio": 4, "weight_decay": 3}
    assert (tmp_path / "plane.svg").exists()


def test_every_model_is_on_the_command_line(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = run(capsys, "models", "--json")
    assert code == 0
    assert json.loads(out) == models.names()
    for name in models.names():
        code, out, _ = run(capsys, "predict", name, "--help")
        assert code == 0
        for field in dataclasses.fields(models.get(name)):
            if field.metadata["rule"].dimensions < 2:
                assert "--" + field.name.replace("_", "-") in out


@pytest.mark.parametrize("verb", ["grokking-time", "phase-diagram"])
def test_verbs_list_the_models_that_have_them(capsys: pytest.CaptureFixture, verb: str) -> None:
    able = models.names(verb.replace("-", "_"))
    for arguments in ((verb,), (verb, "--help")):
        code, out, err = run(capsys, *arguments)
        assert (code, err) == (0, "")
        listed = {line.split()[0] for line in out.split("Commands:")[1].splitlines() if line.strip()}
        assert listed == set(able)


def test_abilities_are_those_that_the_models_have() -> None:
    for ability in ("grokking_time", "phase_diagram"):
        assert set(models.names(ability)) == {name for name in models.names() if hasattr(models.get(name), ability)}


@pytest.mark.parametrize("arguments", [(), ("predict",), ("simulate",), ("data",)])
def test_a_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture, arguments: tuple) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) > 5
    assert "Commands:" in out


def test_reproduce_without_a_name_lists_papers_and_figures(capsys: pytest.CaptureFixture) -> None:
    from solvable import papers

    code, out, err = run(capsys, "reproduce")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    for paper in papers.papers():
        assert f"{paper}: {papers.title(paper)}" in out
        for figure in papers.figures(paper):
            assert any(line[:1] == [figure] for line in lines)
    code, out, _ = run(capsys, "reproduce", "--json")
    assert json.loads(out)["linear-grokking"].keys() == set(papers.figures("linear-grokking"))


def test_infinitely_many_samples_are_written_inf(capsys: pytest.CaptureFixture) -> None:
    command = ("predict", "linear-features", "--intensities", "1,0.5", "--target", "1,1", "--times", "1,2", "--json")
    expected = solvable.LinearFeatures([1.0, 0.5], [1.0, 1.0], samples=None).predict([1, 2]).test_loss.values.tolist()
    for word in ("inf", "infinity", "Inf", "+inf"):
        code, out, _ = run(capsys, *command, "--samples", word)
        assert code == 0
        assert json.loads(out)["data_vars"]["test_loss"]["data"] == expected
    for name in models.names():
        for verb in ("predict", "simulate"):
            _, out, _ = run(capsys, verb, name, "--help")
            for part in out.split("\n  --")[1:]:
                if part.startswith(("samples", "test-samples")):
                    assert "inf" in part, f"{verb} {name}"
                    assert "None" not in part, f"{verb} {name}"


def test_infinity_is_not_taken_for_a_flag_that_was_left_out() -> None:
    """A model whose default is a finite number of samples can still be asked for infinitely many."""

    class Finite(Model):
        name = "finite"
        samples: int | None = parameter("samples", rules.count, symbol="n", default=30, infinite=True)

    flags = field_flags(Finite)
    assert given_fields(Finite, {"samples": None}, flags) == {"samples": None}
    assert given_fields(Finite, {"samples": 30}, flags) == {"samples": 30}
    assert _fixed(Finite, {"samples": None}, flags, as_design({"other": [1.0]})) == {"samples": None}


def test_infinity_stands_for_no_samples_in_python() -> None:
    model = solvable.LinearFeatures([1.0, 0.5], [1.0, 1.0], samples=np.inf)
    assert model.samples is None
    assert "samples=inf, " in repr(model)
    assert repr(solvable.FeatureScaling(capacity=1.5, source=1.0)).count("samples=inf") == 1
    with pytest.raises(ValueError, match="samples must be a whole number, 1 or more, or inf, not 2.5"):
        solvable.LinearFeatures([1.0], [1.0], samples=2.5)
    start = solvable.ScalarNetwork([0.1], [0.1], 1.0)
    one, two = (start.simulate([1.0], samples=samples, seeds=1) for samples in (None, np.inf))
    assert one.output.identical(two.output)


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "linear-estimator"),
        ("simulate", "linear-estimator"),
        ("compare", "linear-estimator"),
        ("grokking-time", "linear-estimator"),
        ("phase-diagram", "linear-estimator", "--x", "aspect_ratio=1,2", "--y", "weight_decay=0,1"),
        ("sweep", "linear-estimator", "--over", "weight_decay=0,1"),
    ],
)
@pytest.mark.parametrize(
    "output", [("--out", "run.txt"), ("--plot", "run.gif"), ("--out", "nowhere/run.nc"), ("--out", "folder.npz")]
)
def test_outputs_are_checked_before_the_work(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple, output: tuple
) -> None:
    if output[0] == "--plot" and arguments[0] == "grokking-time":
        return

    def work(*_: object) -> None:
        raise AssertionError("the model was built before its outputs were checked")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.npz").mkdir()
    monkeypatch.setattr(LinearEstimator, "__check_init__", work)
    code, out, err = run(capsys, *arguments, "--aspect-ratio", "0.9", *output)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {output[0]}: ")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.npz"]


def test_endings_in_capitals(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    code, _, _ = run(
        capsys, *PREDICT, "--times", "1,10", "--out", str(tmp_path / "A.NPZ"), "--plot", str(tmp_path / "A.PNG")
    )
    assert code == 0
    assert (tmp_path / "A.PNG").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "A.NPZ").exists()


def test_costs_are_estimated_from_a_pilot(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """A clock that counts seconds makes the pilot take one: the rest follows by proportion."""
    ticks = iter(range(1000))
    monkeypatch.setattr(cost.time, "perf_counter", lambda: next(ticks))
    few = xr.Dataset({"loss": ("time", np.zeros(1000))})
    # 2e5 times are 200 pilots of one second.
    cost.check_times_cost(lambda times: few, np.arange(200_000.0))
    assert capsys.readouterr().err == "note: a prediction at 200000 times will take about 3.3 minutes\n"
    cost.check_times_cost(lambda times: 1 / 0, np.arange(1000.0))  # Few times need no pilot.
    with pytest.raises(ValueError, match=r"of 100000000 seeds would take about .* longer than 6 hours"):
        cost.check_seeds_cost(lambda seeds: xr.Dataset(), 100_000_000, 1)
    with pytest.raises(ValueError, match=r"a plane of 1.44e\+07 cells .* about 2.6 days"):
        cost.check_plane_cost(lambda grids: xr.Dataset(), {"a": np.arange(3795.0), "b": np.arange(3795.0)})


def test_the_memory_that_is_free_bounds_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1e6 < free_memory() <= float("inf")
    monkeypatch.setattr("solvable.numerics.cost.free_memory", lambda: 1e9)
    check_cost("this", memory=4.9e8)
    with pytest.raises(ValueError, match=r"^this would take about 510 MB of memory, and 1 GB are free: ask for less$"):
        check_cost("this", memory=5.1e8, remedy="ask for less")


def test_a_batch_that_does_not_fit_is_refused_before_it_is_drawn(capsys: pytest.CaptureFixture) -> None:
    code, out, err = run(
        capsys, "simulate", "linear-estimator", "--aspect-ratio", "0.9", "--times", "1,10", "--dimension", "20",
        "--batch-size", "1000000000",
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert err.startswith("error: one run needs about 313 GiB but the limit is 2 GiB")


def test_keys_have_64_bits() -> None:
    with pytest.raises(ValueError, match="key must be a whole number between"):
        LinearEstimator(0.9).simulate([1, 2], dimension=10, seeds=2, key=10**20)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.5, "0.5 s"),
        (99.0, "99 s"),
        (600.0, "10 minutes"),
        (7200.0, "2 hours"),
        (1e6, "11.6 days"),
        (1e9, "31.7 years"),
    ],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert in_time(seconds) == words


PREDICT = ("predict", "linear-estimator", "--aspect-ratio", "0.9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", "linear-estimator", "--aspect-ratio", "-1"), "aspect_ratio must be a positive finite number"),
        (("predict", "linear-estimator", "--aspect-ratio", "big"), "--aspect-ratio"),
        (("predict", "linear-estimater"), "did you mean 'linear-estimator'"),
        (("predikt",), "No such command 'predikt'"),
        ((*PREDICT, "--wait-decay", "1"), "--wait-decay"),
        ((*PREDICT, "--times", "1:10"), "must look like 1:1e5:200log"),
        ((*PREDICT, "--times", "10,1"), "times must increase"),
        ((*PREDICT, "--times", "0:10:5log"), "between positive numbers"),
        ((*PREDICT, "--training", "sideways"), "--training"),
        ((*PREDICT, "--out", "nowhere/run.nc"), "no folder nowhere"),
        ((*PREDICT, "--out", "run.txt"), "must end in one of .nc"),
        ((*PREDICT, "--plot", "run.txt"), "must end in one of .png"),
        ((*PREDICT, "--width", "2", "--outputs", "5"), "width >= outputs"),
        (("phase-diagram", "linear-estimator", "--x", "aspect_ratio", "--y", "outputs=1:5:5"), "must look like"),
        (("phase-diagram", "linear-estimator", "--x", "outputs=1:5:5", "--y", "outputs=1:5:5"), "two different"),
        (("phase-diagram", "linear-estimator", "--x", "colour=1:5:5", "--y", "outputs=1:5:5"), "colour"),
        (("grokking-time", "skills", "--exponent", "1"), "has no grokking time"),
        (("predict", "linear-estimator", "--learning-rate", "9"), "unstable"),
        (("reproduce", "linear-groking"), "did you mean 'linear-grokking'"),
        (("reproduce", "linear-grokking", "fig99"), "no figure of linear-grokking is named 'fig99'"),
        (("reproduce", "linear-grokking", "fig6", "--scale", "huge"), "'quick', 'full'"),
    ],
)
def test_mistakes_end_in_one_line(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    errors = [line for line in err.splitlines() if not line.startswith("note:")]
    assert code == 2
    assert out == ""
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert message in errors[0]
    assert list(tmp_path.iterdir()) == []


def test_reproduce_writes_the_ledger(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    out = tmp_path / "report"
    code, text, _ = run(capsys, "reproduce", "linear-grokking", "fig6", "--out", str(out))
    assert code == 0
    assert "0 failed" in text
    ledger = json.loads((out / "claims.json").read_text())
    assert ledger["failed"] == 0
    assert ledger["passed"] == len(ledger["claims"]) == 7
    wrong = next(claim for claim in ledger["claims"] if claim["printed"] == 1.0)
    assert wrong["measured"] > 50
    figure = {"fig6.png", "fig6.json", "fig6.data.json", "fig6-exact.nc", "fig6-late.nc"}
    assert {path.name for path in out.iterdir()} == figure | {"claims.json", "claims.md", "index.html"}


def test_a_failing_claim_fails_the_command(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from solvable.papers.linear_grokking import fig6

    monkeypatch.setattr(fig6, "bessel_train_loss", lambda ratio, s: 2.0 * np.ones_like(s))
    code, _, err = run(capsys, "reproduce", "linear-grokking", "fig6", "--out", str(tmp_path))
    assert code == 1
    assert "FAILED fig6: train loss against its closed form" in err


def test_ranges() -> None:
    np.testing.assert_allclose(parse_range("0:10:5"), [0, 2.5, 5, 7.5, 10])
    np.testing.assert_allclose(parse_range("1:1e4:5log"), [1, 10, 100, 1000, 10000])
    np.testing.assert_allclose(parse_range("100:1:3log"), [100, 10, 1])
    np.testing.assert_allclose(parse_range("3,1,2"), [3, 1, 2])
    assert parse_axis("aspect-ratio=1,2", "--x")[0] == "aspect_ratio"


def test_help_is_quick_and_loads_no_jax() -> None:
    """Half a second on an idle machine; what costs time, JAX, must not be loaded. The bound here is for a busy one."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "solvable", "--help"], capture_output=True, text=True, check=True)
    assert time.perf_counter() - begin < 5
    assert "phase-diagram" in done.stdout
    check = "import sys, solvable.cli.app; assert not {'jax', 'xarray', 'matplotlib', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_the_core_runs_without_the_optional_packages() -> None:
    """As on a machine that has neither h5netcdf, zarr, dask nor panel: predict, simulate, compare, plot, .npz."""
    script = """
import sys
for name in ("h5netcdf", "zarr", "dask", "panel", "torch"):
    sys.modules[name] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("h5netcdf", "zarr") else find(name, *rest)
import solvable
model = solvable.LinearEstimator(aspect_ratio=0.5)
theory, run = model.predict([1, 10]), model.simulate([1, 10], dimension=20, seeds=2)
solvable.plot(theory, run)
solvable.compare(theory, run)
from solvable.files import default_extension
assert default_extension() == ".npz"
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_public_names() -> None:
    for name in solvable.__all__:
        assert getattr(solvable, name) is not None
    assert dir(solvable) == sorted(solvable.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'; it has"):
        solvable.nothing  # noqa: B018
