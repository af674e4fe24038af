"""Models of other packages: found by their entry points, and as good as our own on the command line and on the page."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from paths import EXAMPLE

from solvable import models, sweep
from solvable.cli import main
from solvable.explorer.address import read_state
from solvable.explorer.summaries import cards
from solvable.settings import Setting, code, planes, theory_of
from solvable.settings.fields import fields_of

MODEL = EXAMPLE / "single_weight.py"
OURS = set(models.names())


def install(folder: Path, points: str, package: str = "my_models") -> None:
    """What an installer leaves behind: the package, and beside it what it says of itself."""
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nSummary: one weight\n")
    (about / "entry_points.txt").write_text(f"[solvable.models]\n{points}\n")
    (folder / f"{package}.py").write_text(MODEL.read_text("utf-8") + "\nNUMBER = 3\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, for installed packages; models are looked for again in it, and forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(models, "_HOMES", dict(models._HOMES))
    models._discover.cache_clear()
    yield tmp_path
    models._discover.cache_clear()
    fields_of.cache_clear()
    sys.modules.pop("my_models", None)


def test_an_installed_package_adds_a_model(packages: Path, capsys: pytest.CaptureFixture) -> None:
    install(packages, "single-weight = my_models:SingleWeight")
    assert models.names()["single-weight"] == "one weight (package my_models)"
    assert "my_models" not in sys.modules, "listing must not import"
    model = models.get("single-weight")(samples=4)
    # E exp(-2 s t) for n s chi-square with n degrees of freedom, here (1 + 4 / 4)^-2 / 2.
    assert model.predict([1.0]).test_loss.item() == pytest.approx(0.125)
    with pytest.raises(SystemExit) as stop:
        main(["predict", "single-weight", "--samples", "4", "--times", "1,2", "--json"])
    assert not stop.value.code
    losses = json.loads(capsys.readouterr().out)["data_vars"]["test_loss"]["data"]
    np.testing.assert_allclose(losses, [0.125, 1 / 18])
    plane = sweep(model, {"target": [1.0, 2.0]}, "predict", {"times": [1.0]})
    np.testing.assert_allclose(plane.test_loss.values.ravel(), [0.125, 0.5])


def test_its_page_works(packages: Path) -> None:
    """No table of the page knows the model: controls, curves, cards, code and planes come from the model alone."""
    install(packages, "single-weight = my_models:SingleWeight")
    state, errors = read_state([("model", "single-weight")], None)
    assert state.a.model == "single-weight"
    assert not errors
    setting = Setting("single-weight").change("samples", "4").change("times", "1,2")
    setting.check()
    np.testing.assert_allclose(theory_of(setting).test_loss, [0.125, 1 / 18])
    assert cards(setting.build(), setting.training()) == []
    assert "from my_models import SingleWeight" in code.python(setting)
    view = planes.usual(setting)
    assert set(view.values()) == {planes.END, "samples", "target"}
    plane = planes.compute(setting, view, lambda coarse: None)
    # S^2 / 2 (1 + 8 / n)^(-n/2) at the last time, t = 2.
    samples, target = np.meshgrid(plane["x"], plane["y"])
    np.testing.assert_allclose(plane["z"], target**2 / 2 * (1 + 8 / samples) ** (-samples / 2), rtol=1e-3)


def test_a_new_process_finds_it(packages: Path) -> None:
    install(packages, "single-weight = my_models:SingleWeight")
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "solvable", "models", "--json"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == OURS | {"single-weight"}


def test_a_name_that_is_taken_is_left_out_with_a_warning(packages: Path) -> None:
    install(packages, "skills = my_models:SingleWeight")
    with pytest.warns(UserWarning, match="a model of the package 'my_models' is left out: a model named 'skills'"):
        assert set(models.names()) == OURS
    assert models.get("skills").__name__ == "SkillModel"


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ("gone = my_missing_module:Model", "the model 'gone' cannot be loaded from 'my_missing_module:Model'"),
        ("gone = my_models:Missing", "the model 'gone' cannot be loaded from 'my_models:Missing'"),
        ("gone = my_models:NUMBER", "the model 'gone' must be a subclass of solvable.Model"),
        ("gone = my_models:SingleWeight", "registered as 'gone' but has the name 'single-weight'"),
    ],
)
def test_a_broken_entry_point_is_an_error_in_words(
    packages: Path, point: str, words: str, capsys: pytest.CaptureFixture
) -> None:
    """Only when that model is asked for: the others go on working."""
    install(packages, point)
    assert set(models.names()) == OURS | {"gone"}
    with pytest.raises(SystemExit) as stop:
        main(["predict", "gone"])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
