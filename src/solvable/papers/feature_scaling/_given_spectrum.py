"""Theory of networks on the circle with a spectrum that is given: of a finite grid, or of a network's own kernel."""

import numpy as np
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.networks.tasks.circle import circle_grid, circle_target, fourier_decay
from solvable.papers.feature_scaling._circle import spectrum
from solvable.papers.feature_scaling._shared import fall
from solvable.training import GradientFlow

# Three targets that fig5 leaves out, and one that it has, as a control.
SOURCES = (0.1, 0.25, 0.5, 1.5)
WINDOW = (30.0, 320.0)
THEORY_RICHNESS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
# Eigenvalues of a kernel below this fraction of the largest are not learned at any time that is looked at.
LEAST = 1e-9


def window_times() -> np.ndarray:
    return np.geomspace(*WINDOW, 25)


def solved(
    eigenvalues: np.ndarray, shares: np.ndarray, richness: float, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Loss, half the mean square, and growth of the kernel over times: theory with any spectrum.

    ``shares`` are what each eigenvector has of the loss at the start. What lies on eigenvalues that are zero, or
    nearly, stays.
    """
    learned = eigenvalues > LEAST * eigenvalues.max()
    values, rest = eigenvalues[learned], float(shares[~learned].sum())
    target = np.sqrt(2 * shares[learned] / values)
    model = FeatureScaling(spectrum=values, target=target, richness=richness, features=np.inf)
    found = model.predict(times, GradientFlow())
    return found.test_loss.values / 2 + rest, found.kernel_growth.values


def wave_shares(source: float, points: int) -> np.ndarray:
    """What each wave k = 1 ... has of the loss at the start, a quarter of its squared coefficient."""
    waves = np.arange(1, (points - 1) // 2 + 1)
    return 0.25 * waves ** (-2 * float(fourier_decay(source)))


def wave_theory(points: int) -> xr.Dataset:
    """Theory with the eigenvalues of the infinitely wide network on a grid, by source and richness.

    The target has cosines only, so that sines, the mean and the wave of the grid's own frequency take no part.
    """
    shares = [wave_shares(source, points) for source in SOURCES]
    return _family([[(spectrum(1.0, points)[1 : (points + 1) // 2], one) for one in shares]]).isel(seed=0)


def kernel_theory(kernels: list[np.ndarray]) -> xr.Dataset:
    """Theory with the eigenvalues and eigenvectors of kernel matrices, one per seed, by source and richness."""
    points = kernels[0].shape[0]
    angles = np.asarray(circle_grid(points))
    targets = np.stack([cosine_target(source, angles) for source in SOURCES], axis=1)
    spectra = []
    for matrix in kernels:
        values, vectors = np.linalg.eigh(matrix / points)
        spectra.append([(values, one) for one in ((vectors.T @ targets) ** 2 / (2 * points)).T])
    return _family(spectra)


def cosine_target(source: float, angles: np.ndarray) -> np.ndarray:
    return np.asarray(circle_target(angles, float(fourier_decay(source)), (angles.size - 1) // 2))  # type: ignore[arg-type]


def _family(spectra: list[list[tuple[np.ndarray, np.ndarray]]]) -> xr.Dataset:
    """Theory for spectra and shares by seed and source."""
    times = window_times()
    curves = [
        [[solved(values, shares, richness, times) for richness in THEORY_RICHNESS] for values, shares in row]
        for row in spectra
    ]
    dims = ("seed", "source", "richness", "time")
    axes = {"source": list(SOURCES), "richness": list(THEORY_RICHNESS), "time": times}
    names = ("loss", "growth")
    return xr.Dataset(
        {
            name: (dims, [[[one[place] for one in row] for row in rows] for rows in curves])
            for place, name in enumerate(names)
        },
        axes,
    )


def matched(theory: xr.Dataset, growth: xr.DataArray) -> float:
    """Theory's exponent where its kernel has grown, at the window's end, by the mean factor of the network's waves.

    The mean is geometric, over waves and over seeds.
    """
    wanted = float(np.log(growth).mean())
    grown = np.log(theory.growth.isel(time=-1).values)
    if not grown[0] <= wanted <= grown[-1]:
        return float("nan")
    exponents = [fall(theory.time.values, one.values) for one in theory.loss]
    return float(np.interp(wanted, grown, exponents))


def loss_at_growth(theory: xr.Dataset, growth: xr.DataArray) -> np.ndarray:
    """Theory's loss at the network's growth, interpolated in logarithms between richnesses."""
    grown, wanted = np.log(theory.growth.isel(time=-1).values), float(np.log(growth).mean())
    return np.exp([np.interp(wanted, grown, column) for column in np.log(theory.loss.values).T])
