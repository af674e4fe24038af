"""Pictures and claims of image networks, on made-up feature metrics whose regime is known."""

import functools
import warnings
from types import ModuleType

import numpy as np
import pytest
import xarray as xr

from solvable.diagnostics import FeatureStatistics, features
from solvable.papers.layerwise import _image_pictures as pictures
from solvable.papers.layerwise import _image_training as training
from solvable.papers.layerwise import fig2_3, fig2_4, table2_2
from solvable.plotting import new_figure


@functools.cache
def measured(spread: float, classes: int = 10, seeds: int = 2, width: int = 32, accuracy: float = 0.99) -> xr.Dataset:
    """Metrics of features that lie around as many orthogonal centres as classes, in the form that trainings have.

    The outputs read the centres, so without ``spread`` the features are an exact minimum projection, and with a
    large one they are as many as the width.
    """
    rng = np.random.default_rng(7)
    reports = []
    for _ in range(seeds):
        weights = np.linalg.qr(rng.normal(size=(width, classes)))[0].T
        samples = []
        for count in (2000, 400):
            labels = np.arange(count) % classes
            # What all classes share makes the constant the strongest feature, as in section 2.5.1.
            centres = weights + 0.3 * weights.sum(axis=0)
            phi = centres[labels] + spread * rng.normal(size=(count, width)) / np.sqrt(width)
            samples.append(FeatureStatistics(classes).update(phi, phi @ weights.T, labels))
        reports.append(features(*samples))
    modes = max(report.rank for report in reports)

    def curves(name: str) -> np.ndarray:
        found = np.full((seeds, 1, modes), np.nan)
        for row, report in zip(found, reports, strict=True):
            row[0, : report.rank] = getattr(report, name)
        return found

    names = ("intensity", "quality", "utilisation", "cumulative_quality", "cumulative_utilisation")
    variables = {name: (("seed", "step", "mode"), curves(name)) for name in names}
    scalars = {
        f"effective_dimension_{name}": [r.effective_dimensions[name] for r in reports] for name in pictures.DIMENSIONS
    }
    scalars |= {name: [getattr(r, name) for r in reports] for name in ("mp_distance", "constant_overlap")}
    scalars |= {"test_accuracy": [accuracy] * seeds}
    variables |= {name: (("seed", "step"), np.array(values)[:, None]) for name, values in scalars.items()}
    return xr.Dataset(variables, {"step": [100], "mode": np.arange(1, modes + 1), "seed": np.arange(seeds)})


def stamped(data: dict[str, xr.Dataset], scale: str) -> dict[str, xr.Dataset]:
    """The datasets of a figure as they are at a scale; runs of one moment become trainings of one measured step."""
    return {
        name: (run if "step" in run.dims else run.expand_dims("step")).assign_attrs(scale=scale)
        for name, run in data.items()
    }


@pytest.fixture(scope="module")
def collapsed() -> xr.Dataset:
    return pictures.at_end(measured(0.01))


@pytest.fixture(scope="module")
def spread_out() -> xr.Dataset:
    return pictures.at_end(measured(3.0))


def test_claims_tell_the_regimes_apart(collapsed: xr.Dataset, spread_out: xr.Dataset) -> None:
    for run, minimum in ((collapsed, True), (spread_out, False)):
        assert pictures.minimum_feature_claim("a network", run).passed is minimum
        assert pictures.extended_feature_claim("a network", run).passed is not minimum
        assert pictures.share_claim("a network", run, 10, 0.05, "").passed is minimum
        for kind in (pictures.ABOVE_NOISE, pictures.SQUARED, pictures.ONCE, "intensity"):
            assert pictures.dimension_claim("a network", run, 10, 0.05, "", kind).passed is minimum, kind


def test_the_first_feature_is_a_constant_or_not(collapsed: xr.Dataset) -> None:
    assert pictures.constant_claim("a network", collapsed).passed
    one_less = collapsed.assign(constant_overlap=("seed", [0.99, 0.94]))
    assert not pictures.constant_claim("a network", one_less).passed


def test_claims_speak_of_the_worst_seed(collapsed: xr.Dataset, spread_out: xr.Dataset) -> None:
    mixed = xr.concat([collapsed.isel(seed=[0]), spread_out.isel(seed=[0])], "seed", join="outer")
    minimum, extended = (make("x", mixed) for make in (pictures.minimum_feature_claim, pictures.extended_feature_claim))
    assert minimum.measured == spread_out.mp_distance[0]
    assert extended.measured == collapsed.mp_distance[0]
    assert not minimum.passed
    assert not extended.passed
    assert not pictures.dimension_claim("x", mixed, 10, 0.05, "").passed
    assert "of 2 seeds" in minimum.name
    assert "one seed" in pictures.minimum_feature_claim("x", mixed.isel(seed=[0])).name
    accuracies = mixed.assign(test_accuracy=("seed", [0.97, 0.93]))
    assert pictures.accuracy_claim("x", accuracies, 0.93, "").passed
    assert not pictures.accuracy_claim("x", accuracies, 0.94, "").passed


def test_chance_counts_in_the_plain_dimension_and_hardly_in_the_others(collapsed: xr.Dataset) -> None:
    """With p modes and n test samples the plain entropy has a bias, which the docstrings of the figures state.

    A weak mode overlaps with the outputs by 1/n_test, and by 1/n_train more: on the training set it was made orthogonal
    to the strong ones with all that they had in common by chance. D_eff is exp of the entropy of the mixture.
    """
    modes, chance, classes = collapsed.sizes["mode"], 1 / 400 + 1 / 2000, 10
    shares = np.r_[np.full(classes, 1 / classes), np.full(modes - classes, chance)]
    shares /= shares.sum()
    expected = np.exp(-np.sum(shares * np.log(shares)))
    # 22 overlaps, each a sum of ten squares, scatter by 7 % in all, and D_eff depends on the half of it; two seeds.
    np.testing.assert_allclose(collapsed.effective_dimension_utilisation, expected, rtol=0.07)
    for kind in (pictures.ABOVE_NOISE, pictures.SQUARED):
        np.testing.assert_allclose(collapsed[f"effective_dimension_{kind}"], classes, rtol=0.03)


@pytest.mark.parametrize(("values", "found"), [([9.0, 10.5, 11.5], 11.5), ([8.0, 10.5], 8.0), ([10.0, np.nan], np.nan)])
def test_the_furthest_value(values: list[float], found: float) -> None:
    assert pictures.furthest(xr.DataArray(values), 10.0) == pytest.approx(found, nan_ok=True)


def test_the_panels_show_what_was_measured(collapsed: xr.Dataset, spread_out: xr.Dataset) -> None:
    runs = {"collapsed": collapsed, "spread out": spread_out}
    figure = pictures.feature_figure(runs, 10)
    quality, utilisation, intensity = figure.axes
    labels = [text.get_text() for text in intensity.get_legend().get_texts()]
    assert labels[0] == f"collapsed (99.0%) [{float(collapsed.mp_distance.mean()):.2g}]"
    assert labels[-1] == "k = C = 10"
    for panel, name in ((quality, "cumulative_quality"), (utilisation, "cumulative_utilisation")):
        # Two seeds and their mean for each of two runs, and the mark.
        assert len(panel.lines) == 2 * 3 + 1
        np.testing.assert_allclose(panel.lines[0].get_ydata(), collapsed[name][0])
        np.testing.assert_allclose(panel.lines[5].get_ydata(), spread_out[name].mean("seed"))
        assert panel.get_xscale() == "log"
    np.testing.assert_allclose(intensity.lines[2].get_ydata()[0], 1)
    assert set(intensity.lines[-1].get_xdata()) == {10}


def test_each_run_can_have_its_own_number_of_classes(collapsed: xr.Dataset) -> None:
    runs = {f"C = {classes}": collapsed for classes in range(2, 11)}
    figure = pictures.feature_figure(runs, {name: index for index, name in enumerate(runs, 2)})
    marks = [line for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    assert [mark.get_xdata()[0] for mark in marks] == list(range(2, 11))
    assert len({mark.get_color() for mark in marks}) == 9, "nine runs are nine colours"


def test_curves_over_steps_have_seeds_and_their_mean() -> None:
    _, (panel,) = new_figure()
    values = xr.DataArray([[1.0, 2], [3, 4]], dims=("seed", "step"), coords={"step": [0, 5]})
    pictures.draw_seeds(panel, values, "step", "red", "both")
    pictures.draw_seeds(panel, values[:1], "step", "blue", "one")
    assert len(panel.lines) == 4
    np.testing.assert_allclose(panel.lines[2].get_ydata(), [2, 3])


def test_figure_2_3_claims_need_the_regimes_apart(collapsed: xr.Dataset, spread_out: xr.Dataset) -> None:
    between = collapsed.assign(mp_distance=collapsed.mp_distance + 0.1)

    def failures(first: xr.Dataset, second: xr.Dataset, scale: str) -> int:
        runs = {"all-layers": first, "last-layer-only": second, "all-layers-cross-entropy": between}
        return sum(not claim.passed for claim in fig2_3.claims(stamped(runs, scale)))

    for scale in ("quick", "full"):
        assert failures(collapsed, spread_out, scale) == 0
        assert failures(spread_out, collapsed, scale) >= 4
        assert failures(collapsed, collapsed, scale) >= 2


def test_table_2_2_claims_follow_the_row() -> None:
    row = next(row for row in table2_2.ROWS["full"] if row.name == "ResNet18, CIFAR-10")
    ends = {spread: pictures.at_end(measured(spread, accuracy=0.94)) for spread in (0.01, 3.0)}
    found = {spread: table2_2.row_claims(row, end, "full") for spread, end in ends.items()}
    assert all(claim.passed for claim in found[0.01])
    assert sum(not claim.passed for claim in found[3.0]) == len(found[3.0]) - 1, "all but the accuracy"
    poor = table2_2.row_claims(row, pictures.at_end(measured(0.01, accuracy=0.92)), "full")
    assert sum(not claim.passed for claim in poor) == 1


def test_table_2_2_is_the_thesis_table() -> None:
    """Momentum, loss and augmentation as the thesis states them, for every row of the table; three seeds.

    Its rate and decay are those of ResNet18 on CIFAR-10; shorter trainings have more decay, so that as much is removed.
    """
    assert (table2_2.CIFAR.rate, table2_2.CIFAR.decay) == (0.05, 1e-3)
    for row in table2_2.ROWS["full"]:
        made = row.experiment
        assert made.network == row.name.split(", ")[0].lower()
        assert (made.momentum, made.loss, made.rate, made.seeds) == (0.9, "mse", 0.05, 3)
        assert 1 <= made.decay * made.steps / (1e-3 * table2_2.CIFAR.steps) < 2.5
        assert made.augmented == ("CIFAR" in row.name)
        assert made.images == row.name.split(", ")[1].lower()
        assert (row.printed is None) == ("Fashion" in row.name)


def test_figure_2_4_counts_classes() -> None:
    numbers = fig2_4.EXPERIMENTS["full"]
    runs = {f"classes-{classes}": measured(0.01, classes=classes) for classes in numbers}
    swapped = runs | {"classes-2": runs["classes-5"], "classes-5": runs["classes-2"]}
    assert numbers[10] == table2_2.CIFAR, "trained once for both"
    for scale in ("quick", "full"):
        assert all(claim.passed for claim in fig2_4.claims(stamped(runs, scale)))
        failing = [claim.name for claim in fig2_4.claims(stamped(swapped, scale)) if not claim.passed]
        assert len(failing) >= 4
        assert all("2 classes" in name or "5 classes" in name for name in failing)


# Half a minute; the claims of Table 2.2 and Fig. 2.3 at quick scale, which train the same networks, are tested in CI.
@pytest.mark.slow
def test_training_all_layers_leaves_as_many_features_as_classes_and_the_last_alone_many_more() -> None:
    """One seed of the quick scale of Table 2.2: minimum-feature for the thesis' loss, on a two-core machine."""
    row = table2_2.ROWS["quick"][0]
    alone = row.experiment._replace(seeds=1)
    whole = training._train(alone)
    # Features that are not trained are the same after any number of steps; the last layer fits them within some.
    last = training._train(alone._replace(last_layer_only=True, steps=100))
    claims = table2_2.row_claims(row, pictures.at_end(whole), "quick")
    assert [claim.name for claim in claims if not claim.passed] == []
    assert pictures.extended_feature_claim(row.name, pictures.at_end(last)).passed
    assert float(pictures.at_end(last).mp_distance[0]) > 3 * float(pictures.at_end(whole).mp_distance[0])


@pytest.mark.parametrize(
    ("figure", "scale", "claims"),
    [
        (fig2_3, "quick", 6),
        (fig2_3, "full", 10),
        (fig2_4, "quick", 17),
        (fig2_4, "full", 21),
        (table2_2, "quick", 16),
        (table2_2, "full", 46),
    ],
)
def test_figures_are_drawn_and_claimed_without_training(
    figure: ModuleType, scale: str, claims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of claims and of panels at both scales, from made-up metrics in place of training."""
    monkeypatch.setattr(figure, "trained", lambda experiment: measured(0.01, classes=experiment.classes, seeds=2))
    monkeypatch.setattr(table2_2, "stored_images", dict)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the rows of CIFAR-100 are skipped")
        data = stamped(figure.compute(scale), scale)
    assert len(figure.claims(data)) == claims
    drawn = figure.draw(data)
    drawn.canvas.draw()
    assert len(drawn.axes) == (6 if figure is table2_2 else 4)


def test_rows_of_cifar_100_are_computed_where_its_images_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere they are skipped in words; their claims are on a hundred classes."""

    def made_up(experiment: training.Experiment) -> xr.Dataset:
        return measured(0.01, classes=experiment.classes, seeds=1, width=120)

    monkeypatch.setattr(table2_2, "trained", made_up)
    monkeypatch.setattr(table2_2, "stored_images", dict)
    with pytest.warns(UserWarning, match="rows of CIFAR-100 are skipped.*solvable data add cifar-100"):
        without = stamped(table2_2.compute("full"), "full")
    assert not any("CIFAR-100" in claim.name for claim in table2_2.claims(without))
    monkeypatch.setattr(table2_2, "stored_images", lambda: {"cifar-100": 1})
    data = stamped(table2_2.compute("full"), "full")
    claims = [claim for claim in table2_2.claims(data) if "CIFAR-100" in claim.name]
    assert len(claims) == 14
    assert {claim.expected for claim in claims if claim.name.startswith("D_eff(ρ)")} == {100.0}
    assert all(row.experiment.classes == 100 and row.experiment.augmented for row in table2_2.HUNDRED)
    table2_2.draw(data).canvas.draw()
