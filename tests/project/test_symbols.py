"""The table of symbols is that of the models: nothing missing, nothing stale."""

import dataclasses
import importlib.util

import pytest
from paths import DOCS

from solvable import models
from solvable.dataset import VARIABLES
from solvable.training import TRAININGS


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_symbols", DOCS / "make_symbols.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page():
    return (DOCS / "symbols.md").read_text()


def test_page_is_up_to_date(maker, page):
    assert maker.page(page) == page, "run docs/make_symbols.py"


@pytest.mark.parametrize("name", models.names())
def test_every_parameter_is_there_with_its_symbol(name, page):
    kind = models.get(name)
    part = page.split(f"### {kind.__name__}\n")[1].split("\n#")[0]
    for field in dataclasses.fields(kind):
        symbol = field.metadata["symbol"].replace("|", "\\|")
        assert f"| {f'`{symbol}`' if symbol else ''} | `{field.name}` | " in part


@pytest.mark.parametrize("kind", TRAININGS.values(), ids=lambda kind: kind.name)
def test_every_option_of_a_training_is_there(kind, page):
    part = page.split(f"### {kind.__name__}\n")[1].split("\n#")[0]
    assert [field.name for field in dataclasses.fields(kind) if f"| `{field.name}` |" not in part] == []


def test_every_shared_variable_is_there(page):
    for name, meaning in VARIABLES.items():
        assert f"| `{name}` | {meaning.long_name} | {meaning.units} | all |" in page


@pytest.mark.parametrize(
    ("name", "model"),
    [("kernel_growth", "feature-scaling"), ("gradient_correlation", "committee"), ("total_strength", "parity-mode")],
)
def test_variables_of_single_models_are_there(name, model, page):
    [row] = [line for line in page.splitlines() if f"| `{name}` |" in line]
    assert row.endswith(f"| {model} |")
