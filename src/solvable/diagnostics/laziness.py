"""How far training left its linearisation: lazy, intermediate or rich."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.diagnostics.kernel_measures import KernelChange, kernel_change
from solvable.diagnostics.kernels import ntk
from solvable.diagnostics.lines import Lines
from solvable.diagnostics.outputs import Field
from solvable.diagnostics.tangent import Network, batches, check_inputs, network_of, relative_motion
from solvable.progress import progress_bar

LAZY, RICH = 0.1, 0.5


@dataclasses.dataclass(frozen=True, repr=False)
class LazinessReport(Lines):
    """What :func:`laziness` measured.

    ``distance``: between the trained network and its tangent model, over the distance the function moved.
    ``function_motion``, ``parameter_motion``: the distance moved over the size at the start, of the outputs and of all
    parameters; ``parameter_motion_of`` has it for each parameter array (infinite for what left zero).
    ``kernel_change``: of the tangent kernel, None if not asked for. ``rounding``: what rounding alone can make of
    ``distance``. ``thresholds``: below the first in distance and kernel change is lazy, above the second in either is
    rich.
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
        """All of it as text. Infinite motions become the text "inf", which JSON has no number for."""
        values = dataclasses.asdict(self)
        values["parameter_motion_of"] = dict(self.parameter_motion_of)
        values["kernel_change"] = None if self.kernel_change is None else self.kernel_change._asdict()
        return json.dumps({"verdict": self.verdict, **_jsonable(values)}, indent=2)

    def _lines(self) -> list[tuple[str, str]]:
        inputs = f"{self.inputs} inputs, kernel on {self.kernel_inputs}, in {self.precision}"
        motions = [(f"  {name}", f"{motion:.4g}") for name, motion in self.parameter_motion_of.items()]
        return [*self.measured_lines(), *motions, ("measured on", inputs)]

    def measured_lines(self) -> list[tuple[str, str]]:
        """The lines that a report of the whole network also has."""
        lazy, rich = self.thresholds
        change = self.kernel_change
        kernel = "not asked for" if change is None else f"{change.distance:.4g}   (direction {change.misalignment:.3g})"
        return [
            ("training regime", f"{self.verdict}   (lazy below {lazy:g}, rich above {rich:g} in the next two lines)"),
            ("distance from the tangent model", f"{self.distance:.4g}   (rounding {self.rounding:.1g})"),
            ("change of the tangent kernel", kernel),
            ("motion of the function", f"{self.function_motion:.4g} of its start"),
            ("motion of the parameters", f"{self.parameter_motion:.4g} of their start"),
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
    batch: int = 256,
    memory_limit: float | None = None,
    progress: bool | None = None,
    output_field: Field | None = None,
) -> LazinessReport:
    """How far a network, trained from ``before`` to ``after``, is from the model tangent to it at the start.

    The tangent model is ``f_lin(theta) = f(theta_0) + J(theta_0) (theta - theta_0)``; the distance is
    ``|f(theta_1) - f_lin(theta_1)| / |f(theta_1) - f(theta_0)|`` over inputs and outputs, 0 for a linear model.
    ``model`` is what :func:`solvable.diagnostics.ntk` takes, ``before`` and ``after`` its parameters: trees for a JAX
    function, modules for an Equinox module, state dicts (copied: a state dict lives on with its module) or modules for
    torch. The tangent kernel, trace over outputs, is compared on ``kernel_inputs`` of the inputs, evenly spread; 0
    leaves it out. ``dtype="float64"`` recomputes float32 networks where motions are small. ``output_field`` is as in
    :func:`solvable.diagnostics.ntk`.
    """
    lazy, rich = _check_thresholds(thresholds)
    if isinstance(kernel_inputs, bool) or int(kernel_inputs) != kernel_inputs or kernel_inputs < 0:
        raise ValueError(f"kernel_inputs must be a whole number, 0 or more, not {kernel_inputs!r}")
    inputs = check_inputs("inputs", inputs)
    start, end = (network_of(model, own, dtype, output_field) for own in (before, after))
    old, new = start.arrays(), end.arrays()
    _check_alike(start, old, end, new)
    moved = [last.astype(float) - first.astype(float) for first, last in zip(old, new, strict=True)]
    if not any(part.any() for part in moved):
        raise ValueError(
            "the parameters did not move: give a copy of those at the start (copy.deepcopy; a torch state_dict() "
            "changes along with its module)"
        )
    first, last, linear = _functions(start, end, moved, inputs, batch, progress)
    motion = float(np.linalg.norm(last - first))
    if motion == 0:
        raise ValueError(
            "the function did not move on these inputs, although the parameters did: give other inputs, on which "
            "training changed it"
        )
    epsilon = float(jnp.finfo(start.precision).eps)
    change, count = None, min(int(kernel_inputs), len(inputs))
    if count:
        chosen = inputs[np.linspace(0, len(inputs) - 1, count).round().astype(int)]
        kernels = [
            ntk(
                model,
                chosen,
                parameters=own,
                dtype=dtype,
                memory_limit=memory_limit,
                progress=progress,
                output_field=output_field,
            )
            for own in (before, after)
        ]
        change = kernel_change(*kernels)
    return LazinessReport(
        distance=float(np.linalg.norm(last - first - linear)) / motion,
        function_motion=relative_motion(first, last),
        parameter_motion=relative_motion(_joined(old), _joined(new)),
        parameter_motion_of={name: relative_motion(a, b) for name, a, b in zip(start.names, old, new, strict=True)},
        kernel_change=change,
        thresholds=(lazy, rich),
        inputs=len(inputs),
        kernel_inputs=count,
        precision=start.precision,
        rounding=epsilon * float(np.linalg.norm(last) + np.linalg.norm(first)) / motion,
    )


def tangent_model(apply: Callable[[Any, Any], jax.Array], start: Any) -> Callable[[Any, Any], jax.Array]:
    """The model tangent to a JAX function ``apply(parameters, inputs)`` at ``start``: linear in its parameters.

    It is called as ``apply`` is, so that it can be trained beside it; both say the same at ``start``.
    """
    trainable, rest = eqx.partition(start, eqx.is_inexact_array)
    trainable = jax.tree.map(jnp.asarray, trainable)

    def linear(parameters: Any, inputs: Any) -> jax.Array:
        direction = jax.tree.map(lambda now, then: now - then, eqx.filter(parameters, eqx.is_inexact_array), trainable)
        value, slope = jax.jvp(lambda own: apply(eqx.combine(own, rest), inputs), (trainable,), (direction,))
        return value + slope

    return linear


def _functions(
    start: Network, end: Network, moved: list[np.ndarray], inputs: Any, batch: int, progress: bool | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs before and after, and the motion of the tangent model."""
    if isinstance(batch, bool) or int(batch) != batch or batch < 1:
        raise ValueError(f"batch must be a whole number of inputs, 1 or more, not {batch!r}")
    parts = []
    with progress_bar("tangent model", len(inputs), progress) as advance:
        for row in batches(len(inputs), batch):
            some = inputs[row]
            parts.append((start.outputs(some), end.outputs(some), start.tangent(some, moved)))
            advance(row.stop - row.start)
    first, last, linear = (np.concatenate(values).astype(float) for values in zip(*parts, strict=True))
    for name, values in (("before", first), ("after", last), ("tangent to before", linear)):
        if not np.isfinite(values).all():
            row_of = int(np.argmax(~np.isfinite(values).all(axis=1)))
            raise ValueError(
                f"the network {name} is not finite on input {row_of}: look for NaN in it and in the inputs"
            )
    return first, last, linear


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in arrays]).astype(float)


def _check_alike(start: Network, old: list[np.ndarray], end: Network, new: list[np.ndarray]) -> None:
    if start.names != end.names:
        odd = sorted(set(start.names) ^ set(end.names))
        raise ValueError(
            f"before and after must be parameters of the same model: only one of them has {', '.join(odd)}"
        )
    for name, first, last in zip(start.names, old, new, strict=True):
        if first.shape != last.shape:
            raise ValueError(
                f"{name} has shape {first.shape} before and {last.shape} after: the model must be the same"
            )


def _check_thresholds(thresholds: tuple[float, float]) -> tuple[float, float]:
    lazy, rich = (float(value) for value in thresholds)
    if not 0 < lazy <= rich < math.inf:
        raise ValueError(f"thresholds must be two positive numbers, lazy <= rich, not {thresholds!r}")
    return lazy, rich


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return list(value) if isinstance(value, tuple) else value
