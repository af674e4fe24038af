"""Claims: statements with a number that was measured, the number expected, and a tolerance with a reason."""

import base64
import dataclasses
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr

from solvable.display import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["quick", "full"]


@dataclasses.dataclass(frozen=True)
class Claim:
    """``|measured - expected| <= tolerance``, or with ``relative`` within that fraction of the expected value.

    ``because`` says where the tolerance comes from. ``printed`` is the paper's value where that is wrong; it is shown
    and not tested. Two NaNs agree: "never reached" is a statement too.

    >>> from solvable.papers import Claim
    >>> claim = Claim("zero of a cosine", 1.5708, 3.14159265 / 2, 1e-4, "five digits")
    >>> claim.passed, claim.allowed
    (True, 0.0001)
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

    def _repr_html_(self) -> str:
        return _claims_table("Claim", [self])


def _jsonable(value: Any) -> Any:
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclasses.dataclass
class Reproduction:
    """What a figure file gives: its data, its picture and its claims.

    >>> from solvable.papers import Claim, Reproduction
    >>> from solvable.plotting import new_figure
    >>> result = Reproduction({}, new_figure()[0], [Claim("a half", 0.5, 1 / 2, 0.0, "no rounding")])
    >>> all(claim.passed for claim in result.claims)
    True
    """

    datasets: dict[str, xr.Dataset]
    figure: "Figure"
    claims: list[Claim]

    def _repr_html_(self) -> str:
        """For notebooks: the picture, and under it the claims."""
        picture = io.BytesIO()
        self.figure.savefig(picture, format="png", dpi=100)
        code = base64.b64encode(picture.getvalue()).decode()
        passed = sum(claim.passed for claim in self.claims)
        claims = _claims_table(f"Claims: {passed} of {len(self.claims)} hold", self.claims)
        return f'<img alt="figure" src="data:image/png;base64,{code}"/>{claims}'


def _claims_table(caption: str, claims: Sequence[Claim]) -> str:
    rows = [
        (
            claim.name,
            f"{claim.measured:.5g}",
            f"{claim.expected:.5g}",
            f"± {claim.allowed:.3g}",
            "" if claim.printed is None else claim.printed,
            claim.because,
            "passed" if claim.passed else "FAILED",
        )
        for claim in claims
    ]
    return table(caption, ("claim", "measured", "expected", "allowed", "printed", "because", ""), rows)
