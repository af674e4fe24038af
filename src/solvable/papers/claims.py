"""Claims: statements with a number that was measured, the number expected, and a tolerance with a reason."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["quick", "full"]


@dataclasses.dataclass(frozen=True)
class Claim:
    """``|measured - expected| <= tolerance``, or with ``relative`` within that fraction of the expected value.

    ``because`` says where the tolerance comes from. ``printed`` is the paper's value where that is wrong; it is shown
    and not tested. Two NaNs agree: "never reached" is a statement too.
    """

    name: str
    measured: float
    expected: float
    tolerance: float
    because: str
    relative: bool = False
    printed: float | str | None = None

    def __post_init__(self) -> None:
        for field in ("measured", "expected", "tolerance"):
            object.__setattr__(self, field, float(getattr(self, field)))

    @property
    def allowed(self) -> float:
        """The tolerance in the units of the measured number."""
        return self.tolerance * abs(self.expected) if self.relative else self.tolerance

    @property
    def passed(self) -> bool:
        if math.isnan(self.expected) or math.isnan(self.measured):
            return math.isnan(self.expected) and math.isnan(self.measured)
        if math.isinf(self.expected):
            return self.measured == self.expected
        return abs(self.measured - self.expected) <= self.allowed

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN and no infinity: those become text."""
        values = {**dataclasses.asdict(self), "allowed": self.allowed, "passed": self.passed}
        return {key: _jsonable(value) for key, value in values.items()}


def _jsonable(value: Any) -> Any:
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclasses.dataclass
class Reproduction:
    """What a figure file gives: its data, its picture and its claims."""

    datasets: dict[str, xr.Dataset]
    figure: "Figure"
    claims: list[Claim]
