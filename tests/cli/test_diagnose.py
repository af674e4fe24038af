"""``solvable diagnose``: files in, report out; nothing in a file is ever executed."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

from solvable import diagnostics
from solvable.cli import _run

MAKERS = """
import equinox, jax

def torch_network():
    import torch
    return torch.nn.Sequential(torch.nn.Linear(4, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3))

def equinox_network():
    return equinox.nn.MLP(4, 3, 12, depth=1, key=jax.random.key(0))

number = 3

def nothing():
    return number
"""


def feature_arrays(key: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(key)
    arrays = {}
    weights = generator.normal(size=(3, 12))
    for part, count in (("train", 200), ("test", 150)):
        features = generator.normal(size=(count, 12))
        arrays[f"{part}_features"], arrays[f"{part}_outputs"] = features, features @ weights.T
        arrays[f"{part}_labels"] = generator.integers(3, size=count)
    return {**arrays, "weights": weights}


def data_arrays() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    return {
        f"{part}_{name}": values
        for part in ("train", "test")
        for name, values in (
            ("inputs", generator.normal(size=(80, 4)).astype("float32")),
            ("labels", generator.integers(3, size=80)),
        )
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "makers", raising=False)
    (tmp_path / "makers.py").write_text(MAKERS)
    np.savez(tmp_path / "features.npz", **feature_arrays())
    np.savez(tmp_path / "data.npz", **data_arrays())
    return tmp_path


def test_features_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["diagnose", "features.npz", "--json", "--plot", "report.png"]) == 0
    printed = json.loads(capsys.readouterr().out)
    arrays = feature_arrays()
    train, test = (
        tuple(arrays[f"{part}_{name}"] for name in ("features", "outputs", "labels")) for part in ("train", "test")
    )
    expected = diagnostics.features(train, test)
    assert printed["mp_distance"] == pytest.approx(expected.mp_distance, rel=1e-10)
    assert printed["regime"] == "extended-feature"
    assert printed["collapse"]["within_class"] > 1
    assert (folder / "report.png").stat().st_size > 10_000
    assert _run(["diagnose", "features.npz"]) == 0
    text = capsys.readouterr().out
    assert "extended-feature" in text
    assert "NC1" in text


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_torch_checkpoint(folder: Path, capsys: pytest.CaptureFixture[str], ending: str) -> None:
    torch = pytest.importorskip("torch")
    import makers
    from safetensors.torch import save_file

    import solvable.torch

    torch.manual_seed(5)
    network = makers.torch_network()
    if ending == ".pt":
        torch.save({"epoch": 3, "state_dict": network.state_dict()}, "weights.pt")
    else:
        save_file(network.state_dict(), "weights.safetensors")
    given = ["--checkpoint", f"weights{ending}", "--model", "makers:torch_network", "--data", "data.npz"]
    assert _run(["diagnose", *given, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    data = data_arrays()
    train, test = (
        [tuple(torch.tensor(data[f"{part}_{name}"]) for name in ("inputs", "labels"))] for part in ("train", "test")
    )
    assert printed["mp_distance"] == pytest.approx(solvable.torch.diagnose(network, train, test).mp_distance, rel=1e-6)


def test_equinox_checkpoint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import makers

    import solvable.equinox

    network = jax.tree.map(lambda leaf: leaf * 1.5 if eqx.is_array(leaf) else leaf, makers.equinox_network())
    eqx.tree_serialise_leaves("weights.eqx", network)
    given = ["--checkpoint", "weights.eqx", "--model", "makers:equinox_network", "--data", "data.npz"]
    assert _run(["diagnose", *given, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    data = data_arrays()
    train, test = ((data[f"{part}_inputs"], data[f"{part}_labels"]) for part in ("train", "test"))
    expected = solvable.equinox.diagnose(network, train, test)
    assert printed["mp_distance"] == pytest.approx(expected.mp_distance, rel=1e-10)


def test_torch_weights_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    import makers

    import solvable.torch

    torch.manual_seed(5)
    network = makers.torch_network()
    start = {name: value + torch.randn_like(value) for name, value in network.state_dict().items()}
    np.savez("weights.npz", **{name: value.numpy() for name, value in network.state_dict().items()})
    np.savez("start.npz", **{name: value.numpy() for name, value in start.items()})
    given = ["--checkpoint", "weights.npz", "--model", "makers:torch_network", "--data", "data.npz"]
    assert _run(["diagnose", *given, "--json", "--initial", "start.npz", "--plot", "report.png"]) == 0
    printed = json.loads(capsys.readouterr().out)
    data = data_arrays()
    train, test = (
        tuple(torch.tensor(data[f"{part}_{name}"]) for name in ("inputs", "labels")) for part in ("train", "test")
    )
    expected = solvable.torch.diagnose(network, train, test, initial=start)
    assert printed["mp_distance"] == pytest.approx(expected.mp_distance, rel=1e-6)
    assert printed["training_regime"] == expected.training_regime == printed["training"]["verdict"]
    assert printed["training"]["distance"] == pytest.approx(expected.training.distance, rel=1e-5)
    assert printed["next_steps"]
    assert _run(["diagnose", *given]) == 0
    text = capsys.readouterr().out
    assert "training regime                          not measured" in text
    assert "--initial" in text
    assert text.rstrip().splitlines()[-1].startswith("next ")
    wrong = {name: value.numpy() for name, value in network.state_dict().items()}
    np.savez("shape.npz", **{**wrong, "0.weight": np.ones((12, 5))})
    np.savez("other.npz", **{**wrong, "extra": np.ones(3)})
    np.savez("trap.npz", **{**wrong, "0.bias": np.array([Trap()], dtype=object)}, allow_pickle=True)
    for name, words in (
        ("shape.npz", "'0.weight' has shape (12, 5) where the network has (12, 4)"),
        ("other.npz", "the network has no 'extra'"),
        ("trap.npz", "0.bias holds Python objects"),
    ):
        assert _run(["diagnose", "--checkpoint", name, *given[2:]]) == 2
        message = capsys.readouterr().err
        assert words in message
        assert message.count("\n") == 1
    assert not (folder / "trapped").exists()


def test_equinox_weights_by_path(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import makers

    import solvable.equinox

    start = makers.equinox_network()
    network = jax.tree.map(lambda leaf: leaf * 1.5 if eqx.is_array(leaf) else leaf, start)
    names = [f"layers[{number}].{part}" for number in range(2) for part in ("weight", "bias")]
    for name, own in (("weights.npz", network), ("start.npz", start)):
        leaves = [getattr(own.layers[number], part) for number in range(2) for part in ("weight", "bias")]
        np.savez(name, **dict(zip(names, leaves, strict=True)))
    given = ["--checkpoint", "weights.npz", "--model", "makers:equinox_network", "--data", "data.npz"]
    assert _run(["diagnose", *given, "--initial", "start.npz", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    data = data_arrays()
    train, test = ((data[f"{part}_inputs"], data[f"{part}_labels"]) for part in ("train", "test"))
    expected = solvable.equinox.diagnose(network, train, test, initial=start)
    assert printed["mp_distance"] == pytest.approx(expected.mp_distance, rel=1e-10)
    assert printed["training"]["distance"] == pytest.approx(expected.training.distance, rel=1e-10)
    np.savez("few.npz", **{names[0]: network.layers[0].weight})
    assert _run(["diagnose", "--checkpoint", "few.npz", *given[2:]]) == 2
    assert "it lacks 'layers[0].bias', 'layers[1].weight', 'layers[1].bias'" in capsys.readouterr().err


class Trap:
    """What a hostile file would hold: reading it with pickle runs a command."""

    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("trapped"),))


def test_nothing_in_a_file_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    arrays = feature_arrays()
    np.savez(folder / "trap.npz", **{**arrays, "train_features": np.array([Trap()], dtype=object)}, allow_pickle=True)
    assert _run(["diagnose", "trap.npz"]) == 2
    assert "train_features holds Python objects" in capsys.readouterr().err
    torch.save({"state_dict": Trap()}, "trap.pt")
    (folder / "plain.pt").write_bytes(pickle.dumps(Trap()))
    for name in ("trap.pt", "plain.pt"):
        assert _run(["diagnose", "--checkpoint", name, "--model", "makers:torch_network", "--data", "data.npz"]) == 2
        message = capsys.readouterr().err
        assert "could execute code" in message
        assert "safetensors" in message
    assert not (folder / "trapped").exists()


def test_bad_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")

    def refused(*arguments: str) -> str:
        assert _run(["diagnose", *arguments]) == 2
        return capsys.readouterr().err

    checkpoint = ["--model", "makers:torch_network", "--data", "data.npz"]
    assert "give a file of features" in refused()
    assert "not both" in refused("features.npz", "--checkpoint", "weights.pt")
    assert "there is no file missing.npz" in refused("missing.npz")
    (folder / "text.npz").write_text("hello")
    assert "text.npz is not an .npz file" in refused("text.npz")
    np.savez(folder / "few.npz", train_features=np.ones((3, 2)))
    assert "few.npz has no array 'train_outputs'" in refused("few.npz")
    np.savez(folder / "words.npz", **{**feature_arrays(), "test_outputs": np.array(["a", "b"])})
    assert "test_outputs must be an array of numbers" in refused("words.npz")
    np.savez(folder / "short.npz", **{**feature_arrays(), "test_labels": np.zeros(5, int)})
    assert "equally many rows" in refused("short.npz")
    assert "must end in one of .png" in refused("features.npz", "--plot", "report.gif")
    assert "there is no checkpoint" in refused("--checkpoint", "none.pt", *checkpoint)
    (folder / "weights.txt").write_text("hello")
    assert "end in .npz or .safetensors" in refused("--checkpoint", "weights.txt", *checkpoint)
    assert "lacks '0.weight'" in refused("--checkpoint", "data.npz", *checkpoint)
    assert "need --checkpoint" in refused("features.npz", "--initial", "weights.npz")
    torch.save({"other": torch.ones(2)}, "other.pt")
    assert "does not fit the network" in refused("--checkpoint", "other.pt", *checkpoint)
    torch.save({"epoch": 3}, "empty.pt")
    assert "contains no state_dict" in refused("--checkpoint", "empty.pt", *checkpoint)
    for maker, words in (
        ("makers", "must look like module:function"),
        ("nowhere:network", "there is no module 'nowhere'"),
        ("makers:number", "no function 'number'"),
        ("makers:nothing", "must make a torch.nn.Module or an equinox.Module, not int"),
        ("makers:equinox_network", "end in .npz or .eqx"),
    ):
        assert words in refused("--checkpoint", "other.pt", "--model", maker, "--data", "data.npz")
    (folder / "bad.eqx").write_bytes(b"123")
    given = ("--checkpoint", "bad.eqx", "--model", "makers:equinox_network", "--data", "data.npz")
    assert "does not fit the network" in refused(*given)


def test_works_from_a_shell_in_the_folder_of_the_module(folder: Path) -> None:
    pytest.importorskip("torch")
    help_text = subprocess.run([sys.executable, "-m", "solvable", "diagnose", "--help"], capture_output=True, text=True)
    assert help_text.returncode == 0
    assert "train_features" in help_text.stdout
