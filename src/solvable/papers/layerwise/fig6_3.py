"""Fig. 6.3: rich networks use few features; with the target downscaled, or only the last layer trained, they use many.

The thesis gives a fully connected network of 4 layers and width 256 on 10,000 images of MNIST, α = 1 and α = 100 (the
targets are divided by α), and training of the last layer alone with α = 1. The rest is our choice: ReLU; PyTorch's
initialisation of weights and biases; standardised pixels; one-hot targets and mean square loss; Adam on mini-batches
with a cosine schedule to zero. Seeds differ in initial weights and in the order of batches.

Dividing the targets does not make a network lazy by itself: its initial function is then far larger than the targets,
and the weights move to remove it. A fourth case subtracts the initial function from the output, as is usual where
laziness is studied. Its weights have an α times shorter way to go, and its learning rate is α times smaller, since
Adam's step does not depend on the scale of the loss. Training the last layer alone is a convex problem of many scales
and has ten times the rate. The quick scale is a small network on 8 x 8 digits.

The length of training affects the values more than their order: with α = 1 one seed has κ = 0.077 after 10,000 steps
and 0.093 after 20,000, long after every training image is fitted.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.dataset import Meaning, make_dataset
from solvable.diagnostics import FeatureReport, FeatureStatistics, features
from solvable.networks import MLP, Constant, Fixed, Images, Training, load_images, log_steps, train
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.layerwise._image_pictures import PANELS, THRESHOLD
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES, LAYERS = 10, 4


class Case(NamedTuple):
    """A way to train: targets divided by ``downscaling``, and ``centred`` 1 if the initial function is subtracted."""

    name: str
    downscaling: float = 1.0
    centred: float = 0.0
    body_trained: float = 1.0
    rate: float = 1.0


RICH, LAZIER, LAZY, LINEAR = (
    Case("α = 1"),
    Case("α = 100", downscaling=100.0),
    Case("α = 100, centred", downscaling=100.0, centred=1.0, rate=0.01),
    Case("last layer only", body_trained=0.0, rate=10.0),
)
CASES = (RICH, LAZIER, LAZY, LINEAR)


class Setting(NamedTuple):
    """Sizes of the experiment and its training; cases multiply the learning rate."""

    images: str
    train: int
    width: int
    batch: int
    steps: int
    rate: float
    seeds: int


SETTINGS: dict[Scale, Setting] = {
    "quick": Setting("digits", 400, 64, 50, 2500, 3e-3, 3),
    "full": Setting("mnist", 10_000, 256, 128, 10_000, 1e-3, 5),
}


MEANINGS = {
    "case": Meaning("way to train", "1"),
    "mode": Meaning("feature, in falling order of intensity", "1", "k"),
    "intensity": Meaning("intensity", "1", "ρ_k"),
    "cumulative_quality": Meaning("cumulative quality", "1", "Π*(k)"),
    "cumulative_utilisation": Meaning("cumulative utilisation", "1", "Π̂(k)"),
    "mp_distance": Meaning("distance to the minimum projection", "1", "κ_CKA"),
    "limit_mp_distance": Meaning(
        "distance to the minimum projection with the best last layer on initial features", "1", "κ_CKA"
    ),
    "utilisation_dimension": Meaning("effective dimension of utilisation", "1", "D_eff(Q̂)"),
    "intensity_dimension": Meaning("effective dimension of intensity", "1", "D_eff(ρ)"),
    "train_accuracy": Meaning("training accuracy", "1"),
    "test_accuracy": Meaning("test accuracy", "1"),
}


class LessInitial(eqx.Module):
    """A network minus ``share`` (0 or 1) times its initial function."""

    network: MLP
    initial: Constant
    share: Constant

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.network(x) - self.share.value * jax.lax.stop_gradient(self.initial.value(x))


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The feature metrics of all cases at the end of training, and the curves of their training."""
    setting = SETTINGS[scale]
    images = load_images(setting.images, train=setting.train, standardise=True)
    training = train_cases(setting, images)
    seeds = range(setting.seeds)
    # Outputs of a hundredth must be distinguished: no reduced-precision matrix products on a GPU.
    with jax.default_matmul_precision("highest"):
        reports = [[_report(training.network(seed, case), images) for seed in seeds] for case in range(len(CASES))]
        linear = [training.network(seed, CASES.index(LINEAR)) for seed in seeds]
        limits = [_report(with_best_last_layer(network, images), images) for network in linear]
    return {"features": _features(reports, limits, training), "training": training.curves}


def train_cases(setting: Setting, images: Images) -> Training:
    """Train all cases and seeds side by side."""
    import optax

    arrays = [jnp.asarray(array) for array in (images.train_inputs, images.test_inputs)]
    targets = [jnp.asarray(array) for array in (images.train_targets, images.test_targets)]

    def network(key: jax.Array, centred: jax.Array, **_: jax.Array) -> LessInitial:
        made = MLP(arrays[0].shape[1], CLASSES, setting.width, LAYERS, key=key, initialisation="uniform")
        return LessInitial(made, Constant(jax.tree.map(lambda leaf: leaf, made)), Constant(centred))

    def data(key: jax.Array, downscaling: jax.Array, **_: jax.Array) -> Fixed:
        return Fixed(arrays[0], targets[0] / downscaling, arrays[1], targets[1] / downscaling)

    def optimiser(body_trained: jax.Array, rate: jax.Array, **_: jax.Array) -> optax.GradientTransformation:
        falling = optax.cosine_decay_schedule(setting.rate, setting.steps)
        return optax.chain(
            optax.adam(falling), optax.scale(rate), optax.stateless(lambda updates, _: _held(updates, body_trained))
        )

    names = ("downscaling", "centred", "body_trained", "rate")
    return train(
        network,
        data,
        optimiser,
        steps=setting.steps,
        batch_size=setting.batch,
        variants={name: [getattr(case, name) for case in CASES] for name in names},
        seeds=setting.seeds,
        measure_at=log_steps(setting.steps, 5),
        matmul_precision="highest",
    )


def _body(network: LessInitial) -> tuple[eqx.nn.Linear, ...]:
    return network.network.layers[:-1]


def _held(updates: LessInitial, body_trained: jax.Array) -> LessInitial:
    """Multiply the updates of the layers below the last by 0 or 1, so that one program serves both."""
    return eqx.tree_at(_body, updates, jax.tree.map(lambda update: update * body_trained, _body(updates)))


def _report(network: LessInitial, images: Images) -> FeatureReport:
    samples = []
    for inputs, labels in ((images.train_inputs, images.train_labels), (images.test_inputs, images.test_labels)):
        hidden, outputs = _run(network, jnp.asarray(inputs))
        samples.append(FeatureStatistics().update(hidden, outputs, labels))
    return features(*samples)


@eqx.filter_jit
def _run(network: LessInitial, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(network.network.features)(inputs), jax.vmap(network)(inputs)


def with_best_last_layer(network: LessInitial, images: Images) -> LessInitial:
    """The same features with the last layer of least squares, which is the limit of training that layer alone."""
    hidden = np.asarray(_run(network, jnp.asarray(images.train_inputs))[0], float)
    columns = np.column_stack([hidden, np.ones(len(hidden))])
    weights = np.linalg.lstsq(columns, images.train_targets.astype(float), rcond=1e-6)[0].T.astype(np.float32)
    return eqx.tree_at(
        lambda tree: (tree.network.layers[-1].weight, tree.network.layers[-1].bias),
        network,
        (jnp.asarray(weights[:, :-1]), jnp.asarray(weights[:, -1])),
    )


def _features(reports: list[list[FeatureReport]], limits: list[FeatureReport], training: Training) -> xr.Dataset:
    """Dims (case, seed) and (case, seed, mode), NaN beyond the rank; the limit of the last layer alone has dim seed."""
    modes = max(report.rank for row in reports for report in row)

    def over_modes(name: str) -> np.ndarray:
        lists = [[getattr(report, name) for report in row] for row in reports]
        return np.array([[np.pad(v, (0, modes - v.size), constant_values=np.nan) for v in row] for row in lists])

    def dimension(name: str) -> np.ndarray:
        return np.array([[report.effective_dimensions[name] for report in row] for row in reports])

    last = training.curves.isel(time=-1)
    distance = np.array([[report.mp_distance for report in row] for row in reports])
    limit = np.array([report.mp_distance for report in limits])
    values = {
        "intensity": over_modes("intensity"),
        "cumulative_quality": over_modes("cumulative_quality"),
        "cumulative_utilisation": over_modes("cumulative_utilisation"),
        "mp_distance": distance,
        "limit_mp_distance": limit,
        "utilisation_dimension": dimension("utilisation_above_noise"),
        "intensity_dimension": dimension("intensity"),
        "train_accuracy": last.train_accuracy.values,
        "test_accuracy": last.test_accuracy.values,
    }
    dims = {1: ("seed",), 2: ("case", "seed"), 3: ("case", "seed", "mode")}
    coordinates = {
        "case": [case.name for case in CASES],
        "mode": np.arange(1, modes + 1),
        "seed": np.arange(len(limits)),
    }
    variables = {name: (dims[array.ndim], array) for name, array in values.items()}
    return make_dataset(variables, coordinates, training.curves.attrs, MEANINGS)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Few features with α = 1, many in the other cases, and the order of the cases."""
    scale, features = scale_of(data), data["features"]
    rich, lazier, lazy, linear = (features.isel(case=case) for case in range(len(CASES)))
    unfitted, fitted = (0.01, "one image in a hundred") if scale == "full" else (0.02, "two images in a hundred")
    return [
        *(
            Claim(
                f"training accuracy, {case.case.item()} (lowest seed)", case.train_accuracy.min(), 1.0, unfitted, fitted
            )
            for case in (rich, lazier, lazy)
        ),
        Claim(
            f"Π̂({CLASSES}) with α = 1: share of the learned functions in as many features as classes (mean)",
            rich.cumulative_utilisation.sel(mode=CLASSES).mean(),
            1.0,
            0.06,
            "a minimum-feature network uses no others; 0.963 to 0.972 in 8 seeds on digits, 0.96 on MNIST",
        ),
        *(
            _count_claim(
                f"seeds in the extended-feature regime, {case.case.item()}",
                case.mp_distance > THRESHOLD,
                "Definition 2: extended-feature above 0.1; {every}",
            )
            for case in (lazier, lazy, linear)
        ),
        _count_claim(
            f"seeds in which Π*({CLASSES}) falls from α = 1 to α = 100 to the last layer alone",
            _descending(*(case.cumulative_quality.sel(mode=CLASSES) for case in (rich, lazier, linear))),
            "the order of the thesis, in the share of the target that the strongest features hold; {every}",
        ),
        Claim(
            "D_eff(ρ) after lazy training (centred) over that of the initial features (mean)",
            (lazy.intensity_dimension / linear.intensity_dimension).mean(),
            1.0,
            0.05,
            "lazy: the features stay what they were",
        ),
        *(_full_claims(rich, lazier, linear) if scale == "full" else [_quick_claim(features)]),
    ]


def _count_claim(name: str, holds: xr.DataArray, because: str) -> Claim:
    """A statement about every seed; measured is the number of seeds for which it holds."""
    return Claim(name, int(holds.sum()), holds.size, 0.0, because.format(every=f"each of {holds.size} seeds"))


def _descending(first: xr.DataArray, second: xr.DataArray, third: xr.DataArray) -> xr.DataArray:
    return (first > second) & (second > third)


def _quick_claim(features: xr.Dataset) -> Claim:
    distance = features.mp_distance
    return Claim(
        "κ_CKA with α = 1 over the smallest of the others (largest seed)",
        (distance.isel(case=0) / distance.isel(case=slice(1, None)).min("case")).max(),
        0.0,
        0.5,
        "clearly nearer to minimum-feature; digits are too few to be surely below 0.1 (8 seeds: 0.09 ± 0.02)",
    )


def _full_claims(rich: xr.Dataset, lazier: xr.Dataset, linear: xr.Dataset) -> list[Claim]:
    return [
        Claim(
            "κ_CKA with α = 1 (largest seed)",
            rich.mp_distance.max(),
            0.0,
            THRESHOLD,
            "Definition 2: minimum-feature below 0.1",
        ),
        _count_claim(
            "seeds in which κ_CKA rises from α = 1 to α = 100 to the last layer alone",
            _descending(linear.mp_distance, lazier.mp_distance, rich.mp_distance),
            "the order of the thesis, in {every}; it holds on MNIST and not on the small digits",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The feature metrics, and κ_CKA of every seed."""
    features = data["features"]
    figure, grid = new_figure(2, rows=2)
    for panel, (variable, label) in zip(grid.ravel(), PANELS.items(), strict=False):
        values = features[variable]
        _draw_metric(panel, values / values.isel(mode=0, drop=True) if variable == "intensity" else values)
        panel.set_ylabel(label)
    grid[1, 0].set_yscale("log")
    _draw_distances(grid[1, 1], features)
    return figure


def _draw_metric(panel: "Axes", values: xr.DataArray) -> None:
    """One line per seed, and one colour per case."""
    for index, (case, colour) in enumerate(zip(CASES, COLOURS, strict=False)):
        style: dict[str, Any] = {"linestyle": "--", "linewidth": 2} if case is LINEAR else {"linewidth": 1.2}
        for seed in range(values.sizes["seed"]):
            label = case.name if seed == 0 else None
            panel.plot(values.mode, values.isel(case=index, seed=seed), color=colour, alpha=0.7, label=label, **style)
    panel.axvline(CLASSES, color="grey", linestyle=":", label=f"k = {CLASSES}, the classes")
    panel.set_xscale("log")
    panel.set_xlabel("feature, k")
    panel.legend(fontsize="small")


def _draw_distances(panel: "Axes", features: xr.Dataset) -> None:
    """κ_CKA of every seed, and the limit of training the last layer alone."""
    spread = np.linspace(-0.15, 0.15, features.sizes["seed"])
    for index, colour in zip(range(len(CASES)), COLOURS, strict=False):
        panel.plot(index + spread, features.mp_distance.isel(case=index), "o", color=colour)
    limit: dict[str, Any] = {"color": "black", "markersize": 14, "label": "best last layer"}
    panel.plot(CASES.index(LINEAR) + spread, features.limit_mp_distance, "_", **limit)
    panel.axhline(THRESHOLD, color="grey", linestyle="--", label="minimum-feature below")
    panel.set_xticks(range(len(CASES)), [case.name.replace(", ", ",\n") for case in CASES])
    panel.set_xlim(-0.5, len(CASES) - 0.5)
    panel.set_ylim(bottom=0)
    panel.set_ylabel("distance to the minimum projection, κ_CKA")
    panel.legend(fontsize="small", loc="upper left")
