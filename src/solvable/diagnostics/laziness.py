"""How far training departed from its linearisation at initialisation: lazy, intermediate or rich."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.checks import check_count
from solvable.diagnostics.kernel_measures import KernelChange, kernel_change
from solvable.diagnostics.kernels import ntk
from solvable.diagnostics.outputs import Field
from solvable.diagnostics.tangent import Network, check_inputs, network_of, slices
from solvable.display import Report
from solvable.progress import progress_bar

LAZY, RICH = 0.1, 0.5
# Inputs on which the report of a network compares kernels: enough to see a change, and cheap beside the features.
_REPORT_KERNEL_INPUTS = 64
INITIAL_NOT_GIVEN = "give the network as it was before training, initial=..."


@dataclasses.dataclass(frozen=True, repr=False)
class LazinessReport(Report):
    """The measurements of :func:`laziness`.

    Parameters
    ----------
    distance
        Between the trained network and its tangent model, over the distance that the function moved.
    function_motion, parameter_motion
        The distance that the outputs and all parameters moved, relative to their norm at initialisation.
    parameter_motion_of
        The same for each parameter array; infinite for arrays that were zero.
    kernel_change
        That of the tangent kernel; None if it was not asked for.
    thresholds
        Training is lazy if distance and kernel change are below the first, and rich if either is above the second.
    inputs, kernel_inputs
        Number of inputs on which functions and kernels were compared.
    precision
        Floating-point type of the network.
    rounding
        The ``distance`` that rounding alone can produce.
    """

    distance: float
    function_motion: float
    parameter_motion: float
    parameter_motion_of: Mapping[str, float]
    kernel_change: KernelChange | None
    thresholds: tuple[float, float]
    inputs: int
    kernel_inputs: int
    precision: str
    rounding: float

    @property
    def verdict(self) -> Literal["lazy", "intermediate", "rich"]:
        lazy, rich = self.thresholds
        largest = max(self.distance, 0.0 if self.kernel_change is None else self.kernel_change.distance)
        return "lazy" if largest < lazy else "rich" if largest > rich else "intermediate"

    def to_json(self) -> str:
        """The report as a JSON string. Infinite motions become the text "inf", because JSON has no infinity."""

        def jsonable(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: jsonable(inner) for key, inner in value.items()}
            return repr(value) if isinstance(value, float) and not math.isfinite(value) else value

        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["kernel_change"] = None if self.kernel_change is None else self.kernel_change._asdict()
        return json.dumps({"verdict": self.verdict, **jsonable(values)}, indent=2)

    def _rows(self) -> list[tuple[str, str]]:
        inputs = f"{self.inputs} inputs, kernel on {self.kernel_inputs}, in {self.precision}"
        motions = [(f"  {name}", f"{motion:.4g}") for name, motion in self.parameter_motion_of.items()]
        return [*self.measured_rows(), *motions, ("measured on", inputs)]

    def measured_rows(self) -> list[tuple[str, str]]:
        """The rows that are also part of the report of a network."""
        lazy, rich = self.thresholds
        change = self.kernel_change
        kernel = "not asked for" if change is None else f"{change.distance:.4g}   (direction {change.misalignment:.3g})"
        return [
            ("training regime", f"{self.verdict}   (lazy below {lazy:g}, rich above {rich:g} in the next two lines)"),
            ("distance from the tangent model", f"{self.distance:.4g}   (rounding {self.rounding:.1g})"),
            ("change of the tangent kernel", kernel),
            ("motion of the function", f"{self.function_motion:.4g} of its initial norm"),
            ("motion of the parameters", f"{self.parameter_motion:.4g} of their initial norm"),
        ]

    def __repr__(self) -> str:
        change = "" if self.kernel_change is None else f", kernel change={self.kernel_change.distance:.4g}"
        lazy, rich = self.thresholds
        return (
            f"LazinessReport({self.verdict}: distance={self.distance:.4g}{change}, lazy below {lazy:g}, "
            f"rich above {rich:g})"
        )


def laziness(
    model: Any,
    before: Any,
    after: Any,
    inputs: Any,
    *,
    kernel_inputs: int = 128,
    thresholds: tuple[float, float] = (LAZY, RICH),
    dtype: Literal["float32", "float64"] | None = None,
    batch_size: int = 256,
    memory_limit: float | None = None,
    progress: bool | None = None,
    output_field: Field | None = None,
) -> LazinessReport:
    """How far a network, trained from ``before`` to ``after``, is from its tangent model at ``before``.

    The tangent model is ``f_lin(theta) = f(theta_0) + J(theta_0) (theta - theta_0)``; the distance is
    ``|f(theta_1) - f_lin(theta_1)| / |f(theta_1) - f(theta_0)|`` over inputs and outputs, 0 for a linear model.

    Parameters
    ----------
    model
        A network in any of the forms that :func:`solvable.diagnostics.ntk` takes.
    before, after
        Its parameters at initialisation and after training: PyTrees for a JAX function, modules for an Equinox module,
        state dicts or modules for PyTorch. Copy the initial state dict: it changes along with its module.
    inputs
        The inputs on which functions are compared, along the first axis, as in :func:`solvable.diagnostics.ntk`.
    kernel_inputs
        The tangent kernel, traced over outputs, is compared on this many of the inputs, evenly spaced; 0 skips it.
    thresholds
        Training is lazy if distance and kernel change are below the first, and rich if either is above the second.
    dtype
        ``"float64"`` recomputes a float32 network in float64, for small motions.
    batch_size
        Number of inputs that are evaluated at once.
    memory_limit, progress, output_field
        As in :func:`solvable.diagnostics.ntk`.
    """
    lazy, rich = (float(value) for value in thresholds)
    if not 0 < lazy <= rich < math.inf:
        raise ValueError(f"thresholds must be two positive numbers, lazy <= rich, not {thresholds!r}")
    count = check_count("kernel_inputs", kernel_inputs, least=0)
    inputs = check_inputs("inputs", inputs)
    initial, final = (network_of(model, parameters, dtype, output_field) for parameters in (before, after))
    old, new = initial.arrays(), final.arrays()
    _check_alike(initial, old, final, new)
    steps = [last.astype(float) - first.astype(float) for first, last in zip(old, new, strict=True)]
    if not any(step.any() for step in steps):
        raise ValueError(
            "the parameters did not move: give a copy of the initial ones (copy.deepcopy; a torch state_dict() changes "
            "along with its module)"
        )
    first, last, linear = _functions(initial, final, steps, inputs, check_count("batch_size", batch_size), progress)
    motion = float(np.linalg.norm(last - first))
    if motion == 0:
        raise ValueError(
            "the function did not move on these inputs, although the parameters did: give other inputs, on which "
            "training changed it"
        )
    change, count = None, min(count, len(inputs))
    if count:
        chosen = inputs[np.linspace(0, len(inputs) - 1, count).round().astype(int)]
        options: dict[str, Any] = {"dtype": dtype, "memory_limit": memory_limit, "progress": progress}
        options["output_field"] = output_field
        change = kernel_change(*(ntk(model, chosen, parameters=own, **options) for own in (before, after)))
    epsilon = float(jnp.finfo(initial.precision).eps)
    return LazinessReport(
        distance=float(np.linalg.norm(last - first - linear)) / motion,
        function_motion=_relative_motion(first, last),
        parameter_motion=_relative_motion(*(np.concatenate([a.ravel() for a in arrays]) for arrays in (old, new))),
        parameter_motion_of={name: _relative_motion(a, b) for name, a, b in zip(initial.names, old, new, strict=True)},
        kernel_change=change,
        thresholds=(lazy, rich),
        inputs=len(inputs),
        kernel_inputs=count,
        precision=initial.precision,
        rounding=epsilon * float(np.linalg.norm(last) + np.linalg.norm(first)) / motion,
    )


def training_regime(
    model: Any, before: Any, after: Any, inputs: Any, output_field: Field | None, progress: bool | None
) -> tuple[LazinessReport | None, str]:
    """The laziness of a network on some inputs for its report, or None and the reason why it could not be measured."""
    if inputs is None:
        return None, (
            "batches are not (inputs, targets) with one array of inputs: call solvable.diagnostics.laziness with a "
            "function of one array"
        )
    options: dict[str, Any] = {"kernel_inputs": _REPORT_KERNEL_INPUTS, "progress": progress}
    try:
        return laziness(model, before, after, inputs, output_field=output_field, **options), ""
    except (RuntimeError, NotImplementedError) as error:
        # Some operations of PyTorch lack the derivatives that tangent kernels need.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return None, f"the derivatives of the network could not be computed: {lines[0]}"


def tangent_model(apply: Callable[[Any, Any], jax.Array], start: Any) -> Callable[[Any, Any], jax.Array]:
    """The tangent model of a JAX function at given parameters: linear in its parameters, and equal to it there.

    It is called as the function is, so that it can be trained beside it.

    Parameters
    ----------
    apply
        A function ``apply(parameters, inputs)``.
    start
        The parameters at which it is linearised.
    """
    trainable, rest = eqx.partition(start, eqx.is_inexact_array)
    trainable = jax.tree.map(jnp.asarray, trainable)

    def linear(parameters: Any, inputs: Any) -> jax.Array:
        direction = jax.tree.map(lambda now, then: now - then, eqx.filter(parameters, eqx.is_inexact_array), trainable)
        value, slope = jax.jvp(lambda own: apply(eqx.combine(own, rest), inputs), (trainable,), (direction,))
        return value + slope

    return linear


def _functions(
    initial: Network, final: Network, steps: list[np.ndarray], inputs: Any, batch_size: int, progress: bool | None
) -> list[np.ndarray]:
    """Outputs before and after training, and the motion of the outputs of the tangent model."""
    parts = []
    with progress_bar("tangent model", len(inputs), progress) as advance:
        for rows in slices(len(inputs), batch_size):
            batch = inputs[rows]
            parts.append((initial.outputs(batch), final.outputs(batch), initial.tangent(batch, steps)))
            advance(rows.stop - rows.start)
    found = [np.concatenate(values).astype(float) for values in zip(*parts, strict=True)]
    for name, values in zip(("before", "after", "tangent to before"), found, strict=True):
        if not np.isfinite(values).all():
            row = int(np.argmax(~np.isfinite(values).all(axis=1)))
            raise ValueError(f"the network {name} is not finite on input {row}: look for NaN in it and in the inputs")
    return found


def _relative_motion(before: np.ndarray, after: np.ndarray) -> float:
    """``|after - before| / |before|``; infinite for arrays that were zero and moved."""
    before, after = before.astype(float), after.astype(float)
    moved, size = float(np.linalg.norm(after - before)), float(np.linalg.norm(before))
    return moved / size if size > 0 else (math.inf if moved > 0 else 0.0)


def _check_alike(initial: Network, old: list[np.ndarray], final: Network, new: list[np.ndarray]) -> None:
    if initial.names != final.names:
        different = sorted(set(initial.names) ^ set(final.names))
        raise ValueError(
            f"before and after must be parameters of the same model: only one of them has {', '.join(different)}"
        )
    for name, first, last in zip(initial.names, old, new, strict=True):
        if first.shape != last.shape:
            raise ValueError(
                f"{name} has shape {first.shape} before and {last.shape} after: the model must be the same"
            )
