"""Neural collapse: zero where it is complete, as defined on whole arrays elsewhere, large on random features."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from projections import minimum_projection

from solvable.diagnostics import FeatureStatistics, collapse


def direct(x, y, weights, bias) -> dict[str, float]:
    """The definitions, with covariance matrices, their pseudo-inverse and every sample."""
    classes = int(y.max()) + 1
    means = np.array([x[y == label].mean(0) for label in range(classes)])
    centred = means - means.mean(0)
    within = sum((x[y == c] - means[c]).T @ (x[y == c] - means[c]) for c in range(classes)) / len(y)
    between = centred.T @ centred / classes
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    rows = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    pairs = [(i, j) for i in range(classes) for j in range(classes) if i != j]
    lengths = np.linalg.norm(centred, axis=1)
    nearest = np.argmin(np.linalg.norm(x[:, None] - means, axis=2), axis=1)
    return {
        "within_class": np.trace(within @ np.linalg.pinv(between, rcond=1e-12)) / classes,
        "mean_norms": np.std(lengths) / np.mean(lengths),
        "mean_angles": np.mean([abs(unit[i] @ unit[j] + 1 / (classes - 1)) for i, j in pairs]),
        "weight_angles": np.mean([abs(rows[i] @ rows[j] + 1 / (classes - 1)) for i, j in pairs]),
        "self_duality": np.linalg.norm(weights / np.linalg.norm(weights) - centred / np.linalg.norm(centred)) ** 2,
        "self_duality_rows": np.mean(np.linalg.norm(rows - unit, axis=1)),
        "nearest_class": np.mean(nearest != np.argmax(x @ weights.T + bias, axis=1)),
    }


@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(4, 9), st.sampled_from([0.0, 10.0]))
def test_measures_are_those_of_the_definitions(seed, classes, features, mean) -> None:
    """Classes of different sizes, fewer and more features than classes."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, 60)])
    x = rng.normal(size=(y.size, features)) + 2 * rng.normal(size=(classes, features))[y] + mean
    weights, bias = rng.normal(size=(classes, features)), rng.normal(size=classes)
    statistics = FeatureStatistics(classes)
    for start in range(0, y.size, 16):
        rows = slice(start, start + 16)
        statistics.update(x[rows], x[rows] @ weights.T + bias, y[rows])
    report = collapse(statistics, weights, bias, batches=(x[start : start + 16] for start in range(0, y.size, 16)))
    assert report.between_rank == min(classes - 1, features)
    for name, value in direct(x, y, weights, bias).items():
        assert getattr(report, name) == pytest.approx(value, rel=1e-9, abs=1e-10), name


@pytest.mark.parametrize(("classes", "constant", "projection"), [(2, 1.0, 1.0), (5, 3.0, 0.7), (10, 0.2, 40.0)])
def test_minimum_projection_operator_has_collapsed(classes, constant, projection) -> None:
    """Propositions 2.5.1 (NC1) and 2.5.2 (NC2); NC3 and NC4 follow for weights along the class means."""
    x, f, y = minimum_projection(classes, 6, constant, projection)
    statistics = FeatureStatistics().update(x, f, y)
    centred = statistics.class_means - statistics.class_means.mean(0)
    gram = projection * (classes * np.eye(classes) - 1)
    np.testing.assert_allclose(centred @ centred.T, gram, rtol=1e-11, atol=1e-11 * projection)
    report = collapse(statistics, 0.3 * centred, np.zeros(classes), batches=[(x, f, y)])
    # Rounding of a class mean beside its spread.
    assert report.within_class == pytest.approx(0, abs=1e-13)
    for name in ("mean_norms", "mean_angles", "weight_norms", "weight_angles", "self_duality", "self_duality_rows"):
        assert getattr(report, name) == pytest.approx(0, abs=1e-12), name
    assert report.nearest_class == 0
    # As printed, NC1 with the transpose: it vanishes here too, but in the units of the features to the fourth power.
    within = statistics.feature_covariance - (centred.T @ centred) / classes
    assert np.abs(within).max() < 1e-12 * projection * classes


def test_random_features_are_far_from_collapse() -> None:
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(10), 50)
    x, weights = np.maximum(rng.normal(size=(500, 64)), 0), rng.normal(size=(10, 64))
    statistics = FeatureStatistics().update(x, x @ weights.T, y)
    report = collapse(statistics, weights, batches=[x])
    # Means of 50 samples scatter by 1/50 of the variance: the inverse of a Wishart matrix of 9 in 64 dimensions has
    # mean trace 9/(64 - 9 - 1), so NC1 is 49 x 9/54 = 8.2; one draw scatters by a tenth of that.
    assert report.within_class == pytest.approx(49 * 9 / 54, rel=0.3)
    assert report.mean_norms > 0.02
    assert report.mean_angles > 0.05
    assert report.self_duality > 1
    assert report.self_duality_rows > 1
    assert report.nearest_class > 0.5


def test_units_of_the_features_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    y = np.tile(np.arange(3), 20)
    x, weights = rng.normal(size=(60, 5)) + np.eye(3, 5)[y], rng.normal(size=(3, 5))
    plain = collapse(FeatureStatistics().update(x, x[:, :3], y), weights)
    scaled = collapse(FeatureStatistics().update(x * 1e3, x[:, :3], y), weights * 7)
    assert scaled.within_class == pytest.approx(plain.within_class, rel=1e-10)
    assert scaled.self_duality == pytest.approx(plain.self_duality, rel=1e-10)


def test_a_single_output_is_a_sign() -> None:
    rng = np.random.default_rng(2)
    y = np.tile(np.arange(2), 30)
    x = rng.normal(size=(60, 4)) + np.array([[-1.0], [1.0]])[y]
    w, b = rng.normal(size=(1, 4)), np.array([0.3])
    statistics = FeatureStatistics().update(x, x @ w.T + b, y)
    one = collapse(statistics, w, b, batches=[x])
    two = collapse(statistics, np.vstack([-w, w]), np.array([-0.3, 0.3]), batches=[x])
    assert (
        one.nearest_class
        == two.nearest_class
        == np.mean(
            np.argmin(np.linalg.norm(x[:, None] - statistics.class_means, axis=2), axis=1) != (x @ w.T + b > 0)[:, 0]
        )
    )
    assert one.self_duality == pytest.approx(two.self_duality, rel=1e-12)


def test_what_was_not_computed_is_said_in_words() -> None:
    x, f, y = minimum_projection(3, 4, 1.0, 1.0)
    report = collapse(FeatureStatistics().update(x, f, y), np.eye(3, x.shape[1]))
    assert report.nearest_class is None
    assert "not computed: pass batches=" in report.summary()
    assert json.loads(report.to_json())["nearest_class"] is None
    assert "NC1" in report.summary()


def test_bad_input_is_refused() -> None:
    x, f, y = minimum_projection(3, 4, 1.0, 1.0)
    statistics = FeatureStatistics().update(x, f, y)
    weights = np.eye(3, x.shape[1])
    with pytest.raises(ValueError, match=r"weights must have shape \(3, 7\).*transpose"):
        collapse(statistics, weights.T)
    with pytest.raises(ValueError, match=r"bias must have shape \(3,\)"):
        collapse(statistics, weights, np.zeros(2))
    with pytest.raises(ValueError, match="must be finite"):
        collapse(statistics, weights * np.nan)
    with pytest.raises(ValueError, match="rows of the weights must not be zero, but that of class 2"):
        collapse(statistics, weights * np.array([[1], [1], [0]]))
    with pytest.raises(ValueError, match="all class means are equal"):
        collapse(FeatureStatistics().update(np.ones_like(x), f, y), weights)
    with pytest.raises(ValueError, match="at least one sample"):
        collapse(statistics, weights, batches=[])
    with pytest.raises(ValueError, match="features of batch 2 must have shape"):
        collapse(statistics, weights, batches=[x, x[:, :2]])
    with pytest.raises(ValueError, match="features of batch 1 are not all finite"):
        collapse(statistics, weights, batches=[x * np.inf])
    with pytest.raises(ValueError, match="classes need labels"):
        collapse(FeatureStatistics().update(x, f, f), weights)
    with pytest.raises(ValueError, match="class 3 has no sample"):
        collapse(FeatureStatistics(4).update(x, f, y), np.eye(4, x.shape[1]))
