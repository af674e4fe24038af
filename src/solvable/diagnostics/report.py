"""What the feature metrics say of a network, for people, plots, tables and files."""

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.diagnostics.advice import next_steps
from solvable.diagnostics.laziness import LazinessReport
from solvable.diagnostics.lines import Lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Regime = Literal["minimum-feature", "extended-feature"]
_LEFT_OUT = ("notes", "intensity", "quality", "utilisation", "utilisation_once", "training", "not_measured")
_FEATURES_ALONE = (
    "features alone do not tell: diagnose the network with solvable.torch or solvable.equinox, and give its start as "
    "initial=..."
)


def effective_dimension(weights: np.ndarray) -> float:
    """exp of the Shannon entropy of the normalised weights (eq. 1.16): d if d of them are equal and the rest zero."""
    shares = weights[weights > 0] / weights.sum() if weights.size and weights.sum() > 0 else np.empty(0)
    return float(np.exp(-np.sum(shares * np.log(shares)))) if shares.size else 0.0


@dataclasses.dataclass(frozen=True, repr=False)
class FeatureReport(Lines):
    """Metrics of the diagonalised features √ρ_k e_k, in falling order of intensity; only modes above the cutoff.

    - ``intensity`` ρ_k, eigenvalues of ⟨ΦΦᵀ⟩ on the training set (eq. 1.29);
    - ``quality`` Q*_k and ``utilisation`` Q̂_k, the share of the target and of the learned function space along e_k,
      measured on the test set (eqs. 2.3, 2.5, corrected: see docs/errata). Each is at most 1/dimension;
    - ``utilisation_once`` is Q̂_k of what e_k has on the test set beyond all stronger features. Features are orthogonal
      on the training set only, and on others several can hold the same part of the outputs. These shares add up to 1,
      or less where the outputs have a constant that the features have not;
    - ``mp_distance`` κ_CKA, the distance to the minimum-projection operator on the test set (eq. 2.9);
    - ``constant_overlap`` |⟨e_1|1⟩|, 1 if the first feature is a constant;
    - ``precision`` and ``output_precision``, of the features and outputs that were given, ``set_aside`` directions of
      the features that are not above the cutoff, ``negative`` of them with an eigenvalue below zero;
    - ``training``, what :func:`solvable.diagnostics.laziness` says of the way from the start to this network, if the
      start was given; else ``not_measured`` says why there is none;
    - ``notes`` say in words what was out of the ordinary, ``next_steps`` what to do now.
    """

    intensity: np.ndarray
    quality: np.ndarray
    utilisation: np.ndarray
    utilisation_once: np.ndarray
    mp_distance: float
    constant_overlap: float
    threshold: float
    intensity_cutoff: float
    output_cutoff: float
    train_samples: int
    test_samples: int
    features: int
    outputs: int
    classes: int | None
    output_rank: int
    target_rank: int
    notes: tuple[str, ...] = ()
    precision: str = "float64"
    output_precision: str = "float64"
    set_aside: int = 0
    negative: int = 0
    training: LazinessReport | None = None
    not_measured: str = _FEATURES_ALONE

    @property
    def rank(self) -> int:
        """Number of modes above the cutoff."""
        return self.intensity.size

    @property
    def regime(self) -> Regime:
        """Minimum-feature if κ_CKA is below the threshold, else extended-feature (Definition 2)."""
        return "minimum-feature" if self.mp_distance < self.threshold else "extended-feature"

    @property
    def training_regime(self) -> Literal["lazy", "intermediate", "rich"] | None:
        """Whether training left the tangent model of its start; None if that was not measured."""
        return None if self.training is None else self.training.verdict

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What to do next, in words."""
        return next_steps(self.regime, self.training_regime, self.test_samples, self.target_rank)

    @property
    def cumulative_quality(self) -> np.ndarray:
        """Π*(k) = Σ_{j≤k} Q*_j - k/n_test: a mode that has nothing to do with the target gives 1/n_test by chance."""
        return np.cumsum(self.quality - 1 / self.test_samples)

    @property
    def cumulative_utilisation(self) -> np.ndarray:
        """Π̂(k) = Σ_{j≤k} Q̂_j - k/n_test, as for the quality."""
        return np.cumsum(self.utilisation - 1 / self.test_samples)

    @property
    def effective_dimensions(self) -> dict[str, float]:
        """Effective numbers of features (eq. 1.16).

        ``intensity`` counts the first mode, which is nearly a constant, as one and the rest by their entropy (eq. 2.6);
        ``intensity_plain`` treats all alike; ``quality`` and ``utilisation`` are of Q* and Q̂ as measured.
        ``quality_above_noise`` and ``utilisation_above_noise`` leave out modes that overlap no more than an unrelated
        function would: p modes of 1/n_test each add up, and weigh more in the entropy than in the sum.
        ``utilisation_squared`` is of (Q̂_k dim)², as eq. 2.5 prints it: no sum to one, but hardly any weight for chance.
        ``utilisation_once`` counts what several features share for the strongest of them, and has no chance in it.
        """
        return {
            "intensity": 1 + effective_dimension(self.intensity[1:]),
            "intensity_plain": effective_dimension(self.intensity),
            "quality": effective_dimension(self.quality),
            "utilisation": effective_dimension(self.utilisation),
            "quality_above_noise": effective_dimension(self._above_noise(self.quality, self.target_rank)),
            "utilisation_above_noise": effective_dimension(self._above_noise(self.utilisation, self.output_rank)),
            "utilisation_squared": effective_dimension(self.utilisation**2),
            "utilisation_once": effective_dimension(self.utilisation_once),
        }

    def _above_noise(self, share: np.ndarray, dimension: int) -> np.ndarray:
        """Shares less their bias, of the modes above the level that one unrelated mode in a hundred reports passes.

        A random direction in n dimensions has a squared projection on d of them that is Beta(d/2, (n-d)/2).
        """
        from scipy.special import betaincinv

        rest = self.test_samples - dimension
        level = betaincinv(dimension / 2, rest / 2, 1 - 0.01 / self.rank) / dimension if rest > 0 else 0.0
        return np.where(share > level, np.maximum(share - 1 / self.test_samples, 0), 0)

    def _lines(self) -> list[tuple[str, str]]:
        targets = f"{self.classes} classes" if self.classes else f"{self.outputs} real targets"
        sizes = self.effective_dimensions
        return [
            ("feature regime", f"{self.regime}   (distance {self.mp_distance:.4g}, threshold {self.threshold:g})"),
            *self._training_lines(),
            ("measured on", self._data()),
            ("features", f"{self.features}, rank {self.rank} above the cutoff {self.intensity_cutoff:.2g}"),
            ("precision", self._precision()),
            ("outputs", f"{self.outputs}, rank {self.output_rank}; {targets}"),
            ("overlap of first feature with constant", f"{self.constant_overlap:.4f}"),
            ("effective dimension of intensity", f"{sizes['intensity']:.2f}   (plain {sizes['intensity_plain']:.2f})"),
            ("effective dimension of quality", _with_noise(sizes, "quality")),
            (
                "effective dimension of utilisation",
                f"{_with_noise(sizes, 'utilisation')[:-1]}, each part once {sizes['utilisation_once']:.2f})",
            ),
            *(("note", note) for note in self.notes),
            *(("next", step) for step in self.next_steps),
        ]

    def _training_lines(self) -> list[tuple[str, str]]:
        if self.training is None:
            return [("training regime", f"not measured   ({self.not_measured})")]
        return self.training.measured_lines()

    def _data(self) -> str:
        words = f"{self.train_samples} training samples and {self.test_samples} test samples"
        if self.training is not None:
            words += f"; training regime on {self.training.inputs} test inputs, kernel on {self.training.kernel_inputs}"
        return words

    def _precision(self) -> str:
        words = f"features in {self.precision}, outputs in {self.output_precision}"
        if not self.set_aside:
            return f"{words}; no direction is within rounding"
        negative = f"{self.negative} of them with an eigenvalue below zero"
        are = "direction of the features is" if self.set_aside == 1 else "directions of the features are"
        return f"{words}; {self.set_aside} {are} within rounding and set aside, {negative}"

    def __repr__(self) -> str:
        sizes = self.effective_dimensions
        return (
            f"FeatureReport({self.regime}, training={self.training_regime or 'not measured'}, "
            f"mp_distance={self.mp_distance:.4g}, rank={self.rank}, effective dimensions: "
            f"intensity={sizes['intensity']:.4g}, quality={sizes['quality']:.4g}, "
            f"utilisation={sizes['utilisation']:.4g})"
        )

    def to_dataset(self) -> xr.Dataset:
        """The curves over k and the numbers, each with its meaning."""
        return _dataset(self)

    def to_json(self) -> str:
        """All numbers as JSON text."""
        numbers = {name: value for name, value in _numbers(self).items() if value is not None}
        curves = {name: [float(value) for value in getattr(self, name)] for name in _CURVES}
        words = {"notes": list(self.notes), "next_steps": list(self.next_steps)}
        return json.dumps(
            {**numbers, **self._training(), "effective_dimensions": self.effective_dimensions, **words, **curves}
        )

    def _training(self) -> dict[str, Any]:
        """The training regime for JSON, with the reason where there is none."""
        if self.training is None:
            return {"training_regime": None, "training_not_measured": self.not_measured}
        return {"training_regime": self.training_regime, "training": json.loads(self.training.to_json())}

    def plot(self) -> "Figure":
        """Cumulative quality, cumulative utilisation and intensity against k, with the number of classes marked."""
        from solvable.diagnostics.pictures import three_panels

        return three_panels(self)


_CURVES: dict[str, tuple[str, str]] = {
    "intensity": ("intensity", "ρ_k"),
    "quality": ("quality", "Q*_k"),
    "utilisation": ("utilisation", "Q̂_k"),
    "utilisation_once": ("utilisation beyond all stronger features", "Q̂_k"),
    "cumulative_quality": ("cumulative quality, bias k/n_test removed", "Π*(k)"),
    "cumulative_utilisation": ("cumulative utilisation, bias k/n_test removed", "Π̂(k)"),
}
_DIMENSIONS: dict[str, str] = {
    "intensity": "effective dimension of intensity, first mode set apart",
    "intensity_plain": "effective dimension of intensity",
    "quality": "effective dimension of quality",
    "utilisation": "effective dimension of utilisation",
    "quality_above_noise": "effective dimension of quality above noise",
    "utilisation_above_noise": "effective dimension of utilisation above noise",
    "utilisation_squared": "effective dimension of the square of utilisation",
    "utilisation_once": "effective dimension of utilisation, each part counted once",
}
_SCALARS: dict[str, tuple[str, str]] = {
    "mp_distance": ("distance to the minimum-projection operator", "κ_CKA"),
    "constant_overlap": ("overlap of the first feature with the constant", "⟨e_1|1⟩"),
    "rank": ("number of features above the cutoff", "rank"),
}


def _with_noise(sizes: dict[str, float], name: str) -> str:
    return f"{sizes[name]:.2f}   (above noise {sizes[name + '_above_noise']:.2f})"


def _numbers(report: FeatureReport) -> dict[str, Any]:
    values = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
    return {"regime": report.regime, "rank": report.rank} | {
        name: value for name, value in values.items() if name not in _LEFT_OUT
    }


def _dataset(report: FeatureReport) -> xr.Dataset:
    curves = {
        name: ("mode", getattr(report, name), {"long_name": text, "units": "1", "symbol": symbol})
        for name, (text, symbol) in _CURVES.items()
    }
    scalars = {
        name: ((), getattr(report, name), {"long_name": text, "units": "1", "symbol": symbol})
        for name, (text, symbol) in _SCALARS.items()
    }
    sizes = {
        f"effective_dimension_{name}": ((), report.effective_dimensions[name], {"long_name": text, "units": "1"})
        for name, text in _DIMENSIONS.items()
    }
    modes = np.arange(1, report.rank + 1)
    attributes = {name: value for name, value in _numbers(report).items() if name not in _SCALARS and value is not None}
    attributes |= {"training_regime": report.training_regime or "not measured", "notes": "; ".join(report.notes)}
    attributes |= {"next_steps": "; ".join(report.next_steps), "version": __version__}
    if report.training is not None:
        scalars["tangent_distance"] = (
            (), report.training.distance, {"long_name": "distance from the tangent model of the start", "units": "1"},
        )  # fmt: skip
    coordinate = ("mode", modes, {"long_name": "feature, in falling order of intensity", "units": "1", "symbol": "k"})
    return xr.Dataset({**curves, **scalars, **sizes}, coords={"mode": coordinate}, attrs=attributes)
