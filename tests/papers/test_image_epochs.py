"""Features of image networks along epochs and against training-set size: estimators, and claims that can fail."""

import hypothesis.strategies as st
import numpy as np
import pytest
import xarray as xr
from hypothesis import given

from solvable import papers
from solvable.files import load, save
from solvable.papers.layerwise import (
    _along_training,
    _epoch_experiments,
    _learning_curve,
    collapse_epochs,
    fig7_1,
    fig7_4,
    fig7_5,
    fig7_7,
    fig_c3,
)

SIZES = np.array([250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000], float)
FEATURES, MODES = 10, 40


def two_laws(sizes, at, before, after, height=0.3):
    return height * np.where(sizes < at, (sizes / at) ** -before, (sizes / at) ** -after)


# Estimators on exact power laws.


@given(at=st.floats(600, 20_000), before=st.floats(0.05, 0.4), after=st.floats(0.1, 0.9), height=st.floats(0.01, 0.8))
def test_exponents_of_two_power_laws_are_found(at, before, after, height):
    bend = _learning_curve.bend_at(SIZES, two_laws(SIZES, at, before, after, height), at)
    assert (bend.before, bend.after, bend.height) == pytest.approx((before, after, height), rel=1e-9)
    assert bend.scatter < 1e-20
    assert bend(SIZES) == pytest.approx(two_laws(SIZES, at, before, after, height), rel=1e-9)


@pytest.mark.parametrize("at", [1200.0, 3000.0, 8000.0])
def test_the_bend_is_found(at):
    bend = _learning_curve.best_bend(SIZES, two_laws(SIZES, at, 0.2, 0.5))
    # Places are tried on a grid of 400 between the second and the last size but one, 1% apart.
    assert bend.at == pytest.approx(at, rel=0.01)
    assert (bend.before, bend.after) == pytest.approx((0.2, 0.5), abs=0.005)


def test_errors_of_exponents_are_those_of_repetition():
    """The standard error that one noisy curve gives is the spread over many; a spread of 2000 is known to 2%."""
    generator = np.random.default_rng(0)
    clean = two_laws(SIZES, 3000, 0.2, 0.5)
    bends = [_learning_curve.bend_at(SIZES, clean * np.exp(0.03 * generator.normal(size=8)), 3000) for _ in range(2000)]
    for name, error in (("before", "before_error"), ("after", "after_error")):
        spread = np.std([getattr(bend, name) for bend in bends])
        # 5 degrees of freedom: the mean square of the errors is the variance, to 2 * sqrt(2 / (5 * 2000)), 3%.
        assert np.sqrt(np.mean([getattr(bend, error) ** 2 for bend in bends])) == pytest.approx(spread, rel=0.06)
    differences = [bend.after - bend.before for bend in bends]
    error = np.sqrt(np.mean([bend.difference_error**2 for bend in bends]))
    assert error == pytest.approx(np.std(differences), rel=0.06)
    # Five degrees of freedom, so Student's t: |t| > 2.57 in one case of twenty; of 2000, to 0.5%.
    beyond = np.mean([abs(bend.faster_after - 0.3 / bend.difference_error) > 2.571 for bend in bends])
    assert beyond == pytest.approx(0.05, abs=0.02)


def test_crossing_is_exact_on_a_power_law():
    values = 0.1 * (SIZES / 3456) ** -0.7
    assert _learning_curve.crossing(SIZES, values, 0.1) == pytest.approx(3456, rel=1e-12)


def test_crossing_is_where_values_stay_below():
    assert _learning_curve.crossing([1, 2, 4, 8], [0.2, 0.05, 0.2, 0.05], 0.1) == pytest.approx(np.sqrt(32))
    assert np.isnan(_learning_curve.crossing([1, 2, 4], [0.2, 0.05, 0.2], 0.1))
    assert np.isnan(_learning_curve.crossing([1, 2, 4], [0.2, 0.05, np.nan], 0.1))
    assert np.isnan(_learning_curve.crossing([1, 2, 4], [0.02, 0.05, 0.02], 0.1))


def test_a_bend_that_was_not_seen_has_no_exponents():
    for at in (100.0, 1e5, np.nan, 0.0):
        assert np.isnan(_learning_curve.bend_at(SIZES, SIZES**-0.3, at).after)
    with pytest.raises(ValueError, match="four sizes"):
        _learning_curve.best_bend([1, 2, 4], [3, 2, 1])


def test_rank_correlation():
    # Ranks 1, 2.5, 2.5, 4 and 4, 2, 3, 1: covariance -4.5 over sqrt(4.5 * 5).
    assert _learning_curve.rank_correlation([0, 7, 7, 9], [5, 2, 3, 1]) == pytest.approx(-4.5 / np.sqrt(22.5))
    assert _learning_curve.rank_correlation([1, 2, 3], [9, 4, 1]) == pytest.approx(-1)
    assert np.isnan(_learning_curve.rank_correlation([1, 2, 3], [1, 1, 1]))
    assert np.isnan(_learning_curve.rank_correlation([1, 2, 3], [1, np.nan, 2]))


@pytest.mark.slow
def test_rank_correlation_is_scipys():
    from scipy.stats import spearmanr

    x, y = np.random.default_rng(1).normal(size=(2, 20)).round(1)
    assert _learning_curve.rank_correlation(x, y) == pytest.approx(spearmanr(x, y).statistic, abs=1e-14)


def test_chance_of_rank_correlations():
    """20 unrelated pairs are above CHANCE in one case of two hundred; of 2000, 10 +- 3."""
    generator = np.random.default_rng(2)
    found = [_learning_curve.rank_correlation(np.arange(20), generator.normal(size=20)) for _ in range(2000)]
    assert 1 <= np.sum(np.array(found) > fig7_7.CHANCE) <= 22


# Claims on made-up trainings.


def training(outside, *, distance=None, seeds=2, accuracy=None, batch_epochs=(0, 1, 2, 5, 12, 30, 60)):
    """A dataset as of a training: ``outside`` of the learned functions lies beyond the first ten features."""
    steps = np.arange(len(batch_epochs)) * 10
    outside = np.broadcast_to(np.asarray(outside, float), (seeds, len(steps)))
    modes = np.arange(1, MODES + 1)
    inside = np.where(modes <= FEATURES, 1 / FEATURES, 0.0) * (1.2 - 0.04 * np.minimum(modes, 10))
    inside = inside / inside.sum()
    rest = np.where(modes > FEATURES, 0.9**modes, 0.0)
    use = (1 - outside)[..., None] * inside + outside[..., None] * rest / rest.sum()
    distance = outside if distance is None else np.broadcast_to(np.asarray(distance, float), outside.shape)
    accuracy = np.linspace(0.1, 1.0, len(steps)) if accuracy is None else np.asarray(accuracy, float)
    each = ("seed", "step")
    falling = np.broadcast_to(np.geomspace(1, 1e-2, len(steps)), outside.shape)
    variables = {
        "utilisation": ((*each, "mode"), use),
        "quality": ((*each, "mode"), use),
        "intensity": ((*each, "mode"), np.broadcast_to(0.8**modes, use.shape)),
        "mp_distance": (each, distance),
        "constant_overlap": (each, np.full(outside.shape, 0.97)),
        "train_loss": (each, falling.copy()),
        "train_accuracy": (each, np.broadcast_to(accuracy, outside.shape)),
        "test_accuracy": (each, np.broadcast_to(0.9 * accuracy, outside.shape)),
        **{name: (each, falling.copy()) for name in collapse_epochs.MEASURES if name != "mp_distance"},
    }
    data = xr.Dataset(variables, {"step": steps, "epoch": ("step", np.array(batch_epochs, float)), "mode": modes})
    for name in ("quality", "utilisation"):
        data[f"cumulative_{name}"] = data[name].cumsum("mode")
    return data.assign_coords(seed=np.arange(seeds))


def passed(claims):
    return [claim.passed for claim in claims]


def test_moments_are_the_measured_epochs():
    data = training([0.5] * 7)
    assert list(_along_training.moments(data)) == ["epoch 0", "epoch 1", "epoch 5", "epoch 30", "epoch 60"]
    assert list(_along_training.moments(data, (0, 3, 2, np.inf))) == ["epoch 0", "epoch 2", "epoch 60"]
    assert int(_along_training.at_epoch(data, 29).step) == 50
    assert _along_training.beyond(data, FEATURES).values == pytest.approx(0.5)


FALLING = [0.9, 0.3, 0.1, 0.04, 0.03, 0.03, 0.02]
TURNING = [0.9, 0.3, 0.3, 0.2, 0.15, 0.2, 0.4]


def test_few_features_from_early_on():
    assert all(passed(fig7_4.few_claims(training(FALLING), "it", "full")))
    # Few features, but late: neither the regime nor half of the rise by epoch 5.
    late = passed(fig7_4.few_claims(training([0.9, 0.9, 0.9, 0.8, 0.5, 0.1, 0.02]), "it", "full"))
    assert late == [True, True, False, False]
    assert passed(fig7_4.few_claims(training(TURNING), "it", "full"))[:2] == [False, False]


def test_many_features_later():
    assert all(passed(fig7_4.many_claims(training(TURNING), "it", "full")))
    # A network that stays where it is at epoch 30 does not use more features later, one that falls uses fewer.
    assert passed(fig7_4.many_claims(training([*TURNING[:6], 0.2]), "it", "full")) == [True, True, False, False, False]
    assert passed(fig7_4.many_claims(training(FALLING), "it", "full")) == [False, True, False, False, False]
    # One seed of two is not every seed.
    one = np.array([TURNING, FALLING])
    assert not any(passed(fig7_4.many_claims(training(one), "it", "full"))[2:])


def test_ten_features_stand_apart_or_others_come_into_use():
    assert all(passed(fig7_5.parted_claims(training(FALLING), "it")))
    assert not any(passed(fig7_5.parted_claims(training(TURNING[::-1]), "it")))
    assert all(passed(fig7_5.later_claims(training(TURNING), "it")))
    assert passed(fig7_5.later_claims(training(FALLING), "it")) == [False, False]


def test_a_slower_rate_learns_features_or_coefficients():
    """Fig. C.3: the claims on either row hold for its own course and not for the other's."""
    falling, turning = training(FALLING), training(TURNING)
    assert passed(fig_c3.feature_claims(falling, "it")) == [True] * 4
    # Quality rises to 1 - outside, and falls again from the turn on.
    assert passed(fig_c3.coefficient_claims(turning, "it")) == [True] * 4
    # The least use of other features is at the end: nothing is left to happen after it.
    assert passed(fig_c3.coefficient_claims(falling, "it")) == [False, True, False, False]
    turned = training(TURNING[::-1])
    turned["constant_overlap"][1, -1] = 0.94
    assert passed(fig_c3.feature_claims(turned, "it")) == [False, False, False, False]
    assert passed(fig_c3.coefficient_claims(training([0.9, 0.85, 0.8, 0.7, 0.9, 0.3, 0.35]), "it"))[1]


def test_correlation_of_intensity_and_quality():
    data = training(FALLING)
    found = fig7_7.correlations(data, "quality")
    assert found.dims == ("seed", "step")
    # The first feature, nearly a constant, is left out.
    without = data.assign(quality=data.quality.where(data.mode > 1, 0.0))
    assert fig7_7.correlations(without, "quality").equals(found)
    assert all(passed(fig7_7.correlation_claims(data, "it")))
    generator = np.random.default_rng(3)
    data["quality"] = data.quality.dims, generator.random(data.quality.shape)
    assert passed(fig7_7.correlation_claims(data, "it")) == [False, True]


def test_strong_features_gain_quality_first():
    assert fig7_7.gain_claim(training(FALLING), "it").passed
    assert not fig7_7.gain_claim(training(FALLING[::-1]), "it").passed


def test_collapse_in_the_terminal_phase():
    accuracy = [0.1, 0.5, 0.9, 0.98, 0.996, 0.999, 1.0]
    data = training(FALLING, accuracy=accuracy)
    claims = collapse_epochs.terminal_claims(data, "it", 0.995)
    assert all(passed(claims))
    assert "epochs 12, 12" in claims[0].because
    # A measure that rises again in one seed fails, alone; NC4 may rise among the last few images.
    data["self_duality"][1, -1] = 0.9
    data["nearest_class"][0, -1] = 4e-4
    data["nearest_class"][0, 4] = 0.0
    claims = collapse_epochs.terminal_claims(data, "it", 0.995)
    assert ["self_duality" in claim.name for claim in claims if not claim.passed] == [True]
    # Without a terminal phase nothing is shown.
    never = training(FALLING, accuracy=np.linspace(0.1, 0.9, 7))
    never["nearest_class"][:] = 0.0
    assert not any(passed(collapse_epochs.terminal_claims(never, "it", 0.995)))


def curves(error, distance, seeds=2):
    shape = (len(SIZES), seeds)
    values = {"error": error, "test_loss": np.asarray(error) * 3, "mp_distance": distance, "train_accuracy": np.ones(8)}
    data = xr.Dataset(
        {
            name: (("size", "seed"), np.broadcast_to(np.asarray(value)[:, None], shape).copy())
            for name, value in values.items()
        },
        {"size": SIZES},
    )
    # Large sizes have one seed.
    return data.where((data["size"] < 20_000) | (xr.DataArray(np.arange(seeds), dims="seed") == 0))


DISTANCE = 0.1 * (SIZES / 3500) ** -0.4


def test_learning_curve_that_bends_where_features_do():
    bent = curves(two_laws(SIZES, 3500, 0.15, 0.5), DISTANCE)
    assert all(passed(fig7_1.size_claims(bent)))
    claims = fig7_1.transition_claims(bent, "full")
    assert all(passed(claims))
    assert "3,500 images" in claims[0].because


def test_learning_curves_that_do_not():
    # Slower after the crossing.
    slower = fig7_1.transition_claims(curves(two_laws(SIZES, 3500, 0.5, 0.2), DISTANCE), "full")
    assert passed(slower) == [True, True, False, False, False, True]
    # Faster after it, but the bend is a decade off.
    elsewhere = curves(two_laws(SIZES, 20_000, 0.15, 0.9), 0.1 * (SIZES / 700) ** -0.4)
    off = passed(fig7_1.transition_claims(elsewhere, "full"))
    assert off[:4] == [True] * 4
    assert not off[5]
    # Minimum-feature at all sizes, or at none: there is no crossing to speak of.
    for distance in (DISTANCE / 100, DISTANCE * 100):
        never = fig7_1.transition_claims(curves(two_laws(SIZES, 3500, 0.15, 0.5), distance), "full")
        assert not any(passed(never)[2:])
        assert sum(passed(never)[:2]) == 1 or distance[0] > 1


def test_errors_that_rise_are_counted():
    error = two_laws(SIZES, 3500, 0.15, 0.5)
    error[3] = error[2] * 1.01
    claims = fig7_1.size_claims(curves(error, DISTANCE[::-1]))
    assert passed(claims) == [False, False, True]
    assert claims[0].measured == len(SIZES) - 2


def test_seeds_that_a_size_has_not_are_left_out():
    data = curves(two_laws(SIZES, 3500, 0.15, 0.5), DISTANCE)
    sizes, values = fig7_1.points(data, "error")
    assert len(sizes) == len(values) == 6 * 2 + 2
    assert np.isfinite(values).all()


def made_up(experiment):
    """In place of training: all measures at the experiment's own steps, as :func:`trained` gives them."""
    steps = sorted({0, *experiment.measured, experiment.steps})
    size = _epoch_experiments.images_of(experiment)
    epochs = np.array(steps) * experiment.batch / size
    outside = np.geomspace(0.9, 0.1 * (size / 5000) ** -0.3, len(steps))
    data = training(outside, seeds=experiment.seeds, batch_epochs=tuple(epochs))
    return data.assign(test_loss=1 - data.test_accuracy).assign_coords(step=steps)


def test_sizes_with_different_seeds_make_one_curve(monkeypatch):
    monkeypatch.setattr(fig7_1, "trained", made_up)
    found = fig7_1.learning_curves(_epoch_experiments.SIZES["full"])
    assert found["size"].values.tolist() == SIZES.tolist()
    assert found.error.notnull().sum("seed").values.tolist() == [2] * 5 + [1] * 3
    # κ = 0.1 (n / 5000)^-0.3 was put in.
    assert _learning_curve.crossing(*fig7_1.means(found, "mp_distance"), 0.1) == pytest.approx(5000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig7-1", "fig7-4", "fig7-5", "fig7-6", "fig7-7", "fig-c3", "collapse-epochs"])
def test_full_scale_is_saved_drawn_and_claimed(name, monkeypatch, tmp_path):
    """Everything except the training, with the settings of the full scale; claims and picture are made from files."""
    monkeypatch.setattr(papers.load_figure("layerwise", name), "trained", made_up)
    data = papers.compute("layerwise", name, "full")
    for part, dataset in data.items():
        save(dataset, tmp_path / f"{part}.npz")
    result = papers.interpret("layerwise", name, {part: load(tmp_path / f"{part}.npz") for part in data})
    assert len(result.claims) >= 3
    assert all(isinstance(claim.passed, bool) for claim in result.claims)
    assert [claim.measured for claim in result.claims] == pytest.approx(
        [claim.measured for claim in papers.load_figure("layerwise", name).claims(data)], nan_ok=True
    )
    result.figure.canvas.draw()


def test_experiments_have_titles_and_share_trainings():
    few = _epoch_experiments.FEW_FEATURES["full"]
    assert _epoch_experiments.title(few) == "ResNet18 on CIFAR-10"
    assert few in _epoch_experiments.COLLAPSING["full"]
    assert few in _epoch_experiments.AUGMENTED_SIZES["full"]
    for setting in (_epoch_experiments.SIZES["full"], _epoch_experiments.AUGMENTED_SIZES["full"]):
        sizes = [_epoch_experiments.images_of(one) for one in setting]
        assert sizes == sorted(set(sizes))
