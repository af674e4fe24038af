"""Claims: statements about a measured number that can fail, each with a kind, a tolerance and a reason."""

import base64
import dataclasses
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import xarray as xr

from solvable.comparison import agreement
from solvable.display import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["quick", "full"]
Kind = Literal["equals", "at_least", "at_most", "ordered", "agrees"]
# How often a claim of agreement fails although theory is right. All papers together have fewer than a thousand of them,
# so that one of them fails by chance in less than one of a hundred reproductions with other seeds.
FALSE_ALARMS = 1e-5


def scale_of(data: Mapping[str, xr.Dataset]) -> Scale:
    """The scale at which the datasets of a figure were computed, from their attributes.

    Parameters
    ----------
    data
        The datasets of a figure, by name.

    >>> import xarray as xr
    >>> from solvable.papers import scale_of
    >>> scale_of({"curve": xr.Dataset(attrs={"scale": "quick"})})
    'quick'
    """
    found = {part.attrs.get("scale") for part in data.values()}
    if len(found) != 1 or not found <= {"quick", "full"}:
        shown = ", ".join(sorted(map(str, found))) or "no dataset"
        raise ValueError(f"the datasets of a figure have one scale, 'quick' or 'full', and not {shown}")
    return cast(Scale, found.pop())


@dataclasses.dataclass(frozen=True)
class Claim:
    """A measured number and what it must be. ``measured`` is always the raw measurement.

    Each kind has a constructor of the same name. ``Claim(...)`` itself is :meth:`equals`: ``|measured - expected|`` is
    at most ``tolerance`` or, with ``relative``, at most that fraction of the expected value. Two NaNs are equal: "never
    reached" is a statement, too. The others are :meth:`at_least`, :meth:`at_most`, :meth:`ordered` and :meth:`agrees`.

    Parameters
    ----------
    name
        What is measured, in words.
    measured
        The raw measurement.
    expected
        The value expected, or the bound.
    tolerance
        How far the measurement may be from it.
    because
        Where the tolerance comes from.
    relative
        Whether the tolerance is a fraction of the expected value.
    printed
        What the paper prints, where that is something else; it is shown and not tested.
    kind
        Which relation is claimed.
    values
        The numbers whose order is claimed.

    >>> from solvable.papers import Claim
    >>> claim = Claim("zero of a cosine", 1.5708, 3.14159265 / 2, 1e-4, "five digits")
    >>> claim.passed, claim.allowed
    (True, 0.0001)
    >>> Claim.at_least("a delay", 7.5, 3.0, "visible to the eye").passed
    True
    """

    name: str
    measured: float
    expected: float
    tolerance: float
    because: str
    relative: bool = False
    printed: float | str | None = None
    kind: Kind = "equals"
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for field in ("measured", "expected", "tolerance"):
            object.__setattr__(self, field, float(getattr(self, field)))

    @classmethod
    def equals(
        cls,
        name: str,
        measured: float,
        expected: float,
        tolerance: float,
        because: str,
        relative: bool = False,
        printed: float | str | None = None,
    ) -> Self:
        """Claim that a number has an expected value, within a tolerance.

        Parameters
        ----------
        name
            What is claimed.
        measured
            What this library finds.
        expected
            The value it should have.
        tolerance
            How far the two may be apart.
        because
            Where the tolerance comes from.
        relative
            Whether the tolerance is a fraction of the expected value.
        printed
            What the paper prints, where that is something else.
        """
        return cls(name, measured, expected, tolerance, because, relative, printed)

    @classmethod
    def at_least(
        cls, name: str, measured: float, bound: float, because: str, printed: float | str | None = None
    ) -> Self:
        """Claim that a number is not below a bound.

        Parameters
        ----------
        name
            What is claimed.
        measured
            What this library finds.
        bound
            The bound.
        because
            Where the bound comes from.
        printed
            What the paper prints, where that is something else.
        """
        return cls(name, measured, bound, 0.0, because, printed=printed, kind="at_least")

    @classmethod
    def at_most(
        cls, name: str, measured: float, bound: float, because: str, printed: float | str | None = None
    ) -> Self:
        """Claim that a number is not above a bound.

        Parameters
        ----------
        name
            What is claimed.
        measured
            What this library finds.
        bound
            The bound.
        because
            Where the bound comes from.
        printed
            What the paper prints, where that is something else.
        """
        return cls(name, measured, bound, 0.0, because, printed=printed, kind="at_most")

    @classmethod
    def ordered(cls, name: str, values: Any, because: str, printed: float | str | None = None) -> Self:
        """Claim that numbers increase from each to the next. Measured is the smallest step, which must be positive.

        Parameters
        ----------
        name
            What is claimed.
        values
            The numbers, in the order claimed.
        because
            Why they should be in this order.
        printed
            What the paper prints, where that is something else.
        """
        numbers = tuple(float(value) for value in values)
        if len(numbers) < 2:
            raise ValueError(f"an order needs at least 2 numbers, not {len(numbers)}")
        steps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
        smallest = math.nan if any(map(math.isnan, steps)) else min(steps)
        return cls(name, smallest, 0.0, 0.0, because, printed=printed, kind="ordered", values=numbers)

    @classmethod
    def agrees(
        cls,
        name: str,
        theory: xr.Dataset,
        simulation: xr.Dataset | Sequence[xr.Dataset],
        variable: str,
        because: str = "",
        *,
        bias: float = 0.0,
        absolute_bias: float = 0.0,
        allow_different: bool | str | Sequence[str] = False,
        extrapolate: str | None = None,
        printed: float | str | None = None,
    ) -> Self:
        """Claim that theory and the mean over runs agree in a variable.

        Measured is the chance of differences as large as those found, joined over all values of the variable as in
        :func:`solvable.compare`; it must be at least :data:`FALSE_ALARMS`.

        Parameters
        ----------
        name
            What is claimed.
        theory, simulation
            What ``predict`` and ``simulate`` return.
        variable
            Name of the variable that is compared.
        because
            Why the mean may be off by a bias.
        bias
            Fraction of theory's values by which the mean may be off besides, such as a correction of higher order
            in the sizes.
        absolute_bias
            The same in the units of the variable.
        allow_different
            As in :func:`solvable.compare`.
        extrapolate
            The size in which several simulations differ and that is extrapolated, as in :func:`solvable.compare`.
        printed
            What the paper prints, where that is something else.
        """
        found = agreement(
            theory,
            simulation,
            variable,
            bias=bias,
            absolute_bias=absolute_bias,
            allow_different=allow_different,
            extrapolate=extrapolate,
        )
        reason = f"{found.description}; a right theory is called wrong once in {1 / FALSE_ALARMS:g}"
        if because:
            reason = f"{reason}; {because}"
        return cls(name, found.p_value, FALSE_ALARMS, 0.0, reason, printed=printed, kind="agrees")

    @property
    def allowed(self) -> float:
        """The tolerance in the units of the measured number."""
        return self.tolerance * abs(self.expected) if self.relative else self.tolerance

    @property
    def passed(self) -> bool:
        """Whether the claim holds."""
        if math.isnan(self.expected) or math.isnan(self.measured):
            return self.kind == "equals" and math.isnan(self.expected) and math.isnan(self.measured)
        if self.kind in ("at_least", "agrees"):
            return self.measured >= self.expected
        if self.kind == "at_most":
            return self.measured <= self.expected
        if self.kind == "ordered":
            return self.measured > self.expected
        if math.isinf(self.expected):
            return self.measured == self.expected
        return abs(self.measured - self.expected) <= self.allowed

    def to_dict(self) -> dict[str, Any]:
        """A dictionary for JSON, in which NaN and infinities become text."""
        values = {**dataclasses.asdict(self), "allowed": self.allowed, "passed": self.passed}
        values["values"] = [_jsonable(value) for value in self.values]
        return {key: _jsonable(value) for key, value in values.items()}

    def _repr_html_(self) -> str:
        return _claims_table("Claim", [self])


def _jsonable(value: Any) -> Any:
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclasses.dataclass
class Reproduction:
    """A figure of a paper: its data, its picture and its claims.

    Parameters
    ----------
    datasets
        What was computed, by name.
    figure
        The picture.
    claims
        The claims, with what was measured.

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


# How NaN and infinities, which JSON does not have, are shown.
_SIGNS = {"nan": "–", "inf": "∞", "-inf": "−∞"}


def relation(claim: Any) -> str:
    """What a claim, as a dictionary, says of the measured number, in a few characters."""
    kind, expected = claim.get("kind", "equals"), claim["expected"]
    if kind == "ordered":
        return "increasing"
    text = f"{expected:.5g}" if isinstance(expected, float) else _SIGNS.get(str(expected), str(expected))
    return {"at_least": f"≥ {text}", "at_most": f"≤ {text}", "agrees": f"chance ≥ {text}"}.get(kind, text)


def _claims_table(caption: str, claims: Sequence[Claim]) -> str:
    rows = [
        (
            claim.name,
            f"{claim.measured:.5g}",
            relation(claim.to_dict()),
            f"± {claim.allowed:.3g}" if claim.kind == "equals" else "",
            "" if claim.printed is None else claim.printed,
            claim.because,
            "passed" if claim.passed else "FAILED",
        )
        for claim in claims
    ]
    return table(caption, ("claim", "measured", "expected", "allowed", "printed", "because", ""), rows)
