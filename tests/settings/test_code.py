"""The code that a setting shows gives the numbers of the page."""

import ast
import functools
import json

import numpy as np
import pytest
import xarray as xr
from settings_made import NAMES, QUICK, changed

import solvable
from solvable import cli, models
from solvable.explorer import tasks
from solvable.settings import Setting, code, theory_of, theory_options
from solvable.settings.fields import fields_of

# Code --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(QUICK))
def test_python_gives_the_numbers_of_the_page(name: str) -> None:
    setting = changed(name, QUICK[name])
    shown = theory_of(setting)
    scope: dict[str, object] = {}
    exec(code.python(setting).partition("\n\n#")[0], scope)
    assert shown.equals(scope["theory"]), "to the last bit"


def test_a_notebook_holds_the_script_in_cells_that_run() -> None:
    setting = changed("scalar-network", {**QUICK["scalar-network"], "samples": "20", "seeds": "4"})
    made = json.loads(code.notebook(setting))
    assert (made["nbformat"], [cell["cell_type"] for cell in made["cells"]]) == (4, ["markdown", "code", "code"])
    scope: dict[str, object] = {}
    for cell in made["cells"][1:]:
        exec("".join(cell["source"]), scope)
    assert scope["theory"].equals(theory_of(setting))
    assert scope["simulation"].sizes["seed"] == 4


def test_python_simulates_and_compares_like_the_page() -> None:
    setting = changed("scalar-network", {**QUICK["scalar-network"], "samples": "20", "seeds": "5"})
    sent: list[dict] = []
    result = tasks.run("simulation", {"model": setting.model, "texts": dict(setting.texts)}, sent.append)["result"]
    scope: dict[str, object] = {}
    exec(code.python(setting), scope)
    # Two and five seeds are two programs, which may round differently: by 4e-16 where it was seen. Scores of what all
    # seeds share are quotients of such errors, so they are those of their own simulation, to the last bit.
    xr.testing.assert_allclose(result["simulation"], scope["simulation"], rtol=1e-12, atol=1e-14)
    for found in (result, scope):
        assert found["comparison"].equals(solvable.compare(scope["theory"], found["simulation"]))
    assert [part["seeds"] for part in sent] == [2, 2, 4, 5], "seeds arrive in pieces"
    assert '"seeds": 5' in result["simulation"].attrs["solver"]


@pytest.mark.parametrize("name", NAMES)
def test_code_asks_the_library_for_what_the_page_asks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every model: the same model, times, training and options reach ``predict``, from Python and from a shell."""
    setting = changed(name, {**QUICK.get(name, {}), **_UNUSUAL[name]})
    asked: list[tuple] = []
    cls = models.get(name)

    class AskedError(BaseException):
        pass

    @functools.wraps(cls.predict)
    def predict(self: solvable.Model, times: np.ndarray, training: object = None, **options: object) -> None:
        asked.append((self.parameters(), times, training or cls.default_training, {**_defaults(cls), **options}))
        raise AskedError

    options = {**_defaults(cls), **setting.values("theory")}
    wanted = (setting.build().parameters(), setting.times(), setting.training(), options)
    monkeypatch.setattr(cls, "predict", predict)
    with pytest.raises(AskedError):
        exec(code.python(setting), {})
    with pytest.raises(AskedError):
        cli._run(_shell_words(code.command(setting))[1:])
    for found in asked:
        for mine, theirs in zip(wanted[0].values(), found[0].values(), strict=True):
            assert np.array_equal(mine, theirs) or mine is theirs or mine == theirs
        assert np.array_equal(wanted[1], found[1])
        assert wanted[2] == found[2]
        assert wanted[3] == {name: found[3][name] for name in wanted[3]}
    assert len(asked) == 2
    ast.parse(code.python(setting))


_UNUSUAL = {
    "linear-estimator": {"weight_decay": "0.001", "batch_fraction": "0.25", "theory_dimension": "300"},
    "linear-features": {"intensities": "1:1e-3:7log", "target": "1,0,0,0.5,-1,0,2", "samples": ""},
    "diagonal-network": {"initial_first": "0.01,-0.02,0.5", "learning_rate": "0.5"},
    "linear-network": {"singular_values": "", "correlation": "1,0.2;0.2,1", "width": "7"},
    "scalar-network": {"target": "-2.5", "input_power": "0.1", "training": "descent", "momentum": "0.9"},
    "skills": {"skills": "inf", "kind": "linear", "samples": "1000"},
    "committee": {"activation": "erf", "initial_alignment": "0.3;-0.2", "training": "flow", "weight_decay": "0.1"},
    "feature-scaling": {"features": "32", "exact_batch": "true", "batch_size": "16", "nesterov": "true"}
    | {"momentum": "0.5", "richness": "0"},
    "parity-mode": {"loss": "mean", "initial_offset": "-0.25", "tolerance": "1e-08"},
}


def _defaults(cls: type[solvable.Model]) -> dict[str, object]:
    fields = fields_of(cls.name).values()
    return {field.name: field.default for field in fields if field.role == "theory"}


def _shell_words(line: str) -> list[str]:
    import shlex

    return shlex.split(line)


def test_comparison_shares_options_as_the_command_line_does() -> None:
    setting = Setting("linear-estimator").change("dimension", "200").change("theory_dimension", "50")
    assert theory_options(setting) == {"dimension": 200}
    assert "--dimension 200" in code.command(setting, "compare")
    assert "--dimension 50" in code.command(setting, "predict")
