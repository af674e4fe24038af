"""Presets: each is possible, says which figure it shows, and has no empty panel."""

import re
from urllib.parse import parse_qsl

import numpy as np
import pytest
from fake_workers import FakeWorkers

from solvable import papers
from solvable.explorer import address, precomputed, tasks
from solvable.explorer.presets import PRESETS
from solvable.settings import theory_of
from solvable.story import crossing

# Presets -----------------------------------------------------------------------------------------------------------


def test_every_figure_with_a_model_behind_it_has_a_preset() -> None:
    # Not a curve of one model over time: kernels of a circle; a law in the number of samples; random networks of fifty
    # neurons; a map of two hundred solved theories.
    without = {("feature-scaling", "fig7"), ("layerwise", "eq5-5")}
    without |= {("delayed-features", "fig1"), ("delayed-features", "delay-map")}
    without |= {("delayed-features", "delay-planes")}
    # Features of given functions and networks: for these there are the diagnostics.
    without |= {("layerwise", name) for name in ("fig1-1", "fig2-2-initial", "minimum-projection")}
    # Real networks: their pages are in docs/networks.
    trained = ("fig2-2", "fig5-1-network", "fig5-1-data", "fig5-1-width", "fig6-3", "fig6-4", "fig6-5")
    trained += ("fig2-3", "table2-2", "fig2-4", "fig3-5", "fig3-6", "collapse-epochs", "decay-epochs", "fig-c3")
    trained += tuple(f"fig7-{number}" for number in range(1, 8))
    without |= {("layerwise", name) for name in trained}
    # Best schedules, laws in the batch size and in the number of samples: not curves over time.
    without |= {("feature-scaling", name) for name in ("best-schedule", "growing-momentum", "data-reuse")}
    without |= {("feature-scaling", "network-schedules")}
    without |= {
        ("feature-scaling", name)
        for name in ("fig5", "fig5-sources", "fig5-spectrum", "fig6", "fig7-circle", "fig8", "circle-bottleneck")
    }
    figures = {(paper, figure) for paper in papers.papers() for figure in papers.figures(paper)}
    made = {(preset.paper, preset.figure) for preset in PRESETS}
    assert made == figures - without


# The checks of a committee take half a second each.
_LONG = [preset for preset in PRESETS if preset.model == "committee"][1:]


@pytest.mark.parametrize(
    "preset", [preset for preset in PRESETS if preset not in _LONG], ids=lambda preset: preset.label
)
def test_presets_are_possible_and_fit_in_an_address(preset: object) -> None:
    _check_preset(preset)


@pytest.mark.slow
@pytest.mark.parametrize("preset", _LONG, ids=lambda preset: preset.label)
def test_presets_of_the_committee_are_possible(preset: object) -> None:
    _check_preset(preset)


def _check_preset(preset: object) -> None:
    state = preset.state()
    for setting in filter(None, (state.a, state.b)):
        setting.check()
        setting.build().check_run(setting.times(), setting.training(), "predict")
    back, errors = address.read_state(parse_qsl(state.query(), keep_blank_values=True))
    assert (back, errors) == (state, {})
    assert len(state.query()) < 2500


def test_presets_say_which_figure_they_show_and_name_both_settings() -> None:
    said = [preset.words() for preset in PRESETS]
    assert len(set(said)) == len(said)
    assert all(re.match(r"(Fig\.|Table|Eqs?\.|Theorem|Further result:) ", words) for words in said)
    assert not any("(B)" in words for words in said)
    assert "Fig. 1: aspect ratios 0.9 and 1.5 (λ = 0.9 beside λ = 1.5)" in said
    beside = [preset for preset in PRESETS if preset.b is not None]
    assert sum(" beside " in preset.words() for preset in beside) > 0.8 * len(beside)


def _slow_unless(quick: bool, preset: object) -> object:
    return pytest.param(preset, id=preset.label, marks=[] if quick else [pytest.mark.slow])


# One preset of each kind whose theory takes no time, and those that are precomputed; the panel of pure noise's signal
# used to be empty, and so was the page of neurons that grok.
_QUICK_PRESETS = ["Fig. 1.4: pure noise, 100 and 400 modes", "Theorem 1: Z = 1.7, E[x²] = 0.6"]
_QUICK_PRESETS += [preset.label for preset in precomputed.heavy_presets()]


@pytest.mark.parametrize("preset", precomputed.heavy_presets(), ids=lambda preset: preset.label)
def test_curves_of_presets_that_take_minutes_are_shipped_and_say_so(preset: object) -> None:
    """They arrive at once, with a note that says when they were computed, and show neurons that grok."""
    setting = preset.state().a
    answer = tasks.run("theory", {"model": setting.model, "texts": dict(setting.texts)}, lambda partial: None)
    assert any("computed beforehand, with solvable" in note for note in answer["notes"])
    found, explanation = answer["result"]["curves"], answer["result"]["explanation"]
    np.testing.assert_allclose(found.time, setting.times(), rtol=1e-5)
    assert max(float(found[name].max()) for name in ("train_loss_error", "test_loss_error")) < 0.02
    train, test = found.train_loss.values, found.test_loss.values
    assert np.isfinite(train).all()
    assert np.isfinite(test).all()
    # The training loss has fallen to a tenth long before the test loss.
    falls = [crossing(found.time, loss, 0.1 * loss[0]) for loss in (train, test)]
    assert falls[1] > 1.5 * falls[0]
    assert explanation.sentence


@pytest.mark.slow
def test_shipped_curves_are_those_of_the_theory() -> None:
    """The shortest of them, computed again: it agrees within the errors that both state."""
    preset = next(preset for preset in precomputed.heavy_presets() if "α = 0.5" in preset.label)
    shipped, _ = precomputed.shipped_curves(preset.state().a)
    again = theory_of(preset.state().a)
    for name in ("train_loss", "test_loss"):
        error = np.hypot(shipped[f"{name}_error"], again[f"{name}_error"]) + 1e-6
        assert (np.abs(shipped[name] - again[name]) < 5 * error).all()


@pytest.mark.parametrize("preset", [_slow_unless(preset.label in _QUICK_PRESETS, preset) for preset in PRESETS])
def test_no_panel_of_a_preset_is_empty(preset: object) -> None:
    """Each panel that a preset opens with has a line of every setting, with more than one number on its axis."""
    pytest.importorskip("panel")
    from solvable.explorer.view import View

    workers = FakeWorkers()
    view = View(preset.state(), {}, workers, lambda action: action())
    settings = {which: one for which in "ab" if (one := getattr(view.state, which)) is not None}
    for which, setting in settings.items():
        shipped = precomputed.shipped_curves(setting)
        view.theory[which] = theory_of(setting) if shipped is None else shipped[0]
    view._draw()
    assert view.curves.panels
    for panel in view.curves.panels:
        for other in (False, True)[: len(settings)]:
            drawn = np.concatenate([curve.y for curve, of_b in panel["lines"] if of_b == other])
            seen = np.isfinite(drawn) & ((drawn > 0) | (not panel["y_log"]))
            assert seen.sum() > 1, (panel["y_label"], "B" if other else "A")
