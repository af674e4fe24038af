"""Tolerances follow the precision of the numbers that were given, and reports say what was set aside."""

import ml_dtypes
import numpy as np
import pytest

from solvable import diagnostics
from solvable.diagnostics.precision import rounding_of

FORMATS = ("float16", "float32", "float64")


def low_rank(rank: int = 21, features: int = 100, count: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    array = generator.normal(size=(count, rank)) @ generator.normal(size=(rank, features))
    return array, array @ generator.normal(size=(features, 3)), generator.integers(3, size=count)


def polynomial_kernel(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """A kernel of eleven features, and a target that is not in their span."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(count, 10))
    features = np.hstack([inputs, np.ones((count, 1))]) @ generator.normal(size=(11, 40))
    return features @ features.T, np.sin(3 * inputs[:, 0])


@pytest.mark.parametrize("name", [*FORMATS, "bfloat16"])
@pytest.mark.parametrize("held", ["itself", "float64"])
def test_rank_of_features_does_not_depend_on_their_precision(name: str, held: str) -> None:
    features, outputs, labels = low_rank()
    kind = ml_dtypes.bfloat16 if name == "bfloat16" else name
    sample = tuple(array.astype(kind).astype(kind if held == "itself" else held) for array in (features, outputs))
    report = diagnostics.features((*sample, labels), (*sample, labels))
    assert report.rank == 21
    assert report.set_aside == 79
    assert name in report.precision
    assert f"features in {name}" in report.summary()
    assert "79 directions of the features are within rounding and set aside" in report.summary()
    assert f"{report.negative} of them with an eigenvalue below zero" in report.summary()
    exact = diagnostics.features((features, outputs, labels), (features, outputs, labels))
    assert np.allclose(report.intensity, exact.intensity, rtol=0.02)
    if name in ("float16", "bfloat16"):
        assert any(f"precision of {name}" in note for note in report.notes)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("held", ["itself", "float64"])
def test_rank_of_kernels_does_not_depend_on_their_precision(name: str, held: str) -> None:
    kernel, target = polynomial_kernel()
    exact = diagnostics.spectrum(kernel, target)
    rounded = kernel.astype(name).astype(name if held == "itself" else held)
    found = diagnostics.spectrum(rounded, target)
    assert found.attrs["modes"] == exact.attrs["modes"] == 11
    assert found.attrs["outside"] == pytest.approx(exact.attrs["outside"], abs=0.01)
    assert name in found.attrs["precision"]
    assert found.attrs["set_aside"] == 49
    negative = found.attrs["negative"]
    assert 0 < negative < 49
    if name != "float64":  # whose negative eigenvalues are chance of the routine
        assert negative == np.sum(np.linalg.eigvalsh(rounded.astype(float)) < 0)
    assert f"{negative} of them negative" in found.attrs["notes"]


@pytest.mark.parametrize("name", FORMATS)
def test_rank_of_features_given_for_a_kernel(name: str) -> None:
    features, _, _ = low_rank()
    found = diagnostics.spectrum(features.astype(name), np.sin(features[:, 0]), kind="features")
    assert found.attrs["modes"] == 21


def test_the_precision_that_a_tangent_kernel_was_computed_in_counts() -> None:
    def apply(parameters, inputs):
        return inputs @ parameters

    inputs = np.random.default_rng(1).normal(size=(30, 5))
    kernel = diagnostics.ntk(apply, inputs, parameters=np.ones((5, 2), "float32"))
    assert kernel.dtype == np.float64
    found = diagnostics.spectrum(kernel, inputs[:, 0] ** 2)
    assert "float32" in found.attrs["precision"]
    assert found.attrs["modes"] == 5


def test_a_kernel_that_is_not_positive_is_named() -> None:
    kernel, target = polynomial_kernel()
    # Distances are no kernel: their negative eigenvalues are not rounding.
    distances = np.abs(target[:, None] - target)
    found = diagnostics.spectrum(distances, target)
    assert "not positive semidefinite" in found.attrs["notes"]
    assert "not positive semidefinite" not in diagnostics.spectrum(kernel, target).attrs["notes"]
    with pytest.raises(ValueError, match="has eigenvalues down to -"):
        diagnostics.spectrum(-kernel, target)


def test_exact_numbers_of_few_digits_are_not_taken_for_rounded_ones() -> None:
    generator = np.random.default_rng(5)
    assert rounding_of(np.eye(4)).name == "float64"
    assert rounding_of(generator.integers(200, size=(50, 3)).astype(float)).name == "float64"
    assert rounding_of(generator.integers(2**24, size=(50, 3)) / 2**24).name == "float64"
    assert rounding_of(generator.normal(size=(50, 3))).name == "float64"
    assert rounding_of(np.zeros((3, 3))).name == "float64"
    assert rounding_of(np.arange(5)).name == "float64"
    for name in ("float16", "float32"):
        found = rounding_of(generator.normal(size=(50, 3)).astype(name).astype(float))
        assert (found.name, found.found) == (name, True)
    assert rounding_of(np.ones(3, "float32")) == ("float32", False)


def test_rare_classes_are_kept_in_half_precision() -> None:
    """Labels are exact: a class of one sample in 5000 is a direction of the targets whatever the outputs' precision."""
    generator = np.random.default_rng(2)
    features = generator.normal(size=(5000, 4)).astype(ml_dtypes.bfloat16)
    labels = np.r_[generator.integers(2, size=4999), 2]
    report = diagnostics.features((features, features[:, :3], labels), (features, features[:, :3], labels))
    assert report.target_rank == 3


def test_shards_keep_the_coarser_precision() -> None:
    features, outputs, labels = low_rank()
    fine = diagnostics.FeatureStatistics().update(features, outputs, labels)
    coarse = diagnostics.FeatureStatistics().update(features.astype("float16"), outputs, labels)
    for joined in (fine + coarse, coarse + fine):
        assert joined.feature_rounding.name == "float16"
        assert joined.output_rounding.name == "float64"


def test_lists_are_taken_as_they_were() -> None:
    features, outputs, labels = (array[:30].tolist() for array in low_rank())
    assert diagnostics.FeatureStatistics().update(features, outputs, labels).count == 30
    assert diagnostics.spectrum([[2.0, 1.0], [1.0, 2.0]], [1.0, 0.0]).attrs["modes"] == 2


@pytest.mark.parametrize("name", FORMATS)
def test_rank_of_class_means_does_not_depend_on_the_precision(name: str) -> None:
    """Means of four classes on a line have rank one; rounding of each sample must not add directions to it."""
    generator = np.random.default_rng(4)
    labels = np.repeat(np.arange(4), 100)
    direction = generator.normal(size=30)
    features = (np.array([-3.0, -1.0, 1.0, 3.0])[labels][:, None] * direction).astype(name)
    features += (np.tile([1.0, -1.0], 200)[:, None] * generator.normal(size=30)).astype(name)
    statistics = diagnostics.FeatureStatistics().update(features, features[:, :4], labels)
    report = diagnostics.collapse(statistics, generator.normal(size=(4, 30)))
    assert report.between_rank == 1
    assert name in report.summary()
