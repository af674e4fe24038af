"""``solvable forecast``: a file of data and a network in, exponents out."""

import json
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

from solvable.cli import _run

MAKERS = """
import equinox, jax, jax.numpy as jnp, numpy as np

def apply(weights, inputs):
    return jax.nn.relu(inputs @ weights[0]) @ weights[1] / 16

def network(seed):
    draw = np.random.default_rng(seed)
    return apply, (jnp.asarray(draw.normal(size=(3, 256))), jnp.asarray(draw.normal(size=(256, 1))))

def module():
    return equinox.nn.MLP(3, 1, 16, depth=1, key=jax.random.key(0))

def hungry(layers):
    return layers
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "forecast_makers", raising=False)
    (tmp_path / "forecast_makers.py").write_text(MAKERS)
    angle = (np.arange(80) + 0.5) * np.pi / 40
    inputs = np.stack([np.cos(angle), np.sin(angle), np.ones(80)], axis=1)
    np.savez(tmp_path / "data.npz", inputs=inputs, targets=np.sign(np.sin(angle)))
    np.savez(tmp_path / "labels.npz", inputs=inputs, labels=(np.sin(angle) > 0).astype(int))
    return tmp_path


def test_data_in_report_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["forecast", "--model", "forecast_makers:network", "--data", "data.npz", "--json", "--seeds", "1"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["networks"] == 1
    assert content["exponents"]["lazy"]["time"]["value"] == content["source"]
    assert content["source_errors"]["initialisation"] is None
    # A jump has the exponent alpha beta = 1 on the circle, whatever the network.
    assert abs(content["capacity"] * content["source"] - 1) < 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "data.npz"], "--model"),
        (["--model", "nothing", "--data", "data.npz"], "module:function"),
        (["--model", "mlp:3", "--data", "data.npz"], "mlp:WIDTHxDEPTH"),
        (["--model", "forecast_makers:hungry", "--data", "data.npz"], "needs layers"),
        (["--model", "forecast_makers:network", "--data", "none.npz"], "no file none.npz"),
        (["--model", "forecast_makers:network", "--data", "bare.npz"], "neither targets nor labels"),
        (["--model", "forecast_makers:network", "--data", "labels.npz"], "labels must be from 0 to 0"),
        (["--model", "forecast_makers:network", "--data", "data.npz", "--plot", "a.txt"], "must end in one of .png"),
        (["--model", "forecast_makers:network", "--data", "data.npz", "--checkpoint", "w.eqx"], "not tuple"),
        (
            ["--model", "forecast_makers:network", "--data", "data.npz", "--initial-outputs", "end"],
            "initial_outputs must be one of",
        ),
    ],
)
def test_mistakes_end_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    np.savez("bare.npz", inputs=np.ones((30, 3)))
    assert _run(["forecast", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_built_in_network_checkpoint_and_figure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["forecast", "--model", "forecast_makers:network", "--data", "data.npz", "--plot", "a.png"]) == 0
    text = capsys.readouterr().out
    assert "loss against time, rich" in text
    assert "3 networks of 1024 parameters" in text
    assert (folder / "a.png").stat().st_size > 10_000
    assert _run(["forecast", "--model", "mlp:64x3", "--data", "labels.npz", "--seeds", "2", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["outputs"], content["networks"]) == (2, 2)
    trained = eqx.nn.MLP(3, 1, 16, depth=1, key=jax.random.key(5))
    eqx.tree_serialise_leaves("w.eqx", trained)
    assert _run(["forecast", "--model", "forecast_makers:module", "--data", "data.npz", "--checkpoint", "w.eqx"]) == 0
    assert "measured at the weights of w.eqx" in capsys.readouterr().out


def test_a_log_of_the_run_updates_the_forecast(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["forecast", "--model", "forecast_makers:network", "--data", "data.npz", "--seeds", "1"]
    assert _run([*arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    steps = np.unique(np.round(np.geomspace(1, 300, 60)))
    # The run of a network that learns three times as fast as its kernel allows.
    decay = np.exp(-2 * np.multiply.outer(steps * 3 * 0.1, content["eigenvalues"][0]))
    losses = (decay @ np.array(content["power"][0]) + content["outside"][0]) / 2
    rows = [f"{step:g},{loss:.9g}" for step, loss in zip(steps, losses, strict=True)]
    Path("log.csv").write_text("\n".join(["step,loss", *rows]) + "\n")
    logged = ["--log", "log.csv", "--learning-rate", "0.1"]
    assert _run([*arguments, *logged, "--plot", "run.png"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "faster than its initial kernel allows" in lines[0]
    assert any(line.startswith("capacity") for line in lines)
    assert Path("run.png").stat().st_size > 0
    assert _run([*arguments, *logged, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["run"]
    assert found["speed"] == pytest.approx(3, rel=0.02)
    assert _run([*arguments, "--log", "log.csv"]) == 2
    assert "needs --learning-rate" in capsys.readouterr().err
    assert _run([*arguments, "--log", "none.csv", "--learning-rate", "1"]) == 2
    assert "no file none.csv" in capsys.readouterr().err
