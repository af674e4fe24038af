"""Fig. 2.2 and table 2.1, after training: a network learns the step function and makes one feature of its own for it.

The thesis gives width, depth and SGD, but no learning rate, momentum, weight decay, number of steps or initialisation.
The initialisation is PyTorch's, because it alone gives the printed values before training. The others were searched
(see ``SEARCH``), and every setting of the search is in the dataset ``search``. Whether the output has a bias decides
the last of the three printed dimensions: with a bias, neurons that are active left of the step are as useful as those
right of it.
"""

import dataclasses
from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

from solvable.diagnostics import FeatureReport
from solvable.networks import MLP, Training, train
from solvable.networks.tasks.heaviside import heaviside
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise._step import (
    INPUTS,
    LAYERS,
    NAMES,
    PRINTED_AFTER,
    PRINTED_BEFORE,
    WIDTH,
    draw_functions,
    first_functions,
    measure,
)
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BATCH = 64
OPTIONS = ("momentum", "learning_rate", "weight_decay", "output_bias")
# Momentum and weight decay are those of the other networks of chapter 2; rate and bias come from the search.
CHOSEN = (0.9, 0.03, 1e-3, False)
RATES = ((0.0, 0.03), (0.0, 0.1), (0.9, 0.01), (0.9, 0.03))
SEARCH = [
    *((*rate, decay, bias) for rate, decay, bias in product(RATES, (0.0, 1e-4, 1e-3, 5e-3), (True, False))),
    (0.0, 0.3, 0.0, True),
    (0.0, 0.3, 0.0, False),
]
# Standard deviation over seeds of a dimension after training, from two seeds of a trial; that of the three seeds of the
# full run was up to 0.03.
SPREAD = 0.02
# At small width and in few steps only a stronger decay has its full effect; each comparison changes one option.
QUICK_CHOSEN = (0.9, 0.03, 5e-3, False)
QUICK_SEARCH = [QUICK_CHOSEN, (0.9, 0.03, 5e-3, True), (0.9, 0.03, 0.0, False)]


@dataclasses.dataclass(frozen=True)
class Setting:
    """Sizes of a scale, the chosen hyperparameters, and all that were searched."""

    width: int = WIDTH
    steps: int = 10_000
    seeds: int = 3
    chosen: tuple[float, float, float, bool] = CHOSEN
    search: tuple[tuple[float, float, float, bool], ...] = tuple(SEARCH)


SETTINGS: dict[Scale, Setting] = {
    "quick": Setting(128, 2500, 3, QUICK_CHOSEN, tuple(QUICK_SEARCH)),
    "full": Setting(),
}
# Fig. 2.2 d, e, f: what the first k features can express, what they are used for, and how strong they are.
PANELS = {
    "quality": "cumulative quality, Π*(k)",
    "utilisation": "cumulative utilisation, Π̂(k)",
    "intensity": "intensity, ρ_k / ρ_1",
}
SYMBOLS = {"quality": "Q*_k", "utilisation": "Q̂_k", "intensity": "ρ_k"}
SHOWN = 50


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """All settings of the search; of the chosen one, the features at three steps and the functions of one seed."""
    setting = SETTINGS[scale]
    training = run(setting)
    chosen = setting.search.index(setting.chosen)
    seen = {
        step: [evaluate(training.network(seed, chosen, step=step)) for seed in range(setting.seeds)]
        for step in _inspected(setting)
    }
    reports = [[measure(*values) for values in seeds] for seeds in seen.values()]
    return {
        "table": _table(reports[0], reports[-1]),
        "search": searched(training),
        "features": _features(list(seen), reports),
        "functions": _functions({step: seen[step][0] for step in (0, setting.steps)}),
        "curves": training.curves,
    }


def _inspected(setting: Setting) -> tuple[int, int, int]:
    """The steps at which features are shown."""
    return 0, setting.steps // 10, setting.steps


def run(setting: Setting, key: int = 0) -> Training:
    """Train all settings of the search with all seeds side by side; runs that diverge are marked in the curves."""
    variants = {name: [float(row[i]) for row in setting.search] for i, name in enumerate(OPTIONS)}

    def network(key: jax.Array, output_bias: Any, **_: Any) -> MLP:
        made = MLP(1, 1, setting.width, LAYERS, key=key, initialisation="uniform")
        return eqx.tree_at(_output_bias, made, _output_bias(made) * jnp.asarray(output_bias, jnp.float32))

    def optimiser(
        momentum: Any, learning_rate: Any, weight_decay: Any, output_bias: Any
    ) -> optax.GradientTransformation:
        # In the precision of the training: float64 values would promote everything else to float64.
        momentum, learning_rate, weight_decay, output_bias = (
            jnp.asarray(value, jnp.float32) for value in (momentum, learning_rate, weight_decay, output_bias)
        )
        # An output bias that is switched off starts at zero and stays there.
        frozen = optax.stateless(lambda updates, _: eqx.tree_at(_output_bias, updates, replace_fn=output_bias.__mul__))
        decay = optax.add_decayed_weights(weight_decay)
        return optax.chain(decay, optax.trace(momentum), optax.scale(-learning_rate), frozen)

    return train(
        network,
        heaviside("fresh"),
        optimiser,
        steps=setting.steps,
        batch_size=BATCH,
        variants=variants,
        seeds=setting.seeds,
        key=key,
        inspect=_dimensions,
        inspect_at=[setting.steps],
        snapshots_at=_inspected(setting),
        on_divergence="keep",
    )


def _output_bias(network: Any) -> Any:
    return network.layers[-1].bias


def evaluate(network: Any) -> tuple[np.ndarray, np.ndarray]:
    """Features and outputs of a network on the grid, in float64."""
    exact = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf, network)
    hidden, outputs = _evaluate(exact, jnp.asarray(INPUTS[:, None]))
    return np.asarray(hidden), np.asarray(outputs)


@eqx.filter_jit
def _evaluate(network: Any, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    hidden = jax.vmap(network.features)(inputs)
    return hidden, jax.vmap(network.layers[-1])(hidden)


def _dimensions(network: Any, _data: Any, _initial: Any) -> dict[str, float]:
    """The three dimensions; NaN for a network that has diverged or whose neurons are all dead."""
    try:
        dimensions = measure(*evaluate(network)).effective_dimensions
    except ValueError:
        return dict.fromkeys(NAMES, np.nan)
    return {name: dimensions[name] for name in NAMES}


def searched(training: Training) -> xr.Dataset:
    """Dimensions and final test loss of each setting of the search, and which of its runs diverged."""
    curves = training.curves
    search = curves[list(NAMES)].isel(inspected_at=-1, drop=True)
    search["test_loss"] = curves.test_loss.isel(time=-1, drop=True)
    search["diverged_at"] = curves.diverged_at
    # A run that diverged stays where it was; what is measured there is not a result.
    return search.where(search.diverged_at < 0).assign(diverged_at=search.diverged_at)


def _table(before: list[FeatureReport], after: list[FeatureReport]) -> xr.Dataset:
    """Table 2.1: dims (when, seed)."""
    return xr.Dataset(
        {
            name: (
                ("when", "seed"),
                [[report.effective_dimensions[name] for report in reports] for reports in (before, after)],
                {"long_name": "effective dimension", "units": "1", "symbol": symbol},
            )
            for name, symbol in NAMES.items()
        },
        {"when": ["before", "after"], "seed": np.arange(len(before))},
    )


def _features(steps: list[int], reports: list[list[FeatureReport]]) -> xr.Dataset:
    """Quality, utilisation and intensity of the first features, (step, seed, mode); NaN beyond a network's rank."""

    def padded(values: np.ndarray) -> np.ndarray:
        return np.pad(values[:SHOWN], (0, max(0, SHOWN - values.size)), constant_values=np.nan)

    return xr.Dataset(
        {
            name: (
                ("step", "seed", "mode"),
                [[padded(getattr(report, name)) for report in row] for row in reports],
                {"long_name": name, "units": "1", "symbol": symbol},
            )
            for name, symbol in SYMBOLS.items()
        },
        {"step": steps, "seed": np.arange(len(reports[0])), "mode": np.arange(1, SHOWN + 1)},
    )


def _functions(networks: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> xr.Dataset:
    """The first eigenfunctions and the learned function of a network on the grid, at the given steps."""
    return xr.Dataset(
        {
            "eigenfunction": (
                ("step", "input", "mode"),
                [first_functions(hidden) for hidden, _ in networks.values()],
                {"long_name": "eigenfunction", "units": "1", "symbol": "e_k"},
            ),
            "learned": (
                ("step", "input"),
                [outputs[:, 0] for _, outputs in networks.values()],
                {"long_name": "learned function", "units": "1", "symbol": "f̂"},
            ),
        },
        {"step": list(networks), "input": INPUTS, "mode": [1, 2, 3]},
    )


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The printed dimensions after training, and what a bias of the output changes."""
    scale, table, search = scale_of(data), data["table"], data["search"]
    setting = SETTINGS[scale]
    chosen = ", ".join(f"{name} {value:g}" for name, value in zip(OPTIONS, setting.chosen, strict=True))
    # At quick scale the decay is stronger than the chosen one, and leaves fewer intensities than are printed.
    names = [name for name in NAMES if scale == "full" or name != "intensity_plain"]
    falls = table.intensity_plain.sel(when="after") < table.intensity_plain.sel(when="before")
    return [
        *(
            Claim(
                f"{NAMES[name]} after training (mean)",
                float(table[name].sel(when="after").mean()),
                PRINTED_AFTER[name],
                0.05 + 3 * SPREAD,
                f"half a digit of the table, and three times the spread of runs; {chosen}. {_matching(search)}",
            )
            for name in names
        ),
        Claim("share of seeds whose D_eff(ρ) falls", float(falls.mean()), 1.0, 0.0, "one feature is left: all seeds"),
        _bias_claim(search, setting),
    ]


def _bias_claim(search: xr.Dataset, setting: Setting) -> Claim:
    without, with_bias = (
        search.intensity_plain.isel(variant=setting.search.index((*setting.chosen[:3], bias))) for bias in (False, True)
    )
    return Claim(
        "share of seeds whose D_eff(ρ) is larger if the output has a bias",
        float((with_bias > without).mean()),
        1.0,
        0.0,
        "with a bias, neurons left of the step serve as well as those right of it: all seeds; "
        f"{float(with_bias.mean()):.2f} in place of {float(without.mean()):.2f}",
    )


def _matching(search: xr.Dataset, within: float = 0.1) -> str:
    """How many of the settings of the search come as near to the printed values as the chosen one."""
    means = search[list(NAMES)].mean("seed")
    off = [np.abs(means[name].values - printed) for name, printed in PRINTED_AFTER.items()]
    near = np.max(off, axis=0) <= within
    bare = int((near & (search.weight_decay.values == 0)).sum())
    return (
        f"Of {near.size} settings tried {int(near.sum())} come within {within} of all three printed values, "
        f"{bare} of them without weight decay"
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The functions before and after training, the search, and the feature metrics along training."""
    figure, panels = new_figure(3, rows=2, width=4.6, height=3.6)
    for panel, step in zip(panels[0, :2], data["functions"].step.values, strict=True):
        functions = data["functions"].sel(step=step)
        draw_functions(panel, functions.eigenfunction.values)
        panel.plot(INPUTS, functions.learned, color=COLOURS[6], linewidth=1, label="learned function, f̂")
        panel.set_title(f"step {step}", fontsize="medium")
        panel.legend(fontsize="x-small")
    _draw_search(panels[0, 2], data["search"])
    features = data["features"]
    # The grid is the whole input space: nothing is taken away for chance overlaps, as it is with test samples.
    cumulative = features[["quality", "utilisation"]].cumsum("mode", skipna=False).assign_coords(mode=features.mode)
    curves = cumulative.assign(intensity=features.intensity / features.intensity.isel(mode=0, drop=True))
    for panel, (name, label) in zip(panels[1], PANELS.items(), strict=True):
        _draw_feature_metric(panel, curves[name], label)
    panels[1, 2].set_yscale("log")
    panels[1, 2].set_ylim(1e-8, 2)
    return figure


def _draw_feature_metric(panel: "Axes", values: xr.DataArray, axis_label: str) -> None:
    """One line per seed, and one colour per step."""
    for step, colour in zip(values.step.values, COLOURS, strict=False):
        for seed in values.seed.values:
            label = f"step {step}" if seed == 0 else None
            panel.plot(values.mode, values.sel(step=step, seed=seed), color=colour, alpha=0.7, label=label)
    panel.set_xscale("log")
    panel.set_xlabel("feature, k")
    panel.set_ylabel(axis_label)
    panel.legend(fontsize="x-small")


def _draw_search(panel: "Axes", search: xr.Dataset) -> None:
    """D_eff(ρ) over D_eff(Q*) for all settings, with the printed values."""
    for bias, colour, label in ((1, COLOURS[1], "output with bias"), (0, COLOURS[0], "output without bias")):
        chosen = search.isel(variant=np.flatnonzero(search.output_bias.values == bias))
        x, y = (chosen[name].values.ravel() for name in ("quality", "intensity_plain"))
        panel.plot(x, y, "o", color=colour, alpha=0.6, label=label)
    for values, marker, label in ((PRINTED_BEFORE, "s", "printed, before"), (PRINTED_AFTER, "*", "printed, after")):
        panel.plot(
            values["quality"], values["intensity_plain"], marker, color=COLOURS[6], markersize=11, label=label, zorder=3
        )
    panel.set_xlabel("D_eff(Q*)")
    panel.set_ylabel("D_eff(ρ)")
    panel.set_title("all settings of the search, after training", fontsize="medium")
    panel.legend(fontsize="x-small")
