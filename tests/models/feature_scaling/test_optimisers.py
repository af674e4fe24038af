"""Optimisers, ways of drawing batches, averages and label noise: identities first, then finite networks."""

from typing import Any

import numpy as np
import optax
import pytest

from solvable import SGD, FeatureScaling, GradientDescent, GradientFlow, OptaxDescent
from solvable.models.feature_scaling.kernel_flow import Steps, descend
from solvable.models.feature_scaling.mode_quadrature import power_law_modes
from solvable.models.feature_scaling.optimiser import averaging_rows, averaging_weights, kernels_of
from solvable.models.feature_scaling.two_time import Descent, march

# All marches here have 64 rows of 24 nodes, so that each kind of them is compiled once.
ROWS = 64
SMALL = power_law_modes(1.5, 0.4, 24, 10.0)
COSINE = optax.cosine_decay_schedule(0.3, ROWS)
MODEL = FeatureScaling(1.5, 0.4, modes=24, richness=0.7)


def growing(step: Any) -> Any:
    """Momentum 1 - 3 / (t + 3)."""
    return step / (step + 3)


# Kernels of optimisers -----------------------------------------------------------------------------------------------


def _decayed(step: Any) -> Any:
    return optax.chain(step, optax.add_decayed_weights(0.2), optax.scale_by_learning_rate(COSINE))


@pytest.mark.parametrize(
    ("chain", "training"),
    [
        (optax.sgd(0.2), GradientDescent(0.2)),
        (optax.sgd(COSINE), GradientDescent(COSINE)),
        (optax.sgd(COSINE, momentum=0.8), GradientDescent(COSINE, momentum=0.8)),
        (optax.sgd(COSINE, momentum=0.8, nesterov=True), GradientDescent(COSINE, momentum=0.8, nesterov=True)),
        (_decayed(optax.trace(0.5)), GradientDescent(COSINE, momentum=0.5, weight_decay=0.2, decoupled=True)),
        (
            optax.chain(optax.add_decayed_weights(0.2), optax.sgd(COSINE, momentum=0.5)),
            GradientDescent(COSINE, momentum=0.5, weight_decay=0.2),
        ),
        (
            optax.partition({"w": optax.sgd(0.2), "A": optax.sgd(COSINE)}, {"w": "w", "A": "A"}),
            GradientDescent(0.2, feature_learning_rate=COSINE),
        ),
    ],
    ids=["plain", "schedule", "heavy-ball", "nesterov", "decoupled", "coupled", "layers"],
)
def test_chains_of_optax_have_the_kernels_of_the_closed_forms(chain: Any, training: GradientDescent) -> None:
    found, expected = (kernels_of(how, 24, lazy=False) for how in (OptaxDescent(chain), training))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-15)


def test_flow_time_of_a_chain_is_the_path_of_a_constant_gradient() -> None:
    training, times = OptaxDescent(optax.sgd(COSINE)), np.arange(24.0)
    np.testing.assert_allclose(training.flow_time(times), GradientDescent(COSINE).flow_time(times), rtol=1e-12)


def test_kernels_are_sums_over_steps() -> None:
    rates = np.asarray(GradientDescent(COSINE).learning_rates(0, 12))
    heavy = kernels_of(GradientDescent(COSINE, momentum=0.8), 12, lazy=False)
    faster = kernels_of(GradientDescent(COSINE, momentum=growing), 12, lazy=False)
    shrinking = kernels_of(GradientDescent(COSINE, weight_decay=0.2), 12, lazy=False)
    for t, s in [(3, 0), (7, 4), (11, 10), (5, 5)]:
        powers = sum(rates[r] * 0.8 ** (r - s) for r in range(s, t))
        assert heavy.readout[t, s] == pytest.approx(powers, abs=1e-15)
        carried = sum(rates[r] * np.prod([growing(q) for q in range(s + 1, r + 1)]) for r in range(s, t))
        assert faster.readout[t, s] == pytest.approx(carried, abs=1e-15)
        left = np.prod(1 - 0.2 * rates[s + 1 : t]) * rates[s] if s < t else 0.0
        assert shrinking.readout[t, s] == pytest.approx(left, abs=1e-15)
        assert shrinking.kept[t] == pytest.approx(np.prod(1 - 0.2 * rates[:t]), abs=1e-15)


@pytest.mark.slow
def test_gradient_accumulation_is_linear() -> None:
    """The mean of two gradients moves the weights at every second step."""
    chain = optax.MultiSteps(optax.sgd(0.2), every_k_schedule=2)
    found = kernels_of(OptaxDescent(chain), 5, lazy=True).readout
    np.testing.assert_allclose(found[:, 0], [0, 0, 0.1, 0.1, 0.1], atol=1e-7)
    np.testing.assert_allclose(found[:, 2], [0, 0, 0, 0, 0.1], atol=1e-7)


@pytest.mark.parametrize(
    "chain",
    [
        optax.adam(0.1),
        optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)),
        optax.chain(optax.centralize(), optax.sgd(0.1)),
        optax.lars(0.1),
    ],
    ids=["adam", "clip", "centralise", "lars"],
)
def test_what_is_not_linear_is_refused_in_words_and_simulated(chain: Any) -> None:
    with pytest.raises(ValueError, match=r"linear in the gradients .*simulate covers it"):
        kernels_of(OptaxDescent(chain), 12, lazy=False)


def test_a_schedule_that_never_moves_is_the_constant_rate() -> None:
    constant = MODEL.replace(features=16).predict([0, 5, 63], SGD(0.2, batch_size=8))
    scheduled = MODEL.replace(features=16).predict(
        [0, 5, 63], SGD(optax.constant_schedule(0.2), batch_size=lambda step: 8 + 0 * step)
    )
    np.testing.assert_allclose(scheduled.test_loss, constant.test_loss, rtol=1e-12)


def test_a_constant_ratio_of_the_layers_rates_is_a_factor_of_richness() -> None:
    of_rate = MODEL.predict([0, 5, 63], GradientDescent(0.1, feature_learning_rate=0.3))
    of_richness = MODEL.replace(richness=2.1).predict([0, 5, 63], GradientDescent(0.1))
    np.testing.assert_allclose(of_rate.test_loss, of_richness.test_loss, rtol=1e-12)


@pytest.mark.parametrize(
    ("training", "richness"),
    [
        (GradientDescent(COSINE, momentum=0.5, weight_decay=0.1, decoupled=True, ema_decay=0.9), 0.0),
        (GradientDescent(0.2, momentum=0.5, weight_decay=0.1, nesterov=True, average_from=20), 0.7),
        (GradientDescent(0.2, weight_decay=0.1, decoupled=True, feature_learning_rate=COSINE, ema_decay=0.5), 0.7),
        (GradientDescent(COSINE, momentum=growing, nesterov=True, average_from=0), 0.7),
    ],
    ids=["lazy", "coupled", "layers", "growing"],
)
def test_recursion_march_and_network_agree_without_noise(training: GradientDescent, richness: float) -> None:
    model, times = MODEL.replace(richness=richness), [0, 1, 7, 30, 63]
    recursion = model.predict(times, training)
    assert recursion.attrs["solver"].startswith('{"solver": "recursion"')
    others = [model.predict(times, training, solver="march"), model.simulate(times, training, seeds=1).isel(seed=0)]
    for other in others:
        for name in ("test_loss", "averaged_test_loss", "kernel_growth"):
            np.testing.assert_allclose(other[name], recursion[name], rtol=1e-10)
    assert recursion.averaged_test_loss[-1] != recursion.test_loss[-1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.6, "weight_decay": 0.1},
        {"momentum": growing, "nesterov": True, "weight_decay": 0.1, "decoupled": True},
    ],
    ids=["plain", "heavy-ball", "nesterov"],
)
def test_second_moments_of_lazy_networks_are_the_march(options: dict[str, Any]) -> None:
    training = SGD(COSINE, batch_size=lambda step: 2 + step, **options)
    model, times = MODEL.replace(richness=0.0, label_noise=0.4), [0, 1, 7, 30, 63]
    moments, marched = model.predict(times, training), model.predict(times, training, solver="march")
    assert moments.attrs["solver"].startswith('{"solver": "recursion"')
    for name in ("test_loss", "mode_loss", "kernel_growth"):
        np.testing.assert_allclose(moments[name], marched[name], rtol=1e-10)


def test_second_moments_are_for_what_closes_on_them() -> None:
    for model, options in ((MODEL, {}), (MODEL.replace(richness=0.0), {"ema_decay": 0.9})):
        with pytest.raises(ValueError, match="lazy networks without averages"):
            model.predict([1], SGD(0.1, batch_size=4, **options), solver="recursion")


def test_momentum_that_reaches_one_is_refused_with_its_step() -> None:
    with pytest.raises(ValueError, match="momentum must be a number from 0 .* gives 1 at step 5"):
        MODEL.predict([20], GradientDescent(0.1, momentum=lambda step: step / 5))


# Averages ------------------------------------------------------------------------------------------------------------


def test_rows_of_averages_are_what_the_updates_make() -> None:
    generator = np.random.default_rng(0)
    path = generator.normal(size=20)
    for training in (GradientDescent(0.1, ema_decay=0.8), GradientDescent(0.1, average_from=7)):
        shares = averaging_weights(training, 20)
        assert shares is not None
        mean, means = 0.0, []
        for share, value in zip(shares, path, strict=True):
            mean = (1 - share) * mean + share * value
            means.append(mean)
        np.testing.assert_allclose(averaging_rows(shares, np.arange(20)) @ path, means, rtol=1e-12)
    np.testing.assert_allclose(means[-1], path[7:].mean(), rtol=1e-12)


@pytest.mark.parametrize("sizes", [{"features": 16, "batch": 8}, {"features": 16, "batch": 8, "samples": 16}], ids=str)
def test_the_average_of_one_time_is_the_loss(sizes: dict[str, float]) -> None:
    solution = march(SMALL, Descent(0.2, 0.7, **sizes), ROWS, averages=np.eye(ROWS)[[0, 5, 63]])
    np.testing.assert_allclose(solution.averaged_loss, solution.test_loss[np.array([0, 5, 63])], rtol=1e-12)


# Ways of drawing batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", ["epochs", "cyclic"])
def test_the_first_epoch_is_online_and_one_batch_is_the_full_batch(sampling: str) -> None:
    online = march(SMALL, Descent(0.2, 0.7, features=16, batch=8), ROWS)
    reused = march(SMALL, Descent(0.2, 0.7, features=16, batch=8, samples=8 * 32, sampling=sampling), ROWS)
    np.testing.assert_allclose(reused.test_loss[:33], online.test_loss[:33], rtol=1e-12)
    assert (np.abs(reused.test_loss[34:] / online.test_loss[34:] - 1) > 1e-4).all()
    whole = march(SMALL, Descent(0.2, 0.7, features=16, samples=12), ROWS)
    once = march(SMALL, Descent(0.2, 0.7, features=16, samples=12, batch=12, sampling=sampling), ROWS)
    np.testing.assert_allclose(once.test_loss, whole.test_loss, rtol=1e-12)
    np.testing.assert_allclose(once.train_loss, whole.train_loss, rtol=1e-11, atol=1e-14)


def test_batches_that_do_not_divide_the_epoch_are_refused() -> None:
    model = MODEL.replace(samples=30)
    with pytest.raises(ValueError, match="batch_size = 8 does not divide the training set of 30 samples"):
        model.predict([1], SGD(0.1, batch_size=8, sampling="epochs"))
    with pytest.raises(ValueError, match="needs batches of one size, not a schedule"):
        model.simulate([1], SGD(0.1, batch_size=lambda step: 2 + step, sampling="cyclic"))
    with pytest.raises(ValueError, match="does not fit samples = inf"):
        MODEL.predict([1], SGD(0.1, batch_size=8, sampling="epochs"))


# Label noise ---------------------------------------------------------------------------------------------------------


def test_lazy_batches_with_label_noise_and_schedules_are_their_recursion() -> None:
    """<v_k^2> is fed by lambda_k (L + sigma^2) eta_t^2 / B_t."""
    rates, batches = np.asarray(GradientDescent(COSINE).learning_rates(0, ROWS)), 2.0 + np.arange(ROWS)
    lam, moment, expected = SMALL.eigenvalues, SMALL.targets.copy(), []
    for rate, batch in zip(rates, batches, strict=True):
        loss = (lam * moment).sum()
        expected.append(loss)
        moment = (1 - rate * lam) ** 2 * moment + rate**2 / batch * lam * (loss + 0.25)
    found = march(SMALL, Descent(rates, 0.0, batch=batches, label_noise=0.25), ROWS)
    np.testing.assert_allclose(found.test_loss, expected, rtol=1e-11)


def test_labels_with_noise_have_the_closed_form_limit() -> None:
    """Linear regression of M = 6 modes on P samples: sigma^2 M / (P - M) in the end, and with fewer features, too."""
    model = FeatureScaling(1.5, 0.4, modes=6, samples=24, richness=0.0, label_noise=0.5)
    end = model.limit()
    assert float(end.test_loss) == pytest.approx(0.25 * 6 / 18, rel=1e-12)
    for one in (model, model.replace(features=3)):
        late, end = one.predict([0, 1e5], GradientFlow(), per_decade=6), one.limit()
        np.testing.assert_allclose(late.test_loss[1], end.test_loss, rtol=1e-6)
        np.testing.assert_allclose(late.train_loss[1], end.train_loss, rtol=1e-6)


def test_a_rich_network_marches_with_any_option() -> None:
    """All options together run, and differ from the run without them."""
    training = SGD(COSINE, batch_size=8, sampling="epochs", momentum=0.5, weight_decay=0.01, ema_decay=0.9)
    found = MODEL.replace(features=16, samples=64, label_noise=0.3).predict([0, 10, 63], training)
    assert (found.test_loss > 0).all()
    assert float(found.train_loss[0]) == pytest.approx(float(found.test_loss[0]) + 0.09)
    assert float(found.averaged_test_loss[0]) == pytest.approx(float(found.test_loss[0]))


def test_descent_along_a_mean_has_the_mean_of_the_weights() -> None:
    """Lazy: the averaged error of a mode is the average of its errors."""
    shares = averaging_weights(GradientDescent(0.2, average_from=0), ROWS)
    path = descend(SMALL, 0.0, Steps(0.2, averaging=shares), ROWS)
    lam = SMALL.eigenvalues
    errors = np.sqrt(SMALL.targets) * (1 - 0.2 * lam) ** np.arange(ROWS)[:, None]
    means = np.cumsum(errors, 0) / np.arange(1, ROWS + 1)[:, None]
    np.testing.assert_allclose(path.averaged_loss, (lam * means**2).sum(1), rtol=1e-12)
