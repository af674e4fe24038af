"""The constant kappa for a million modes, and expected curves of gradient flow on finite samples."""

import numpy as np

from benchmarks.timing import Result, seconds
from solvable.models.linear_features import LinearFeatures
from solvable.numerics.kappa import kappa, power_law

MODES = 1_000_000


def run() -> list[Result]:
    intensities = np.arange(1, MODES + 1) ** -1.5
    spectrum = power_law(1.5, MODES)

    def few() -> object:
        return kappa(spectrum.intensities, 1000, multiplicities=spectrum.multiplicities)

    direct = seconds(lambda: kappa(intensities, 1000))
    difference = abs(float(few()) / float(kappa(intensities, 1000)) - 1)  # type: ignore[arg-type]
    model = LinearFeatures(np.arange(1, 2001) ** -1.5, np.arange(1, 2001) ** -1.0, samples=200, noise=0.5)
    times = np.geomspace(0.1, 1e6, 50)
    flow = seconds(lambda: model.predict(times))
    return [
        Result("kappa, 1e6 modes one by one", direct, "s", at_most=1.0),
        Result("kappa, 1e6 modes of a power law as weighted nodes", seconds(few), "s"),
        Result("relative difference of the two", difference, "", at_most=1e-11),
        Result("expected flow, 2000 modes, 200 samples, 50 times, with error", flow, "s"),
    ]
