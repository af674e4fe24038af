"""What the variables of the skill model are, for people and for plots."""

import dataclasses
from collections.abc import Mapping

from solvable.checks import is_traced
from solvable.dataset import Meaning
from solvable.training import Training

# The convention of every loss of this model.
MEANINGS = {
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


def meanings_in(training: Training) -> Mapping[str, Meaning]:
    """The meanings with the units of time of a training: flow time over the learning rate."""
    rate = training.learning_rate  # type: ignore[attr-defined]
    if not is_traced(training) and rate == 1:
        return MEANINGS
    return {
        name: dataclasses.replace(meaning, units="flow time / η") if meaning.units == "flow time" else meaning
        for name, meaning in MEANINGS.items()
    }
