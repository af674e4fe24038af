"""Figs. 3.5, 3.6, 7.2 and 7.3: the measures of one feature, claims that fail when they should, and small trainings."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import xarray as xr

from solvable.diagnostics import FeatureReport, features
from solvable.papers import Claim
from solvable.papers.layerwise import fig3_5, fig3_6, fig7_2, fig7_3
from solvable.papers.layerwise._image_comparisons import better_claim, tighter_claim

MODES = np.arange(1, 13)


def run(
    distance: float | list[float] = 0.02,
    accuracy: float | list[float] = 0.9,
    *,
    start: float = 0.6,
    fitted: float = 1.0,
    used: int = 10,
    steep: float = 1.0,
    gap: float = 100.0,
) -> xr.Dataset:
    """Three seeds at the start and at the end: ``used`` features, falling by ``steep`` from the second to the last."""
    intensity = np.full(12, 1 / gap)
    intensity[1:used] = np.geomspace(steep, 1, used - 1)
    intensity[0] = 5 * steep
    utilisation = np.where(used >= MODES, 1 / used, 0.0)
    both: dict[str, list[Any]] = {
        "mp_distance": [start, distance],
        "test_accuracy": [0.1, accuracy],
        "train_accuracy": [0.1, fitted],
        "effective_dimension_utilisation_above_noise": [12, used],
        "effective_dimension_utilisation_once": [12, used],
    }
    shapes = {
        name: np.stack([np.broadcast_to(np.asarray(value, float), 3) for value in pair], axis=1)
        for name, pair in both.items()
    }
    curves = {"intensity": intensity, "utilisation": utilisation, "cumulative_utilisation": np.cumsum(utilisation)}
    curves["cumulative_quality"] = curves["cumulative_utilisation"]
    return xr.Dataset(
        {name: (("seed", "step"), values) for name, values in shapes.items()}
        | {name: (("seed", "step", "mode"), np.broadcast_to(v, (3, 2, 12))) for name, v in curves.items()},
        {"step": [0, 100], "mode": MODES, "seed": range(3)},
    )


def ended(*args: Any, **options: Any) -> xr.Dataset:
    return run(*args, **options).isel(step=-1)


def stamped(data: dict[str, xr.Dataset], scale: str) -> dict[str, xr.Dataset]:
    """The datasets of a figure as they are at a scale."""
    return {name: part.assign_attrs(scale=scale) for name, part in data.items()}


def failed(claims: list[Claim]) -> list[str]:
    return [claim.name for claim in claims if not claim.passed]


def only(claims: list[Claim], *words: str) -> None:
    """Exactly one claim fails, and it is the one with these words."""
    (name,) = failed(claims)
    assert all(word in name for word in words), name


# What the measures are for a network with one output.


def number_report(feature_map: Callable[[np.ndarray], np.ndarray], first: float = -1.0) -> FeatureReport:
    """A network that gives the digit but for a small error, its digits numbered from ``first`` in steps of 2/9."""
    generator = np.random.default_rng(0)
    samples = []
    for points in (2000, 2000):
        numbers = np.linspace(-1, 1, 10)[generator.permutation(np.arange(points) % 10)]
        outputs = numbers + 0.02 * generator.normal(size=points)
        shift = first + 1
        samples.append((feature_map(outputs), outputs[:, None] + shift, numbers[:, None] + shift))
    return features(*samples)


def one_feature(outputs: np.ndarray) -> np.ndarray:
    generator = np.random.default_rng(1)
    return 5 * generator.random(64) + np.outer(outputs, generator.normal(size=64))


def test_one_feature_and_a_constant_give_what_is_claimed_of_regression() -> None:
    report = number_report(one_feature)
    assert (report.rank, report.target_rank, report.output_rank) == (2, 1, 1)
    assert report.mp_distance < 1e-12
    assert report.effective_dimensions["intensity"] == pytest.approx(2)
    # The bias taken away is 2/n; features orthogonal on the training set overlap by O(1/√n) on n = 2000 test points.
    assert report.cumulative_utilisation[1] == pytest.approx(1, abs=6 / 2000)


@pytest.mark.parametrize(("first", "used"), [(-1.0, 1.0), (0.0, 1.83)])
def test_the_constant_is_used_as_far_as_the_numbers_have_a_mean(first: float, used: float) -> None:
    """Numbers 0 to 9 have the share 4.5²/28.5 = 0.71 of their mean square in the constant, exp of entropy 1.83."""
    report = number_report(one_feature, first)
    # The two features are not quite the constant and the number: they are turned by an angle of some percent.
    assert report.effective_dimensions["utilisation_above_noise"] == pytest.approx(used, abs=0.05)
    assert report.cumulative_utilisation[1] == pytest.approx(1, abs=6 / 2000)


def test_features_of_ten_classes_are_told_from_one_of_a_number() -> None:
    """What structure of the images would make: all ten classes apart, though the output is one number."""
    directions = np.maximum(np.random.default_rng(2).normal(size=(10, 64)), 0)
    report = number_report(lambda outputs: directions[np.clip(np.rint((outputs + 1) * 4.5), 0, 9).astype(int)])
    assert report.mp_distance > 0.5
    assert report.cumulative_utilisation[1] < 0.5
    assert report.effective_dimensions["intensity"] > 8
    assert float(fig3_6.share_of_second(report.to_dataset())) < 0.3


def test_noise_in_all_directions_lowers_the_share_of_the_second_feature() -> None:
    """Variances 1 in one direction and s² in each of 64 (constant apart): share (1 + s²)/(1 + 63 s² + ...)."""
    spread = 0.1
    generator = np.random.default_rng(3)

    def noisy(outputs: np.ndarray) -> np.ndarray:
        direction = np.full(64, 1 / 8) * np.where(np.arange(64) % 2, 1, -1) / outputs.std()
        return 10 + np.outer(outputs, direction) + spread * generator.normal(size=(outputs.size, 64))

    found = float(fig3_6.share_of_second(number_report(noisy).to_dataset()))
    assert found == pytest.approx((1 + spread**2) / (1 + 63 * spread**2), rel=0.02)


# Claims.


def test_better_and_tighter_compare_the_worst_seed_with_the_best() -> None:
    a, b = ended([0.01, 0.02, 0.04], [0.90, 0.91, 0.95]), ended([0.03, 0.05, 0.06], [0.85, 0.86, 0.89])
    assert better_claim("a", a, "b", b, "").measured == pytest.approx(0.01)
    assert better_claim("a", a, "b", b, "").passed
    assert not better_claim("a", a, "b", b, "", least=0.02).passed
    assert not better_claim("b", b, "a", a, "").passed
    assert tighter_claim("a", a, "b", b, "").measured == pytest.approx(4 / 3)
    assert not tighter_claim("a", a, "b", b, "").passed
    assert tighter_claim("a", a, "b", b, "", of="means").measured == pytest.approx(0.5)
    assert not tighter_claim("b", b, "a", a, "", of="means").passed


def test_flatness_gap_and_share_of_a_geometric_spectrum() -> None:
    falling = xr.Dataset({"intensity": (("seed", "mode"), 0.5 ** MODES[None])}, {"mode": MODES})
    assert float(fig7_2.flatness(falling)[0]) == 2**8
    assert float(fig7_3.gap(falling)[0]) == 2
    assert float(fig3_6.share_of_second(falling)[0]) == pytest.approx(0.25 / (0.5 - 0.5**12))


def labels_claims(scale: str, **changed: xr.Dataset) -> list[Claim]:
    runs = {"none": run(accuracy=0.78), "some": run(accuracy=0.7), "all": run(accuracy=[0.09, 0.1, 0.11])} | changed
    return fig3_5.claims(stamped(dict(zip(("noise_0", "noise_0.1", "noise_1"), runs.values(), strict=True)), scale))


def test_random_labels_pass_and_fail() -> None:
    assert not failed(labels_claims("full"))
    assert not failed(labels_claims("quick"))
    only(labels_claims("quick", none=run(0.5, 0.78)), "κ_CKA", "true labels")
    only(labels_claims("full", all=run(accuracy=0.1, fitted=0.98)), "training accuracy", "all random")
    only(labels_claims("full", all=run([0.02, 0.02, 0.11], 0.1)), "κ_CKA", "all random")
    only(labels_claims("full", some=run(accuracy=[0.7, 0.7, 0.77])), "test accuracy", "above 10 %")
    only(labels_claims("full", all=run(accuracy=0.15)), "test accuracy, all random")


def test_regression_passes_and_fails() -> None:
    good = {fig3_6.NUMBER: ended(accuracy=0.99, used=2, gap=1e4), fig3_6.CLASS: ended(accuracy=0.995)}
    for scale in ("quick", "full"):
        assert not failed(fig3_6.claims(stamped(good, scale)))
    four = ended(accuracy=0.99, used=4, gap=1e4)
    names = failed(fig3_6.claims(stamped(good | {fig3_6.NUMBER: four}, "full")))
    assert len(names) == 3
    assert ["Π̂(2)" in names[0], "D_eff" in names[1], "ρ_2" in names[2]] == [True] * 3
    only(
        fig3_6.claims(stamped(good | {fig3_6.NUMBER: ended(0.2, 0.99, used=2, gap=1e4)}, "full")), "κ_CKA", "regression"
    )
    only(fig3_6.claims(stamped(good | {fig3_6.CLASS: ended(accuracy=0.98)}, "full")), "accuracy of classification")


def test_learning_rates_pass_and_fail() -> None:
    low, middle, high = ended(0.4, 0.6), ended(0.02, 0.86), ended(0.04, 0.8)
    assert not failed(fig7_2.rate_claims({1e-4: low, 1e-2: middle, 0.1: high}, "full"))
    assert not failed(fig7_2.rate_claims({1e-4: low, 1e-2: middle, 0.1: ended(0.12, 0.8)}, "quick"))
    assert len(failed(fig7_2.rate_claims({1e-4: middle, 1e-2: low, 0.1: high}, "quick"))) == 7
    only(fig7_2.rate_claims({1e-4: ended(0.09, 0.6), 1e-2: middle, 0.1: high}, "full"), "κ_CKA of rate 0.0001")
    only(fig7_2.rate_claims({1e-4: low, 1e-2: middle, 0.1: ended(0.04, 0.87)}, "full"), "rate 0.01 above rate 0.1")
    only(fig7_2.rate_claims({1e-4: low, 1e-2: middle, 0.1: ended(0.01, 0.8)}, "full"), "rate 0.01 over rate 0.1")
    only(fig7_2.rate_claims({1e-4: ended(0.4, 0.82), 1e-2: middle, 0.1: high}, "full"), "rate 0.1 above rate 0.0001")


def test_weight_decays_pass_and_fail() -> None:
    none, some, much = ended(0.06, 0.9, steep=4.0), ended(0.04, 0.91, steep=3.0), ended(0.02, 0.92, steep=2.0)
    assert not failed(fig7_2.decay_claims({0.0: none, 1e-3: some, 4e-3: much}, "full"))
    assert not failed(fig7_2.decay_claims({0.0: ended(0.12, 0.9, steep=4.0), 1e-3: some, 4e-3: much}, "quick"))
    assert len(failed(fig7_2.decay_claims({0.0: much, 1e-3: some, 4e-3: none}, "quick"))) == 5
    only(fig7_2.decay_claims({0.0: ended(0.12, 0.9, steep=4.0), 1e-3: some, 4e-3: much}, "full"), "κ_CKA of decay 0")
    only(fig7_2.decay_claims({0.0: none, 1e-3: ended(0.07, 0.91), 4e-3: much}, "full"), "κ_CKA falls")
    only(fig7_2.decay_claims({0.0: none, 1e-3: ended(0.04, 0.93), 4e-3: much}, "full"), "test accuracy rises")
    only(fig7_2.decay_claims({0.0: none, 1e-3: some, 4e-3: ended(0.02, 0.92, steep=5.0)}, "full"), "ρ_2/ρ_10")


def test_networks_that_do_not_know_their_training_set_are_told() -> None:
    data = {"rate_0.1": ended(fitted=0.995), "decay_0": ended(fitted=0.992)}
    assert fig7_2.fitted_claim(data).passed
    unfitted = fig7_2.fitted_claim(data | {"rate_0.02": ended(fitted=0.66)})
    assert not unfitted.passed
    assert "rate_0.02 0.660" in unfitted.because


def test_batch_norm_passes_and_fails() -> None:
    plain = ended(0.06, 0.88, steep=4.0, gap=10.0)
    with_, without = fig7_3.FILE_NAMES.values()
    good = {with_: ended(0.01, 0.93, steep=2.0, gap=100.0), without: plain}
    assert not failed(fig7_3.claims(good))
    only(fig7_3.claims(good | {with_: ended(0.01, 0.93, steep=2.0, gap=9.0)}), "gap")
    only(fig7_3.claims(good | {with_: ended(0.01, 0.93, steep=4.1)}), "ρ_2/ρ_10")
    only(fig7_3.claims(good | {with_: ended(0.01, 0.87)}), "with batch norm above without")
    swapped = {with_: ended(0.07, 0.93, steep=2.0), without: plain}
    only(fig7_3.claims(swapped), "with batch norm over without")


def test_a_seed_without_a_number_is_no_success() -> None:
    runs = {"with_batch_norm": ended([0.01, 0.01, np.nan]), "without_batch_norm": ended(0.06, 0.88)}
    assert any("with batch norm over without" in name for name in failed(fig7_3.claims(runs)))


def test_settings_keep_to_the_same_training_but_for_what_is_compared() -> None:
    for scale in ("quick", "full"):
        assert len({e._replace(rate=0.0) for e in fig7_2.RATES[scale]}) == 1
        assert len({e._replace(decay=0.0) for e in fig7_2.DECAYS[scale]}) == 1
        with_, without = fig7_3.SETTINGS[scale].values()
        # Each of the two is trained at the rate and with the decay that it can bear; else alike.
        same = {"network": with_.network, "measured": with_.measured, "decay": with_.decay}
        if scale == "full":
            assert without.rate * without.decay == pytest.approx(with_.rate * with_.decay)
            same |= {"rate": with_.rate}
        assert without._replace(**same) == with_
        assert without.network == f"{with_.network}-plain"
    # Labels at random cannot be fitted if every epoch shows other images.
    assert not fig3_5.SETTINGS["full"].augmented


@pytest.mark.parametrize("figure", [fig3_5, fig3_6, fig7_2, fig7_3], ids=["3.5", "3.6", "7.2", "7.3"])
@pytest.mark.parametrize("scale", ["quick", "full"])
def test_figures_are_drawn_and_claimed_without_training(
    figure: ModuleType, scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At both scales, from made-up metrics in place of training: three panels of features per comparison."""
    monkeypatch.setattr(figure, "trained", lambda experiment: run(used=2 if experiment.targets == "number" else 10))
    data = stamped(figure.compute(scale), scale)
    claims = figure.claims(data)
    assert len(claims) >= 6
    assert all(claim.because for claim in claims)
    drawn = figure.draw(data)
    drawn.canvas.draw()
    assert len(drawn.axes) == (8 if figure is fig7_2 else 3)
