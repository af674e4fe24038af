"""Edges of stability: every optimiser, run by its own library, is stable just below its edge, and not above."""

import math

import numpy as np
import optax
import pytest
import torch

import solvable
from solvable.diagnostics import UpdateRule

# Curvatures of a quadratic, of which the first decides.
CURVATURES = torch.tensor([1.0, 0.4, 0.05], dtype=torch.float64)
MARGIN = 0.01


# Small, so that gradients do not change the preconditioner of adaptive optimisers while they diverge.
START = 1e-4


def size_after(optimizer, weights, steps, curvatures=CURVATURES):
    """The largest weight over the last steps of an optimiser on ``sum h w^2 / 2``, over that at the start.

    A run that has grown ten thousandfold has diverged, and is not followed.
    """
    sizes = []
    while len(sizes) < steps and (not sizes or sizes[-1] < 1e4):
        optimizer.zero_grad()
        (curvatures * weights**2).sum().div(2).backward()
        optimizer.step()
        sizes.append(float(weights.detach().abs().max()) / START)
    return max(sizes[-5:])


def weights():
    return torch.full((3,), START, dtype=torch.float64, requires_grad=True)


OPTIONS = {
    "plain": {},
    "heavy ball": {"momentum": 0.9},
    "dampened": {"momentum": 0.9, "dampening": 0.5},
    "Nesterov": {"momentum": 0.9, "nesterov": True},
    "Nesterov, weaker": {"momentum": 0.3, "nesterov": True},
    "coupled decay": {"momentum": 0.5, "weight_decay": 0.3},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_torch_sgd_diverges_from_its_edge_on(name):
    options = OPTIONS[name]
    decay = options.get("weight_decay", 0.0)
    # The edge in the curvature is inverse to the learning rate.
    edge = UpdateRule.of(torch.optim.SGD([weights()], lr=1.0, **options)).edge / (1 + decay)
    for factor, stable in ((1 - MARGIN, True), (1 + MARGIN, False)):
        own = weights()
        optimizer = torch.optim.SGD([own], lr=factor * edge, **options)
        rule = UpdateRule.of(optimizer)
        assert (1 + decay) / rule.edge == pytest.approx(factor)
        assert rule.stable_learning_rate(1 + decay) == pytest.approx(edge)
        size = size_after(optimizer, own, 3000)
        assert (size < 1e-3) if stable else (size > 1e3)


@pytest.mark.parametrize("adamw", [False, True])
def test_adam_with_a_frozen_preconditioner(adamw):
    """With beta2 = 1 - 1e-12 the mean square keeps the value that the test writes into the state."""
    beta1, decay, frozen = 0.9, 0.05, torch.tensor([4.0, 0.25, 1.0], dtype=torch.float64)
    kind = torch.optim.AdamW if adamw else torch.optim.Adam
    curvatures = CURVATURES * torch.tensor([1.0, 4.0, 1.0])

    def made(rate):
        own = weights()
        optimizer = kind([own], lr=rate, betas=(beta1, 1 - 1e-12), eps=0.1, weight_decay=decay)
        size_after(optimizer, own, 1, curvatures)  # makes the state
        with torch.no_grad():
            own.fill_(START)
        state = optimizer.state[own]
        state["exp_avg"].zero_()
        # Late in training, where bias corrections are 1; nu / (1 - beta2^t) is then ``frozen``.
        state["step"].fill_(1e6)
        state["exp_avg_sq"].copy_(frozen * (1 - (1 - 1e-12) ** 1e6))
        return own, optimizer

    def largest(rule):
        scale = next(iter(rule.scale.values()))
        coupled = 0.0 if adamw else decay
        return float(np.max(scale * (curvatures.numpy() + coupled)))

    _, optimizer = made(1.0)
    rule = UpdateRule.of(optimizer)
    np.testing.assert_allclose(next(iter(rule.scale.values())), 1 / (np.sqrt(frozen.numpy()) + 0.1), rtol=1e-6)
    edge = rule.stable_learning_rate(largest(rule))
    for factor, stable in ((1 - MARGIN, True), (1 + MARGIN, False)):
        own, optimizer = made(factor * edge)
        rule = UpdateRule.of(optimizer)
        assert (largest(rule) / rule.edge < 1) is stable
        size = size_after(optimizer, own, 4000, curvatures)
        assert (size < 1e-3) if stable else (size > 1e3)


def test_adams_edge_is_38_over_the_learning_rate():
    assert UpdateRule(0.01, momentum=0.9, dampening=0.9).edge == pytest.approx(3800)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_rmsprop_with_a_frozen_preconditioner(momentum):
    frozen, eps = 2.25, 0.1
    edge = (2 + 2 * momentum) * (math.sqrt(frozen) + eps)
    for factor, stable in ((1 - MARGIN, True), (1 + MARGIN, False)):
        own = weights()
        optimizer = torch.optim.RMSprop([own], lr=factor * edge, alpha=1 - 1e-15, eps=eps, momentum=momentum)
        size_after(optimizer, own, 1)
        with torch.no_grad():
            own.fill_(START)
        optimizer.state[own]["square_avg"].fill_(frozen)
        if momentum:
            optimizer.state[own]["momentum_buffer"].zero_()
        rule = UpdateRule.of(optimizer)
        scale = next(iter(rule.scale.values()))
        assert scale[0] / rule.edge == pytest.approx(factor, rel=1e-6)
        size = size_after(optimizer, own, 1000)
        assert (size < 1e-3) if stable else (size > 1e3)


@pytest.mark.parametrize(
    "training",
    [
        solvable.GradientDescent(1.0),
        solvable.GradientDescent(1.0, momentum=0.7, weight_decay=0.2),
        solvable.GradientDescent(1.0, momentum=0.7, weight_decay=0.2, decoupled=True),
        solvable.GradientDescent(1.0, momentum=0.7, nesterov=True, weight_decay=0.2, decoupled=True),
        solvable.SGD(1.0, momentum=0.4, nesterov=True, batch_size=3),
    ],
)
def test_trainings_of_this_package(training):
    """The steps that :class:`solvable.GradientDescent` defines, on one weight of curvature 1."""
    decay, beta = training.weight_decay, training.momentum
    inside, outside = (0.0, decay) if training.decoupled else (decay, 0.0)
    edge = UpdateRule.of(training).stable_learning_rate(1 + inside)
    for factor, stable in ((1 - MARGIN, True), (1 + MARGIN, False)):
        rate = factor * edge
        rule = UpdateRule.of(training.replace(learning_rate=rate))
        assert ((1 + inside) / rule.edge < 1) is stable
        w, v = 1.0, 0.0
        for _ in range(3000):
            gradient = (1 + inside) * w
            v = beta * v + gradient
            w = w - rate * (((gradient + beta * v) if training.nesterov else v) + outside * w)
        assert (abs(w) < 1e-3) if stable else (abs(w) > 1e3)


def test_schedules_are_read_at_the_step():
    training = solvable.GradientDescent(optax.linear_schedule(0.4, 0.0, 100))
    assert UpdateRule.of(training, step=50).learning_rate == pytest.approx(0.2)


def test_a_learning_rate_that_has_decayed_to_zero_has_no_edge():
    rule = UpdateRule.of(torch.optim.SGD([weights()], lr=0.0, momentum=0.9))
    assert rule.edge == math.inf
    assert rule.stable_learning_rate(2.0) == pytest.approx(1.9)


def test_learning_rates_of_groups_are_a_scale():
    first, second = weights(), weights()
    rule = UpdateRule.of(torch.optim.SGD([{"params": [first], "lr": 0.1}, {"params": [second], "lr": 0.4}]))
    assert rule.learning_rate == 0.4
    np.testing.assert_allclose(rule.scale[first], 0.25)
    np.testing.assert_allclose(rule.scale[second], 1.0)


def test_injected_hyperparameters_of_optax_are_read():
    parameters = {"w": np.ones(2, np.float32)}
    optimiser = optax.inject_hyperparams(optax.adam)(learning_rate=0.02, b1=0.5)
    state = optimiser.init(parameters)
    _, state = optimiser.update({"w": np.array([2.0, 3.0], np.float32)}, state, parameters)
    rule = UpdateRule.of(state)
    assert (rule.learning_rate, rule.momentum) == pytest.approx((0.02, 0.5))
    # After one step the corrected mean square is the squared gradient; (1 - b1) corrects the mean.
    np.testing.assert_allclose(rule.scale["w"], 1 / (0.5 * np.array([2.0, 3.0])), rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.optim.Adagrad([weights()]), "use SGD, Adam, AdamW or RMSprop"),
        (lambda: torch.optim.Adam([weights()]), "has made no step"),
        (lambda: torch.optim.SGD([weights()], lr=0.1, maximize=True), "maximizes"),
        (lambda: torch.optim.SGD([{"params": [weights()], "momentum": b} for b in (0.1, 0.9)]), "differ in momentum"),
        (lambda: "adam", "not str"),
        (lambda: solvable.GradientFlow(), "not GradientFlow"),
        (lambda: solvable.GradientDescent(0.1, feature_learning_rate=0.2), "belong to layers"),
    ],
)
def test_what_has_no_edge_is_refused(make, words):
    with pytest.raises(ValueError) as caught:
        UpdateRule.of(make())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"learning_rate": -1}, {"momentum": 1.0}, {"weight_decay": -1.0}])
def test_rules_of_numbers(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        UpdateRule(**{"learning_rate": 0.1, **wrong})
    with pytest.raises(ValueError, match="dampening"):
        UpdateRule(0.1, 0.5, nesterov=True, dampening=0.5)
