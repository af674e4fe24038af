"""The public class of the skill model: theory, emergence, simulation and calibration."""

import math
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import jax
import numpy as np
import xarray as xr

from solvable.checks import check_choice, check_fraction, is_traced
from solvable.coverage import Covers
from solvable.model import Key, MemoryLimit, Seeds
from solvable.models.skills import calibration, dynamics, emergence, simulation, totals
from solvable.models.skills.checks import (
    check_counts,
    check_skill,
    check_step,
    check_time_theory,
    first_skills,
)
from solvable.models.skills.laws import ScalingLaws
from solvable.numerics.cost import check_cost
from solvable.numerics.descent import follow_steps
from solvable.numerics.ensemble import ensemble, run_options, trajectories
from solvable.training import SGD, GradientDescent, GradientFlow, Training

MaxSkills = Annotated[int | None, "how many skills to return (default: all, or 10 of more than 10 000)"]
_OPTIONS = ("momentum", "nesterov", "weight_decay")


class SkillModel(ScalingLaws):
    """Skills that are practised with power-law frequencies are learned one by one.

    Skill ``k`` occurs with frequency ``P_k ~ k^-(exponent + 1)``, and the target asks for each with the strength
    ``target_scale``. The multilinear model has two factors for each skill, and gradient flow makes its strength
    ``R_k`` a sigmoid in time; the linear model has one, and ``R_k`` saturates exponentially. Because skills never occur
    together, each is learned by itself, and the loss ``sum_k P_k (S - R_k)^2 / 2`` becomes a power law in time, in data
    (``samples``) and in the number of basis functions (``basis``).

    With finite ``samples`` all results are expectations over the training set, in which skill ``k`` occurs a binomial
    number of times.

    >>> import solvable
    >>> model = solvable.SkillModel(exponent=0.6, skills=float("inf"))
    >>> round(float(model.exponents().time), 4)
    0.375
    >>> model.emergence_time(max_skills=3).emergence_time.values.round(1)
    array([ 5.3, 15.9, 30.5])
    """

    # The last of the default skills emerges at 8400.
    usual_times: ClassVar[str] = "1:1e4:41log"
    theory_covers: ClassVar[tuple[Covers, ...]] = (
        Covers(GradientFlow, schedules=("learning_rate",)),
        Covers(GradientDescent, options=_OPTIONS, schedules=("learning_rate",)),
    )
    simulation_covers: ClassVar[tuple[Covers, ...]] = (
        *theory_covers,
        Covers(
            SGD,
            options=(*_OPTIONS, "batch_fraction"),
            sampling=("online", "replacement"),
            schedules=("learning_rate",),
        ),
    )

    def check_training(self, training: Training | None, verb: str) -> Training:
        """Return the training, or the default one, if ``verb`` covers it.

        Batches are drawn online where ``samples`` is infinite, and with replacement from the training set otherwise.

        Parameters
        ----------
        training
            The training, or None for the default one.
        verb
            ``"predict"`` or ``"simulate"``.
        """
        if isinstance(training, SGD):
            fitting, size = ("online", "infinite") if math.isinf(self.samples) else ("replacement", "finite")
            if training.sampling is None:
                training = training.replace(sampling=fitting)
            elif training.sampling in ("online", "replacement") and training.sampling != fitting:
                raise ValueError(
                    f"sampling={training.sampling!r} does not fit samples = {self.samples:g}, which is {size}: use "
                    f"sampling={fitting!r}, or change samples"
                )
        return super().check_training(training, verb)

    def predict(
        self,
        times: Any,
        training: Training | None = None,
        *,
        max_skills: MaxSkills = None,
    ) -> xr.Dataset:
        """Predict strength and loss of each skill, and the loss over all skills (eqs. 4.11, 4.17, C.4).

        With finite ``samples`` these are expectations over the training set, with the standard deviation over training
        sets (``<name>_spread``). The test loss is the sum over all skills however few are returned. Works inside
        ``jax.vmap``, ``jax.grad`` and ``jax.jit`` for all parameters but counts.

        The flow is in closed form. Gradient descent is followed step by step, for unlimited data and finitely many
        skills.
        """
        times, training = self.check_run(times, training, "predict")
        check_time_theory(self)
        skills = first_skills(self, max_skills)
        coordinates, settings = {"time": times, "skill": skills}, {"max_skills": max_skills}
        if isinstance(training, GradientDescent):
            return self.dataset(
                "theory", self._steps(times, training, skills.size), coordinates, settings, training=training
            )
        timed, clock = dynamics.on_its_clock(self, training, times)
        strength, loss = dynamics.strengths_and_losses(timed, skills, clock)
        basis = np.array([float(dynamics.plain(self, "basis"))])
        total, error = totals.with_error(lambda coarser: totals.time_losses(timed, clock, basis, coarser)[:, 0])
        variables = {"strength": strength, "skill_loss": loss, "test_loss": total}
        if math.isfinite(self.samples) and not is_traced(timed):
            for name, spread in zip(("strength", "skill_loss"), dynamics.spreads(timed, skills, clock), strict=True):
                variables[f"{name}_spread"] = spread
        return self.dataset("theory", variables, coordinates, settings, error=error, training=training)

    def _steps(self, times: np.ndarray, training: GradientDescent, max_skills: int) -> dict[str, Any]:
        """Curves of gradient descent on the distribution."""
        if math.isfinite(self.samples) or math.isinf(self.skills):
            raise ValueError(
                "theory follows gradient descent on unlimited data, for finitely many skills: "
                "replace(samples=math.inf, skills=1000), simulate, or use GradientFlow"
            )
        check_step(self, training, times[-1])
        return follow_steps(
            simulation.population_problem,
            self,
            times,
            training,
            max_skills,
            operations=20.0 * self.skills,
            counts=("skills", "samples", "basis"),
        )

    def data_emergence(
        self,
        samples: Any,
        *,
        max_skills: MaxSkills = None,
    ) -> xr.Dataset:
        """Predict the expected strength of each skill after training on each number of samples: S E[min(d, D_c)] / D_c.

        Equation 5.5, corrected (see docs/errata), with the expectation over the count d ~ Binomial(D, P_k), in the
        limit of a small start. The skill loss is that of eq. B.42, and of eq. 4.26 for one shot. ``<name>_spread`` is
        the standard deviation over training sets, for Gaussian features.

        Parameters
        ----------
        samples
            Increasing sizes of the training set; the last may be infinite.
        """
        samples = check_counts("samples", samples)
        if self.neurons_per_skill > 1 and math.isfinite(self.basis):
            raise ValueError(
                "there is no theory for few samples and incomplete skills together: set basis to infinity, or "
                "neurons_per_skill to 1"
            )
        skills = first_skills(self, max_skills)
        learned = emergence.learned_from_data(self, samples, skills)
        total, error = totals.with_error(lambda coarser: totals.data_losses(self, samples, coarser))
        spread = emergence.spread_from_data(self, samples, skills)
        variables = {
            "strength": self.target_scale * learned,
            "skill_loss": self.target_scale**2 / 2 * (1 - learned),
            "test_loss": total,
            "strength_spread": self.target_scale * spread,
            "skill_loss_spread": self.target_scale**2 / 2 * spread,
        }
        coordinates, settings = {"samples": samples, "skill": skills}, {"max_skills": max_skills}
        return self.dataset("theory", variables, coordinates, settings, error=error)

    def parameter_emergence(
        self,
        basis: Any,
        *,
        max_skills: MaxSkills = None,
    ) -> xr.Dataset:
        """Predict the strength of each skill after training with each number of basis functions on unlimited data.

        This is eq. 5.9.

        Parameters
        ----------
        basis
            Increasing numbers of basis functions; the last may be infinite.
        """
        basis = check_counts("basis", basis)
        if math.isfinite(dynamics.plain(self, "samples")):
            raise ValueError(
                f"parameter emergence is for unlimited data, not samples = {self.samples:g}: "
                "use replace(samples=math.inf)"
            )
        skills = first_skills(self, max_skills)
        learned = emergence.learned_with_basis(self, basis, skills)
        variables = {
            "strength": self.target_scale * learned,
            "skill_loss": self.target_scale**2 / 2 * (1 - learned),
            "test_loss": totals.parameter_losses(self, basis),
        }
        return self.dataset("theory", variables, {"basis": basis, "skill": skills}, {"max_skills": max_skills})

    def emergence_time(
        self,
        fraction: Annotated[float, "fraction of the target to be reached, between 0 and 1"] = 0.5,
        training: Training | None = None,
        *,
        max_skills: MaxSkills = None,
    ) -> xr.Dataset:
        """Compute when each skill reaches a fraction of the target (eq. 5.2 solved for the time); infinite if never.

        For unlimited data, where learning is not random. A strength above the fraction at the start gives time zero.
        """
        fraction, training = check_fraction(fraction), self.check_training(training, "predict")
        if math.isfinite(dynamics.plain(self, "samples")):
            raise ValueError("with finite samples times are random: use predict, or replace(samples=math.inf)")
        skills = first_skills(self, max_skills)
        when = emergence.times_to_reach(dynamics.in_units_of(self, training), fraction, skills)
        settings = {"fraction": fraction, "max_skills": max_skills}
        return self.dataset("theory", {"emergence_time": when}, {"skill": skills}, settings, training=training)

    def simulate(
        self,
        times: Any,
        training: Training | None = None,
        *,
        seeds: Seeds = 10,
        key: Key = 0,
        max_skills: MaxSkills = None,
        memory_limit: MemoryLimit = None,
        devices: Any = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Draw training sets, train the factors of every skill on them, and measure; one run for each seed.

        Gradient flow is exact to rounding on the data that was drawn. ``<name>_error`` is the rounding error. Without
        finite ``samples`` and without batches nothing is random, and all seeds agree.

        Parameters
        ----------
        training
            ``GradientFlow`` (the default); ``GradientDescent`` on the training set, or on the distribution where
            ``samples`` is infinite; or ``SGD`` with batches that are drawn online where ``samples`` is infinite, and
            with replacement from the training set otherwise.
        """
        times, training = self.check_run(times, training, "simulate")
        if math.isinf(self.skills):
            raise ValueError("infinitely many skills cannot be simulated: set skills to 1000, say")
        check_time_theory(self)
        check_step(self, training, times[-1])
        check_cost(f"{self.skills:.3g} skills", memory=16.0 * self.skills, remedy="simulate fewer skills")
        skills = first_skills(self, max_skills)
        options = run_options(self.name, seeds, key, devices, memory_limit, progress)
        options["bytes_per_run"] = simulation.bytes_per_run(self, training, times.size * skills.size)
        if isinstance(training, GradientDescent):
            measured = trajectories(
                partial(simulation.begin, self),
                partial(simulation.advance, self, training),
                partial(simulation.measure, self, skills.size),
                times.astype(int).tolist(),
                **options,
            )
        else:
            measured = ensemble(partial(simulation.flow, self, training, tuple(times.tolist()), skills.size), **options)
        coordinates = {"seed": np.arange(seeds), "time": times, "skill": skills}
        settings = {"seeds": seeds, "key": key, "max_skills": max_skills}
        return self.dataset("simulation", measured, coordinates, settings, training=training)

    def simulate_data_emergence(
        self,
        samples: Any,
        *,
        seeds: Seeds = 100,
        key: Key = 0,
        features: Annotated[Literal["gaussian", "signs"], "distribution of the basis functions"] = "gaussian",
        max_skills: MaxSkills = None,
        memory_limit: MemoryLimit = None,
        devices: Any = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Draw training sets for the model of eq. 5.3, with ``shots`` basis functions for each skill, and solve it.

        Small starts lead to the minimum-norm solution, which is computed directly.

        Parameters
        ----------
        samples
            Increasing sizes of the training set.
        features
            Distribution of the basis functions: ``"gaussian"``, or ``"signs"`` for ±1.
        devices
            JAX devices to run on; by default the first local one.
        """
        samples = check_counts("samples", samples, infinite=False)
        check_choice("features", features, ("gaussian", "signs"))
        skills = first_skills(self, max_skills)
        if math.isfinite(self.basis):
            raise ValueError("data emergence is simulated for all basis functions: use replace(basis=math.inf)")
        # Batched eigenvalue problems on several virtual CPU devices can wait for each other forever.
        devices = jax.local_devices()[:1] if devices is None else devices
        options = run_options(self.name, seeds, key, devices, memory_limit, progress)
        measured = simulation.trained_strengths(self, samples, skills, features, options)
        coordinates = {"seed": np.arange(seeds), "samples": samples, "skill": skills}
        settings = {"features": features, "seeds": seeds, "key": key}
        # A projection on drawn directions is rounded as the sums over its squared components are, of 2 shots numbers.
        error = 2 * self.shots * simulation.RANK
        return self.dataset("simulation", measured, coordinates, settings, error=error, error_scale="maximum")

    def calibrate(self, times: Any, strength: Any, training: Training | None = None, *, skill: int = 1) -> xr.Dataset:
        """Fit ``rate`` and ``initial_strength`` together to a measured curve of one skill's strength over time.

        Gives both with their errors and the correlation of these, the half time, which is what the curve determines
        best, and the rates that one would find by assuming an initial strength (``assumed_*``). The rate alone is not
        identified: it goes with the initial strength. The linear model has no initial strength, and only its rate is
        fitted. Use ``model.replace(rate=float(fit.rate), initial_strength=float(fit.initial_strength))``.

        Parameters
        ----------
        times
            Increasing times of the measurements, in the units of the training.
        strength
            The measured strength at each time.
        training
            ``GradientFlow`` with the learning rate of the measured training.
        skill
            Number of the measured skill, from 1.
        """
        times, training = self.check_run(times, training, "predict")
        curve = calibration.check_curve("times", times, strength, self, 4)
        skill = check_skill(self, skill)
        fit = calibration.time_fit if self.kind == "multilinear" else calibration.linear_fit
        rate: float = training.learning_rate  # type: ignore[attr-defined]
        return self._fitted(fit(self, rate, times, curve, skill), training)

    def calibrate_shots(self, samples: Any, strength: Any, *, skill: int = 1) -> xr.Dataset:
        """Fit ``shots`` to the measured strength of one skill after training on each number of samples.

        Parameters
        ----------
        samples
            Increasing sizes of the training set.
        strength
            The measured strength after training on each.
        skill
            Number of the measured skill, from 1.
        """
        samples = check_counts("samples", samples, infinite=False)
        curve = calibration.check_curve("samples", samples, strength, self, 2)
        return self._fitted(calibration.shots_fit(self, samples, curve, check_skill(self, skill)))

    def calibrate_neurons(self, basis: Any, strength: Any, *, skill: int = 1) -> xr.Dataset:
        """Fit ``neurons_per_skill`` to the measured strength of one skill after training with each width.

        Parameters
        ----------
        basis
            Increasing numbers of basis functions, or widths of a network.
        strength
            The measured strength after training with each.
        skill
            Number of the measured skill, from 1.
        """
        basis = check_counts("basis", basis, infinite=False)
        curve = calibration.check_curve("basis", basis, strength, self, 2)
        return self._fitted(calibration.neurons_fit(self, basis, curve, check_skill(self, skill)))

    def _fitted(self, values: dict[str, Any], training: Training | None = None) -> xr.Dataset:
        variables = {name: (("assumption",) if np.ndim(value) else (), value) for name, value in values.items()}
        return self.dataset("calibration", variables, training=training)
