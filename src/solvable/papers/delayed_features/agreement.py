"""Theory against simulation over the whole range: ten settings, every order parameter, ten times each.

Not a figure of the paper, which shows N = 2 and one initialisation: here are one to four neurons, samples per dimension
from 0.5 to 20, output scales from 0.5 to 2, epsilon from 0.05 to 1, two index fields, weight decay, and a ReLU student
with readouts of both signs.

Simulations of two dimensions are extrapolated to the infinite one, in which theory holds, by a line in 1/D. Until
2026-11-19 the larger dimension alone was held against theory, and the claim was that no order parameter is off by more
than 3.5 standard errors; at full scale one neuron with γ = 8 failed it with 4.2, in November on two machines.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable import activations
from solvable.comparison import compare
from solvable.models.committee import Committee
from solvable.models.committee.latent import Latent
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.plotting import COLOURS, new_figure
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ORDER_PARAMETERS = ("train_loss", "test_loss", "alignment", "overlap")
PAIR: dict[str, Any] = {"initial_alignment": [[0.3], [-0.1]], "initial_overlap": [[1.0, 0.2], [0.2, 1.0]]}
FOUR: dict[str, Any] = {
    "initial_alignment": 0.3 * np.array([[1.0], [-1.0], [1.0], [-1.0]]),
    "initial_overlap": np.eye(4),
}
TWO_INDICES: dict[str, Any] = {"initial_alignment": 0.2 * np.eye(2), "initial_overlap": np.eye(2)}
SIGNS = np.array([1.0, -1.0]) / np.sqrt(2)


class Sizes(NamedTuple):
    """Dimensions and datasets of the two simulations, samples of the theory, and of how many settings one is run."""

    dimensions: tuple[int, int]
    datasets: tuple[int, int]
    samples: int
    every: int


SIZES = {
    "quick": Sizes((125, 250), (100, 50), 4096, 3),
    "full": Sizes((500, 1000), (128, 64), 65536, 1),
}


def two_tanh(one: Any, other: Any) -> Any:
    """A target of two index fields that is odd in each."""
    return (jnp.tanh(one) - jnp.tanh(other)) / jnp.sqrt(2.0)


def product_of_two(one: Any, other: Any) -> Any:
    """A target about which no single index field is informative."""
    return one * other


def settings() -> dict[str, tuple[Committee, GradientDescent, int]]:
    """Name, model, training and number of steps of every setting."""

    def paper(gamma: float, alpha: float, epsilon: float, start: dict[str, Any]) -> Committee:
        activation = activations.quadratic(epsilon)
        return Committee(samples_per_dimension=gamma, output_scale=alpha, activation=activation, **start)

    one = {"initial_alignment": [[0.3]], "initial_overlap": [[1.0]]}
    plain = {"readout": SIGNS, "gradient_readout": SIGNS}
    return {
        "γ=2 α=1 ε=0.5 N=2": (paper(2, 1, 0.5, PAIR), GradientDescent(0.1), 120),
        "γ=0.5 α=1 ε=0.5 N=2": (paper(0.5, 1, 0.5, PAIR), GradientDescent(0.1), 60),
        "γ=2 α=0.5 ε=0.5 N=2": (paper(2, 0.5, 0.5, PAIR), GradientDescent(0.2), 60),
        "γ=3 ReLU, K=2": (
            Committee(
                samples_per_dimension=3,
                output_scale=1.0,
                activation=activations.relu,
                teacher=two_tanh,
                **TWO_INDICES,
                **plain,
            ),
            GradientDescent(0.6),
            60,
        ),
        "γ=4 α=2 ε=0.25 N=4": (paper(4, 2, 0.25, FOUR), GradientDescent(0.1), 120),
        "γ=8 α=1 ε=1 N=1": (paper(8, 1, 1, one), GradientDescent(0.05), 60),
        "γ=3 α=1 ε=0.5 N=2 decay": (paper(3, 1, 0.5, PAIR), GradientDescent(0.1, weight_decay=0.2), 120),
        "γ=4.5 α=0.5 ε=0.05 N=4": (paper(4.5, 0.5, 0.05, FOUR), GradientDescent(0.4), 150),
        "γ=20 α=1 ε=0.5 N=2": (paper(20, 1, 0.5, PAIR), GradientDescent(0.1), 60),
        "γ=3 erf, K=2": (
            Committee(
                samples_per_dimension=3,
                output_scale=1.0,
                activation=activations.erf,
                teacher=product_of_two,
                **TWO_INDICES,
            ),
            GradientDescent(0.3),
            60,
        ),
    }


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and the simulations of both dimensions, in each setting."""
    sizes = SIZES[scale]
    data: dict[str, xr.Dataset] = {}
    for row, (name, (model, training, steps)) in enumerate(list(settings().items())[:: sizes.every]):
        times = np.round(np.linspace(steps / 10, steps, 10))
        theory = model.predict(times, training, solver=Latent(samples=sizes.samples, tolerance=3e-3))
        kept = [*ORDER_PARAMETERS, *(f"{name}_error" for name in ORDER_PARAMETERS)]
        data[f"theory-{row}"] = theory[kept].assign_attrs(setting=name)
        for key, (dimension, datasets) in enumerate(zip(sizes.dimensions, sizes.datasets, strict=True)):
            runs = model.simulate(times, training, dimension=dimension, seeds=datasets, key=1 - key)
            data[f"simulation-{row}-{dimension}"] = runs[list(ORDER_PARAMETERS)]
    return data


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Every order parameter of every setting agrees with theory in the limit of infinite dimension."""
    return [
        Claim.agrees(
            f"{setting}: {name.replace('_', ' ')} of theory and simulation agree, extrapolated in the dimension",
            theory,
            simulations,
            name,
            extrapolate="dimension",
        )
        for setting, theory, simulations in _settings(data)
        for name in ORDER_PARAMETERS
    ]


def _settings(data: Mapping[str, xr.Dataset]) -> Iterator[tuple[str, xr.Dataset, list[xr.Dataset]]]:
    """Each setting with its theory and its simulations."""
    for name, theory in data.items():
        kind, row = name.split("-", 1)
        if kind == "theory":
            runs = [found for other, found in data.items() if other.startswith(f"simulation-{row}-")]
            yield theory.attrs["setting"], theory, runs


def _scores(theory: xr.Dataset, simulations: list[xr.Dataset]) -> np.ndarray:
    """All z-scores of the extrapolated means; an overlap of two neurons counts once."""
    comparison = compare(theory, simulations, extrapolate="dimension")
    parts = []
    for name in ORDER_PARAMETERS:
        values = comparison[name].sel(statistic="z_score").values
        if name == "overlap":
            upper = np.triu_indices(values.shape[1])
            values = values[:, upper[0], upper[1]]
        parts.append(values.ravel())
    return np.concatenate(parts)


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """All z-scores, one column per setting."""
    sizes = SIZES[scale_of(data)]
    figure, (panel,) = new_figure(width=8.0, height=4.2)
    names = []
    for column, (setting, theory, simulations) in enumerate(_settings(data)):
        scores, colour = np.sort(_scores(theory, simulations)), COLOURS[column % len(COLOURS)]
        panel.plot(np.full(scores.size, column), scores, "o", color=colour, markersize=3, alpha=0.6)
        names.append(setting.replace(" ", "\n"))
    for level in (-3, 0, 3):
        panel.axhline(level, color="grey", linewidth=0.8, linestyle=":" if level else "-")
    panel.set_xticks(range(len(names)), names, fontsize=7)
    panel.set_ylabel("z-score, simulation − theory")
    described = [f"D = {d} ({n} datasets)" for d, n in zip(sizes.dimensions, sizes.datasets, strict=True)]
    panel.set_title(f"extrapolated from {' and '.join(described)}", fontsize="medium")
    return figure
