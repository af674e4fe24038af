"""Streaming statistics: the moments are those of the whole arrays, in any split, order, library and precision."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvable.diagnostics import FeatureStatistics, batches


def draw(seed: int, samples: int = 60, features: int = 5, outputs: int = 3, mean: float = 10.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, features)) @ rng.normal(size=(features, features)) + mean
    f = rng.normal(size=(samples, outputs)) - mean / 3
    return x, f, rng.integers(0, outputs, samples)


def everything(statistics: FeatureStatistics) -> dict[str, np.ndarray]:
    names = ("feature_mean", "feature_covariance", "output_mean", "output_covariance", "feature_output_covariance")
    names += ("target_mean", "target_covariance", "feature_target_covariance")
    return {name: getattr(statistics, name) for name in names}


def assert_same(first: FeatureStatistics, second: FeatureStatistics, tolerance: float) -> None:
    assert first.count == second.count
    one, two = everything(first), everything(second)
    for name in one:
        scale = np.abs(two[name]).max()
        np.testing.assert_allclose(one[name], two[name], rtol=0, atol=tolerance * (1 + scale), err_msg=name)


@given(st.integers(0, 10**6), st.booleans())
def test_moments_are_those_of_the_whole_arrays(seed: int, labelled: bool) -> None:
    x, f, y = draw(seed)
    targets = y if labelled else f**2 + 1000
    found = everything(FeatureStatistics().update(x, f, targets))
    shown = np.eye(3)[y] if labelled else targets
    joint = np.cov(np.hstack([x, f, shown]).T, bias=True)
    expected = {
        "feature_mean": x.mean(0),
        "feature_covariance": joint[:5, :5],
        "output_mean": f.mean(0),
        "output_covariance": joint[5:8, 5:8],
        "feature_output_covariance": joint[:5, 5:8],
        "target_mean": shown.mean(0),
        "target_covariance": joint[8:, 8:],
        "feature_target_covariance": joint[:5, 8:],
    }
    # Sums of 60 numbers of size up to 1e3: 1e-10 leaves room for squares of the targets' mean in numpy's own route.
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-11, err_msg=name)


@given(
    st.integers(0, 10**6),
    st.lists(st.integers(1, 59), max_size=6, unique=True),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_any_split_and_shard_order_gives_the_same(seed, cuts, shuffle, labelled) -> None:
    x, f, y = draw(seed)
    targets = y if labelled else f + 3
    # Sorted by class, the worst case for a shift taken from the first batch.
    order = np.argsort(y)
    x, f, targets = x[order], f[order], targets[order]
    pieces = [slice(a, b) for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), 60], strict=True)]
    shuffle.shuffle(pieces)
    whole = FeatureStatistics(3 if labelled else None).update(x, f, targets)
    streamed = FeatureStatistics(3 if labelled else None)
    shards = []
    for piece in pieces:
        streamed.update(x[piece], f[piece], targets[piece])
        shards.append(FeatureStatistics(3 if labelled else None).update(x[piece], f[piece], targets[piece]))
    assert_same(streamed, whole, 1e-13)
    joined = sum(shards[1:], shards[0])
    assert_same(joined, whole, 1e-13)
    assert joined.batches == len(pieces)


def test_adding_leaves_the_parts_and_can_go_on() -> None:
    x, f, y = draw(1)
    first = FeatureStatistics().update(x[:20], f[:20], y[:20])
    second = FeatureStatistics().update(x[20:40], f[20:40], y[20:40])
    before = everything(first)
    joined = (first + second).update(x[40:], f[40:], y[40:])
    assert_same(joined, FeatureStatistics().update(x, f, y), 1e-13)
    for name, value in everything(first).items():
        np.testing.assert_array_equal(value, before[name])
    empty = FeatureStatistics()
    copy = first + empty
    copy.update(x[20:], f[20:], y[20:])
    assert (first.count, copy.count, (empty + first).count) == (20, 60, 20)


def test_batches_longer_than_a_block_are_added_whole() -> None:
    x, f, y = draw(2, samples=5000)
    statistics = FeatureStatistics().update(x, f, y)
    assert statistics.count == 5000
    np.testing.assert_allclose(statistics.feature_covariance, np.cov(x.T, bias=True), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(statistics.class_counts, np.bincount(y))
    for label in range(3):
        np.testing.assert_allclose(statistics.class_means[label], x[y == label].mean(0), rtol=1e-12)


def test_statistics_survive_a_process_boundary() -> None:
    x, f, y = draw(3)
    statistics = FeatureStatistics().update(x, f, y)
    returned = pickle.loads(pickle.dumps(statistics))
    assert_same(returned, statistics, 0)
    assert returned.classes == 3
    assert_same(returned.update(x, f, y), statistics.update(x, f, y), 1e-15)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32, np.uint8])
def test_other_number_types_are_cast_exactly(dtype) -> None:
    x, f, y = draw(4)
    x, f = np.abs(np.round(x * 4)).astype(dtype), np.abs(np.round(f)).astype(dtype)
    found = FeatureStatistics().update(x, f, y)
    assert_same(found, FeatureStatistics().update(x.astype(float), f.astype(float), y), 1e-15)


def test_jax_and_torch_arrays_are_taken_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    x, f, y = draw(5)
    expected = FeatureStatistics().update(x, f, y)
    for convert in (jnp.asarray, torch.tensor, lambda array: torch.tensor(array, requires_grad=array.dtype == float)):
        assert_same(FeatureStatistics().update(convert(x), convert(f), convert(y)), expected, 1e-15)
    half = FeatureStatistics().update(torch.tensor(x).bfloat16(), torch.tensor(f).bfloat16(), torch.tensor(y))
    assert half.precision == 2.0**-7
    jax_half = FeatureStatistics().update(jnp.asarray(x, jnp.bfloat16), jnp.asarray(f, jnp.bfloat16), y)
    assert_same(jax_half, half, 1e-15)


@pytest.mark.parametrize("library", ["jax", "torch"])
@pytest.mark.parametrize("labelled", [True, False])
def test_the_route_of_a_gpu_gives_the_same(library, labelled, monkeypatch) -> None:
    """The code that adds up on an accelerator, made to run here."""
    convert = jnp.asarray if library == "jax" else pytest.importorskip("torch").tensor
    x, f, y = draw(6)
    targets = y if labelled else f**2
    expected = FeatureStatistics().update(x, f, targets)
    monkeypatch.setattr(batches, "library_of", lambda array: library)
    found = FeatureStatistics(expected.classes)
    for piece in (slice(0, 7), slice(7, 30), slice(30, 60)):
        found.update(convert(np.float32(x[piece]) if library == "jax" else x[piece]), convert(f[piece]), targets[piece])
    # JAX was given float32 features: their rounding, 6e-8 of 30, is what may differ.
    assert_same(found, expected, 1e-13 if library == "torch" else 3e-6)
    bad = x.copy()
    bad[3, 1] = np.inf
    before = everything(found)
    with pytest.raises(ValueError, match="features of batch 4 contain inf"):
        found.update(convert(bad), convert(f), targets)
    for name, value in everything(found).items():
        np.testing.assert_array_equal(value, before[name])
    monkeypatch.undo()
    # Batches of another library meet on the host.
    assert found.update(x, f, targets).count == 120


def test_a_large_mean_keeps_small_variances() -> None:
    """Sums of squares about zero would leave 1e-16 x 1e12 = 1e-4 of rounding in a variance of 1e-8."""
    rng = np.random.default_rng(7)
    x = 1e6 + 1e-4 * rng.normal(size=(1000, 3))
    statistics = FeatureStatistics()
    for start in range(0, 1000, 100):
        rows = slice(start, start + 100)
        statistics.update(x[rows], x[rows], x[rows])
    expected = np.cov((x - 1e6).T, bias=True)
    np.testing.assert_allclose(statistics.feature_covariance, expected, rtol=1e-9, atol=1e-17)
    np.testing.assert_allclose(statistics.target_covariance, expected, rtol=1e-9, atol=1e-17)


def test_classes_are_inferred_or_given() -> None:
    x, f, y = draw(8)
    assert FeatureStatistics().update(x, f, y).classes == 3
    assert FeatureStatistics(7).update(x, f, y).classes == 7
    assert FeatureStatistics().update(x, f[:, 0], y > 0).classes == 2
    assert FeatureStatistics().update(x, f[:, 0], y.astype(float)).classes is None
    assert "60 samples, 5 features, 3 outputs, 3 classes" in repr(FeatureStatistics().update(x, f, y))


def refuse(match: str, *arrays, classes=None, after=None) -> None:
    statistics = FeatureStatistics(classes)
    if after:
        statistics.update(*after)
    count = statistics.count
    with pytest.raises(ValueError, match=match):
        statistics.update(*arrays)
    assert statistics.count == count


def test_bad_batches_are_refused_with_words() -> None:
    x, f, y = draw(9)
    refuse("as many outputs and targets as features.*60 rows of features, 59 rows of outputs", x, f[1:], y)
    refuse("60 rows of outputs, 10 rows of targets", x, f, y[:10])
    refuse("batch 2 has 4 features and 3 outputs", x[:, :4], f, y, after=(x, f, y))
    refuse("features of batch 1 must have shape", x[:, :, None], f, y)
    refuse("features of batch 1 must have shape", x[:0], f[:0], y[:0])
    refuse("outputs of batch 1 must have shape", x, f[:, :, None], y)
    refuse("targets of batch 1 must be labels", x, f, f[:, :, None])
    refuse("between 0 and 2, but go from 0 to 3", x, f, np.where(y == 1, 3, y))
    refuse("between 0 and 2, but go from -1 to", x, f, np.where(y == 0, -1, y))
    refuse("3 outputs but 2 real targets", x, f, f[:, :2])
    refuse("must be labels, whole numbers", x, f, f, classes=3)
    refuse("are labels, but those of the batches before", x, f, y, after=(x, f, f))
    refuse("arrays of real numbers", x.astype(complex), f, y)
    refuse("arrays of real numbers", np.full(x.shape, "a"), f, y)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize(("value", "word"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_what_is_not_finite_is_named(dtype, value, word) -> None:
    x, f, y = draw(10)
    bad, bad_outputs = x.astype(dtype), f.astype(dtype)
    bad[17, 2] = bad_outputs[5, 1] = value
    refuse(f"features of batch 2 contain {word}.*1 of 300.*row 17", bad, f, y, after=(x, f, y))
    refuse(f"outputs of batch 2 contain {word}.*row 5", x, bad_outputs, y, after=(x, f, y))
    refuse(f"targets of batch 1 contain {word}", x, f, bad_outputs)


def test_extreme_sizes_work_or_raise() -> None:
    x, f, y = draw(11)
    refuse("whose square overflows", x * 1e200, f, y)
    # Finite in float32 though its squares are not.
    large = FeatureStatistics().update((x * 1e30).astype(np.float32), f, y)
    np.testing.assert_allclose(large.feature_covariance, np.cov(x.T, bias=True) * 1e60, rtol=1e-4)
    for classes in (0, 1, 2.5, True):
        with pytest.raises(ValueError, match="classes must be a whole number"):
            FeatureStatistics(classes)
    with pytest.raises(ValueError, match="no batch has been added"):
        _ = FeatureStatistics().feature_mean
    with pytest.raises(ValueError, match="3 outputs and of 2 outputs cannot be combined"):
        _ = FeatureStatistics(3).update(x, f, y) + FeatureStatistics(3).update(x, f[:, :2], y)
    with pytest.raises(ValueError, match="class 3 has no sample"):
        _ = FeatureStatistics(4).update(x, f, y).class_means
    with pytest.raises(ValueError, match="classes need labels"):
        _ = FeatureStatistics().update(x, f, f).class_counts
    with pytest.raises(TypeError):
        _ = FeatureStatistics() + 1
