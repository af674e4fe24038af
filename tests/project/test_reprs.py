"""What notebooks show: every parameter and claim, and nothing that a text could smuggle into the page."""

from html.parser import HTMLParser

import jax
import numpy as np
import pytest

from solvable import diagnostics, models
from solvable.checks import rules
from solvable.model import Model, parameter
from solvable.models.linear_estimator import LinearEstimator
from solvable.models.scalar_network import ScalarNetwork
from solvable.papers import Claim, Reproduction
from solvable.plotting import new_figure


class Page(HTMLParser):
    """The texts of the cells, row by row, and every tag."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.tags, self.open = [], [], []
        self.feed(text)
        assert self.open == [], "a tag is not closed"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_a_model_shows_each_parameter():
    head, *rows = Page(LinearEstimator(0.9, label_noise=1e-3)._repr_html_()).rows
    assert head == ["symbol", "parameter", "value", "meaning"]
    assert [row[1] for row in rows] == list(LinearEstimator(0.9).parameters())
    shown = {row[1]: row for row in rows}
    assert shown["label_noise"][:3] == ["σ", "label_noise", "0.001"]
    assert shown["label_noise"][3] == "standard deviation of the noise on each training label"


@pytest.mark.parametrize("name", models.names())
def test_every_parameter_of_every_model_says_what_it_is(name):
    import dataclasses

    for field in dataclasses.fields(models.get(name)):
        assert field.metadata["help"], f"{name}.{field.name}"
        assert "symbol" in field.metadata


def test_long_arrays_are_shortened():
    text = ScalarNetwork(np.ones(10_000), np.ones(10_000), 1.0)._repr_html_()
    assert "..." in text
    assert len(text) < 3000


def test_a_traced_model_has_a_table_too():
    texts = []

    def loss(decay):
        texts.append(LinearEstimator(0.9, label_noise=decay)._repr_html_())
        return decay

    jax.jit(loss)(1e-3)
    assert any("label_noise" in row for row in Page(texts[0]).rows)


class Named(Model):
    """A model whose help holds markup."""

    name = "<script>alert(1)</script>"
    size: float = parameter("a < b & c", rules.positive, symbol="<i>", default=1.0)


def test_texts_are_escaped():
    page = Page(Named()._repr_html_())
    assert set(page.tags) == {"table", "caption", "b", "thead", "tr", "th", "tbody", "td"}
    assert page.rows[1] == ["<i>", "size", "1.0", "a < b & c"]


def test_claims_say_whether_they_hold():
    good = Claim("x < y", 1.0, 1.0, 0.1, "why", relative=True, printed="<b>2</b>")
    bad = Claim("never", float("nan"), 1.0, 0.1, "why")
    assert Page(good._repr_html_()).rows[1] == ["x < y", "1", "1", "± 0.1", "<b>2</b>", "why", "passed"]
    text = Reproduction({}, new_figure()[0], [good, bad])._repr_html_()
    page = Page(text)
    assert "Claims: 1 of 2 hold" in text
    assert page.rows[2][-1] == "FAILED"
    assert page.tags.count("img") == 1
    assert "data:image/png;base64,iVBOR" in text


def test_reports_of_diagnostics_are_tables():
    generator = np.random.default_rng(0)
    weights = generator.normal(size=(3, 8))
    features = generator.normal(size=(60, 8))
    sample = features, features @ weights.T, np.arange(60) % 3
    report = diagnostics.features(sample, sample)
    statistics = diagnostics.FeatureStatistics(3).update(*sample)
    for shown in (report, diagnostics.collapse(statistics, weights)):
        page = Page(shown._repr_html_())
        rows = [row for row in page.rows if row]
        assert [f"{name:<40} {value}" for name, value in rows] == shown.summary().splitlines()
