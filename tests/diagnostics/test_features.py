"""Feature metrics against direct routes (QR, n x n kernels, whole arrays) and on operators whose metrics are known."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from projections import minimum_projection

from solvable.diagnostics import FeatureReport, FeatureStatistics, features
from solvable.diagnostics.features import minimum_projection_distance
from solvable.diagnostics.report import effective_dimension


def span(functions: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the columns, by a rank-revealing QR."""
    from scipy.linalg import qr

    basis, corner, _ = qr(functions, mode="economic", pivoting=True)
    return basis[:, np.abs(np.diag(corner)) > 1e-10 * abs(corner[0, 0])]


def direct(train, test, rank: int) -> dict[str, np.ndarray | float]:
    """The definitions with every sample kept: SVD of the features, QR of outputs and targets, n x n kernels."""
    x_train, (x, f, y) = train[0], test
    count = x.shape[0]
    u, s, _ = np.linalg.svd(x_train.T, full_matrices=False)
    intensity = s[:rank] ** 2 / x_train.shape[0]
    e = x @ u[:, :rank] / np.sqrt(intensity)
    targets = np.eye(f.shape[1])[y] if np.issubdtype(y.dtype, np.integer) else y
    shares = {}
    for name, functions in (("quality", targets), ("utilisation", f)):
        basis = span(functions)
        shares[name] = np.sum((basis.T @ e) ** 2, axis=0) / np.sum(e**2, axis=0) / basis.shape[1]
    centring = np.eye(count) - 1 / count
    kernel = centring @ x @ x.T @ centring
    projection = centring @ span(f) @ span(f).T @ centring
    alignment = np.sum(kernel * projection) / np.linalg.norm(kernel) / np.linalg.norm(projection)
    constant = abs(e[:, 0].mean()) / np.sqrt(np.mean(e[:, 0] ** 2))
    return {"intensity": intensity, "mp_distance": 1 - alignment, "constant_overlap": constant, **shares}


def draw(rng, samples: int, features: int, outputs: int, mean: float, case: str):
    x = rng.normal(size=(samples, features)) * np.linspace(1, 2, features) + mean
    if case == "constant feature":
        x[:, -1] = 3.0
    f = x[:, :1] * np.linspace(1, 2, outputs) + rng.normal(size=(samples, outputs))
    if case == "rank-deficient outputs" and outputs > 1:
        f[:, -1] = f[:, :-1].sum(axis=1)
    if case == "biased outputs":
        f += 1e3 * np.arange(1, outputs + 1)
    return x, f, rng.integers(0, outputs, samples)


CASES = ("plain", "constant feature", "rank-deficient outputs", "biased outputs")


@given(
    st.integers(0, 10**6),
    st.tuples(st.integers(2, 12), st.integers(6, 40), st.integers(1, 4)),
    st.sampled_from(CASES),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 10.0]),
)
def test_metrics_are_those_of_the_direct_route(seed, sizes, case, labelled, mean) -> None:
    """Sizes include p > n, one output, and as many features as samples."""
    rng = np.random.default_rng(seed)
    features_count, samples, outputs = sizes
    labelled = labelled and outputs > 1
    data = [draw(rng, count, features_count, outputs, mean, case) for count in (samples, 25)]
    if not labelled:
        data = [(x, f, f + rng.normal(size=f.shape)) for x, f, _ in data]
    else:
        data[1][2][:outputs] = np.arange(outputs)
    report = features(*data)
    assert report.rank == np.linalg.matrix_rank(data[0][0])
    expected = direct(*data, report.rank)
    assert report.output_rank == span(data[1][1]).shape[1]
    # Rounding is 1e-16 over the gap between eigenvalues, in units of the largest; random gaps go down to 1e-4.
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(report, name), value, rtol=1e-10, atol=1e-10, err_msg=f"{name}, {case}")


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 8), st.integers(1, 5))
def test_shares_are_bounded_and_order_does_not_matter(seed, samples, features_count, outputs) -> None:
    rng = np.random.default_rng(seed)
    x, f, _ = draw(rng, samples, features_count, outputs, 0.0, "plain")
    test = draw(rng, max(outputs, 9), features_count, outputs, 0.0, "plain")
    report = features((x, f, f**2), (*test[:2], test[1] ** 2))
    assert 0 <= report.mp_distance <= 1
    assert 0 <= report.constant_overlap <= 1 + 1e-12
    for share, rank in ((report.quality, report.target_rank), (report.utilisation, report.output_rank)):
        assert np.all(share >= 0)
        assert np.all(share <= 1 / rank)
    assert np.all(np.diff(report.intensity) <= 0)
    for name, value in report.effective_dimensions.items():
        assert 0 <= value <= report.rank * (1 + 1e-12), name
    flipped = [FeatureStatistics(), FeatureStatistics()]
    for statistics, arrays in zip(flipped, ((x, f, f**2), (*test[:2], test[1] ** 2)), strict=True):
        for row in range(arrays[0].shape[0])[::-1]:
            statistics.update(*(array[row : row + 1] for array in arrays))
    again = features(*flipped)
    assert again.mp_distance == pytest.approx(report.mp_distance, abs=1e-10)
    np.testing.assert_allclose(again.intensity, report.intensity, rtol=1e-10, atol=1e-12)


def test_float32_with_a_large_mean_keeps_the_small_eigenvalues() -> None:
    """Mean 10, variances from 1 to 1e-10 beside an eigenvalue of 3000: the SVD of the same numbers is met to 1e-6.

    The Gram matrix about zero, diagonalised at once, is off by 1e-16 x 3000/1e-10 = 3e-3.
    """
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    x = ((rng.normal(size=(3000, 30)) * np.logspace(0, -5, 30)) @ rotation + 10).astype(np.float32)
    labels = rng.integers(0, 3, 3000)
    statistics = FeatureStatistics()
    for start in range(0, 3000, 250):
        rows = slice(start, start + 250)
        statistics.update(x[rows], x[rows, :3], labels[rows])
    report = features(statistics, statistics)
    expected = np.linalg.svd(x.astype(float), compute_uv=False) ** 2 / 3000
    assert report.rank == 30
    assert expected[-1] < 2e-10
    np.testing.assert_allclose(report.intensity, expected, rtol=1e-6)
    at_once = np.linalg.eigvalsh(x.astype(float).T @ x.astype(float) / 3000)[0]
    assert abs(at_once / expected[-1] - 1) > 1e-4


def test_an_output_bias_far_above_its_spread_changes_nothing() -> None:
    """With a constant among the outputs, adding a bias leaves their span, so utilisation and distance stay."""
    rng = np.random.default_rng(1)
    x, f, y = draw(rng, 200, 6, 4, 0.0, "plain")
    f[:, 0] = 1
    plain = features((x, f, y), (x, f, y))
    shifted = f + 1e6 * np.arange(1, 5)
    biased = features((x, shifted, y), (x, shifted, y))
    np.testing.assert_allclose(biased.utilisation, plain.utilisation, rtol=1e-8)
    assert biased.mp_distance == pytest.approx(plain.mp_distance, rel=1e-8)
    assert biased.output_rank == plain.output_rank == 4


@pytest.mark.parametrize(("classes", "constant", "projection"), [(2, 1.0, 1.0), (5, 3.0, 0.7), (10, 0.2, 40.0)])
def test_minimum_projection_operator_has_its_metrics_exactly(classes, constant, projection) -> None:
    sample = minimum_projection(classes, 6, constant, projection)
    report = features(sample, sample)
    assert report.mp_distance == pytest.approx(0, abs=1e-12)
    assert report.regime == "minimum-feature"
    assert report.rank == classes
    assert report.constant_overlap == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(report.intensity, [constant + projection] + [projection] * (classes - 1), rtol=1e-12)
    for name in ("intensity", "quality", "utilisation"):
        assert report.effective_dimensions[name] == pytest.approx(classes, rel=1e-12)
    ladder = np.arange(1, classes + 1) * (1 / classes - 1 / (6 * classes))
    np.testing.assert_allclose(report.cumulative_quality, ladder, rtol=1e-12)
    np.testing.assert_allclose(report.cumulative_utilisation, ladder, rtol=1e-12)


@pytest.mark.parametrize(("classes", "constant", "projection"), [(2, 1.0, 1.0), (5, 3.0, 0.7), (10, 0.2, 40.0)])
def test_proposition_2_5_3_as_corrected(classes, constant, projection) -> None:
    """⟨C f_i|T[C f_j - 1]⟩ = a₂(C δ_ij - 1), from ⟨f|T g⟩ = ⟨Φ f⟩ᵀ⟨Φ g⟩; the printed right side lacks the factor C."""
    statistics = FeatureStatistics().update(*minimum_projection(classes, 6, constant, projection))
    of_outputs = statistics.feature_output_covariance + np.outer(statistics.feature_mean, statistics.output_mean)
    contrast = classes * of_outputs - statistics.feature_mean[:, None]
    expected = projection * (classes * np.eye(classes) - 1)
    np.testing.assert_allclose(classes * of_outputs.T @ contrast, expected, rtol=1e-12, atol=1e-12 * projection)
    np.testing.assert_allclose(statistics.feature_mean @ contrast, 0, atol=1e-12 * projection * classes)
    # Eq. 2.18 as corrected: μ_iᵀμ_j = C²⟨f_i|T f_j⟩.
    np.testing.assert_allclose(
        statistics.class_means @ statistics.class_means.T, classes**2 * of_outputs.T @ of_outputs, rtol=1e-12
    )


def test_outputs_that_are_not_orthogonal_need_the_inverse_of_their_gram_matrix() -> None:
    """Utilisation sums to 1 when outputs are combinations of the features; the naive projection exceeds 1."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 8)) * np.array([5, 1, 1, 1, 1, 1, 1, 1])
    mixing = rng.normal(size=(8, 3)) + 2
    report = features((x, x @ mixing, rng.integers(0, 3, 400)), (x, x @ mixing, rng.integers(0, 3, 400)))
    assert report.utilisation.sum() == pytest.approx(1, abs=1e-12)
    f = x @ mixing
    _, _, v = np.linalg.svd(x, full_matrices=False)
    e = x @ v.T
    e /= np.sqrt(np.mean(e**2, axis=0))
    naive = np.sum((e.T @ f / 400) ** 2 / np.mean(f**2, axis=0), axis=1)
    assert naive.max() > 1
    with_bias = (x, f + 5, rng.integers(0, 3, 400))
    assert features(with_bias, with_bias).utilisation.sum() < 0.999


def test_unrelated_targets_have_quality_1_over_n_and_no_cumulative_drift() -> None:
    """Mean of 40 modes x 20 draws, each with standard deviation √(2/d)/n: 5 standard errors, false alarm below 1e-6."""
    rng = np.random.default_rng(3)
    totals, ends, above = [], [], []
    for _ in range(20):
        x = rng.normal(size=(600, 40))
        report = features((x, rng.normal(size=(600, 2)), x[:, :2]), (x, rng.normal(size=(600, 2)), x[:, :2]))
        totals.append(report.utilisation.mean() * 600)
        ends.append(report.cumulative_utilisation[-1])
        above.append(report.effective_dimensions["utilisation_above_noise"])
    assert np.mean(totals) == pytest.approx(1, abs=5 * 1 / np.sqrt(40 * 20))
    assert np.mean(ends) == pytest.approx(0, abs=5 * np.sqrt(40 / 20) / 600)
    # One report in a hundred has a mode above the noise; three of twenty would be a chance of 1e-3.
    assert np.count_nonzero(above) < 3


def test_the_square_of_utilisation_weighs_chance_less() -> None:
    """Two features carry all outputs; 60 others are at the level of chance, which counts in the plain dimension."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(6000, 62)) * np.r_[30.0, 20.0, np.ones(60)]
    outputs = x[:, :2] @ rng.normal(size=(2, 2))
    halves = [(x[half], outputs[half], rng.normal(size=(3000, 2))) for half in (slice(3000), slice(3000, None))]
    report = features(*halves)
    sizes = report.effective_dimensions
    assert sizes["utilisation"] > 2.2
    assert sizes["utilisation_squared"] == pytest.approx(2, abs=0.02)
    assert sizes["utilisation_squared"] == effective_dimension(report.utilisation**2)


def test_effective_dimension_of_known_spectra() -> None:
    assert effective_dimension(np.array([2.0, 2, 2, 0])) == pytest.approx(3, rel=1e-14)
    assert effective_dimension(np.array([])) == 0
    assert effective_dimension(np.zeros(3)) == 0
    assert effective_dimension(np.array([0.5, 0.25, 0.25])) == pytest.approx(2**1.5, rel=1e-14)
    rng = np.random.default_rng(4)
    x = rng.normal(size=(50, 6)) + 5
    report = features((x, x[:, :2], x[:, 0:2]), (x, x[:, :2], x[:, 0:2]))
    assert report.effective_dimensions["intensity"] == 1 + effective_dimension(report.intensity[1:])
    assert report.effective_dimensions["intensity_plain"] == effective_dimension(report.intensity)
    # The large mean makes the plain one small and leaves the other alone.
    assert report.effective_dimensions["intensity_plain"] < 2 < report.effective_dimensions["intensity"]


def test_intensities_are_of_the_train_set_and_overlaps_of_the_test_set() -> None:
    rng = np.random.default_rng(5)
    train, other, test = (draw(rng, 80, 5, 3, 1.0, "plain") for _ in range(3))
    report, swapped = features(train, test), features(other, test)
    assert report.mp_distance == swapped.mp_distance
    assert not np.allclose(report.intensity, swapped.intensity)
    assert minimum_projection_distance(FeatureStatistics().update(*test))[0] == report.mp_distance


def test_features_absent_from_the_test_set_overlap_with_nothing() -> None:
    rng = np.random.default_rng(6)
    x, f, y = draw(rng, 80, 5, 3, 0.0, "plain")
    test = x.copy()
    test[:, 2] = 0
    x[:, [0, 1, 3, 4]] -= x[:, [2]] * (x[:, [2]].T @ x[:, [0, 1, 3, 4]]) / np.sum(x[:, 2] ** 2)
    report = features((x, f, y), (test, f, y))
    assert report.rank == 5
    assert np.count_nonzero(report.quality) == np.count_nonzero(report.utilisation) == 4
    assert np.isfinite(report.cumulative_quality).all()


def test_a_network_that_says_nothing_gets_a_note_and_no_nan() -> None:
    rng = np.random.default_rng(7)
    x, f, y = draw(rng, 30, 4, 3, 0.0, "plain")
    for constant in (np.full_like(x, 3.7), np.full_like(x, 1 / 3)):
        report = features((constant, f, y), (constant, f, y))
        assert (report.mp_distance, report.rank, report.regime) == (1.0, 1, "extended-feature")
        assert report.constant_overlap == pytest.approx(1, abs=1e-12)
        assert report.effective_dimensions["intensity"] == 1
        assert "features do not vary" in report.summary()
    report = features((x, np.full_like(f, 0.1), y), (x, np.full_like(f, 0.1), y))
    assert report.mp_distance == 1.0
    assert "outputs do not vary" in report.notes[0]
    assert report.output_rank == 1
    with pytest.raises(ValueError, match="features that are all zero"):
        features((0 * x, f, y), (x, f, y))
    with pytest.raises(ValueError, match="outputs are zero on all samples"):
        features((x, f, y), (x, 0 * f, y))


@pytest.mark.parametrize("scale", [1e-120, 1e-20, 1e20, 1e120])
def test_units_of_the_features_do_not_matter(scale: float) -> None:
    rng = np.random.default_rng(8)
    train, test = (draw(rng, 60, 5, 3, 1.0, "plain") for _ in range(2))
    plain = features(train, test)
    scaled = features((train[0] * scale, *train[1:]), (test[0] * scale, *test[1:]))
    np.testing.assert_allclose(scaled.intensity / scale**2, plain.intensity, rtol=1e-10)
    np.testing.assert_allclose(scaled.quality, plain.quality, rtol=1e-9)
    assert scaled.mp_distance == pytest.approx(plain.mp_distance, rel=1e-10)


def test_float32_outputs_that_depend_on_each_other_do_not_count_as_independent() -> None:
    """Rounding of float32 makes the last direction 1e-7 of the others; inverting it would add a random function."""
    rng = np.random.default_rng(9)
    x = rng.normal(size=(500, 10))
    f = x[:, :4] - x[:, :4].mean(axis=1, keepdims=True)
    single = f.astype(np.float32)
    y = rng.integers(0, 4, 500)
    exact, rounded = features((x, f, y), (x, f, y)), features((x, single, y), (x, single, y))
    assert exact.output_rank == rounded.output_rank == 3
    assert rounded.mp_distance == pytest.approx(exact.mp_distance, abs=1e-6)
    assert rounded.output_cutoff == 8 * 2.0**-23


def test_cutoffs_and_threshold_are_kept_and_reported() -> None:
    rng = np.random.default_rng(10)
    train, test = (draw(rng, 60, 5, 3, 1.0, "plain") for _ in range(2))
    whole = features(train, test)
    cut = features(train, test, intensity_cutoff=whole.intensity[2], threshold=0.999)
    assert cut.rank == 2
    assert cut.intensity_cutoff == whole.intensity[2]
    assert cut.regime == "minimum-feature"
    assert whole.regime == "extended-feature"
    assert features(train, test, output_cutoff=0.999).output_rank == 1
    for bad in (0, 1, -0.1, 2):
        with pytest.raises(ValueError, match="threshold must lie between 0 and 1"):
            features(train, test, threshold=bad)


def test_report_for_people_and_files() -> None:
    rng = np.random.default_rng(11)
    train, test = (draw(rng, 60, 5, 3, 1.0, "plain") for _ in range(2))
    report = features(train, test)
    assert isinstance(report, FeatureReport)
    assert "extended-feature" in repr(report)
    assert "threshold 0.1" in report.summary()
    assert "60 training samples and 60 test samples" in report.summary()
    data = json.loads(report.to_json())
    assert data["regime"] == "extended-feature"
    assert data["effective_dimensions"] == report.effective_dimensions
    assert data["intensity"] == report.intensity.tolist()
    dataset = report.to_dataset()
    np.testing.assert_array_equal(dataset.cumulative_quality, report.cumulative_quality)
    assert list(dataset.mode) == [1, 2, 3, 4, 5]
    assert float(dataset.mp_distance) == report.mp_distance
    for variable in dataset.variables.values():
        assert variable.attrs["long_name"]
    figure = report.plot()
    assert len(figure.axes) == 3
    for ax in figure.axes:
        assert ax.get_xscale() == ax.get_yscale() == "log"
        assert "k = C = 3" in ax.get_legend().get_texts()[0].get_text()


def test_dataset_can_be_stored(tmp_path) -> None:
    import solvable

    rng = np.random.default_rng(12)
    x, f, _ = draw(rng, 40, 4, 1, 1.0, "plain")
    dataset = features((x, f[:, 0], f[:, 0]), (x, f[:, 0], f[:, 0])).to_dataset()
    solvable.save(dataset, tmp_path / "report.nc")
    np.testing.assert_array_equal(solvable.load(tmp_path / "report.nc").quality, dataset.quality)


def test_pairs_that_do_not_fit_are_refused() -> None:
    rng = np.random.default_rng(13)
    x, f, y = draw(rng, 30, 4, 3, 0.0, "plain")
    with pytest.raises(ValueError, match="2 test samples cannot distinguish 3 classes"):
        features((x, f, y), (x[:2], f[:2], y[:2]))
    with pytest.raises(ValueError, match="same number of features, not 4 and 3"):
        features((x, f, y), (x[:, :3], f, y))
    with pytest.raises(ValueError, match="same number of classes"):
        features((x, f, y), FeatureStatistics(4).update(x, f, y))
    with pytest.raises(ValueError, match="test statistics are empty"):
        features((x, f, y), FeatureStatistics())
    with pytest.raises(ValueError, match="test must be FeatureStatistics or a tuple"):
        features((x, f, y), x)
