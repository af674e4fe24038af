"""The parameters of the skill model, and what its methods share."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from solvable.checks import is_traced, rules
from solvable.controls import Controls
from solvable.dataset import Meaning, Stopwatch, make_dataset, provenance
from solvable.model import Model, choice, parameter
from solvable.models.skills.controls import CONTROLS
from solvable.models.skills.meanings import MEANINGS, meanings_in
from solvable.training import Training


class SkillParameters(Model):
    """The fields of :class:`solvable.SkillModel`, which adds its methods."""

    name: ClassVar[str] = "skills"
    loss_convention: ClassVar[str] = "half the mean square error"
    controls: ClassVar[Controls] = CONTROLS

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

    def _dataset(
        self,
        method: str,
        variables: Mapping[str, tuple[tuple[str, ...], Any]],
        coordinates: Mapping[str, Any],
        settings: Mapping[str, Any],
        watch: Stopwatch,
        *,
        error: float | None = None,
        error_scale: str = "value",
        training: Training | None = None,
        meanings: Mapping[str, Meaning] | None = None,
    ) -> xr.Dataset:
        """A dataset of this model that states the convention of its loss."""
        found = provenance(self, method, settings, watch, error, training=training, error_scale=error_scale)
        if meanings is None:
            meanings = MEANINGS if training is None else meanings_in(training)
        return make_dataset(variables, coordinates, found, meanings, training=training)
