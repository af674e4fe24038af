"""The scaling laws of the skill model: losses over two resources, exponents, prefactors and the compute optimum."""

import math
from typing import Annotated, Any

import xarray as xr

from solvable.checks import is_traced
from solvable.models.skills import dynamics, scaling, totals
from solvable.models.skills.checks import check_counts, check_infinite, check_time_theory
from solvable.models.skills.parameters import EXPONENTS, PREFACTORS, SkillParameters
from solvable.timegrid import check_times
from solvable.training import Training


class ScalingLaws(SkillParameters):
    """The methods of :class:`solvable.SkillModel` about power laws."""

    def losses(self, times: Any, basis: Any, training: Training | None = None) -> xr.Dataset:
        """Compute the loss over all skills on a grid of times and numbers of basis functions, in one call (eq. 4.17).

        Parameters
        ----------
        basis
            Increasing numbers of basis functions; the last may be infinite.
        """
        times, training = self.check_run(times, training, "predict")
        basis = check_counts("basis", basis)
        check_time_theory(self)
        timed, clock = dynamics.on_its_clock(self, training, times)
        values, error = totals.with_error(lambda coarser: totals.time_losses(timed, clock, basis, coarser))
        coordinates = {"time": times, "basis": basis}
        return self.dataset("theory", {"test_loss": values}, coordinates, error=error, training=training)

    def exponents(self) -> xr.Dataset:
        """Exponents of the power laws of Table 4.1, each for unlimited other resources.

        The loss falls as ``resource ** -exponent`` in ``time``, ``samples``, ``basis`` and, where compute is spent
        best, in the ``budget``. The best time and basis grow as powers ``optimal_time`` and ``optimal_basis`` of it.
        """
        return self.dataset("theory", scaling.exponents(self), meanings=EXPONENTS)

    def prefactors(self, training: Training | None = None) -> xr.Dataset:
        """Compute what multiplies the powers of :meth:`exponents`, for infinitely many skills.

        ``loss = prefactor * resource ** -exponent`` for large resources, and the best time and basis are ``prefactor *
        budget ** exponent``.

        Parameters
        ----------
        training
            ``GradientFlow``; its learning rate sets the unit of time, and with it of the budget.
        """
        training = self.check_training(training, "predict")
        check_infinite(self, "prefactors", "skills")
        found = scaling.prefactors(dynamics.in_units_of(self, training))
        return self.dataset("asymptotic theory", found, training=training, meanings=PREFACTORS)

    def corrected_time_law(
        self,
        times: Any,
        start: Annotated[float, "time at which the law is tied to the exact loss"],
        training: Training | None = None,
    ) -> xr.Dataset:
        """Compute the power law in time corrected for finitely many skills (eq. C.2), and the plain one beside it.

        Parameters
        ----------
        start
            The time at which both laws equal the exact loss.
        """
        times, training = self.check_run(times, training, "predict")
        check_infinite(self, "the law", "samples")
        if not 0 < start < math.inf:
            raise ValueError(f"start must be a positive finite time, not {start!r}")
        timed = dynamics.in_units_of(self, training)
        corrected, plain = scaling.corrected_time_law(timed, times, float(start))
        variables = {"test_loss": corrected, "power_law": plain}
        return self.dataset("asymptotic theory", variables, {"time": times}, {"start": start}, training=training)

    def compute_optimal(self, budgets: Any, training: Training | None = None) -> xr.Dataset:
        """Find the smallest loss that each budget ``time * basis`` allows, and the basis and time that reach it.

        Parameters
        ----------
        budgets
            Increasing amounts of compute: times, in the units of the training, times basis functions.

        Returns
        -------
        Dataset
            ``test_loss``, ``basis`` and ``time`` for each ``budget``.
        """
        training = self.check_training(training, "predict")
        budgets = check_times(budgets)
        check_infinite(self, "the compute optimum", "samples")
        if is_traced(self, training):
            raise ValueError("compute_optimal searches whole numbers and cannot be traced by JAX: use prefactors")
        if budgets[0] < self.neurons_per_skill:
            raise ValueError(
                f"budgets must be at least neurons_per_skill = {self.neurons_per_skill}, not {budgets[0]:g}: "
                "one skill for one unit of time costs as much"
            )
        found = scaling.optimal_split(dynamics.in_units_of(self, training), budgets)
        variables = dict(zip(("test_loss", "basis", "time"), found, strict=True))
        return self.dataset("theory", variables, {"budget": budgets}, training=training)
