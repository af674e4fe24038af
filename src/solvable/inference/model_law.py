"""Any model of the package as a law: its theory, solved over a box of its parameters and kept in the user's cache."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.inference import feature_curves
from solvable.inference.emulator import Axis, Emulator, cached
from solvable.inference.feature_scaling_law import FeatureScalingLaw
from solvable.inference.law import Law, LawParameter
from solvable.inference.runs import Run
from solvable.inference.splines import Grid
from solvable.inference.theory_laws import UNIT_RUN, Curve, TheoryLaw
from solvable.ranges import parse_range

if TYPE_CHECKING:
    from solvable.model import Model

_LEAST_CURVE = 1e-13
_NODES = {1: 15, 2: 13, 3: 8, 4: 6}
_MOST_FREE = 4


@dataclasses.dataclass(frozen=True, eq=False)
class ModelLaw(TheoryLaw):
    """The theory of any model, with some of its numeric fields free.

    The theory is solved at the Chebyshev nodes of the box of the free fields; the emulator is kept in the user's cache.

    Parameters
    ----------
    model
        The model; its fields that are not free keep their values.
    free
        The free fields, each with the ends of its box; None takes the ends of the page's slider. By default the
        positive numbers of the model that change the shape of its curve and have a slider, at most four.
    variable
        The curve of the theory.
    parameters
        The fitted parameters with their boxes; made from ``free`` by default.
    emulator
        The solved curves over the box; computed, or read from the cache, by default.
    """

    model: "Model"
    free: Mapping[str, tuple[float, float] | None] | None = None
    variable: str = "test_loss"
    parameters: tuple[LawParameter, ...] = ()
    emulator: Emulator | None = None
    _grid: Grid = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.parameters:
            object.__setattr__(self, "parameters", (*self._shape(), self._time_unit([UNIT_RUN])))
        object.__setattr__(self, "_memory", {})
        object.__setattr__(self, "_grid", Grid(np.log(self._times())))

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the model."""
        return self.model.name

    @property
    def _latest(self) -> float:  # type: ignore[override]
        return float(self._times()[-1])

    def _times(self) -> np.ndarray:
        usual = np.asarray(parse_range(self.model.usual_times), float)
        speed = self.model.default_training.speed if self.model.default_training.counts_steps else 1.0
        return np.geomspace(0.03 * speed, 30 * usual[-1] * speed, 90)

    def _shape(self) -> tuple[LawParameter, ...]:
        sliders = self.model.controls.sliders
        chosen = self.free if self.free is not None else _DEFAULT_FREE.get(self.model.name)
        if chosen is None:
            chosen = _numbers(self.model)
        found = []
        about = {field.name: field.metadata for field in dataclasses.fields(self.model)}
        for name, box in chosen.items():
            if name not in about or "rule" not in about[name]:
                raise ValueError(
                    f"{type(self.model).__name__} has no parameter {name!r} to fit; it has "
                    f"{', '.join(_numbers(self.model))}"
                )
            if box is None and name not in sliders:
                raise ValueError(f"give {name} a box to search: free={{{name!r}: (low, high)}}")
            low, high = (sliders[name].low, sliders[name].high) if box is None else box
            log = bool(sliders[name].log) if name in sliders else low > 0 and high / low > 30
            value = getattr(self.model, name)
            start = float(np.clip(value if isinstance(value, float | int) else (low + high) / 2, low, high))
            remedy = "record earlier and later times, or fix it"
            found.append(LawParameter(name, low, high, start, log=log, help=str(about[name]["help"]), remedy=remedy))
        if len(found) > _MOST_FREE:
            raise ValueError(
                f"at most {_MOST_FREE} parameters of a model can be free, not {len(found)}: name them, as in "
                f"free={{{found[0].name!r}: ({found[0].low:g}, {found[0].high:g})}}"
            )
        return tuple(found)

    def prepare(self, runs: Sequence[Run]) -> "ModelLaw":
        """The law with its emulator, and a box of the time unit that suits the length of the runs.

        Parameters
        ----------
        runs
            The runs.
        """
        shape, times = self._shape(), self._times()
        axes = [Axis.between(p.name, p.low, p.high, _NODES[len(shape)], log=p.log) for p in shape]
        described = {
            "model": repr(self.model),
            "variable": self.variable,
            "axes": [(axis.name, axis.nodes.tolist()) for axis in axes],
            "times": [float(times[0]), float(times[-1]), times.size],
        }
        emulator = cached(self.model.name, described, lambda: Emulator.build(self._solve, axes, times, progress=None))
        return dataclasses.replace(self, parameters=(*shape, self._time_unit(runs)), emulator=emulator)

    def _solve(self, **point: float) -> np.ndarray:
        """The logarithm of the loss at all times; times of steps are whole ones."""
        from scipy.interpolate import PchipInterpolator

        from solvable.training import GradientFlow

        times = self._times()
        model = self.model.replace(**point)
        if any(cover.kind is GradientFlow for cover in model.theory_covers):
            loss = model.predict(np.append(0.0, times), GradientFlow())[self.variable].values
            loss, first = loss[1:], loss[0]
            return np.log(np.maximum(loss, _LEAST_CURVE * first))
        training = model.default_training
        steps = np.unique(np.round(times / training.speed))
        loss = model.predict(np.unique(np.append(0.0, steps)), training)[self.variable].values
        logs = np.log(np.maximum(loss, _LEAST_CURVE * loss[0]))
        return PchipInterpolator(np.unique(np.append(0.0, steps)) * training.speed, logs, extrapolate=True)(times)

    def _curve(self, theta: Mapping[str, float], run: Run) -> Curve:
        if self.emulator is None:
            raise ValueError("call prepare(runs) before the basis of this law: it builds the emulator")
        key = tuple(theta[axis.name] for axis in self.emulator.axes)
        memory: dict[Any, Curve] = self._memory  # type: ignore[attr-defined]
        if key not in memory:
            if len(memory) > 64:
                memory.pop(next(iter(memory)))
            logs = self.emulator(**{axis.name: theta[axis.name] for axis in self.emulator.axes})
            # Before the first time the curve is flat to a good approximation.
            memory[key] = Curve(
                self._grid,
                logs,
                math.exp(float(logs[0])),
            )
        return memory[key]

    def settings(self) -> dict[str, object]:
        """The model, its free fields and the error of the emulator."""
        boxes = {p.name: [p.low, p.high] for p in self.parameters if p.name != "time_unit"}
        error = None if self.emulator is None else self.emulator.error
        numbers = {
            name: value
            for name, value in self.model.parameters().items()
            if isinstance(value, str | int | float) or value is None
        }
        return {
            "law": self.name,
            "model_parameters": numbers,
            "free": boxes,
            "variable": self.variable,
            "emulator_error": error,
        }


_DEFAULT_FREE: Mapping[str, Mapping[str, tuple[float, float] | None]] = {
    "skills": {"exponent": (0.15, 1.5), "initial_strength": (1e-4, 0.3)},
}


def _numbers(model: "Model") -> dict[str, None]:
    """The fields that are plain numbers with a slider that is not one of counts."""
    sliders = model.controls.sliders
    return {
        field.name: None
        for field in dataclasses.fields(model)
        if field.name in sliders
        and not sliders[field.name].whole
        and isinstance(getattr(model, field.name), float)
        and math.isfinite(getattr(model, field.name))
    }


def law_of_model(model: "Model", free: Mapping[str, tuple[float, float] | None] | None = None) -> Law:
    """The law of a model: that of the tables for feature scaling, and one with an emulator for all others.

    Parameters
    ----------
    model
        The model.
    free
        Its free fields, each with the ends of its box or None.
    """
    from solvable.models.feature_scaling import FeatureScaling

    if isinstance(model, FeatureScaling):
        if model.spectrum is not None:
            raise ValueError("feature scaling is fitted with capacity and source: leave out spectrum and target")
        lazy = model.richness == 0
        boxes = {"capacity": feature_curves.CAPACITY, "source": feature_curves.SOURCE}
        start = {name: float(np.clip(getattr(model, name), *box)) for name, box in boxes.items()}
        if not lazy:
            start["richness"] = float(np.clip(model.richness, *feature_curves.RICHNESS))
        return FeatureScalingLaw("lazy" if lazy else "rich", start)
    return ModelLaw(model, free)
