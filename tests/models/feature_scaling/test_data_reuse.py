"""What reused samples are worth in new ones."""

import math

import numpy as np
import pytest

from solvable import SGD, FeatureScaling, GradientDescent
from solvable.models.feature_scaling.data_reuse import crossing

LAZY = FeatureScaling(1.5, 0.4, richness=0.0, modes=100, samples=16)


def test_crossings_follow_power_laws() -> None:
    times = np.array([0.0, 1.0, 10.0, 100.0])
    losses = np.array([2.0, 1.0, 0.1, 0.01])
    assert crossing(times, losses, 0.5) == pytest.approx(2.0)
    assert crossing(times, losses, 2.0) == 0.0
    assert math.isnan(crossing(times, losses, 1e-3))


def test_the_first_epoch_is_worth_itself_and_later_ones_less() -> None:
    """Reshuffled: E(K) = K up to one epoch; then it bends, up to where new samples reach the limit."""
    found = LAZY.effective_epochs([0.5, 1, 2, 8, 32], SGD(0.4, batch_size=8), per_decade=6)
    np.testing.assert_allclose(found.effective_epochs[:2], [0.5, 1.0], rtol=1e-9)
    share = (found.effective_epochs / found.epoch).values
    assert (np.diff(share[1:]) < 0).all()
    largest = float(found.final_effective_epochs)
    assert float(found.effective_epochs[-1]) < largest < math.inf
    assert 2 < float(found.half_epoch) < 32 or math.isnan(float(found.half_epoch))
    assert "32 epochs over the same samples are worth" in found.attrs["sentence"]


@pytest.mark.slow
def test_the_worth_of_all_epochs_grows_with_the_samples_as_predicted() -> None:
    """``E(inf) ~ (B / eta) P^(a - 1)`` for a lazy network; measured between P = 32 and 256."""
    worth = [
        float(
            LAZY.replace(samples=count, modes=math.inf)
            .effective_epochs([1], SGD(0.1, batch_size=8), per_decade=12)
            .final_effective_epochs
        )
        for count in (32, 256)
    ]
    assert math.log(worth[1] / worth[0]) / math.log(8) == pytest.approx(0.5, abs=0.05)


def test_noisy_labels_have_a_best_number_of_epochs() -> None:
    model = LAZY.replace(source=1.2, label_noise=0.7)
    found = model.effective_epochs([1, 32], SGD(0.4, batch_size=8))
    assert 0 < float(found.best_epoch) < 32
    assert "and rises then" in found.attrs["sentence"]


def test_what_has_no_epochs_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a training set"):
        LAZY.replace(samples=None).effective_epochs([1], SGD(0.4, batch_size=8))
    with pytest.raises(ValueError, match="is for SGD of constant learning rate"):
        LAZY.effective_epochs([1], GradientDescent(0.4))
