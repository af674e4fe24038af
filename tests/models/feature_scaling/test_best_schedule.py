"""The best schedule: against other routes to the optimum, the march, and asymptotic theory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable import SGD, FeatureScaling
from solvable.models.feature_scaling.best_schedule import SCHEDULES, final_loss, optimum, task_of
from solvable.training_choice import parse_schedule

LAZY = FeatureScaling(1.5, 1.5, richness=0.0, modes=64)


@pytest.fixture(scope="module")
def found():
    return LAZY.best_schedule(60, 0.5, 2)


def test_the_losses_are_those_of_the_theory(found) -> None:
    """The recursion of second moments is the march; schedules are looked up in the dataset."""
    for name in ("optimal", "cosine", "tuned constant"):
        rates = jnp.asarray(found.learning_rate.sel(schedule=name).values)
        run = LAZY.predict([60], SGD(lambda step, rates=rates: rates[step], batch_size=2))
        np.testing.assert_allclose(run.test_loss[0], found.test_loss.sel(schedule=name)[0], rtol=1e-10)
    plain = LAZY.predict([60], SGD(parse_schedule("cosine:60", 0.5), batch_size=2))
    np.testing.assert_allclose(plain.test_loss[0], found.test_loss.sel(schedule="cosine")[0], rtol=1e-5)


def test_no_schedule_is_better(found) -> None:
    """The gradient in each rate is zero, or points out of the allowed range; and L-BFGS-B finds the same loss."""
    from scipy.optimize import minimize

    assert (found.excess.values >= -1e-12).all()
    rates = found.learning_rate.sel(schedule="optimal").values
    task, _ = task_of(LAZY, 30.0)
    value = jax.jit(jax.value_and_grad(lambda eta: jnp.log(final_loss(task, eta, jnp.full(60, 2.0)))))
    slope = np.asarray(value(jnp.asarray(rates))[1])
    inside = (rates > 0) & (rates < 0.5)
    assert np.abs(slope[inside]).max() < 1e-3
    assert (slope[rates >= 0.5] < 1e-6).all()
    other = minimize(
        lambda eta: [np.asarray(part, float) for part in value(jnp.asarray(eta))],
        np.full(60, 0.1),
        jac=True,
        bounds=[(0, 0.5)] * 60,
        method="L-BFGS-B",
        options={"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-10},
    )
    assert float(found.test_loss.sel(schedule="optimal")[0]) == pytest.approx(np.exp(other.fun), rel=1e-6)


def test_every_sweep_lowers_the_loss_from_any_start() -> None:
    task, _ = task_of(LAZY, 30.0)
    ends = [optimum(task, start, 0.5, 2.0).loss for start in (np.full(60, 0.5), np.linspace(0.4, 0.01, 60))]
    assert ends[0] == pytest.approx(ends[1], rel=1e-7)


def test_batches_that_vary_are_large_at_both_ends_and_better() -> None:
    fixed = LAZY.best_schedule(60, 0.5, 8)
    varied = LAZY.best_schedule(60, 0.5, 8, vary_batch=True)
    batches = varied.batch_size.sel(schedule="optimal").values
    assert batches.sum() == pytest.approx(480)
    assert min(batches[0], batches[-1]) > 1.5 * batches[20:40].mean()
    assert float(varied.test_loss[0, 0]) < float(fixed.test_loss[0, 0])


def test_the_sentence_and_the_names(found) -> None:
    assert list(found.schedule.values) == list(SCHEDULES)
    assert "falls with the number of steps as T^-" in found.attrs["sentence"]
    assert "nan" not in found.attrs["sentence"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "noise", "name", "accuracy"),
    [
        (0.8, 0.0, "optimal", 0.02),
        (1.5, 0.0, "optimal", 0.03),
        (3.0, 0.0, "optimal", 0.03),
        (3.0, 0.0, "tuned constant", 0.02),
        (0.8, 0.5, "optimal", 0.03),
    ],
)
def test_exponents_in_the_number_of_steps(source: float, noise: float, name: str, accuracy: float) -> None:
    """Without label noise ``min(b, 3 - 1/a)`` for the best and ``min(b, 2 - 1/a)`` for constant rates."""
    model = LAZY.replace(source=source, label_noise=noise, modes=float("inf"))
    # Little noise for the first, much for the second: both are then near their limits at these numbers of steps.
    one = model.best_schedule([2000, 4000], 0.5, 1 if noise else 16).sel(schedule=name)
    assert float(one.exponent[-1]) == pytest.approx(float(one.predicted_exponent), abs=accuracy)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 0.5, 1), "steps must be"),
        ((100, -0.5, 1), "max_learning_rate must be a positive finite number"),
        ((100, 2.5, 1), "max_learning_rate = 2.5 is not below 2"),
        ((100, 0.5, 0), "batch_size must be a positive finite number"),
    ],
)
def test_bad_arguments_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LAZY.best_schedule(*arguments)


def test_rich_networks_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"known for lazy networks .*replace\(richness=0"):
        LAZY.replace(richness=1.0).best_schedule(100, 0.5, 1)
