"""Claims and pictures of feature-scaling on made-up data: curves of the right exponents pass, and others fail.

No network is trained here, so that figures are tested at the scale of the paper, too.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.feature_scaling import (
    circle_bottleneck,
    data_reuse,
    eq8,
    fig3,
    fig5,
    fig6,
    fig7_circle,
    fig11,
    fig12,
    growing_momentum,
    network_schedules,
    sgd_noise,
    table1,
)
from solvable.papers.feature_scaling._circle import exponent
from solvable.papers.feature_scaling._linear import RICHNESS, TASKS, run_name
from solvable.papers.feature_scaling._shared import CAPACITY, compute_exponents, rich_exponent

Data = dict[str, xr.Dataset]


def failing(figure: ModuleType, data: Mapping[str, xr.Dataset]) -> list[str]:
    """Names of the claims that fail; the picture must be possible, too."""
    assert figure.draw(data).axes
    return [claim.name for claim in figure.claims(data) if not claim.passed]


def at_scale(scale: str, data: Data) -> Data:
    return {name: part.assign_attrs(scale=scale) for name, part in data.items()}


def curve(times: np.ndarray, values: np.ndarray, name: str = "test_loss", dim: str = "time") -> xr.Dataset:
    return xr.Dataset({name: (dim, values)}, {dim: times})


def seeds_of(values: np.ndarray, count: int, spread: float = 1e-3) -> np.ndarray:
    """The same values for each seed, but for a factor that is one in the mean."""
    return np.stack([values * (1 + shift) for shift in spread * np.linspace(-1, 1, count)])


@pytest.mark.parametrize("source", [0.3, 0.9, 1.2, 1.75, 3.0])
def test_exponents_of_table_1_are_those_of_the_model_and_balance(source: float) -> None:
    """Time and model (hard) or time and its 1/N correction (easy) fall alike along C = N t."""
    for regime, time in (("lazy", source), ("rich", rich_exponent(source))):
        loss, size = compute_exponents(source, regime == "rich")
        found = FeatureScaling(CAPACITY, source).exponents().exponent.sel(regime=regime, quantity="compute")
        assert loss == pytest.approx(float(found))
        if source < 2 - 1 / CAPACITY:
            assert loss == pytest.approx(time * (1 - size))
        assert loss == pytest.approx(CAPACITY * source * size if source < 1 else (1 - 1 / CAPACITY) * (1 - size) + size)


def test_table_1_tells_rich_from_lazy_on_hard_tasks() -> None:
    budgets = np.geomspace(table1.FIRST, table1.LAST, 3)
    data = {}
    for task, source in table1.TASKS.items():
        for regime in table1.RICHNESS:
            loss, size = compute_exponents(source, regime == "rich")
            best = curve(budgets, budgets**-loss, dim="budget")
            data[f"{task}-{regime}"] = best.assign(features=("budget", budgets**size))
    assert not failing(table1, data)
    data["hard-rich"] = data["hard-lazy"]
    assert all(name.startswith("hard, β = 0.5, rich: ") for name in failing(table1, data))
    assert len(failing(table1, data)) == 2


def transients(printed: bool) -> Data:
    """Corrections of first order in 1/N with the right or the printed exponents, and data bottlenecks as claimed."""
    few = [np.prod(eq8._direct_sums(source, eq8.FEW_SAMPLES, eq8.FEW_MODES)) for source in eq8.SOURCES]
    many = [eq8.MANY_SAMPLES ** (-CAPACITY * min(2.0, source)) for source in eq8.SOURCES]
    both = np.ones((2, len(eq8.SOURCES), eq8.COUNTS.size))
    coords = {"source": list(eq8.SOURCES), "samples": eq8.MANY_SAMPLES, "few": ["features", "samples"]}
    data = {
        "many-samples": xr.Dataset({"test_loss": (("source", "samples"), many)}, coords),
        "few-samples": xr.Dataset({"test_loss": ("source", few)}, coords),
        "bottlenecks": xr.Dataset({"test_loss": (("few", "source", "count"), both)}, coords),
    }
    times = np.geomspace(30, eq8.LAST_TIME["full"], 33)
    for source, richness in eq8.TRANSIENTS:
        expected, other = eq8._transient_exponent(source, richness)
        data[eq8._name(source, richness)] = curve(times, times ** -(other if printed and other else expected))
    return at_scale("full", data)


def test_eq_8_as_printed_fails_for_hard_tasks() -> None:
    assert not failing(eq8, transients(printed=False))
    failed = failing(eq8, transients(printed=True))
    assert [name.split(":")[0] for name in failed] == ["β = 0.4, lazy", "β = 0.4, rich"]


@pytest.mark.parametrize(("source", "richness"), fig3.TRANSIENTS)
def test_noise_that_falls_as_printed_fails(source: float, richness: float) -> None:
    """Eq. 8 prints 2 - 1/α for all sources, and eq. 83 the exponent 1 - 1/α."""
    times, gain = np.geomspace(10, 1e6, 25), fig3.NOISE * fig3.TRACE / 2
    share = gain / (1 - gain)
    printed = 2 - 1 / CAPACITY if source < 2 - 1 / CAPACITY else 1 - 1 / CAPACITY
    for power, passes in ((min(source, 2 - 1 / CAPACITY), True), (printed, False)):
        found = xr.Dataset({"added_loss": ("time", share * times**-power), "quiet_loss": ("time", times**-source)})
        claims = fig3._added_claims(found.assign_coords(time=times), source, richness, 1e6)
        assert claims[0].passed is passes
        assert claims[-1].passed is passes


def linear_runs(printed: bool = False) -> Data:
    """Losses and spikes of both tasks; of the rich hard one, with the growth exponent that the paper prints."""
    times = np.concatenate([[0.0], np.geomspace(1, 1e4, 25)])
    data = {}
    for task, source in TASKS.items():
        for richness in RICHNESS:
            rich = richness == RICHNESS[-1]
            loss = np.maximum(times, 0.5) ** -(rich_exponent(source) if rich else source)
            growth = 1 - 2 * source * (1 + source) if printed else 1 - rich_exponent(source)
            spike = 1 + times**growth if rich and source < 1 else np.ones_like(times)
            variables = {
                name: (("seed", "time"), seeds_of(values, 2))
                for name, values in (("test_loss", loss), ("spike", spike))
            }
            data[run_name(task, richness)] = xr.Dataset(variables, {"seed": [0, 1], "time": times})
    return data


def test_linear_networks_that_stay_lazy_fail() -> None:
    data = linear_runs()
    assert not failing(fig11, data)
    data[run_name("hard", RICHNESS[-1])] = data[run_name("hard", RICHNESS[0])]
    assert [name.split(": ")[1][:12] for name in failing(fig11, data)] == ["exponent of ", "what learned"]


def test_a_spike_that_grows_as_printed_fails() -> None:
    assert not failing(fig12, linear_runs())
    (failed,) = failing(fig12, linear_runs(printed=True))
    assert failed.startswith("hard, β = 0.2, γ = 1: growth exponent of the spike")


def test_largest_growth_is_that_of_the_documentation() -> None:
    assert sgd_noise.largest_growth(0.01) == pytest.approx(19.3, abs=0.05)
    assert sgd_noise.largest_growth(0.05) == pytest.approx(4.47, abs=0.005)


def bottleneck(excess: float, growth: float) -> Data:
    """An excess ``t^growth / N^excess``, the same for all tasks."""
    times, widths, count = circle_bottleneck.TIMES, circle_bottleneck.WIDTHS["full"], 4
    tasks = list(circle_bottleneck.SOURCES)
    infinite = xr.DataArray([times**-source for source in tasks], dims=("task", "time"))
    infinite = infinite.assign_coords(task=tasks, time=times)
    relative = np.stack([seeds_of(times**growth / width**excess, count) for width in widths])
    ratio = 1 + xr.DataArray(relative, dims=("width", "seed", "time"), coords={"width": list(widths), "time": times})
    curves = (infinite * ratio).transpose("width", "task", "seed", "time")
    onsets = circle_bottleneck._onsets(curves / infinite)
    data = {"curves": curves.to_dataset(name="loss"), "infinite": infinite.to_dataset(name="loss"), "onsets": onsets}
    return at_scale("full", data)


def test_onsets_and_excess_of_a_bottleneck_that_is_known() -> None:
    data = bottleneck(excess=1.0, growth=0.7)
    assert not failing(circle_bottleneck, data)
    expected = (0.5 * data["onsets"].width) ** (1 / 0.7)
    np.testing.assert_allclose(data["onsets"].onset[0], np.where(expected < 1e5, expected, np.inf), rtol=1e-2)
    claims = circle_bottleneck.claims(data)
    assert claims[0].measured == pytest.approx(1.0, abs=1e-6)
    assert claims[1].measured == pytest.approx(1 / 0.7, abs=0.01)
    failed = failing(circle_bottleneck, bottleneck(excess=1.25, growth=0.7))
    assert len([name for name in failed if "excess at t = 1000" in name]) == len(circle_bottleneck.SOURCES)


def circle_networks(rich: Any) -> Data:
    """Losses of fig. 5 at full scale, powers of time with exponents ``rich(source)``, and the lazy exponents exact."""
    times, powers = np.geomspace(5, 1600, 40), list(fig5.POWERS["full"])
    sources = {"target": fig5.SOURCES["full"], "activation": [(2 * fig5.DECAY - 1) / (2 * power) for power in powers]}
    data = {}
    for name, some in sources.items():
        own = [1.0] * len(some) if name == "target" else powers
        labels = {"source": ("task", list(some)), "power": ("task", own)}
        for regime, law in (("rich", rich), ("lazy", float)):
            losses = np.stack([seeds_of(times ** -law(source), 3) for source in some])
            data[f"{name}-{regime}"] = xr.Dataset(
                {"loss": (("task", "seed", "time"), losses)}, {"time": times, **labels}
            )
        fits = {"prediction": [rich_exponent(source) for source in some], "infinite": some, "asymptotic": some}
        for regime in ("rich", "lazy"):
            rows = [exponent(loss, fig5.WINDOWS["full"]) for loss in data[f"{name}-{regime}"].loss]
            fits |= dict(zip((regime, f"{regime}_error", f"{regime}_window"), np.transpose(rows), strict=True))
        data[f"{name}-exponents"] = xr.Dataset({key: ("task", list(values)) for key, values in fits.items()}, labels)
    small = np.geomspace(*fig5.LAZY_WINDOW, 37)
    losses = np.stack([small**-source for source in fig5.SOURCES["full"][: fig5.CLAIMED]])
    data["small-inputs"] = xr.Dataset(
        {"loss": (("task", "seed", "time"), losses[:, None]), "infinite": (("task", "time"), losses)},
        {"time": small, "source": ("task", list(fig5.SOURCES["full"][: fig5.CLAIMED]))},
    )
    data["tangent"] = xr.Dataset({"trained": ("time", [1.0, 0.5]), "linearised": ("time", [1.0, 0.49])})
    return at_scale("full", data)


def test_circle_networks_with_the_exponents_of_the_model_pass_and_lazy_ones_fail() -> None:
    assert not failing(fig5, circle_networks(rich_exponent))
    # At β = 0.5, 0.75 and 1 the gain is 0.167, 0.107 and 0; the tolerance is 0.1.
    assert [name.split(",")[0] for name in failing(fig5, circle_networks(float))] == [
        "(a) β = 0.5",
        "(a) β = 0.75",
        "(b) β = 0.75",
        "(b) β = 0.5",
    ]


def test_the_largest_difference_from_the_tangent_model_is_claimed() -> None:
    data = circle_networks(rich_exponent)
    gap = fig5.claims(data)[-1]
    assert gap.measured == pytest.approx(0.5 / 0.49 - 1)
    data["tangent"] = data["tangent"].assign(trained=("time", [0.9, 0.49]))
    assert fig5.claims(data)[-1].measured == pytest.approx(0.1)


def spectra(factor: float) -> Data:
    """Fig. 7 at full scale: eigenvalues of networks are ``factor`` times those of the infinite width, but for noise."""
    waves, powers = np.arange(1, fig7_circle.FITTED["full"][1] + 1), list(fig7_circle.POWERS)
    infinite = np.stack([waves ** (-2.0 * power) for power in powers])
    measured = np.stack([factor * seeds_of(row, 8) for row in infinite])
    variables = {"eigenvalue": (("power", "seed", "k"), measured), "infinite": (("power", "k"), infinite)}
    times, sources = np.geomspace(5, 1600, 40), list(fig7_circle.SOURCES["full"])
    losses = np.stack([times**-source for source in sources])
    curves = xr.Dataset(
        {"loss": (("task", "seed", "time"), losses[:, None]), "infinite": (("task", "time"), losses)},
        {"time": times, "source": ("task", sources)},
    )
    return at_scale(
        "full",
        {
            "spectra": xr.Dataset(variables, {"power": powers, "k": waves}),
            "curves": curves,
            "exponents": fig7_circle._exponents(curves, fig7_circle.WINDOWS["full"]),
        },
    )


def test_spectra_of_networks_are_compared_with_the_infinite_width_by_their_standard_error() -> None:
    """Eight seeds, a thousandth apart: one standard error is 2.3e-4."""
    assert not failing(fig7_circle, spectra(1.0))
    failed = failing(fig7_circle, spectra(1.002))
    assert len(failed) == len(fig7_circle.POWERS)
    assert all("measured over analytic eigenvalues" in name for name in failed)


def streams(rich: Any) -> Data:
    """Fig. 6 at full scale: both streams have the lazy exponent 0.3, and the bounds of the kernel 0.31 and 0.29."""
    data: Data = {}
    for panel in fig6.PANELS["full"]:
        times = panel.rate * np.array(fig6.measured_steps(panel.steps)[1:])
        exponents = [0.3, 0.35, rich(0.3)]
        losses = np.stack([seeds_of(times**-value, panel.seeds, 1e-3) for value in exponents])
        loss = (("richness", "seed", "time"), losses)
        stopped = (("richness", "seed"), np.full((3, panel.seeds), -1))
        trained = xr.Dataset(
            {"test_loss": loss, "stream_loss": loss, "diverged_at": stopped},
            {"richness": list(panel.richness), "time": times},
        )
        kernel = xr.Dataset(
            {
                "learned": ("time", times**-0.31),
                "held_out": ("time", times**-0.29),
                "source": 0.3,
                "source_error": 0.01,
            },
            {"time": times},
        )
        name = panel.task.images
        data |= {f"{name}-trained": trained, f"{name}-kernel": kernel}
        data[f"{name}-exponents"] = fig6._exponents(panel, trained, kernel)
        if panel.linearised:
            data[f"{name}-linearised"] = trained[["test_loss"]].isel(richness=0, drop=True)
    return at_scale("full", data)


def test_image_networks_with_the_forecast_exponents_pass() -> None:
    data = streams(rich_exponent)
    assert float(data["mnist-exponents"].lazy) == pytest.approx(0.3)
    assert float(data["mnist-exponents"].rich) == pytest.approx(0.6 / 1.3)
    assert not failing(fig6, data)


def test_image_networks_that_stay_lazy_fail() -> None:
    """The tolerance is a third of the gap between lazy and rich; a network that is not ahead fails, too."""
    failed = failing(fig6, streams(float))
    for label in ("(a) mnist", "(b) cifar-10"):
        own = [name for name in failed if name.startswith(label)]
        assert any("is ahead at the end" in name for name in own)
        assert any("the rich forecast 2β/(1 + β)" in name for name in own)
    assert any("falls short" in name for name in failed)


def test_image_networks_outside_of_the_bounds_of_their_kernel_fail() -> None:
    data = streams(rich_exponent)
    data["mnist-trained"]["test_loss"] = 1.05 * data["mnist-trained"].test_loss
    failed = failing(fig6, data)
    assert len(failed) == 1
    assert "leaves the bounds of its kernel" in failed[0]


def growing_momentum_data(slower: float = 0.0) -> Data:
    """Losses, ends and samples that follow the laws, exactly or with smaller exponents."""
    times = np.unique(np.append(np.geomspace(1, 20_000, 400).round(), 2000.0))
    data = {}
    for method in growing_momentum.METHODS:
        for case in growing_momentum.CASES:
            law = times ** -(growing_momentum.expected(method, *case) - slower)
            found = curve(times, law)
            data[f"{method}, β = {case[0]:g}, c = {case[1]:g}"] = found.assign(mean_loss=found.test_loss)
        sizes = np.array(growing_momentum.BATCHES["quick"][method], float)
        power = (1.0 if method == "heavy ball" else CAPACITY) - slower
        data[f"end of {method}"] = curve(sizes, sizes**power, "end", "batch_size")
    used = np.geomspace(10, 1e6, 50)
    for name, power in (("growing batches", 0.96), ("plain SGD", 0.8)):
        data[name] = curve(used, used ** -(power - slower), dim="samples")
    late = np.array([1.0, 400.0, 4000.0])
    data["rich"] = curve(late, late ** -(8 / 7 - slower), "mean_loss")
    return at_scale("quick", data)


def test_growing_momentum_has_the_exponents_of_theory() -> None:
    assert not failing(growing_momentum, growing_momentum_data())
    assert len(failing(growing_momentum, growing_momentum_data(0.1))) == 12


def test_the_worth_of_reused_data_follows_its_laws_without_noise_only() -> None:
    samples, few = data_reuse.SAMPLES["quick"], data_reuse.NOISY_SAMPLES
    data = {
        f"β = {source:g}, {regime}": curve(samples, samples ** data_reuse.expected(source, regime), "worth", "samples")
        for source in data_reuse.SOURCES
        for regime in data_reuse.REGIMES
    }
    for noise, power in zip(data_reuse.NOISES, (0.2, 0.12, 0.09), strict=True):
        data[f"noise {noise:g}"] = curve(few, few**power, "worth", "samples")
    assert not failing(data_reuse, at_scale("quick", data))
    data["noise 0.0125"] = data["noise 0.000625"]
    assert len(failing(data_reuse, at_scale("quick", data))) == 2


def test_network_schedules_tell_who_wins() -> None:
    tasks, regimes, names = network_schedules.TASKS, network_schedules.REGIMES, network_schedules.SCHEDULES
    dims = ("task", "regime", "schedule", "seed")
    ratios = np.broadcast_to(np.array([1.3, 1.5, 1.1, 1.0])[:, None], (3, 2, 4, 8)).copy()
    theory = xr.Dataset({"test_loss": ("schedule", ratios[0, 0, :, 0])}, {"schedule": list(names)})

    def data(losses: np.ndarray) -> Data:
        losses = losses * (1 + 1e-3 * np.arange(8) * np.array([1, 2, 3, 4])[:, None])
        coordinates = {"task": list(tasks), "regime": list(regimes), "schedule": list(names)}
        final = xr.Dataset({"test_loss": (dims, losses)}, coordinates)
        return at_scale("quick", {"final": final, **{f"theory, {task}": theory for task in tasks}})

    assert not failing(network_schedules, data(ratios))
    ratios[0, 1, 1] = 0.5
    (name,) = failing(network_schedules, data(ratios))
    assert name.startswith("hard, rich: ")
    assert network_schedules.advantage(data(ratios), "hard", "rich", "cosine")[0] < -0.6
