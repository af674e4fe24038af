"""Figure 8 of feature-scaling: what its fits, claims and picture make of curves that are known."""

import numpy as np
import pytest
import xarray as xr

from solvable.papers.feature_scaling import fig8

TOKENS = np.geomspace(1e5, 1e6, 14)
FALLING = 2 + (TOKENS / 1e5) ** -0.6
FALLING_MORE = 1.5 + (TOKENS / 1e5) ** -0.9
# A power that grows fits it well, and must not pass for one that falls.
FASTER_AND_FASTER = 3.2 - 0.05 * (TOKENS / 1e5) ** 0.8


def made_up(*curves: np.ndarray) -> dict[str, xr.Dataset]:
    """Three seeds of each curve, a thousandth apart, after a start at which a network knows nothing."""
    start = np.log(fig8.VOCABULARY)
    runs = [[np.append(start, curve * (1 + shift)) for shift in (-1e-3, 0.0, 1e-3)] for curve in curves]
    coords = {"richness": [0.0, 0.5, 1.0][: len(curves)], "seed": [0, 1, 2], "tokens": np.append(0.0, TOKENS)}
    losses = xr.DataArray(np.array(runs), coords, ("richness", "seed", "tokens"), "test_loss")
    known = losses.to_dataset().assign(unigram_entropy=3.4, bigram_entropy=2.7)
    return {"losses": known, "fits": fig8.fit_powers(losses)}


def test_fits_find_the_powers_that_curves_are_made_of() -> None:
    fits = made_up(FALLING, FALLING_MORE)["fits"]
    np.testing.assert_allclose(fits.exponent_excess, [0.6, 0.9], rtol=1e-3)
    np.testing.assert_allclose(fits.irreducible, [2.0, 1.5], rtol=1e-3)
    assert fits.falls.all()
    lazy = float(fits.exponent[0])
    assert float(fits.prediction) == pytest.approx(lazy * (2 - lazy))


def test_a_loss_that_falls_faster_and_faster_is_no_power() -> None:
    data = made_up(FALLING, FASTER_AND_FASTER)
    assert data["fits"].falls.values.tolist() == [True, False]
    assert float(data["fits"].misfit_excess[1]) < 0.01, "it does fit well"
    claims = {claim.name: claim for claim in fig8.claims(data)}
    falling = claims["networks whose loss falls as a power with an irreducible loss"]
    assert (falling.measured, falling.passed) == (1, False)
    assert claims["largest misfit of a falling power with an irreducible loss, rms of the logarithm"].passed
    assert all(claim.passed for claim in fig8.claims(made_up(FALLING, FALLING_MORE)))


def test_the_picture_says_that_no_falling_power_fits() -> None:
    labels = [fig8.draw(data).axes[1].get_legend_handles_labels()[1] for data in _both()]
    assert labels[0][1].startswith("γ₀ = 0.5: 0.90, less 1.50")
    assert labels[1][1] == "γ₀ = 0.5: no falling power fits"


def _both() -> tuple[dict[str, xr.Dataset], ...]:
    return made_up(FALLING, FALLING_MORE), made_up(FALLING, FASTER_AND_FASTER)


def test_runs_above_the_entropy_of_bytes_are_counted() -> None:
    """Three of six runs end above it, and the rich network ends above the lazy one in all seeds."""
    claims = {claim.name: claim for claim in fig8.claims(made_up(FALLING, FALLING + 2))}
    below = claims["share of runs that end below the entropy of single bytes"]
    ahead = claims["share of seeds in which γ₀ = 0.5 ends below the lazy network"]
    assert (below.measured, below.passed) == (0.5, False)
    assert (ahead.measured, ahead.passed) == (0.0, False)
