"""The public face of the skill model: parameters, theory, scaling laws, emergence, simulation and calibration."""

import math
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import jax
import numpy as np
import xarray as xr

from solvable.checks import check_choice, check_count, rules
from solvable.dataset import Stopwatch, make_dataset, provenance
from solvable.model import Model, choice, parameter
from solvable.models.skills import calibration, dynamics, emergence, scaling, simulation, totals
from solvable.models.skills.checks import (
    check_counts,
    check_infinite,
    check_skill,
    check_step,
    check_time_theory,
    shown_skills,
)
from solvable.models.skills.meanings import EXPONENTS, MEANINGS, PREFACTORS
from solvable.numerics.cost import check_cost
from solvable.numerics.ensemble import trajectories
from solvable.timegrid import check_times


class SkillModel(Model):
    """Skills that are practised with power-law frequencies are learned one by one.

    Skill ``k`` occurs with frequency ``P_k ~ k^-(exponent + 1)``, and the target asks for each with the strength
    ``target_scale``. The multilinear model has two factors for each skill, and gradient flow makes its strength
    ``R_k`` a sigmoid in time; the linear model has one, and ``R_k`` saturates exponentially. Because skills never occur
    together, each is learned by itself, and the loss ``sum_k P_k (S - R_k)^2 / 2`` becomes a power law in time, in data
    (``samples``) and in the number of basis functions (``basis``).

    Times are steps of learning rate ``learning_rate``. With finite ``samples`` all results are expectations over the
    training set, in which skill ``k`` occurs a binomial number of times.

    >>> import solvable
    >>> model = solvable.SkillModel(exponent=0.6, skills=float("inf"))
    >>> round(float(model.exponents().time), 4)
    -0.375
    >>> model.emergence_time(shown=3).emergence_time.values.round(1)
    array([ 5.3, 15.9, 30.5])
    """

    name: ClassVar[str] = "skills"
    # The last of the default skills emerges at 8400.
    usual_times: ClassVar[str] = "1:1e4:41log"
    simulates_whole_steps: ClassVar[bool] = True

    exponent: float = parameter("skills have frequencies k^-(exponent + 1)", rules.positive, symbol="α", default=0.6)
    skills: float = parameter("number of skills", rules.count_or_infinite, symbol="n_s", default=100)
    target_scale: float = parameter("strength asked of each skill", rules.positive, symbol="S", default=1.0)
    initial_strength: float = parameter(
        "strength at the start; the linear model starts from zero", rules.positive, symbol="R_k(0)", default=1e-2
    )
    learning_rate: float = parameter("learning rate", rules.positive, symbol="η", default=1.0)
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
        traced = isinstance(start, jax.core.Tracer) or isinstance(scale, jax.core.Tracer)
        if self.kind == "multilinear" and not traced and not start < scale:
            raise ValueError(
                f"initial_strength must lie between 0 and target_scale = {scale:g}, both excluded, not {start:g}: the "
                'sigmoid grows from below to the target; start lower, or use kind="linear", which starts from zero'
            )

    def predict(
        self,
        times: Any,
        *,
        shown: Annotated[int | None, "how many skills to show (default: all, or 10 of more than 10 000)"] = None,
    ) -> xr.Dataset:
        """Strength R_k and loss of each skill, and the loss over all skills, at the given times (eqs. 4.11, 4.17, C.4).

        With finite ``samples`` these are expectations over the training set, with the standard deviation over training
        sets (``<name>_spread``). The loss is the sum over all skills however few are shown. Works inside ``jax.vmap``,
        ``jax.grad`` and ``jax.jit`` for all parameters but counts.
        """
        watch = Stopwatch()
        times = check_times(times)
        check_time_theory(self)
        skills = shown_skills(self, shown)
        strength, loss = dynamics.strengths_and_losses(self, skills, times)
        total, error = totals.with_error(lambda coarser: totals.time_losses(self, times, self._basis(), coarser)[:, 0])
        variables = {
            "strength": (("time", "skill"), strength),
            "skill_loss": (("time", "skill"), loss),
            "test_loss": (("time",), total),
        }
        if math.isfinite(self.samples) and not dynamics.is_traced(self):
            for name, spread in zip(("strength", "skill_loss"), dynamics.spreads(self, skills, times), strict=True):
                variables[f"{name}_spread"] = (("time", "skill"), spread)
        # The noise of batches vanishes with the learning rate: in the flow their size does not matter.
        attributes = provenance(self, "theory", {"shown": shown}, watch, error, system={"batch": None})
        return make_dataset(variables, {"time": times, "skill": skills}, attributes, MEANINGS)

    def losses(self, times: Any, basis: Any) -> xr.Dataset:
        """The loss over all skills on a grid of times and numbers of basis functions, in one call (eq. 4.17)."""
        watch = Stopwatch()
        times, basis = check_times(times), check_counts("basis", basis)
        check_time_theory(self)
        values, error = totals.with_error(lambda coarser: totals.time_losses(self, times, basis, coarser))
        return make_dataset(
            {"test_loss": (("time", "basis"), values)},
            {"time": times, "basis": basis},
            provenance(self, "theory", {}, watch, error),
            MEANINGS,
        )

    def data_emergence(
        self,
        samples: Any,
        *,
        shown: Annotated[int | None, "how many skills to show (default: all, or 10 of more than 10 000)"] = None,
    ) -> xr.Dataset:
        """Expected strength of each skill after training on each number of samples: S E[min(d, D_c)] / D_c.

        Equation 5.5, corrected (see docs/errata), with the expectation over the count d ~ Binomial(D, P_k), in the
        limit of a small start. The skill loss is that of eq. B.42, and of eq. 4.26 for one shot. ``<name>_spread`` is
        the standard deviation over training sets, for Gaussian features.
        """
        watch = Stopwatch()
        samples = check_counts("samples", samples)
        if self.neurons_per_skill > 1 and math.isfinite(self.basis):
            raise ValueError(
                "there is no theory for few samples and incomplete skills together: set basis to infinity, or "
                "neurons_per_skill to 1"
            )
        skills = shown_skills(self, shown)
        learned = emergence.learned_from_data(self, samples, skills)
        total, error = totals.with_error(lambda coarser: totals.data_losses(self, samples, coarser))
        spread = emergence.spread_from_data(self, samples, skills)
        return make_dataset(
            {
                "strength": (("samples", "skill"), self.target_scale * learned),
                "skill_loss": (("samples", "skill"), self.target_scale**2 / 2 * (1 - learned)),
                "test_loss": (("samples",), total),
                "strength_spread": (("samples", "skill"), self.target_scale * spread),
                "skill_loss_spread": (("samples", "skill"), self.target_scale**2 / 2 * spread),
            },
            {"samples": samples, "skill": skills},
            provenance(self, "theory", {"shown": shown}, watch, error),
            MEANINGS,
        )

    def parameter_emergence(
        self,
        basis: Any,
        *,
        shown: Annotated[int | None, "how many skills to show (default: all, or 10 of more than 10 000)"] = None,
    ) -> xr.Dataset:
        """Strength of each skill after training with each number of basis functions on unlimited data (eq. 5.9)."""
        watch = Stopwatch()
        basis = check_counts("basis", basis)
        if math.isfinite(dynamics.plain(self, "samples")):
            raise ValueError(
                f"parameter emergence is for unlimited data, not samples = {self.samples:g}: "
                "use replace(samples=math.inf)"
            )
        skills = shown_skills(self, shown)
        learned = emergence.learned_with_basis(self, basis, skills)
        return make_dataset(
            {
                "strength": (("basis", "skill"), self.target_scale * learned),
                "skill_loss": (("basis", "skill"), self.target_scale**2 / 2 * (1 - learned)),
                "test_loss": (("basis",), totals.parameter_losses(self, basis)),
            },
            {"basis": basis, "skill": skills},
            provenance(self, "theory", {"shown": shown}, watch),
            MEANINGS,
        )

    def emergence_time(
        self,
        level: Annotated[float, "relative strength to be reached, between 0 and 1"] = 0.5,
        shown: Annotated[int | None, "how many skills to show (default: all, or 10 of more than 10 000)"] = None,
    ) -> xr.Dataset:
        """When each skill reaches the given part of the target (eq. 5.2 solved for the time); infinite if never.

        For unlimited data, where learning is not random. A strength above the level at the start gives time zero.
        """
        watch = Stopwatch()
        if isinstance(level, bool) or not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, both excluded, not {level!r}")
        if math.isfinite(dynamics.plain(self, "samples")):
            raise ValueError("with finite samples times are random: use predict, or replace(samples=math.inf)")
        skills = shown_skills(self, shown)
        when = emergence.times_to_reach(self, level, skills)
        return make_dataset(
            {"emergence_time": (("skill",), when)},
            {"skill": skills},
            provenance(self, "theory", {"level": level, "shown": shown}, watch),
            MEANINGS,
        )

    def exponents(self) -> xr.Dataset:
        """Powers of the loss in time, samples, basis and budget (compute), and of the optimum's time and basis."""
        watch = Stopwatch()
        values = {name: ((), value) for name, value in scaling.exponents(self).items()}
        return make_dataset(values, {}, provenance(self, "theory", {}, watch), EXPONENTS)

    def prefactors(self) -> xr.Dataset:
        """What multiplies the powers of :meth:`exponents`, each with all other resources unlimited; all for infinitely
        many skills. ``loss = prefactor * resource ** exponent`` for large resources."""
        watch = Stopwatch()
        check_infinite(self, "prefactors", "skills")
        values = {name: ((), value) for name, value in scaling.prefactors(self).items()}
        return make_dataset(values, {}, provenance(self, "asymptotic theory", {}, watch), PREFACTORS)

    def corrected_time_law(
        self, times: Any, start: Annotated[float, "time at which the law is tied to the exact loss"]
    ) -> xr.Dataset:
        """The power law in time corrected for finitely many skills (eq. C.2), and the plain one beside it."""
        watch = Stopwatch()
        times = check_times(times)
        check_infinite(self, "the law", "samples")
        if not 0 < start < math.inf:
            raise ValueError(f"start must be a positive finite time, not {start!r}")
        corrected, plain = scaling.corrected_time_law(self, times, float(start))
        return make_dataset(
            {"test_loss": (("time",), corrected), "power_law": (("time",), plain)},
            {"time": times},
            provenance(self, "asymptotic theory", {"start": start}, watch),
            MEANINGS,
        )

    def compute_optimal(self, budgets: Any) -> xr.Dataset:
        """How to spend compute ``time * basis`` best: the smallest loss for each budget, and its basis and time."""
        watch = Stopwatch()
        budgets = check_times(budgets)
        check_infinite(self, "the compute optimum", "samples")
        if dynamics.is_traced(self):
            raise ValueError("compute_optimal searches whole numbers and cannot be traced by JAX: use prefactors")
        if budgets[0] < self.neurons_per_skill:
            raise ValueError(
                f"budgets must be at least neurons_per_skill = {self.neurons_per_skill}, not {budgets[0]:g}: "
                "one skill for one step costs as much"
            )
        loss, basis, when = scaling.optimal_split(self, budgets)
        return make_dataset(
            {"loss": (("budget",), loss), "basis": (("budget",), basis), "time": (("budget",), when)},
            {"budget": budgets},
            provenance(self, "theory", {}, watch),
            MEANINGS,
        )

    def simulate(
        self,
        times: Any,
        *,
        seeds: Annotated[int, "number of independent runs"] = 10,
        key: Annotated[int, "key of the random numbers"] = 0,
        method: Annotated[Literal["flow", "descent"], "gradient flow, or steps of descent"] = "flow",
        batch: Annotated[int | None, "batch size, drawn anew at each step (default: full batch)"] = None,
        shown: Annotated[int | None, "how many skills to show (default: all)"] = None,
        memory_limit: Annotated[float | None, "bytes that the runs of a chunk may take together"] = None,
        devices: Any = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Draw training sets, train the factors of every skill on them, and measure; one run for each seed.

        ``flow`` is exact to rounding on the data that is shown in each unit of time. ``descent`` takes a step instead,
        and ``<name>_error`` is how far that leads from the flow on the same data. Without samples and batch nothing is
        random, and all seeds agree.
        """
        watch = Stopwatch()
        steps = check_times(times, whole=True)
        check_choice("method", method, ("flow", "descent"))
        seeds, key = check_count("seeds", seeds), check_count("key", key, 0)
        if math.isinf(self.skills):
            raise ValueError("infinitely many skills cannot be simulated: set skills to 1000, say")
        check_time_theory(self)
        batch = None if batch is None else check_count("batch", batch)
        check_step(self, batch)
        check_cost(f"{self.skills:.3g} skills", memory=16.0 * self.skills, remedy="simulate fewer skills")
        skills, first = np.arange(1.0, self.skills + 1), shown_skills(self, shown).size

        def trained(method: str) -> dict[str, np.ndarray]:
            return trajectories(
                partial(simulation.begin, self, skills),
                partial(simulation.advance, self, skills, method, batch),
                partial(simulation.measure, self, skills, first),
                [int(step) for step in steps],
                seeds=seeds,
                key=key,
                bytes_per_run=200.0 * skills.size,
                memory_limit=memory_limit,
                devices=devices,
                progress=progress,
                label=f"simulating {self.name}",
            )

        measured = trained(method)
        if method == "descent":
            flow = trained("flow")
            for name in ("strength", "skill_loss", "test_loss"):
                measured[f"{name}_error"] = measured[f"{name}_error"] + np.abs(measured[name] - flow[name])
        settings = {"method": method, "batch": batch, "seeds": seeds, "key": key}
        return make_dataset(
            {name: (("seed", "time", "skill")[: values.ndim], values) for name, values in measured.items()},
            {"time": steps, "skill": skills[:first], "seed": np.arange(seeds)},
            provenance(self, "simulation", settings, watch, system={"batch": batch}),
            MEANINGS,
        )

    def simulate_data_emergence(
        self,
        samples: Any,
        *,
        seeds: Annotated[int, "number of independent runs"] = 100,
        key: Annotated[int, "key of the random numbers"] = 0,
        features: Annotated[Literal["gaussian", "signs"], "distribution of the basis functions"] = "gaussian",
        shown: Annotated[int | None, "how many skills to show (default: all, or 10 of more than 10 000)"] = None,
        memory_limit: Annotated[float | None, "bytes that the runs of a chunk may take together"] = None,
        devices: Any = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Draw training sets for the model of eq. 5.3, with ``shots`` basis functions a skill, and solve it.

        Small starts lead to the minimum-norm solution, which is computed directly.
        """
        watch = Stopwatch()
        samples = check_counts("samples", samples, infinite=False)
        check_choice("features", features, ("gaussian", "signs"))
        skills = shown_skills(self, shown)
        if math.isfinite(self.basis):
            raise ValueError("data emergence is simulated for all basis functions: use replace(basis=math.inf)")
        options = {
            "seeds": check_count("seeds", seeds),
            "key": check_count("key", key, 0),
            "memory_limit": memory_limit,
            # Batched eigenvalue problems on several virtual CPU devices can wait for each other forever.
            "devices": jax.local_devices()[:1] if devices is None else devices,
            "progress": progress,
            "label": f"simulating {self.name}",
        }
        measured = simulation.trained_strengths(self, samples, skills, features, options)
        settings = {"features": features, "seeds": seeds, "key": key}
        # A projection on drawn directions is rounded as the sums over its squared components are, of 2 shots numbers.
        error = 2 * self.shots * simulation.RANK
        return make_dataset(
            {name: (("seed", "samples", "skill"), values) for name, values in measured.items()},
            {"samples": samples, "skill": skills, "seed": np.arange(seeds)},
            provenance(self, "simulation", settings, watch, error, error_scale="maximum"),
            MEANINGS,
        )

    def calibrate(self, times: Any, strength: Any, *, skill: int = 1) -> xr.Dataset:
        """Fit ``rate`` and ``initial_strength`` together to a measured curve of one skill's strength over time.

        Gives both with their errors and the correlation of these, the half time, which is what the curve determines
        best, and the rates that one would find by assuming an initial strength (``assumed_*``). The rate alone is not
        identified: it goes with the initial strength. The linear model has no initial strength, and only its rate is
        fitted. Use ``model.replace(rate=float(fit.rate), initial_strength=float(fit.initial_strength))``.
        """
        watch = Stopwatch()
        times = check_times(times)
        curve = calibration.check_curve("times", times, strength, self, 4)
        skill = check_skill(self, skill)
        fit = calibration.time_fit if self.kind == "multilinear" else calibration.linear_fit
        return self._fitted(fit(self, times, curve, skill), watch)

    def calibrate_shots(self, samples: Any, strength: Any, *, skill: int = 1) -> xr.Dataset:
        """Fit ``shots`` to the measured strength of one skill after training on each number of samples."""
        watch = Stopwatch()
        samples = check_counts("samples", samples, infinite=False)
        curve = calibration.check_curve("samples", samples, strength, self, 2)
        return self._fitted(calibration.shots_fit(self, samples, curve, check_skill(self, skill)), watch)

    def calibrate_neurons(self, basis: Any, strength: Any, *, skill: int = 1) -> xr.Dataset:
        """Fit ``neurons_per_skill`` to the measured strength of one skill after training with each width."""
        watch = Stopwatch()
        basis = check_counts("basis", basis, infinite=False)
        curve = calibration.check_curve("basis", basis, strength, self, 2)
        return self._fitted(calibration.neurons_fit(self, basis, curve, check_skill(self, skill)), watch)

    def _fitted(self, values: dict[str, Any], watch: Stopwatch) -> xr.Dataset:
        variables = {name: (("assumption",) if np.ndim(value) else (), value) for name, value in values.items()}
        return make_dataset(variables, {}, provenance(self, "calibration", {}, watch), MEANINGS)

    def _basis(self) -> np.ndarray:
        return np.array([float(dynamics.plain(self, "basis"))])
