"""How close training is to the edge of stability: the largest curvature of the loss against the optimiser."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np

from solvable.checks import Rule, check_count, check_value, rules
from solvable.diagnostics.curvature import Curvature, JaxCurvature, Kind, Loss
from solvable.diagnostics.lanczos import Density, Krylov, Operator, lanczos, quadrature
from solvable.diagnostics.outputs import Field, plain_fields
from solvable.diagnostics.stability_report import StabilityReport
from solvable.diagnostics.tangent import call_module, is_torch, shown
from solvable.diagnostics.update_rule import UpdateRule
from solvable.progress import progress_bar

# Products for each probe of the density.
_DENSITY_STEPS = 24
# A part of the data that is at most this much of it is looked at first.
_SCOUTED, _SCOUT_STEPS = 1 / 8, 8
# The least number of products of each matrix. Those of Gauss-Newton start from the eigenvectors of the Hessian.
_LEAST = 2
# What this costs: a gradient, up to 3.5 for each product of the Hessian and 2 for each of Gauss-Newton.
_LEAST_BUDGET = 12
_budget_rule = Rule(
    f"a number of gradients, {_LEAST_BUDGET} or more: one, and {_LEAST} products of each matrix",
    lambda value: _LEAST_BUDGET <= value < math.inf,
)
# Larger antisymmetric parts are not rounding: the loss is not the same function in every product.
_LARGEST_ASYMMETRY = 0.02


def stability(
    model: Any,
    data: Any,
    *,
    loss: Loss | None = None,
    learning_rate: float | None = None,
    momentum: float | None = None,
    nesterov: bool = False,
    weight_decay: float | None = None,
    optimizer: Any = None,
    step: int = 0,
    parameters: Any = None,
    trainable: Any = None,
    count: int = 3,
    budget: float = 20.0,
    tolerance: float = 0.01,
    density: bool = False,
    probes: int = 8,
    start: StabilityReport | None = None,
    key: int = 0,
    dtype: Literal["float32", "float64"] | None = None,
    device: Any = None,
    output_field: Field | None = None,
    progress: bool | None = None,
) -> StabilityReport:
    """The largest eigenvalues of the Hessian of the training loss, and how far the optimiser is from instability.

    Eigenvalues come from Lanczos with products of the Hessian and vectors, summed over batches. Networks run in
    inference mode. Frozen parameters, and those that a torch optimiser does not hold, are left out.

    Parameters
    ----------
    model
        A JAX function ``apply(parameters, inputs)`` of a batch, an Equinox module of one input, or a torch module of a
        batch.
    data
        The training data: batches ``(inputs, targets)`` that can be read several times, or one pair of whole arrays.
    loss
        ``"mse"`` (mean square over samples and outputs), ``"half-mse"`` (half the sum over outputs),
        ``"cross-entropy"`` (the default for class labels), or a function of outputs and targets that returns the mean
        over the batch, or one number for each sample.
    learning_rate, momentum, nesterov, weight_decay
        The optimiser, as in :class:`solvable.GradientDescent`. Without a learning rate the report states up to which
        one gradient descent is stable.
    optimizer
        In place of these numbers: a :class:`solvable.GradientDescent` or :class:`solvable.SGD`, a ``torch.optim``
        SGD, Adam, AdamW or RMSprop, the state of Optax's Adam (with ``learning_rate``, ``momentum`` for b1 and
        ``weight_decay`` for decoupled decay), or an :class:`UpdateRule`.
    step
        The step at which schedules of a training are evaluated.
    parameters
        The parameters of a JAX function. For a module, other parameters than its own.
    trainable
        Which parameters are trained, for JAX: a PyTree of booleans or a function, as in ``equinox.partition``. In
        PyTorch those that require gradients.
    count
        Number of eigenvalues in the report.
    budget
        Work that the eigenvalues may take, in gradients of the whole training loss, at least 12. A product of the
        Hessian counts 3 (3.5 with convolutions in torch) and one of the Gauss-Newton matrix 2 (3 where forward mode is
        missing).
    tolerance
        Stop earlier when the largest eigenvalue is known to this relative accuracy; 0 uses the whole budget.
    density
        Whether to compute the density of the spectrum and the trace as well, beyond the budget.
    probes
        Number of random vectors for the density, at least 2.
    start
        An earlier report of the same network, whose eigenvectors are a good start.
    key
        Random seed of the first vector and of the probes.
    dtype
        Compute in this precision. By default in that of the parameters, and in float32 for half precision.
    device
        Where a torch module is evaluated; by default where it is.
    output_field
        Which field holds the outputs of a model that returns several. By default ``logits``, or the only array that can
        be outputs.
    progress
        Whether to show a progress bar; by default on a terminal.

    >>> import jax.numpy as jnp
    >>> from solvable.diagnostics import stability
    >>> def apply(weights, inputs):
    ...     return inputs @ weights
    >>> inputs = jnp.array([[2.0, 0.0], [0.0, 1.0]])
    >>> report = stability(
    ...     apply, (inputs, jnp.ones((2, 1))), loss="half-mse", learning_rate=0.8, parameters=jnp.zeros((2, 1))
    ... )
    >>> round(report.sharpness, 4), round(report.edge_fraction, 4)  # X^T X / n has the eigenvalues 2 and 1/2
    (2.0, 0.8)
    """
    check_count("count", count)
    check_value("budget", budget, _budget_rule, False, "gradients of the training loss")
    check_value("tolerance", tolerance, rules.not_negative, False, "relative accuracy of the largest eigenvalue")
    check_count("probes", probes, least=2)
    rule = _rule(optimizer, step, learning_rate, momentum, nesterov, weight_decay)
    network = _curvature(model, data, loss, dtype, parameters, trainable, optimizer, device, output_field)
    products = probes * min(_DENSITY_STEPS, network.size) if density else 0
    work = budget + products * network.costs["hessian"]
    with progress_bar("curvature of the loss", work, progress) as advance:
        return _measure(network, rule, count, budget, tolerance, probes if density else 0, start, key, advance)


def _rule(
    optimizer: Any, step: int, rate: float | None, momentum: float | None, nesterov: bool, decay: float | None
) -> UpdateRule | None:
    if optimizer is not None:
        if nesterov:
            raise ValueError("nesterov is read from the optimizer: leave it out, or give numbers without an optimizer")
        return UpdateRule.of(optimizer, step, learning_rate=rate, momentum=momentum, weight_decay=decay)
    if rate is None:
        if momentum or nesterov:
            raise ValueError("momentum without a learning rate has no edge: give learning_rate=...")
        return None if not decay else UpdateRule(1.0, weight_decay=decay)
    return UpdateRule(rate, momentum or 0.0, nesterov, weight_decay=decay or 0.0)


def _curvature(
    model: Any,
    data: Any,
    loss: Any,
    dtype: str | None,
    parameters: Any,
    trainable: Any,
    optimizer: Any,
    device: Any,
    output_field: Field | None,
) -> Curvature:
    """The loss of a model of any library."""
    if dtype not in (None, "float32", "float64"):
        raise ValueError(f"dtype must be 'float32', 'float64' or None (as the parameters are), not {dtype!r}")
    if is_torch(model):
        if trainable is not None:
            raise ValueError("trainable is for JAX: freeze parameters of a torch module by requires_grad_(False)")
        from solvable.diagnostics._torch_curvature import TorchCurvature

        groups = getattr(optimizer, "param_groups", None)
        held = None if groups is None else {id(value) for group in groups for value in group["params"]}
        return TorchCurvature(model, parameters, data, loss, dtype, output_field, held, device)
    if device is not None:
        raise ValueError("device is for torch modules: JAX computes where the parameters are")
    if isinstance(model, eqx.Module):
        module = eqx.nn.inference_mode(model if parameters is None else parameters)
        return JaxCurvature(_batched, module, data, loss, dtype, trainable, output_field)
    if not callable(model):
        raise ValueError(
            f"model must be a function apply(parameters, inputs), an Equinox module or a torch module, not "
            f"{shown(model)}"
        )
    if parameters is None:
        raise ValueError("a function apply(parameters, inputs) needs its parameters: pass parameters=...")
    return JaxCurvature(model, parameters, data, loss, dtype, trainable, output_field)


def _batched(module: Any, inputs: Any) -> Any:
    """A module of one sample, run on a batch."""
    return jax.vmap(lambda x: plain_fields(call_module(module, x)))(inputs)


def _measure(
    network: Curvature,
    rule: UpdateRule | None,
    count: int,
    budget: float,
    tolerance: float,
    probes: int,
    start: StabilityReport | None,
    key: int,
    advance: Callable[[float], None],
) -> StabilityReport:
    look = _Look(network, rule, advance)
    first = look.start(key, start)
    scouted = look.counts[0] / look.samples
    left = budget - look.cost
    # What is kept for the rest.
    least = {kind: _LEAST * network.costs[kind] for kind in network.costs}
    if (
        start is None
        and scouted <= _SCOUTED
        and left >= scouted * _SCOUT_STEPS * network.costs["hessian"] + sum(least.values())
    ):
        scout = lanczos(look.operator("hessian", batches=1), first, _SCOUT_STEPS, tolerance)
        first = scout.vector(min(count, len(scout.values)))
    hessian = lanczos(
        look.operator("hessian"), first, network.size, tolerance, look.within(budget - least["gauss-newton"], "hessian")
    )
    if hessian.asymmetry > _LARGEST_ASYMMETRY:
        raise ValueError(
            f"products of the Hessian are not symmetric ({hessian.asymmetry:.2g} of its size): the loss changes "
            "between passes over the data, or part of it is hidden from the second derivative (detach)"
        )
    if not hessian.values.any() and hessian.exhausted:
        raise ValueError(
            "the Hessian is zero in every direction that was tried: the loss is linear in the parameters, or detach, "
            "sign, argmax or the like hide its second derivative"
        )
    gauss_newton = lanczos(
        look.operator("gauss-newton"),
        hessian.vector(count),
        network.size,
        tolerance,
        look.within(budget, "gauss-newton"),
    )
    cost = round(look.cost, 6)
    found = None
    if probes:
        found = quadrature(
            look.operator("hessian"), network.size, network.dtype, probes, min(_DENSITY_STEPS, network.size), key
        )
    return _report(look, rule, count, hessian, gauss_newton, found, cost)


@dataclasses.dataclass
class _Look:
    """Products with the preconditioned matrices of the mean loss, and what they cost."""

    network: Curvature
    rule: UpdateRule | None
    advance: Callable[[float], None]
    cost: float = 0.0
    counts: tuple[float, ...] = ()
    loss: float = math.nan
    gradient_norm: float = math.nan
    scale: np.ndarray | None = None
    decay: Any = 0.0

    @property
    def samples(self) -> float:
        return sum(self.counts)

    def start(self, key: int, earlier: StabilityReport | None) -> np.ndarray:
        """The loss and its gradient. The gradient and a random vector, or the eigenvectors of before.

        The gradient lies mostly along eigenvectors of large eigenvalues, and the random vector has a part along all.
        """
        dtype = self.network.dtype
        total, slope, counts = 0.0, np.zeros(self.network.size), []
        for number, (samples, value, part) in enumerate(self.network.gradient(), start=1):
            if not (math.isfinite(value) and np.isfinite(part).all()):
                raise ValueError(
                    f"the loss or its gradient is {value if not math.isfinite(value) else math.nan} on batch {number}: "
                    "look for NaN in the parameters and the data, or take parameters from before the divergence"
                )
            total += value
            slope += part
            counts.append(samples)
        self._spend(1.0)
        self.counts = tuple(counts)
        if self.samples == 0:
            raise ValueError("every target is ignored (label -100): there is no loss to measure")
        if self.rule is not None and self.rule.scale is not None:
            scale = self.network.flatten(self.rule.scale)
            if not (np.isfinite(scale).all() and (scale >= 0).all() and scale.any()):
                raise ValueError("the scale of the optimizer must be finite numbers, zero or more, and not all zero")
            self.scale = np.sqrt(scale)
        if self.rule is not None:
            decay = self.rule.weight_decay
            self.decay = float(decay) if isinstance(decay, int | float) else self.network.flatten(decay)
        self.loss, self.gradient_norm = total / self.samples, float(np.linalg.norm(slope)) / self.samples
        noise = np.random.default_rng([key, 0]).normal(size=self.network.size)
        if earlier is not None:
            if earlier.vector.shape != slope.shape:
                raise ValueError(
                    f"start is the report of a network with {earlier.vector.size} trained parameters, but this one has "
                    f"{slope.size}: leave start out"
                )
            return (earlier.vector + 0.05 * noise / np.linalg.norm(noise)).astype(dtype)
        slope = slope if self.scale is None else slope * self.scale
        size = float(np.linalg.norm(slope))
        # Unequal parts cannot cancel, in one dimension either.
        return (noise / np.linalg.norm(noise) + (0.8 * slope / size if size > 0 else 0.0)).astype(dtype)

    def operator(self, kind: Kind, batches: int | None = None) -> Operator:
        """``S^(1/2) (H + D) S^(1/2)`` with the diagonal S of the optimiser and its coupled weight decay D."""
        chosen = self.counts[:batches]
        samples = sum(chosen)

        def apply(vector: np.ndarray, basis: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
            scaled = vector if self.scale is None else (vector * self.scale).astype(vector.dtype)
            total, inner = np.zeros(vector.size), []
            passes = self.network.product(kind, scaled)
            # In this order: a part that is not asked for is not computed.
            for number, (count, part) in enumerate(zip(chosen, passes, strict=False), start=1):
                # The quick test first: a sum of finite squares may overflow.
                if not math.isfinite(np.dot(part, part)) and not np.isfinite(part).all():
                    raise ValueError(
                        f"a product of the {kind} matrix is not finite on batch {number}, although the gradient is: "
                        "look for square roots and norms of zero in the network"
                    )
                part = part if self.scale is None else (part * self.scale).astype(vector.dtype)
                total += part
                inner.append(np.array([float(np.dot(q, part)) for q in basis]) / max(count, 1.0))
            passes.close()  # type: ignore[attr-defined]
            total /= samples
            if np.any(self.decay):
                shift = self.decay * scaled if self.scale is None else self.decay * scaled * self.scale
                total += shift
                inner = [part + np.array([float(np.dot(q, shift)) for q in basis]) for part in inner]
            if len(inner) != len(chosen):
                raise ValueError(
                    f"the data had {len(self.counts)} batches in the first pass and {len(inner)} in a later one: give "
                    "data that can be read several times"
                )
            self._spend(self.network.costs[kind] * samples / self.samples)
            return total, np.array(inner)

        return apply

    def within(self, budget: float, kind: Kind) -> Callable[[], bool]:
        """Whether there is budget for another product, asked anew each time: forward mode may prove missing."""
        return lambda: self.cost + self.network.costs[kind] <= budget + 1e-9

    def _spend(self, amount: float) -> None:
        self.cost += amount
        self.advance(amount)


def _report(
    look: _Look,
    rule: UpdateRule | None,
    count: int,
    hessian: Krylov,
    gauss_newton: Krylov,
    density: Density | None,
    cost: float,
) -> StabilityReport:
    network = look.network
    weights = np.array(look.counts) / look.samples
    quotients = hessian.quotients()
    spread = quotients - weights @ quotients
    parts = len(weights)
    statistical = math.sqrt(float((weights * spread) @ (weights * spread)) * parts / (parts - 1)) if parts > 1 else None
    trace, trace_error = (None, None) if density is None else density.trace(network.size)
    return StabilityReport(
        eigenvalues=hessian.values[:count],
        errors=hessian.errors[:count],
        residuals=hessian.residuals[:count],
        smallest=float(hessian.values[-1]),
        gauss_newton=gauss_newton.values[:count],
        gauss_newton_errors=gauss_newton.errors[:count],
        statistical_error=statistical,
        rule=rule,
        loss=look.loss,
        loss_name=network.loss_name,
        gradient_norm=look.gradient_norm,
        density=density,
        trace=trace,
        trace_error=trace_error,
        cost=cost,
        density_cost=round(look.cost - cost, 6),
        samples=int(look.samples),
        batches=parts,
        parameters=network.size,
        precision=network.precision,
        converted_from=network.converted_from,
        vector=hessian.vector(count),
    )


def options_of(stability_options: Any) -> Mapping[str, Any] | None:
    """The options of a tracker's ``stability=``: None, True, a mapping of options, or a function that returns one."""
    if stability_options is None or stability_options is False:
        return None
    found = stability_options() if callable(stability_options) else stability_options
    if found is True:
        return {}
    if not isinstance(found, Mapping):
        raise ValueError(
            "stability must be True, a mapping of options such as {'optimizer': optimizer}, or a function that returns "
            f"one, not {type(found).__name__}"
        )
    return found
