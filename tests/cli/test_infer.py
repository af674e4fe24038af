"""``solvable infer``: a log or a table in, a law with intervals and a forecast out."""

import json
from pathlib import Path

import numpy as np
import pytest

from solvable.cli import _run
from solvable.fits import ScalingLawReport
from solvable.inference import InferenceReport, Run, borrowed_kernel, example_curves, example_table, infer

STEPS = np.geomspace(10, 10_000, 60).round()
LOSS = (1.5 + 3 * STEPS**-0.4) * np.exp(1e-3 * np.random.default_rng(0).normal(size=STEPS.size))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = ["step,loss", *(f"{step:g},{loss!r}" for step, loss in zip(STEPS, LOSS.tolist(), strict=True))]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    (tmp_path / "wide.csv").write_text("\n".join(lines).replace("loss", "train/loss"))
    both = ["step,loss,val_loss", *(f"{step:g},{loss!r},2.0" for step, loss in zip(STEPS, LOSS.tolist(), strict=True))]
    (tmp_path / "both.csv").write_text("\n".join(both))
    (tmp_path / "commas.csv").write_text(
        "\n".join(["step;loss", *(f"{step};3,{9 - step}" for step in range(7, 0, -1))])
    )
    table = example_table().to_dataframe().sort_values("loss").iloc[:-5]
    table.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path


def test_a_log_is_fitted_forecast_drawn_and_saved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["infer", "log.csv", "--at", "10x", "--plot", "fit.png", "--save", "law.npz"]) == 0
    out = capsys.readouterr().out
    assert "exponent" in out
    assert "forecast at log, step 100000" in out
    assert (folder / "fit.png").stat().st_size > 10_000
    report = InferenceReport.load(folder / "law.npz")
    exponent = report.parameters.sel(parameter="exponent")
    assert float(exponent.low95) < 0.4 < float(exponent.high95)


def test_json_holds_parameters_and_forecast(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["infer", "log.csv", "--model", "power-law-steps", "--at", "2x,1e5", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["parameters"]["exponent"]["low95"] < 0.4 < content["parameters"]["exponent"]["high95"]
    loss, low, high = content["forecast"][1]["loss"]
    assert low < loss < high
    assert low < 1.5 + 3 * 1e5**-0.4 < high
    assert any("learning rate of 'log' is not known" in note for note in content["warnings"])


def test_known_values_are_fixed_and_guesses_are_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="the loss is 'train/loss'"):
        assert _run(["infer", "wide.csv", "--fixed", "floor=1.5", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert "floor" not in content["parameters"]
    assert content["parameters"]["exponent"]["estimate"] == pytest.approx(0.4, abs=0.01)


def test_a_table_has_its_scaling_law(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        _run(
            [
                "infer",
                "table.csv",
                "--model",
                "scaling-law",
                "--at",
                "10x",
                "--save",
                "law.npz",
                "--json",
                "--resamples",
                "100",
            ]
        )
        == 0
    )
    content = json.loads(capsys.readouterr().out)
    # Least squares with Student's t, of the same 240 runs as the published re-analysis.
    assert content["parameters"]["alpha"]["estimate"] == pytest.approx(0.3476, abs=2e-4)
    assert content["forecast"][0]["parameters"][1] < content["forecast"][0]["parameters"][0]
    assert ScalingLawReport.load(folder / "law.npz")["beta"] == pytest.approx(0.3630, abs=2e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.csv"], "there is no file missing.csv"),
        (["both.csv"], "2 columns that could be the loss ('loss', 'val_loss')"),
        (["log.csv", "--model", "powr-law"], "did you mean 'power-law'"),
        (["table.csv", "--model", "scaling_law"], "did you mean 'scaling-law'"),
        (["log.csv", "--loss", "nll"], "no column 'nll' for --loss;"),
        (["both.csv"], "choose one, such as --loss loss"),
        (["commas.csv"], "'loss' has no numbers but '3,2'"),
        (["log.csv", "--at", "soon"], "--at must be numbers above 0 or multiples such as 10x"),
        (["log.csv", "--fixed", "floor"], "--fixed must be name=value"),
        (["log.csv", "--plot", "fit.gif"], "must end in one of .png"),
        (["log.csv", "--save", "law.txt"], "--save: 'law.txt' must end in one of .nc"),
        (["log.csv", "--model", "scaling-law"], "the table has no parameters"),
        (["table.csv", "table.csv", "--model", "scaling-law"], "one table, not to 2 files"),
        (["table.csv", "--model", "scaling-law", "--at", "-3"], "--at must be numbers above 0 or multiples"),
        (["table.csv"], "looks like a table of finished runs"),
        (["log.csv", "--finished", "wide.csv"], "--finished is for the law schedule, not for power-law"),
        (["log.csv", "--model", "schedule", "--finished", "gone.csv"], "there is no file gone.csv"),
        (["log.csv", "--ahead", "gone.csv"], "there is no file gone.csv"),
        (["log.csv", "--ahead", "wide.csv"], "has no column of learning rates; it has step, train/loss"),
        (["table.csv", "--model", "scaling-law", "--ahead", "log.csv"], "--ahead is for curves"),
    ],
)
def test_what_is_wrong_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert _run(["infer", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_finished_runs_lend_their_kernel_and_widen_the_interval(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first 30 % of a public cosine run, and two finished runs of another size."""
    (run,) = (run for run in example_curves("schedules-25M") if run.name == "cosine_24000")
    names = ("cosine_24000", "wsd_20000_24000")
    _write_log(folder / "early.csv", [run.part(run.steps < 0.3 * run.steps[-1])])
    _write_log(folder / "done.csv", [one for one in example_curves("schedules-100M") if one.name in names])
    options = ["--model", "schedule", "--run", "run", "--uncertainty", "none", "--at", str(run.steps[-1]), "--json"]
    assert _run(["infer", "early.csv", "--finished", "done.csv", *options]) == 0
    captured = capsys.readouterr()
    assert "kernel of 2 finished runs: noise 0." in captured.err
    content = json.loads(captured.out)
    assert set(content["parameters"]) == {"exponent", "floor", "amplitude"}
    loss, low, high = content["forecast"][0]["loss"]
    assert low < loss < high
    # Its rate is not in the log beyond the known part: the forecast goes on at the last rate, which the report says.
    assert "schedule beyond the data is not known" in content["forecast"][0]["warnings"]


def test_rates_ahead_are_those_of_the_run_of_the_same_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The forecast through a decay, 1 % above the measured end, is that of Python, where the run has its schedule."""
    (run,) = (run for run in example_curves("schedules-25M") if run.name == "cosine_24000")
    early = run.part(run.steps < 0.3 * run.steps[-1])
    finished = [one for one in example_curves("schedules-100M") if one.name in ("cosine_24000", "wsd_20000_24000")]
    _write_log(folder / "early.csv", [early])
    _write_log(folder / "done.csv", finished)
    options = ["--model", "schedule", "--run", "run", "--uncertainty", "none", "--warm-up", "2160", "--json"]
    options += ["--finished", "done.csv", "--ahead", "done.csv", "--at", str(run.steps[-1])]
    assert _run(["infer", "early.csv", *options]) == 0
    forecast = json.loads(capsys.readouterr().out)["forecast"][0]
    assert "not known" not in forecast["warnings"]
    kernel = borrowed_kernel(infer(finished, "schedule", uncertainty="none", backtest=False))
    report = infer(early, "schedule", fixed=kernel, siblings=finished, uncertainty="none")
    expected = report.predict([run.steps[-1]])
    # Rates of a log are interpolated between its records.
    assert forecast["loss"][0] == pytest.approx(float(expected.loss[-1]), rel=2e-3)
    assert forecast["loss"][1] < run.loss[-1] < forecast["loss"][2]


def _write_log(path: Path, runs: list[Run]) -> None:
    rows = [
        f"{run.name},{step:g},{rate:g},{loss!r}"
        for run in runs
        for step, rate, loss in zip(run.steps, run.rates(run.steps), run.loss.tolist(), strict=True)
    ]
    path.write_text("\n".join(["run,step,learning_rate,loss", *rows]))


def test_help_names_the_laws(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["infer", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    for word in ("feature-scaling", "scaling-law", "schedule", "--mask-spikes", "10x"):
        assert word in words
