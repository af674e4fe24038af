"""Claims and pictures of fig5-spectrum and decay-epochs on made-up data: what they say passes, the opposite fails."""

import numpy as np
import pytest
import xarray as xr

from solvable.papers.claims import Claim
from solvable.papers.feature_scaling import fig5_spectrum
from solvable.papers.layerwise import decay_epochs


def passed(claims: list[Claim]) -> list[bool]:
    return [claim.passed for claim in claims]


def spectrum_data(exponent: float, tilt: float, scale: str = "full") -> dict[str, xr.Dataset]:
    """Networks with 0.85 and this exponent; kernels that grow by 10, in the second one tilted by this factor."""
    times = np.geomspace(*fig5_spectrum.WINDOWS[scale], 37)
    richness = np.array(fig5_spectrum.RICHNESS)
    axes = {"power": list(fig5_spectrum.POWERS), "richness": richness}
    slopes = np.stack([0.7 + 0.05 * np.arange(richness.size), 0.35 + 0.05 * np.arange(richness.size)])
    losses = times ** -slopes[..., None]
    theory = xr.Dataset(
        {
            "loss": (("power", "richness", "time"), losses),
            "growth": (("power", "richness"), np.tile(4.0 ** np.arange(richness.size), (2, 1))),
            "exponent": (("power", "richness"), slopes),
        },
        {**axes, "time": times},
    )
    noise = 1 + 0.001 * np.random.default_rng(0).normal(size=(2, 4, times.size))
    curves = np.stack([times**-0.78, times**-exponent])[:, None] * noise
    network = xr.Dataset(
        {"loss": (("power", "seed", "time"), curves)}, {"power": list(fig5_spectrum.POWERS), "time": times}
    )
    waves = np.arange(1, fig5_spectrum.WAVES + 1)
    grown = np.stack([np.full(waves.size, 10.0), 10 * np.where(waves > 6, tilt, 1.0)])
    start = np.broadcast_to(1.0 / waves**2, (2, 4, waves.size))
    values = np.stack([start, start * grown[:, None]], axis=2)
    kernel = xr.Dataset(
        {"eigenvalue": (("power", "seed", "time", "k"), values)},
        {"power": list(fig5_spectrum.POWERS), "time": [0.0, times[-1]], "k": waves},
    )
    return {name: part.assign_attrs(scale=scale) for name, part in
            {"theory": theory, "network": network, "kernel": kernel}.items()}  # fmt: skip


def test_a_kernel_that_changes_its_shape_explains_the_exponent() -> None:
    data = spectrum_data(0.84, 30.0)
    claims = fig5_spectrum.claims(data)
    assert passed(claims) == [True] * 5
    # The growth of 10 lies at 1.66 steps of a factor of four.
    assert claims[0].expected == pytest.approx(0.7 + 0.05 * np.log(10) / np.log(4), abs=1e-6)
    assert claims[2].measured == pytest.approx(30.0)
    fig5_spectrum.draw(data)


def test_a_kernel_that_grows_evenly_would_not() -> None:
    assert passed(fig5_spectrum.claims(spectrum_data(0.84, 1.0))) == [True, True, False, True, True]
    assert passed(fig5_spectrum.claims(spectrum_data(0.4, 30.0))) == [True, True, True, False, False]


def decay_data(few: float, kappa: float, entropy: float = 0.3) -> dict[str, xr.Dataset]:
    """With the largest decay random labels use so many features and true ones end at this distance."""
    decays, data = decay_epochs.DECAYS["quick"], {}
    for name, group in decay_epochs.GROUPS["quick"].items():
        shape = (len(decays), len(group.epochs), 2)
        jitter = 1 + 0.01 * np.random.default_rng(1).uniform(-1, 1, size=shape)
        distance = np.array([0.15, kappa])[:, None, None] * (1 if name == "squared-true" else 2) * jitter
        distance = entropy * jitter if name == "entropy-true" else distance
        falling = np.linspace(1.5, 1.0, shape[1])[None, :, None]
        used = np.array([18.0, few])[:, None, None] * jitter
        dims = ("decay", "epochs", "seed")
        variables = {
            "mp_distance": (dims, distance * falling),
            "effective_dimension_utilisation_once": (dims, used),
            "effective_dimension_intensity": (dims, used),
            "train_accuracy": (dims, np.full(shape, 0.99)),
            "test_accuracy": (dims, np.full(shape, 0.9)),
        }
        axes = {"decay": list(decays), "epochs": list(group.epochs)}
        data[name] = xr.Dataset(variables, axes, {"scale": "quick"})
    return data


def test_features_are_few_with_decay_and_many_without() -> None:
    data = decay_data(10.2, 0.06)
    assert all(passed(decay_epochs.claims(data)))
    decay_epochs.draw(data)


def test_decay_that_does_nothing_fails() -> None:
    by_name = {claim.name: claim.passed for claim in decay_epochs.claims(decay_data(18.0, 0.15))}
    assert sum(not one for one in by_name.values()) == 4
    assert not by_name["squared error, random labels, 100 epochs, decay 0.001: used features (largest seed)"]
    few = {claim.name: claim.passed for claim in decay_epochs.claims(decay_data(10.2, 0.06, entropy=0.05))}
    assert [name for name, one in few.items() if not one] == [
        "cross-entropy, true labels, 100 epochs: κ_CKA at any decay (smallest)"
    ]
