"""The step of an optimiser near a minimum, and the largest curvature at which it is stable: the edge of stability.

On a quadratic of curvature h, with the velocity v and the weight w,

    v <- beta v + (1 - tau) (h + d) w,    w <- (1 - eta d') w - eta v,

where d is a weight decay that is part of the gradient, d' one that is decoupled from it, and tau the dampening (tau =
beta for the averaged gradients of Adam). The characteristic polynomial of w is ``z^2 - (a + beta - k) z + a beta`` with
``a = 1 - eta d'`` and ``k = eta (1 - tau) (h + d)``. Its roots leave the unit circle at z = -1, where

    k = (1 + a) (1 + beta).

Nesterov's step ``w <- a w - eta (g + beta v)`` has ``z^2 - (a + beta - k (1 + beta)) z + beta (a - k)``, hence
``k = (1 + a) (1 + beta) / (1 + 2 beta)``. Adaptive optimisers multiply each gradient by an entry of a diagonal matrix
S that changes slowly; with S frozen the curvature is that of ``S^(1/2) H S^(1/2)``, which is similar to S H. For Adam
with beta1 = 0.9 the edge is then 38 / eta (Cohen et al. 2022, adaptive edge of stability).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from solvable.checks import check_value, rules
from solvable.training import MOMENTUM, GradientDescent, Schedule


class NoStepYetError(ValueError):
    """An adaptive optimiser has made no step, so that what it multiplies gradients by is not known."""


@dataclasses.dataclass(frozen=True)
class UpdateRule:
    """How an optimiser turns gradients into steps, as far as its stability depends on it.

    Parameters
    ----------
    learning_rate
        Learning rate η; of several, the largest. It may be zero, as at the ends of schedules.
    momentum
        Momentum β, the first of the two β of Adam.
    nesterov
        Whether momentum is Nesterov's.
    dampening
        The velocity adds (1 - dampening) times the gradient: 0 in SGD, β for the averaged gradients of Adam.
    weight_decay
        Weight decay that is part of the gradient (coupled): a number, or one for each parameter (as ``scale``).
    decoupled_weight_decay
        Weight decay that is not, as in AdamW.
    scale
        The diagonal S that multiplies gradients: a PyTree like the parameters, or arrays by name; None for no scale.
        For Adam it is ``1 / ((1 - beta1^t) (sqrt(v_hat) + eps))``.
    name
        What the optimiser is called in reports.

    >>> from solvable.diagnostics import UpdateRule
    >>> UpdateRule(0.1).edge, round(UpdateRule(0.1, momentum=0.9).edge, 9)
    (20.0, 38.0)
    >>> round(UpdateRule(1.0, momentum=0.9, dampening=0.9).edge, 9)  # Adam
    38.0
    """

    learning_rate: float
    momentum: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0
    weight_decay: Any = 0.0
    decoupled_weight_decay: float = 0.0
    scale: Any = None
    name: str = ""

    def __post_init__(self) -> None:
        check_value("learning_rate", self.learning_rate, rules.not_negative, False, "learning rate")
        check_value("momentum", self.momentum, MOMENTUM, False, "momentum")
        check_value("dampening", self.dampening, MOMENTUM, False, "dampening of the velocity")
        if isinstance(self.weight_decay, int | float):
            check_value("weight_decay", self.weight_decay, rules.not_negative, False, "strength of weight decay")
        decoupled = self.decoupled_weight_decay
        check_value("decoupled_weight_decay", decoupled, rules.not_negative, False, "strength of weight decay")
        if self.nesterov and self.dampening:
            raise ValueError("Nesterov's momentum has no dampening: set dampening=0 or nesterov=False")

    @property
    def edge(self) -> float:
        """The largest stable curvature, of the loss with its coupled weight decay; infinite where nothing moves."""
        if self.learning_rate == 0:
            return math.inf
        kept = 1 - self.learning_rate * self.decoupled_weight_decay
        return (1 + kept) * self._reach / self.learning_rate

    def stable_learning_rate(self, curvature: float) -> float:
        """The learning rate at which this curvature is at the edge; infinite where nothing is curved upwards.

        Parameters
        ----------
        curvature
            The largest eigenvalue, of the loss with its coupled weight decay.
        """
        total = curvature + self.decoupled_weight_decay * self._reach
        return 2 * self._reach / total if total > 0 else math.inf

    @property
    def _reach(self) -> float:
        """Half of the largest stable ``eta h`` without decoupled weight decay."""
        lookahead = 1 + 2 * self.momentum if self.nesterov else 1.0
        return (1 + self.momentum) / ((1 - self.dampening) * lookahead)

    def describe(self) -> str:
        """The optimiser in words."""
        plain = "gradient descent" if self.scale is None else "preconditioned gradient descent"
        texts = [f"{self.name or plain} with learning rate {self.learning_rate:.4g}"]
        if self.momentum:
            kind = "beta1" if self.dampening else "Nesterov momentum" if self.nesterov else "momentum"
            texts.append(f"{kind} {self.momentum:g}")
        decays = [*map(float, jax.tree.leaves(self.weight_decay)), float(self.decoupled_weight_decay)]
        if max(decays) > 0:
            texts.append(f"weight decay {max(decays):g}")
        return ", ".join(texts[:-1]) + " and " + texts[-1] if len(texts) > 1 else texts[0]

    @classmethod
    def of(cls, optimizer: Any, step: int = 0, **given: Any) -> Self:
        """The rule of an optimiser.

        Parameters
        ----------
        optimizer
            A :class:`solvable.GradientDescent` or :class:`solvable.SGD`, a ``torch.optim`` optimiser, the state of an
            Optax optimiser that contains ``ScaleByAdamState``, or a rule, which is returned.
        step
            The step at which schedules of a training are evaluated.
        **given
            ``learning_rate``, ``momentum`` (β1), ``eps`` and ``beta2`` of an Optax state, which does not hold them
            unless it was made by ``optax.inject_hyperparams``.
        """
        given = {name: value for name, value in given.items() if value is not None}
        if isinstance(optimizer, cls):
            rule: Any = optimizer
        elif isinstance(optimizer, GradientDescent):
            rule = _of_training(optimizer, step)
        elif any(base.__module__ == "torch.optim.optimizer" for base in type(optimizer).__mro__):
            from solvable.diagnostics._torch_optimizer import rule_of

            rule = rule_of(optimizer)
        else:
            return cls(**_of_optax(optimizer, given))
        if given:
            raise ValueError(
                f"{next(iter(given))} is read from the optimizer {type(optimizer).__name__}: leave it out, or give "
                "numbers without an optimizer"
            )
        return rule


def _of_training(training: GradientDescent, step: int) -> UpdateRule:
    if training.feature_learning_rate is not None or training.readout_learning_rate is not None:
        raise ValueError(
            "feature_learning_rate and readout_learning_rate belong to layers of the models: give "
            "UpdateRule(learning_rate, scale=...) with the relative rate of each parameter"
        )
    decay = "decoupled_weight_decay" if training.decoupled else "weight_decay"
    return UpdateRule(
        float(training.rate_at(step)),
        float(training.momentum_at(step)),
        training.nesterov,
        name="mini-batch SGD" if type(training) is not GradientDescent else "gradient descent",
        **{decay: float(training.weight_decay)},
    )


def _of_optax(state: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Adam's rule from an Optax state, with hyperparameters that are given or were injected into the state."""
    found = {type(node).__name__: node for node in _nodes(state)}
    moments = found.get("ScaleByAdamState")
    if moments is None:
        raise ValueError(
            "optimizer must be a solvable.GradientDescent or SGD, a torch.optim optimizer, an Optax state with a "
            f"ScaleByAdamState, or a solvable.diagnostics.UpdateRule, not {type(state).__name__}"
        )
    injected = {
        name: float(value)
        for node in found.values()
        for name, value in getattr(node, "hyperparams", {}).items()
        if np.ndim(value) == 0
    }
    rate = given.get("learning_rate", injected.get("learning_rate"))
    if rate is None or callable(rate) or isinstance(rate, Schedule):
        raise ValueError("an Optax state does not hold its learning rate: give the number as learning_rate=...")
    first = float(given.get("momentum", injected.get("b1", 0.9)))
    second = float(given.get("beta2", injected.get("b2", 0.999)))
    eps = float(given.get("eps", injected.get("eps", 1e-8)))
    count = int(moments.count)
    if count < 1:
        raise NoStepYetError("the Optax state has made no step: its preconditioner is known after the first one")
    scale = jax.tree.map(lambda nu: adam_scale(np.asarray(nu, np.float64), count, first, second, eps), moments.nu)
    decay = float(given.get("weight_decay", 0.0))
    return {
        "learning_rate": float(rate), "momentum": first, "dampening": first, "scale": scale, "name": "Adam",
        "decoupled_weight_decay": decay,
    }  # fmt: skip


def adam_scale(nu: Any, count: float, beta1: float, beta2: float, eps: float) -> Any:
    """``1 / ((1 - beta1^t) (sqrt(nu / (1 - beta2^t)) + eps))``: what multiplies the mean gradient of Adam at step t.

    Parameters
    ----------
    nu
        The mean squares of gradients.
    count
        The number t of steps made.
    beta1, beta2, eps
        Adam's constants.
    """
    return 1 / ((1 - beta1**count) * ((nu / (1 - beta2**count)) ** 0.5 + eps))


def _nodes(tree: Any) -> list[Any]:
    """Named tuples inside a state, at any depth."""
    found = []
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        found.append(tree)
    children: Sequence[Any] = ()
    if isinstance(tree, tuple | list):
        children = tree
    elif isinstance(tree, Mapping):
        children = list(tree.values())
    for child in children:
        found += _nodes(child)
    return found
