"""The command line as a user meets it: flags from the models, files, JSON, one-line errors."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import solvable
from solvable import LinearEstimator, models
from solvable.cli import main
from solvable.ranges import parse_axis, parse_range


def run(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


def test_predict_prints_writes_and_draws(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    code, out, err = run(
        capsys, "predict", "linear-estimator", "--aspect-ratio", "0.9", "--times", "1:1e5:200log",
        "--out", str(tmp_path / "run.nc"), "--plot", str(tmp_path / "run.png"),
    )  # fmt: skip
    assert code == 0
    assert "train loss" in out
    assert str(tmp_path / "run.nc") in err
    saved = solvable.load(tmp_path / "run.nc")
    expected = LinearEstimator(aspect_ratio=0.9).predict(np.geomspace(1, 1e5, 200))
    np.testing.assert_array_equal(saved.test_loss, expected.test_loss)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_json_is_for_machines(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = run(capsys, "grokking-time", "linear-estimator", "--aspect-ratio", "1.5", "--json")
    assert code == 0
    values = json.loads(out)["data_vars"]
    assert values["test_time"]["data"] is None
    assert values["train_time"]["data"] == pytest.approx(765.4645, rel=1e-6)
    assert values["test_reached"]["data"] is False


def test_simulate_rounds_to_whole_steps(capsys: pytest.CaptureFixture) -> None:
    code, out, err = run(
        capsys, "simulate", "linear-estimator", "--aspect-ratio", "0.5", "--times", "1:10:4log",
        "--inputs", "20", "--seeds", "3", "--json",
    )  # fmt: skip
    assert code == 0
    assert "rounded to 4 whole steps" in err
    assert json.loads(out)["coords"]["time"]["data"] == [1.0, 2.0, 5.0, 10.0]


def test_compare_shows_z_scores(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = run(
        capsys, "compare", "linear-estimator", "--aspect-ratio", "0.5", "--times", "1,10",
        "--inputs", "30", "--seeds", "4",
    )  # fmt: skip
    assert code == 0
    assert "test loss z" in out
    assert len(out.splitlines()) == 6
    assert out.splitlines()[-1].startswith("theory and simulation agree: ")


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


PREDICT = ("predict", "linear-estimator", "--aspect-ratio", "0.9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", "linear-estimator"), "Missing option '--aspect-ratio'"),
        (("predict", "linear-estimator", "--aspect-ratio", "-1"), "aspect_ratio must be a positive finite number"),
        (("predict", "linear-estimator", "--aspect-ratio", "big"), "--aspect-ratio"),
        (("predict", "linear-estimater"), "did you mean 'linear-estimator'"),
        (("predikt",), "No such command 'predikt'"),
        ((*PREDICT, "--wait-decay", "1"), "No such option: --wait-decay"),
        ((*PREDICT, "--times", "1:10"), "must look like 1:1e5:200log"),
        ((*PREDICT, "--times", "10,1"), "times must increase"),
        ((*PREDICT, "--times", "0:10:5log"), "between positive numbers"),
        ((*PREDICT, "--descent", "sideways"), "--descent"),
        ((*PREDICT, "--out", "nowhere/run.nc"), "no folder nowhere"),
        ((*PREDICT, "--out", "run.txt"), "must end in .nc"),
        ((*PREDICT, "--plot", "run.txt"), "must end in .png"),
        ((*PREDICT, "--hidden", "2", "--outputs", "5"), "hidden >= outputs"),
        (("phase-diagram", "linear-estimator", "--x", "aspect_ratio", "--y", "outputs=1:5:5"), "must look like"),
        (("phase-diagram", "linear-estimator", "--x", "outputs=1:5:5", "--y", "outputs=1:5:5"), "two different"),
        (("phase-diagram", "linear-estimator", "--x", "colour=1:5:5", "--y", "outputs=1:5:5"), "colour"),
        (("phase-diagram", "linear-estimator", "--x", "threshold=1:5:5", "--y", "outputs=1:5:5"), "make it an axis"),
        (("grokking-time", "skills", "--exponent", "1"), "has no grokking time"),
        (("simulate", "linear-estimator", "--aspect-ratio", "0.9", "--learning-rate", "9"), "diverges"),
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
    figure = {"fig6.png", "fig6.json", "fig6-exact.nc", "fig6-late.nc"}
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


def test_import_switches_jax_to_float64() -> None:
    for order in ("import solvable, jax", "import jax, solvable"):
        script = f"{order}; import jax.numpy as jnp; assert jnp.ones(1).dtype == 'float64'"
        subprocess.run([sys.executable, "-c", script], check=True)
    # Also where the environment says otherwise: float32 theory would be wrong in silence.
    script = "import solvable; solvable.LinearEstimator; import jax.numpy as jnp; assert jnp.ones(1).dtype == 'float64'"
    subprocess.run([sys.executable, "-c", script], check=True, env={"JAX_ENABLE_X64": "0", "PATH": ""})


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
theory, run = model.predict([1, 10], descent="discrete"), model.simulate([1, 10], inputs=20, seeds=2)
solvable.plot(theory, run)
solvable.compare(theory, run)
from solvable.files import data_ending
assert data_ending() == ".npz"
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_public_names() -> None:
    for name in solvable.__all__:
        assert getattr(solvable, name) is not None
    assert dir(solvable) == sorted(solvable.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'; it has"):
        solvable.nothing  # noqa: B018
