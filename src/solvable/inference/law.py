"""What a law is: a family of loss curves, linear in some coefficients and nonlinear in a few parameters."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from solvable.inference.runs import Run


@dataclasses.dataclass(frozen=True)
class LawParameter:
    """A nonlinear parameter of a law.

    Parameters
    ----------
    name
        Its name.
    low, high
        The box in which it is searched. The box is also its prior: a parameter whose standard error is above half of
        the box is not determined by the data.
    start
        Where the search begins.
    log
        Whether it is fitted as a logarithm, so that steps are relative.
    natural_step
        The change that matters, by which the columns of the Jacobian are scaled; of the natural logarithm if ``log``.
        By default a quarter of the box.
    help
        What it means, in a few words.
    unit
        Its unit; ``"1"`` for plain numbers.
    remedy
        Which measurement would determine it, in words; shown where the data do not.
    open_low, open_high
        Whether an end of the box is a limit of the search rather than of the law. Where the data allow values up to
        that end, an interval is open there.
    """

    name: str
    low: float
    high: float
    start: float
    log: bool = False
    natural_step: float | None = None
    help: str = ""
    unit: str = "1"
    remedy: str = ""
    open_low: bool = True
    open_high: bool = True

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            positive = "positive and " if self.log else ""
            raise ValueError(f"the box of {self.name} must be {positive}increasing, not {self.low:g} to {self.high:g}")
        if not self.low <= self.start <= self.high:
            raise ValueError(
                f"{self.name} must start between {self.low:g} and {self.high:g}, not at {self.start:g}: change start"
            )

    def inward(self, value: float) -> float:
        """The coordinate in which the parameter is fitted: its value, or the logarithm of it."""
        return float(np.log(value)) if self.log else float(value)

    def outward(self, coordinate: float) -> float:
        """The value at a coordinate; the inverse of :meth:`inward`."""
        return float(np.exp(coordinate)) if self.log else float(coordinate)

    def traced(self, coordinate: Any) -> Any:
        """As :meth:`outward`, for numbers that JAX traces."""
        import jax.numpy as jnp

        return jnp.exp(coordinate) if self.log else coordinate

    @property
    def box(self) -> tuple[float, float]:
        """The ends of the box in the fitted coordinate."""
        return self.inward(self.low), self.inward(self.high)

    @property
    def step(self) -> float:
        """The natural step in the fitted coordinate."""
        low, high = self.box
        return (high - low) / 4 if self.natural_step is None else self.natural_step


class Law:
    """Base class of the laws: ``loss = basis(theta, run) @ coefficients``, with coefficients that are not negative.

    Subclasses set ``name``, ``parameters`` and ``terms`` and define :meth:`basis`; they may override the rest. A law is
    fitted to the logarithm of the loss by variable projection: the coefficients are found by nonnegative least squares
    for each value of the nonlinear parameters.

    >>> import numpy as np
    >>> from solvable.inference import Law, LawParameter, Run
    >>> class Exponential(Law):
    ...     name = "exponential"
    ...     parameters = (LawParameter("rate", 1e-3, 1e3, 1.0, log=True),)
    ...     terms = ("floor", "amplitude")
    ...     def basis(self, theta, run):
    ...         return np.stack([np.ones(run.size), np.exp(-theta["rate"] * run.flow_time)], axis=1)
    >>> run = Run("one", steps=[0.0, 1.0, 2.0], loss=[3.0, 1.7, 1.3])
    >>> Exponential().basis({"rate": 1.0}, run).round(2).tolist()
    [[1.0, 1.0], [1.0, 0.37], [1.0, 0.14]]
    """

    name: str
    parameters: tuple[LawParameter, ...]
    # The linear coefficients, each at least zero.
    terms: tuple[str, ...]
    # Whether all runs have the same coefficients; otherwise each group of runs has its own.
    shared_terms: bool = True
    # The terms that a law may have at zero without losing its meaning, such as a floor.
    optional_terms: tuple[str, ...] = ("floor", "noise")
    # What each term means, and which measurement would determine it.
    term_help: Mapping[str, str] = {}
    term_remedies: Mapping[str, str] = {}

    def prepare(self, runs: Sequence[Run]) -> "Law":
        """The law with its boxes fitted to the range of these runs; by default the law itself.

        Parameters
        ----------
        runs
            The runs that will be fitted.
        """
        return self

    def basis(self, theta: Mapping[str, float], run: Run) -> np.ndarray:
        """The curves of the terms, one row per record of the run and one column per term.

        Parameters
        ----------
        theta
            The nonlinear parameters by name.
        run
            The run, whose times, rates and sizes matter; its losses must not.
        """
        raise NotImplementedError

    def differentiable(self, run: Run) -> Callable[[Mapping[str, Any]], list[Any]] | None:
        """The basis at the records of a run as a pure function of JAX; None where the law has none.

        The function maps the nonlinear parameters by name to the curves of the terms. With it the posterior is sampled
        by a compiled program.

        Parameters
        ----------
        run
            The run.
        """
        return None

    def at(self, run: Run, steps: np.ndarray) -> Run:
        """The same run at other steps, without losses, for predictions.

        Parameters
        ----------
        run
            A run of the data.
        steps
            Increasing numbers of steps.
        """
        return run.at(steps)

    def check(self, runs: Sequence[Run]) -> list[str]:
        """Warnings that are particular to this law, such as a schedule that is not known.

        Parameters
        ----------
        runs
            The runs that will be fitted.
        """
        return []

    def explain(self, theta: Mapping[str, float], unidentified: Sequence[str], runs: Sequence[Run]) -> list[str]:
        """Sentences about what the data do not tell, such as two explanations of one exponent.

        Parameters
        ----------
        theta
            The best nonlinear parameters by name.
        unidentified
            The names of parameters and terms that the data do not determine.
        runs
            The runs that were fitted.
        """
        return []

    def exact(self, theta: Mapping[str, float], runs: Sequence[Run]) -> "Law | None":
        """The same law corrected by the solver near ``theta``, if it is computed by an emulator; None if it is not.

        Parameters
        ----------
        theta
            The best nonlinear parameters by name.
        runs
            The runs that are fitted.
        """
        return None

    def settings(self) -> dict[str, object]:
        """What is needed to build the same law again, as plain numbers and texts; for files and for ``attrs``."""
        return {"law": self.name}
