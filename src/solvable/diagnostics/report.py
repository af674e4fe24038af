"""The report of the feature metrics of a network: summary, advice, picture, dataset and JSON."""

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.dataset import Meaning, make_dataset
from solvable.diagnostics.laziness import LazinessReport
from solvable.display import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Regime = Literal["minimum-feature", "extended-feature"]

_CURVES = {
    "intensity": Meaning("intensity", "1", "ρ_k"),
    "quality": Meaning("quality", "1", "Q*_k"),
    "utilisation": Meaning("utilisation", "1", "Q̂_k"),
    "utilisation_once": Meaning("utilisation beyond all stronger features", "1", "Q̂_k"),
    "cumulative_quality": Meaning("cumulative quality, bias k/n_test removed", "1", "Π*(k)"),
    "cumulative_utilisation": Meaning("cumulative utilisation, bias k/n_test removed", "1", "Π̂(k)"),
}
_SCALARS = {
    "mp_distance": Meaning("distance to the minimum-projection operator", "1", "κ_CKA"),
    "constant_overlap": Meaning("overlap of the first feature with the constant", "1", "⟨e_1|1⟩"),
    "rank": Meaning("number of features above the cutoff", "1", "rank"),
}
_MEANINGS = {
    **_CURVES,
    **_SCALARS,
    "effective_dimension_intensity": Meaning("effective dimension of intensity, first mode counted separately", "1"),
    "effective_dimension_intensity_plain": Meaning("effective dimension of intensity", "1"),
    "effective_dimension_quality": Meaning("effective dimension of quality", "1"),
    "effective_dimension_utilisation": Meaning("effective dimension of utilisation", "1"),
    "effective_dimension_quality_above_noise": Meaning("effective dimension of quality above noise", "1"),
    "effective_dimension_utilisation_above_noise": Meaning("effective dimension of utilisation above noise", "1"),
    "effective_dimension_utilisation_squared": Meaning("effective dimension of the square of utilisation", "1"),
    "effective_dimension_utilisation_once": Meaning(
        "used features: effective dimension of utilisation, parts counted once", "1"
    ),
    "tangent_distance": Meaning("distance from the tangent model at initialisation", "1"),
    "mode": Meaning("feature, in decreasing order of intensity", "1", "k"),
}

# With fewer test samples per dimension of the targets than this, chance is a large part of quality and utilisation.
_SAMPLES_PER_DIMENSION = 10
_GIVE_INITIAL = (
    "to see whether training was lazy or rich, diagnose the network together with its initial parameters: initial=... "
    "in Python, --initial on the command line"
)
_ADVICE: dict[tuple[str, str | None], str] = {
    ("minimum-feature", "rich"): (
        "the learned features are those of the outputs, and no others are left: look at neural collapse (collapse), "
        "and stop earlier or lower the weight decay if the features are to serve other tasks"
    ),
    ("extended-feature", "rich"): (
        "features were learned, and there are more of them than the outputs need: follow them with a Tracker, and "
        "train longer or with more weight decay to see whether they disappear"
    ),
    ("minimum-feature", "lazy"): (
        "the features were those of the outputs before training, as in a narrow or a pre-trained network: diagnose the "
        "initial network as well, and measure on data that need more features"
    ),
    ("extended-feature", "lazy"): (
        "the features are still those of the initialisation, and kernel regression describes this network: "
        "solvable.networks.forecast predicts how its loss falls; to learn features, start from smaller outputs or "
        "weights, or train longer"
    ),
    ("minimum-feature", "intermediate"): (
        "training departed in part from its tangent model, and the features are those of the outputs: follow both with "
        "a Tracker during training to see when the other features disappeared"
    ),
    ("extended-feature", "intermediate"): (
        "training departed in part from its tangent model: train longer, or start from smaller outputs or weights, and "
        "diagnose again to see which regime it approaches"
    ),
    ("minimum-feature", None): (
        "the features are those of the outputs, and no others are left: look at neural collapse (collapse)"
    ),
    ("extended-feature", None): (
        "there are more features than the outputs need: compare with the network before training and later in training "
        "(Tracker) to see whether they are being learned, were there before, or are disappearing"
    ),
}


def effective_dimension(weights: np.ndarray) -> float:
    """exp of the Shannon entropy of the normalised weights (eq. 1.16): d if d of them are equal and the rest zero."""
    fractions = weights[weights > 0] / weights.sum() if weights.size and weights.sum() > 0 else np.empty(0)
    return float(np.exp(-np.sum(fractions * np.log(fractions)))) if fractions.size else 0.0


@dataclasses.dataclass(frozen=True, repr=False)
class FeatureReport(Report):
    """Metrics of the diagonalised features √ρ_k e_k in decreasing order of intensity; only modes above the cutoff.

    Parameters
    ----------
    intensity
        ρ_k, the eigenvalues of ⟨ΦΦᵀ⟩ on the training set (eq. 1.29).
    quality
        Q*_k, the fraction of the target space along e_k, measured on the test set (eq. 2.3, corrected: see
        docs/errata). Each is at most 1/dimension.
    utilisation
        Q̂_k, the same of the learned function space (eq. 2.5, corrected).
    utilisation_once
        Q̂_k of the part of e_k that is orthogonal to all stronger features on the test set. Features are
        orthogonal on the training set only, and on other data several can contain the same part of the outputs.
        These numbers add up to 1, or less where the outputs have a constant that the features cannot express.
    mp_distance
        κ_CKA, the distance to the minimum-projection operator on the test set (eq. 2.9).
    constant_overlap
        |⟨e_1|1⟩|: 1 if the first feature is a constant.
    threshold
        The distance below which a network is in the minimum-feature regime.
    intensity_cutoff
        The intensity above which a direction of the features counts as a mode.
    output_cutoff
        The same for directions of the outputs.
    train_samples, test_samples
        Number of samples of each set.
    features, outputs
        Number of features and of outputs that were given.
    classes
        Number of classes; None for real targets.
    output_rank, target_rank
        Dimension of the space of the outputs and of the targets.
    notes
        What is unusual.
    precision, output_precision
        Floating-point type of the features and of the outputs that were given.
    set_aside
        Number of directions of the features that are not above the cutoff.
    negative
        How many of these have an eigenvalue below zero.
    training
        The :class:`LazinessReport` from the initial network to this one, if the initial network was given.
    not_measured
        Why there is no such report.
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
    not_measured: str = (
        "features alone do not determine it: diagnose the network with solvable.torch or solvable.equinox, and give "
        "the initial network as initial=..."
    )

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
        """Whether training departed from the tangent model at initialisation; None if that was not measured."""
        return None if self.training is None else self.training.verdict

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What to do next."""
        steps = [_ADVICE[self.regime, self.training_regime]]
        if self.training is None:
            steps.append(_GIVE_INITIAL)
        enough = _SAMPLES_PER_DIMENSION * self.target_rank
        if self.test_samples < enough:
            steps.append(
                f"give more test samples: with {self.test_samples} for targets of dimension {self.target_rank}, much "
                f"is due to chance; {enough} or more are better"
            )
        return tuple(steps)

    @property
    def cumulative_quality(self) -> np.ndarray:
        """Π*(k) = Σ_{j≤k} Q*_j - k/n_test: a mode that is unrelated to the target has quality 1/n_test by chance."""
        return np.cumsum(self.quality - 1 / self.test_samples)

    @property
    def cumulative_utilisation(self) -> np.ndarray:
        """Π̂(k) = Σ_{j≤k} Q̂_j - k/n_test, as for the quality."""
        return np.cumsum(self.utilisation - 1 / self.test_samples)

    @property
    def used_features(self) -> float:
        """Number of features that the outputs are made of: ``effective_dimensions["utilisation_once"]``.

        Of the four counts it is the one whose shares add up to 1, in which chance has no part, and which is the number
        of classes for a network that uses just as many features, on new samples too.
        """
        return self.effective_dimensions["utilisation_once"]

    @property
    def effective_dimensions(self) -> dict[str, float]:
        """Effective numbers of features (eq. 1.16).

        - ``intensity`` counts the first mode, which is nearly constant, as one and the rest by their entropy (eq. 2.6);
          ``intensity_plain`` treats all modes alike.
        - ``quality`` and ``utilisation`` are those of Q* and Q̂ as measured.
        - ``quality_above_noise`` and ``utilisation_above_noise`` leave out modes that overlap no more than an unrelated
          function would: p modes of 1/n_test each add up, and weigh more in the entropy than in the sum.
        - ``utilisation_squared`` is that of (Q̂_k dim)², as eq. 2.5 prints it: these numbers do not sum to one, but
          hardly weigh modes that overlap by chance.
        - ``utilisation_once`` counts what several features share for the strongest of them, and has no such bias: it is
          :attr:`used_features`.
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

    def _above_noise(self, fractions: np.ndarray, dimension: int) -> np.ndarray:
        """Fractions less their bias, of the modes above a level that an unrelated mode exceeds in 1 % of the reports.

        A random direction in n dimensions has a squared projection on d of them that is Beta(d/2, (n-d)/2).
        """
        from scipy.special import betaincinv

        rest = self.test_samples - dimension
        level = betaincinv(dimension / 2, rest / 2, 1 - 0.01 / self.rank) / dimension if rest > 0 else 0.0
        return np.where(fractions > level, np.maximum(fractions - 1 / self.test_samples, 0), 0)

    def _rows(self) -> list[tuple[str, str]]:
        sizes = {name: f"{value:.2f}" for name, value in self.effective_dimensions.items()}
        samples = f"{self.train_samples} training samples and {self.test_samples} test samples"
        training = [("training regime", f"not measured   ({self.not_measured})")]
        if self.training is not None:
            training = self.training.measured_rows()
            samples += (
                f"; training regime on {self.training.inputs} test inputs, kernel on {self.training.kernel_inputs}"
            )
        targets = f"{self.classes} classes" if self.classes else f"{self.outputs} real targets"
        others = (
            f"as measured {sizes['utilisation']}, above noise {sizes['utilisation_above_noise']}, "
            f"squared {sizes['utilisation_squared']}"
        )
        return [
            ("feature regime", f"{self.regime}   (distance {self.mp_distance:.4g}, threshold {self.threshold:g})"),
            *training,
            ("measured on", samples),
            ("features", f"{self.features}, rank {self.rank} above the cutoff {self.intensity_cutoff:.2g}"),
            ("precision", self._precision()),
            ("outputs", f"{self.outputs}, rank {self.output_rank}; {targets}"),
            ("overlap of first feature with constant", f"{self.constant_overlap:.4f}"),
            ("effective dimension of intensity", f"{sizes['intensity']}   (plain {sizes['intensity_plain']})"),
            ("effective dimension of quality", f"{sizes['quality']}   (above noise {sizes['quality_above_noise']})"),
            ("used features", f"{sizes['utilisation_once']}   (each part of the outputs once; {others})"),
            *(("note", note) for note in self.notes),
            *(("next", step) for step in self.next_steps),
        ]

    def _precision(self) -> str:
        text = f"features in {self.precision}, outputs in {self.output_precision}"
        if not self.set_aside:
            return f"{text}; no direction is within rounding"
        verb = "direction of the features is" if self.set_aside == 1 else "directions of the features are"
        negative = f"{self.negative} of them with an eigenvalue below zero"
        return f"{text}; {self.set_aside} {verb} within rounding and set aside, {negative}"

    def __repr__(self) -> str:
        sizes = self.effective_dimensions
        return (
            f"FeatureReport({self.regime}, training={self.training_regime or 'not measured'}, "
            f"mp_distance={self.mp_distance:.4g}, rank={self.rank}, effective dimensions: "
            f"intensity={sizes['intensity']:.4g}, quality={sizes['quality']:.4g}, "
            f"used features={self.used_features:.4g})"
        )

    def _numbers(self) -> dict[str, Any]:
        """The regime, the rank and all fields that are single numbers or names."""
        skipped = (*_CURVES, "notes", "training", "not_measured")
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        numbers = {name: value for name, value in fields.items() if name not in skipped and value is not None}
        return {"regime": self.regime, "rank": self.rank, **numbers}

    def to_dataset(self) -> xr.Dataset:
        """The curves over k and the numbers, with names, units and symbols."""
        variables: dict[str, Any] = {name: (("mode",), getattr(self, name)) for name in _CURVES}
        variables |= {name: ((), getattr(self, name)) for name in _SCALARS}
        variables |= {f"effective_dimension_{name}": ((), size) for name, size in self.effective_dimensions.items()}
        if self.training is not None:
            variables["tangent_distance"] = ((), self.training.distance)
        attributes = {name: value for name, value in self._numbers().items() if name not in _SCALARS} | {
            "training_regime": self.training_regime or "not measured",
            "notes": "; ".join(self.notes),
            "next_steps": "; ".join(self.next_steps),
            "version": __version__,
        }
        return make_dataset(variables, {"mode": np.arange(1, self.rank + 1)}, attributes, _MEANINGS)

    def to_json(self) -> str:
        """All numbers as a JSON string."""
        if self.training is None:
            training: dict[str, Any] = {"training_not_measured": self.not_measured}
        else:
            training = {"training": json.loads(self.training.to_json())}
        content = {
            **self._numbers(),
            "training_regime": self.training_regime,
            **training,
            "effective_dimensions": self.effective_dimensions,
            "notes": list(self.notes),
            "next_steps": list(self.next_steps),
            **{name: getattr(self, name).tolist() for name in _CURVES},
        }
        return json.dumps(content)

    def plot(self) -> "Figure":
        """Cumulative quality, cumulative utilisation and intensity against k, with the number of outputs marked."""
        from solvable.plotting import COLOURS, new_figure

        figure, axes = new_figure(3, width=4.4)
        modes = np.arange(1, self.rank + 1)
        panels = (
            ("cumulative quality, Π*(k)", self.cumulative_quality),
            ("cumulative utilisation, Π̂(k)", self.cumulative_utilisation),
            ("intensity, ρ_k / ρ_1", self.intensity / self.intensity[0]),
        )
        for colour, ax, (label, values) in zip(COLOURS, axes, panels, strict=False):
            positive = values > 0
            ax.plot(modes[positive], values[positive], color=colour, marker="o", markersize=3, linewidth=1.4)
            ax.axvline(self.outputs, color="0.4", linestyle=":", linewidth=1.2, label=f"k = C = {self.outputs}")
            ax.set(xscale="log", yscale="log", xlabel="feature, k", ylabel=label)
            ax.legend(fontsize="small")
        for ax in axes[:2]:
            ax.axhline(1, color="0.4", linewidth=0.8)
        distance = f"κ_CKA = {self.mp_distance:.3g} (threshold {self.threshold:g})"
        figure.suptitle(f"features: {self.regime}, {distance}; training: {self.training_regime or 'not measured'}")
        return figure
