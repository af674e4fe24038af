"""Figure 8 of feature-scaling: what its fits and claims make of curves that are known."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from solvable.papers.feature_scaling import fig8

TEXT = SimpleNamespace(unigram_entropy=3.4, bigram_entropy=2.7)


def losses(*curves: np.ndarray, tokens: np.ndarray) -> xr.DataArray:
    """Three seeds of each curve, a thousandth apart, after a start that knows nothing."""
    start = np.log(fig8.VOCABULARY)
    made = [[np.append(start, curve * (1 + shift)) for shift in (-1e-3, 0.0, 1e-3)] for curve in curves]
    coords = {"richness": [0.0, 0.5, 1.0][: len(curves)], "seed": [0, 1, 2], "tokens": np.append(0.0, tokens)}
    return xr.DataArray(np.array(made), coords, ("richness", "seed", "tokens"))


@pytest.fixture
def tokens() -> np.ndarray:
    return np.geomspace(1e5, 1e6, 14)


def test_fits_find_the_powers_that_curves_are_made_of(tokens: np.ndarray) -> None:
    fits = fig8._fits(losses(2 + (tokens / 1e5) ** -0.6, 1.5 + (tokens / 1e5) ** -0.9, tokens=tokens))
    np.testing.assert_allclose(fits.exponent_excess, [0.6, 0.9], rtol=1e-3)
    np.testing.assert_allclose(fits.irreducible, [2.0, 1.5], rtol=1e-3)
    assert fits.falls.all()
    lazy = float(fits.exponent[0])
    assert float(fits.prediction) == pytest.approx(lazy * (2 - lazy))


def test_a_loss_that_falls_faster_and_faster_is_no_power(tokens: np.ndarray) -> None:
    """A power that grows fits it well, and must not pass for one that falls."""
    faster = 3.2 - 0.05 * (tokens / 1e5) ** 0.8
    found = losses(2 + (tokens / 1e5) ** -0.6, faster, tokens=tokens)
    fits = fig8._fits(found)
    assert fits.falls.values.tolist() == [True, False]
    assert float(fits.misfit_excess[1]) < 0.01, "it does fit well"
    claims = {claim.name: claim for claim in fig8._claims(found, fits, TEXT)}  # type: ignore[arg-type]
    falling = claims["networks whose loss falls as a power with an irreducible loss"]
    assert (falling.measured, falling.passed) == (1, False)
    assert claims["largest misfit of a falling power with an irreducible loss, rms of the logarithm"].passed
    both = losses(2 + (tokens / 1e5) ** -0.6, 1.5 + (tokens / 1e5) ** -0.9, tokens=tokens)
    assert all(claim.passed for claim in fig8._claims(both, fig8._fits(both), TEXT))  # type: ignore[arg-type]
