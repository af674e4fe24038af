"""Utilisation that counts what several features share once: networks whose features overlap on new data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvable.diagnostics import FeatureReport, features


def _two_sets(rng: np.random.Generator, weak: float) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Three strong features that make the outputs, and 20 weak ones: noise in training, echoes of the strong later."""
    strong = [rng.normal(size=(4000, 3)) * np.array([3.0, 2.0, 1.5]) for _ in range(2)]
    echo = strong[1] @ rng.normal(size=(3, 20))
    features_of = [
        np.concatenate([strong[0], weak * rng.normal(size=(4000, 20))], axis=1),
        np.concatenate([strong[1], weak * (echo + rng.normal(size=(4000, 20)))], axis=1),
    ]
    mixing = rng.normal(size=(3, 3))
    return tuple((x, part @ mixing, part) for x, part in zip(features_of, strong, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("weak", [1e-1, 1e-3, 1e-5])
def test_what_several_features_hold_is_counted_once(weak: float) -> None:
    report = features(*_two_sets(np.random.default_rng(2), weak))
    sizes = report.effective_dimensions
    assert report.cumulative_utilisation[-1] > 3, "the weak ones hold the outputs again and again"
    assert sizes["utilisation_above_noise"] > 10
    assert report.utilisation_once.sum() == pytest.approx(1, abs=1e-6)
    # The strong directions differ from the three first axes by chance, √(20/4000) of the weak ones' size.
    assert sizes["utilisation_once"] == pytest.approx(3, abs=0.1 if weak == 1e-1 else 0.01)
    assert any("counted more than once" in note for note in report.notes)


def test_utilisation_counted_once_is_that_of_features_made_orthogonal_one_by_one() -> None:
    """Against the definition with all samples: QR of the eigenfunctions on the test set, in falling order."""
    rng = np.random.default_rng(7)
    scales = np.geomspace(1, 1e-4, 12)
    train, test = (rng.normal(size=(500, 12)) * scales + np.r_[0.5, np.zeros(11)] for _ in range(2))
    mixing = rng.normal(size=(12, 3))
    report = features((train, train @ mixing, train[:, :3]), (test, test @ mixing, test[:, :3]))
    _, vectors = np.linalg.eigh(train.T @ train)
    orthogonal, _ = np.linalg.qr(test @ vectors[:, ::-1])
    span, _ = np.linalg.qr(test @ mixing)
    expected = np.sum((orthogonal.T @ span) ** 2, axis=1) / 3
    np.testing.assert_allclose(report.utilisation_once, expected, atol=1e-9)


def test_exact_copies_on_the_test_set_have_nothing_of_their_own() -> None:
    """Their second moments are singular, and by rounding even a bit negative."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        train, strong = rng.normal(size=(300, 9)) * np.geomspace(1, 1e-3, 9), rng.normal(size=(300, 3))
        test = np.concatenate([strong, strong @ rng.normal(size=(3, 6))], axis=1) * np.geomspace(1, 1e-3, 9) + 0.1
        mixing = rng.normal(size=(3, 2))
        report = features((train, train[:, :3] @ mixing, train[:, :2]), (test, test[:, :3] @ mixing, test[:, :2]))
        assert report.utilisation_once.sum() == pytest.approx(1, abs=1e-3)
        assert report.utilisation.sum() > 1.2, "plain shares do count them again"
        # Four functions, the constant among them, make nine features: five have nothing that the others have not.
        assert np.sum(report.utilisation_once > 1e-3) <= 4


@given(st.integers(0, 10_000), st.floats(0, 8), st.floats(-40, 40))
def test_parts_counted_once_add_up_to_one_whatever_the_units_and_axes(seed: int, decades: float, power: float) -> None:
    """Outputs in the span of the features, whose sizes go over some decades; all rotated and in other units."""
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=(60, 6)) * np.logspace(0, -decades, 6) for _ in range(2)]
    mixing = rng.normal(size=(6, 2))
    rotation = np.linalg.qr(rng.normal(size=(6, 6)))[0]

    def report(turn: np.ndarray) -> FeatureReport:
        return features(*((one @ turn, one @ mixing, one[:, :2]) for one in x))

    plain, turned = report(np.eye(6)), report(10**power * rotation)
    assert (plain.utilisation_once >= 0).all()
    assert plain.utilisation_once.sum() == pytest.approx(1, abs=1e-6)
    if plain.rank == turned.rank:
        np.testing.assert_allclose(turned.utilisation_once, plain.utilisation_once, atol=1e-6)


def test_on_the_training_set_all_is_counted_once_already() -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(300, 9)) * np.geomspace(1, 1e-3, 9) + 2
    sample = (x, x @ rng.normal(size=(9, 4)), rng.integers(0, 4, 300))
    report = features(sample, sample)
    np.testing.assert_allclose(report.utilisation_once, report.utilisation, atol=1e-9)
    assert report.notes == ()


def test_features_that_no_test_sample_has_are_used_by_nothing() -> None:
    rng = np.random.default_rng(9)
    x = rng.normal(size=(200, 4))
    report = features((x, x[:, :2] + 1, x[:, :2]), (0 * x, np.ones((200, 2)), x[:, :2]))
    assert report.utilisation_once.tolist() == [0.0] * 4
    assert report.effective_dimensions["utilisation_once"] == 0


def test_used_features_of_an_exact_network_are_its_outputs_whatever_the_chance() -> None:
    """Ten of 300 features are used exactly: 10, where chance makes more of the plain count, on 600 new samples."""
    rng = np.random.default_rng(11)
    sizes = np.r_[np.ones(10), np.full(290, 0.05)]
    train, test = (rng.normal(size=(count, 300)) * sizes for count in (3000, 600))
    report = features(*((x, x[:, :10], x[:, :10]) for x in (train, test)))
    assert report.used_features == report.effective_dimensions["utilisation_once"]
    assert report.used_features == pytest.approx(10, abs=0.05)
    assert report.effective_dimensions["utilisation"] > 20
    assert "used features" in report.summary()
    assert f"used features={report.used_features:.4g}" in repr(report)
