"""What sliders run over, where a page starts, and how large things may be: the one table of the explorer.

A model says what a parameter *may* be (its rule); this says what is worth a slider, which no rule knows.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class Scale:
    """A slider from ``low`` to ``high``, evenly or in the logarithm; ``before`` and ``after`` are extra stops.

    Stops are texts, as they would be typed: a whole slider is a list of values that look well in an address.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    count: int = 100

    def stops(self) -> tuple[str, ...]:
        values = (np.geomspace if self.log else np.linspace)(self.low, self.high, self.count + 1)
        if self.whole:
            values = np.unique(np.round(values))
        digits = 3 if self.log else 4
        texts = dict.fromkeys(_short(float(f"{value:.{digits}g}"), self.whole) for value in values)
        return (*self.before, *texts, *self.after)


def _short(value: float, whole: bool) -> str:
    return str(int(value)) if whole or (value.is_integer() and abs(value) < 1e6) else repr(value)


def _rate(low: float, high: float) -> Scale:
    return Scale(low, high, log=True)


_INFINITE = ("inf",)
_NONE = ("",)

# Sliders by model and field; for lists and matrices the slider of each entry.
SCALES: Mapping[str, Mapping[str, Scale]] = {
    "linear-estimator": {
        "aspect_ratio": Scale(0.03, 3, count=99),
        "outputs": Scale(1, 1000, log=True, whole=True),
        "learning_rate": _rate(1e-4, 1),
        "weight_decay": Scale(1e-6, 1, log=True, before=("0",)),
        "threshold": _rate(1e-6, 0.1),
        "student_scale": Scale(0, 4, count=80),
        "label_noise": Scale(0, 1),
        "hidden": Scale(1, 1000, log=True, whole=True, before=_NONE),
    },
    "linear-features": {
        "intensities": Scale(1e-4, 10, log=True, before=("0",)),
        "target": Scale(-2, 2, count=80),
        "samples": Scale(1, 2000, log=True, whole=True, after=_NONE),
        "noise": Scale(0, 2),
    },
    "diagonal-network": {
        "variances": _rate(0.01, 10),
        "target_scales": Scale(-5, 5),
        "first": _rate(1e-6, 3),
        "second": _rate(1e-6, 3),
    },
    "linear-network": {
        "singular_values": Scale(0, 5),
        "width": Scale(1, 300, log=True, whole=True),
        "initial_scale": _rate(1e-8, 1),
    },
    "scalar-network": {
        "first": Scale(-3, 3, count=120),
        "second": Scale(-3, 3, count=120),
        "target": Scale(-5, 5),
        "output_scale": _rate(0.01, 100),
        "input_power": _rate(0.01, 100),
    },
    "skills": {
        "exponent": Scale(0.05, 2, count=39),
        "skills": Scale(1, 1000, log=True, whole=True, after=_INFINITE),
        "target_scale": _rate(0.1, 10),
        "initial_strength": _rate(1e-6, 0.5),
        "learning_rate": _rate(1e-3, 10),
        "basis": Scale(1, 1000, log=True, whole=True, after=_INFINITE),
        "samples": Scale(1, 1e6, log=True, whole=True, after=_INFINITE),
        "rate": _rate(1e-3, 10),
        "shots": Scale(1, 1000, log=True, whole=True),
        "neurons_per_skill": Scale(1, 16, whole=True),
    },
    "committee": {
        "samples_per_dimension": Scale(0.3, 100, log=True, after=_INFINITE),
        "output_scale": _rate(0.05, 5),
        "initial_alignment": Scale(-0.6, 0.6, count=60),
        "step": _rate(0.01, 1),
        "weight_decay": Scale(1e-4, 1, log=True, before=("0",)),
    },
    "feature-scaling": {
        "capacity": Scale(1.05, 4, count=59),
        "source": Scale(0.05, 4, count=79),
        "features": Scale(4, 4096, log=True, whole=True, after=_INFINITE),
        "batch": Scale(1, 4096, log=True, whole=True, after=_INFINITE),
        "richness": Scale(0.01, 10, log=True, before=("0",)),
        "learning_rate": _rate(1e-3, 1),
        "modes": Scale(10, 4000, log=True, whole=True, after=_INFINITE),
        "samples": Scale(4, 4096, log=True, whole=True, after=_NONE),
    },
    "parity-mode": {
        "target_scale": _rate(0.1, 10),
        "first": _rate(1e-4, 1),
        "second": _rate(1e-4, 1),
        "third": _rate(1e-4, 1),
        "offset": Scale(-2, 2),
    },
}

# Options that many methods share.
OPTION_SCALES: Mapping[str, Scale] = {
    "inputs": Scale(50, 2000, log=True, whole=True, count=40),
    "dimension": Scale(50, 2000, log=True, whole=True, count=40),
    "seeds": Scale(2, 64, whole=True, count=62),
    "samples": Scale(10, 1e5, log=True, whole=True, after=_NONE, count=60),
    "learning_rate": _rate(1e-3, 0.3),
    "modes": Scale(2, 1000, log=True, whole=True, before=_NONE, count=60),
    "batch": Scale(1, 2000, log=True, whole=True, after=_NONE, count=60),
    "per_decade": Scale(4, 32, whole=True, count=28),
}

# Where a page starts, apart from the models' own defaults: short texts of lists, and sizes that two cores train while
# one watches.
START: Mapping[str, Mapping[str, str]] = {
    "linear-estimator": {"inputs": "400", "seeds": "8"},
    "linear-features": {"seeds": "40"},
    "linear-network": {"singular_values": "3,2,1", "seeds": "6"},
    "skills": {"seeds": "6"},
    "committee": {"seeds": "8"},
    "feature-scaling": {"capacity": "1.5", "source": "0.5", "modes": "1000", "seeds": "8"},
    "parity-mode": {"seeds": "4"},
}

# What the units of a parameter are, where it has any; the rest are pure numbers.
UNITS: Mapping[str, Mapping[str, str]] = {
    "linear-estimator": {"learning_rate": "1/step"},
    "committee": {"step": "time"},
}

# No page asks for more than this. Counts that a run's size grows with; lists; times.
MOST: Mapping[str, float] = {
    "hidden": 5000,
    "width": 500,
    "skills": 1e6,
    "basis": 1e9,
    "samples": 1e9,
    "shots": 1e6,
    "neurons_per_skill": 1e6,
    "outputs": 1e5,
    "features": 1e9,
    "batch": 1e9,
    "modes": 1e7,
    "inputs": 2000,
    "dimension": 2000,
    "seeds": 64,
    "per_decade": 40,
    "key": 2**31 - 1,
    "max_steps": 1e6,
}
MOST_ENTRIES = 2000
MOST_ROWS = 16
MOST_TIMES = 400
LAST_TIME = 1e12
LONGEST_NUMBER = 64
LONGEST_LIST = 4000
# Seconds that a calculation of each kind may take before it is stopped.
SECONDS: Mapping[str, float] = {"theory": 120.0, "cards": 60.0, "plane": 180.0, "simulation": 600.0, "diagnosis": 120.0}
