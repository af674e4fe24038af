"""Fig. 8, exploratory: a small transformer on text, plain SGD, lazy against rich.

The paper trains four layers of width 2048 on the C4 corpus, split into subwords, for 3·10⁹ tokens. Here the text is
the documentation of Python, NumPy, SciPy and JAX as it is installed, 9 MB of bytes, the network is 256 wide, and the
lazy one is the tangent model itself, the limit of vanishing richness. The paper predicts the rich exponent β(2 - β)
from the lazy one, β, without subtracting an irreducible loss. The prediction is for a square loss, and is the first
level of the paper's model of features (at its fixed point the exponent is 2β/(1 + β)), so it is shown beside the fits
and not claimed. So are fits with an irreducible loss, which little more than a decade of tokens hardly determines.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax
import xarray as xr

from solvable.fits import power_law
from solvable.networks import centred, log_steps, train
from solvable.networks.data.text import VOCABULARY, Text, load_text, windows
from solvable.networks.language import LanguageModel, next_token_loss
from solvable.networks.linearised import linearised
from solvable.papers.claims import Claim, Scale
from solvable.papers.feature_scaling._shared import finish, shades
from solvable.plotting import few_ticks, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RICHNESS = {"quick": (0.3,), "full": (0.25, 1.0)}
PACKAGES: dict[str, tuple[str, ...]] = {"quick": (), "full": ("numpy", "scipy", "jax")}
SHAPE: dict[str, dict[str, int]] = {
    "quick": {"width": 32, "layers": 1, "heads": 2},
    "full": {"width": 256, "layers": 4, "heads": 4},
}
LENGTH, BATCH, STEPS = {"quick": 16, "full": 128}, {"quick": 32, "full": 64}, {"quick": 300, "full": 1000}
STOPS = {
    "quick": log_steps(300, 12),
    "full": [50 * blocks for blocks in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20)],
}
PRECISION: dict[str, Any] = {"quick": "float32", "full": "bfloat16"}
SEEDS, TEST = {"quick": 2, "full": 3}, {"quick": 64, "full": 256}
# One learning rate for all networks, in units in which logits move equally fast at any width and richness. Learning
# rates and richnesses were chosen by short trainings, so that the richest is stable: after 300 steps at full size and
# the rate 10 the losses were 2.94 nats lazy, 2.72 with γ₀ = 1, but 3.30 with γ₀ = 3; γ₀ = 1 at the rate 30 had 3.07.
RATE = {"quick": 20.0, "full": 10.0}
# Fits begin where this fraction of all tokens has been seen: before, networks learn how frequent each byte is.
BEGIN = 0.05


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Losses of lazy and rich networks with the entropies of the text, and fits to them."""
    text = load_text(packages=PACKAGES[scale])
    losses = _trained(text, scale)
    about = {"long_name": "cross entropy of the test text under frequencies of bytes", "units": "nats"}
    paired = {**about, "long_name": "cross entropy of the test text under frequencies of pairs of bytes"}
    entropies = {
        "unigram_entropy": ((), text.unigram_entropy, about),
        "bigram_entropy": ((), text.bigram_entropy, paired),
    }
    record = {"text": repr(text), "sha256": text.sha256} | {f"version_{k}": v for k, v in text.versions.items()}
    return {"losses": xr.Dataset({"test_loss": losses, **entropies}, attrs=record), "fits": fit_powers(losses)}


def _trained(text: Text, scale: Scale) -> xr.DataArray:
    """Test losses over (richness, seed, tokens); richness 0 is the tangent model. Seeds see the same batches in all."""
    data = windows(text, LENGTH[scale], test=TEST[scale])
    width = SHAPE[scale]["width"]

    def network(key: jax.Array, richness: Any = 1.0) -> LanguageModel:
        return LanguageModel(VOCABULARY, LENGTH[scale], key=key, richness=richness, **SHAPE[scale])

    settings: dict[str, Any] = {
        "steps": STEPS[scale],
        "batch_size": BATCH[scale],
        "loss": next_token_loss,
        "seeds": SEEDS[scale],
        "measure_at": STOPS[scale],
        "precision": PRECISION[scale],
        # On a GPU, products of many small stacks are slower than one run after the other.
        "runs_per_group": None if scale == "quick" else 1,
    }
    lazy = train(lambda key: linearised(network(key)), data, optax.sgd(RATE[scale] * width), **settings)
    rich = train(
        lambda key, richness: centred(network(key, richness)),
        data,
        lambda richness: optax.sgd(RATE[scale] * richness**2 * width),
        variants={"richness": RICHNESS[scale]},
        **settings,
    )
    curves = [lazy.curves.test_loss.expand_dims("variant"), rich.curves.test_loss.drop_vars("richness")]
    together = xr.concat([curve.drop_vars("variant", errors="ignore") for curve in curves], "variant")
    tokens = together.time.values * BATCH[scale] * LENGTH[scale]
    return xr.DataArray(
        together.values.astype(float),
        {"richness": [0.0, *RICHNESS[scale]], "seed": together.seed.values, "tokens": tokens},
        ("richness", "seed", "tokens"),
        attrs={"long_name": "cross entropy of the next byte, test text", "units": "nats"},
    )


def fit_powers(losses: xr.DataArray) -> xr.Dataset:
    """Exponents of each curve without and with a fitted irreducible loss, and the paper's prediction."""
    window = float(BEGIN * losses.tokens[-1]), float(losses.tokens[-1])
    after = losses.isel(tokens=slice(1, None))
    found: dict[str, xr.DataArray] = {}
    for name, offset in (("", False), ("_excess", True)):
        law = power_law(after.mean("seed"), "tokens", window=window, offset=offset, resamples=0)
        # Three seeds are too few to resample: each has its own fit, and their spread is the error.
        each = power_law(after.rename(seed="run"), "tokens", window=window, offset=offset, resamples=0)
        found |= {f"exponent{name}": law.exponent, f"exponent{name}_error": _error(each.exponent)}
        found |= {f"prefactor{name}": law.prefactor, f"drift{name}": law.exponent_drift}
        fitted = law.prefactor * after.tokens**-law.exponent + (law.offset if offset else 0.0)
        missed = np.log(after.mean("seed") / fitted).sel(tokens=slice(*window))
        found[f"misfit{name}"] = np.sqrt((missed**2).mean("tokens"))
        if offset:
            found |= {"irreducible": law.offset, "irreducible_error": _error(each.offset)}
    # A loss that falls ever faster is fitted by a "power" that grows, subtracted from more than its first value.
    found["falls"] = (found["exponent_excess"] > 0) & (found["prefactor_excess"] > 0)
    lazy = found["exponent"].isel(richness=0, drop=True)
    found["prediction"] = lazy * (2 - lazy)
    return xr.Dataset(found, attrs={"first_tokens": window[0], "last_tokens": window[1]})


def _error(each: xr.DataArray) -> xr.DataArray:
    return each.std("run", ddof=1) / np.sqrt(each.sizes["run"])


def _exponent(fits: xr.Dataset, which: int) -> str:
    fit = fits.isel(richness=which)
    return f"{float(fit.exponent):.3f} ± {float(fit.exponent_error):.3f}"


def _name(richness: float) -> str:
    return f"γ₀ = {richness:g}" if richness else "lazy, tangent model"


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """What networks know before and after training, that rich ones end below lazy ones, and which powers fit."""
    losses, fits, entropy = data["losses"].test_loss, data["fits"], float(data["losses"].unigram_entropy)
    last = losses.isel(tokens=-1)
    runs = f"{last.sizes['seed']} seeds of each of {last.sizes['richness']} networks"
    lazy, rich = last.isel(richness=0), last.isel(richness=-1)
    fall = float(lazy.mean() - rich.mean())
    return [
        Claim(
            "loss before training, nats",
            float(losses.isel(tokens=0).mean()),
            float(np.log(VOCABULARY)),
            1e-4,
            f"a centred network knows nothing: the logarithm of {VOCABULARY}, to the rounding of 32 bits",
        ),
        Claim(
            "share of runs that end below the entropy of single bytes",
            float((last < entropy).mean()),
            1.0,
            0.0,
            f"{runs}; {entropy:.3f} nats, the highest ends at {float(last.max()):.3f}",
        ),
        Claim(
            f"share of seeds in which γ₀ = {float(rich.richness):g} ends below the lazy network",
            float((rich < lazy).mean()),
            1.0,
            0.0,
            f"{last.sizes['seed']} seeds, the same batches in both, at a rate chosen so that the rich one is stable "
            f"(where it is not, it ends above the lazy one); it is lower by {fall:.3f} nats in the mean. "
            "Shown and not claimed, exponents with nothing taken away: "
            f"{_exponent(fits, 0)} lazy, {_exponent(fits, -1)} rich, β(2 - β) = {float(fits.prediction):.3f}",
        ),
        Claim(
            "networks whose loss falls as a power with an irreducible loss",
            int(fits.falls.sum()),
            fits.sizes["richness"],
            0,
            "a count; one that falls faster and faster is fitted by a power that grows, which says nothing",
        ),
        Claim(
            "largest misfit of a falling power with an irreducible loss, rms of the logarithm",
            float(fits.misfit_excess.where(fits.falls).max()),
            0.0,
            0.02,
            "2 %, a guess made before the first run, and stable trainings keep to it; powers alone "
            f"miss by up to {float(fits.misfit.max()):.3f}, and their exponents drift by {float(fits.drift[0]):.3f}",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses over tokens, and what they are above fitted irreducible losses."""
    figure, (plain, excess) = new_figure(2, width=6.0, height=4.4)
    _draw_losses(plain, data["losses"], data["fits"])
    _draw_excess(excess, data["losses"].test_loss, data["fits"])
    figure.suptitle("exploratory: one small text, small networks, short trainings", fontsize="medium")
    return figure


def _draw_losses(panel: "Axes", data: xr.Dataset, fits: xr.Dataset) -> None:
    losses = data.test_loss
    first, last = fits.first_tokens, fits.last_tokens
    for index, (colour, richness) in enumerate(
        zip(shades(losses.sizes["richness"]), losses.richness.values, strict=True)
    ):
        label = f"{_name(richness)}: {_exponent(fits, index)}"
        curve = losses.sel(richness=richness).isel(tokens=slice(1, None))
        panel.plot(curve.tokens, curve.mean("seed"), color=colour, linewidth=1.6, label=label)
        panel.fill_between(curve.tokens, curve.min("seed"), curve.max("seed"), color=colour, alpha=0.25, linewidth=0)
    line = np.geomspace(first, last, 2)
    richest = losses.isel(richness=-1).mean("seed")
    for source, exponent, style, label in (
        (losses.isel(richness=0).mean("seed"), float(fits.exponent[0]), "--", "β fitted to the lazy one"),
        (richest, float(fits.prediction), ":", f"β(2 - β) = {float(fits.prediction):.3f}"),
    ):
        level = 0.96 * float(source.sel(tokens=first, method="nearest"))
        panel.plot(line, level * (line / first) ** -exponent, style, color="black", linewidth=1.2, label=label)
    for level, label in ((float(data.unigram_entropy), "bytes alone"), (float(data.bigram_entropy), "pairs of bytes")):
        panel.axhline(level, color="grey", linewidth=0.8)
        panel.annotate(label, (0.02, level), (0, 2), ("axes fraction", "data"), "offset points", fontsize="small")
    title = "(a) test loss, and exponents without an irreducible loss"
    finish(panel, title, "tokens seen", "cross entropy of the next byte, nats", loc="lower left")
    few_ticks(panel.xaxis)


def _draw_excess(panel: "Axes", losses: xr.DataArray, fits: xr.Dataset) -> None:
    for colour, richness in zip(shades(losses.sizes["richness"]), losses.richness.values, strict=True):
        fit = fits.sel(richness=richness)
        if not fit.falls:
            panel.plot([], [], "o", color=colour, markersize=3.5, label=f"{_name(richness)}: no falling power fits")
            continue
        floor = float(fit.irreducible)
        inside = losses.sel(richness=richness, tokens=slice(fits.first_tokens / 2, None)).mean("seed")
        error = float(fit.irreducible_error)
        label = f"{_name(richness)}: {float(fit.exponent_excess):.2f}, less {floor:.2f} ± {error:.2f} nats"
        panel.plot(inside.tokens, inside - floor, "o", color=colour, markersize=3.5, label=label)
        line = np.geomspace(fits.first_tokens, fits.last_tokens, 30)
        panel.plot(line, float(fit.prefactor_excess) * line ** -float(fit.exponent_excess), color=colour, linewidth=1)
    title, ylabel = "(b) fits with an irreducible loss", "test loss less a fitted irreducible one, nats"
    finish(panel, title, "tokens seen", ylabel, loc="lower left")
    few_ticks(panel.xaxis)
