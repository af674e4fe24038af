"""The parameters of the skill model, and what its methods share."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from solvable.checks import is_traced, rules
from solvable.controls import Controls, Slider, Summary, log_slider, of_method
from solvable.dataset import Meaning
from solvable.model import Model, choice, parameter
from solvable.models.skills import story
from solvable.training import Training

_MEANINGS: Mapping[str, Meaning] = {
    "strength": Meaning("skill strength", "1", "R_k"),
    "skill_loss": Meaning("loss on inputs that ask for the skill", "1", "L_k"),
    "test_loss": Meaning("expected test loss", "1", "L"),
    "power_law": Meaning("test loss by the plain power law", "1", "L"),
    "skill": Meaning("skill, by falling frequency", "1", "k"),
    "time": Meaning("training time", "flow time", "T"),
    "samples": Meaning("size of the training set", "samples", "D"),
    "basis": Meaning("number of basis functions", "1", "N"),
    "budget": Meaning("compute: time times basis functions", "flow time", "C"),
    "emergence_time": Meaning("time at which the skill emerges", "flow time", "τ_k"),
    "rate": Meaning("rate of learning, relative to the bare model", "1", "B"),
    "rate_error": Meaning("standard error of the rate", "1"),
    "initial_strength": Meaning("strength at the start", "1", "R_k(0)"),
    "log_initial_strength_error": Meaning("standard error of the logarithm of the initial strength", "1"),
    "correlation": Meaning("correlation of the errors of log rate and log initial strength", "1"),
    "half_time": Meaning("time at which half the target is reached", "flow time", "t_half"),
    "half_time_error": Meaning("standard error of the half time", "flow time"),
    "misfit": Meaning("root mean square misfit of the relative strength", "1"),
    "assumed_initial_strength": Meaning("initial strength if it is assumed and not fitted", "1", "R_k(0)"),
    "assumed_rate": Meaning("rate that fits best with the assumed initial strength", "1", "B"),
    "assumed_misfit": Meaning("misfit with the assumed initial strength", "1"),
    "shots": Meaning("samples needed to learn a skill", "1", "D_c"),
    "shots_low": Meaning("samples needed to learn a skill, one standard error lower", "1"),
    "shots_high": Meaning("samples needed to learn a skill, one standard error higher", "1"),
    "neurons_per_skill": Meaning("basis functions needed to express a skill", "1", "N_c"),
    "neurons_per_skill_low": Meaning("basis functions needed to express a skill, one standard error lower", "1"),
    "neurons_per_skill_high": Meaning("basis functions needed to express a skill, one standard error higher", "1"),
}
_RESOURCES = {
    "time": "of the loss in the training time",
    "samples": "of the loss in the size of the training set",
    "basis": "of the loss in the number of basis functions",
    "budget": "of the optimal loss in compute",
    "optimal_time": "of the optimal time in compute",
    "optimal_basis": "of the optimal number of basis functions in compute",
}
EXPONENTS = {name: Meaning(f"exponent {text}", "1") for name, text in _RESOURCES.items()}
PREFACTORS = {name: Meaning(f"prefactor {text}", "1") for name, text in _RESOURCES.items()}


def _emergence(skill: int, word: str) -> Summary:
    def of(model: Any, training: Any) -> Any:
        return model.emergence_time(training=training, max_skills=skill).emergence_time.data[skill - 1]

    return Summary(word, f"{word} skill emerges at", of, "time")


CONTROLS = Controls(
    sliders={
        "exponent": Slider(0.05, 2, count=39),
        "skills": log_slider(1, 1000, whole=True, after=("inf",)),
        "target_scale": log_slider(0.1, 10),
        "initial_strength": log_slider(1e-6, 0.5),
        "learning_rate": log_slider(1e-3, 10),
        "basis": log_slider(1, 1000, whole=True, after=("inf",)),
        "samples": log_slider(1, 1e6, whole=True, after=("inf",)),
        "rate": log_slider(1e-3, 10),
        "shots": log_slider(1, 1000, whole=True),
        "neurons_per_skill": Slider(1, 16, whole=True),
    },
    start={"seeds": "6"},
    summaries=(
        _emergence(1, "first"),
        _emergence(5, "fifth"),
        Summary("time", "exponent in time", of_method("exponents", "time")),
        Summary("samples", "exponent in samples", of_method("exponents", "samples")),
        Summary("basis", "exponent in basis functions", of_method("exponents", "basis")),
        Summary("budget", "exponent in compute", of_method("exponents", "budget")),
    ),
    plane=("fifth", "exponent", "initial_strength"),
    stories=(story.STORY,),
    explain=story.explain,
    system=story.system,
)


class SkillParameters(Model):
    """The fields of :class:`solvable.SkillModel`, which adds its methods."""

    name: ClassVar[str] = "skills"
    loss_convention: ClassVar[str] = "half the mean square error"
    controls: ClassVar[Controls] = CONTROLS
    meanings: ClassVar[Mapping[str, Meaning]] = _MEANINGS

    exponent: float = parameter("skills have frequencies k^-(exponent + 1)", rules.positive, symbol="α", default=0.6)
    skills: float = parameter("number of skills", rules.count_or_infinite, symbol="n_s", default=100)
    target_scale: float = parameter("strength asked of each skill", rules.positive, symbol="S", default=1.0)
    initial_strength: float = parameter(
        "strength at the start; the linear model starts from zero", rules.positive, symbol="R_k(0)", default=1e-2
    )
    basis: float = parameter(
        "number of basis functions, given to the most frequent skills",
        rules.count_or_infinite,
        symbol="N",
        default=math.inf,
    )
    samples: float = parameter("size of the training set", rules.count_or_infinite, symbol="D", default=math.inf)
    kind: str = choice(
        "two factors for each skill, or one", symbol="", default="multilinear", choices=("multilinear", "linear")
    )
    rate: float = parameter(
        "how fast a skill is learned, relative to the bare model", rules.positive, symbol="B", default=1.0
    )
    shots: int = parameter("samples needed to learn a skill", rules.count, symbol="D_c", default=1)
    neurons_per_skill: int = parameter(
        "basis functions needed to express a skill", rules.count, symbol="N_c", default=1
    )

    def __check_init__(self) -> None:
        Model.__check_init__(self)
        start, scale = self.initial_strength, self.target_scale
        if self.kind == "multilinear" and not is_traced(start, scale) and not start < scale:
            raise ValueError(
                f"initial_strength must lie between 0 and target_scale = {scale:g}, both excluded, not {start:g}: the "
                'sigmoid grows from below to the target; start lower, or use kind="linear", which starts from zero'
            )

    def dataset(self, *arguments: Any, training: Training | None = None, **options: Any) -> xr.Dataset:
        """A dataset whose flow times are in the units of the training: over the learning rate, where it is not 1."""
        rate = getattr(training, "learning_rate", 1)
        if "meanings" not in options and (is_traced(rate) or rate != 1):
            options["meanings"] = {
                name: dataclasses.replace(meaning, units="flow time / η") if meaning.units == "flow time" else meaning
                for name, meaning in self.meanings.items()
            }
        return super().dataset(*arguments, training=training, **options)
