"""Delayed-features: times of falling losses, the printed equations, and claims on made-up data."""

import numpy as np
import pytest
import xarray as xr

from solvable.papers.delayed_features import _shared, agreement, delay_map, eq15, eq18, eq20, fig1, fig3, wide

TIMES = np.geomspace(1, 1000, 7)


def curve(values: np.ndarray) -> xr.DataArray:
    return xr.DataArray(values, dims="time", coords={"time": TIMES}, name="test_loss")


@pytest.mark.parametrize("level", [0.5, 0.0213, 0.002])
def test_a_power_law_falls_when_it_must(level: float) -> None:
    # Straight on log axes, so that interpolation there is exact.
    assert float(_shared.fall_time(curve(1 / TIMES), level)) == pytest.approx(1 / level, rel=1e-12)


def test_times_of_datasets_are_their_own() -> None:
    both = xr.concat([curve(1 / TIMES), curve(3 / TIMES), curve(np.ones(TIMES.size))], "seed")
    np.testing.assert_allclose(_shared.fall_time(both, 0.01).values, [100, 300, np.nan], rtol=1e-12)


def test_time_zero_is_no_obstacle() -> None:
    values = xr.DataArray([2.0, 1.0, 0.01], dims="time", coords={"time": [0.0, 1.0, 100.0]}, name="train_loss")
    assert float(_shared.fall_time(values, 0.1)) == pytest.approx(10, rel=1e-12)


def test_errors_of_a_crossing() -> None:
    # Over t^-1 an error of 10 % of the loss moves the crossing by 10 % of the time.
    theory = xr.Dataset({"test_loss": curve(1 / TIMES), "test_loss_error": curve(0.1 / TIMES)})
    crossing = 1 / _shared.LEARNED
    assert _shared.fall_time_error(theory, "test_loss") == pytest.approx(0.1 * crossing, rel=1e-12)


def test_scores_leave_out_the_start_and_know_theory_error() -> None:
    times = [0.0, 1.0, 2.0]
    theory = xr.Dataset({"a": ("time", [1.0, 1.0, 1.0]), "a_error": ("time", [0.0, 0.0, 3.0])}, {"time": times})
    runs = np.array([[1.0, 1.0, 5.0], [1.0, 3.0, 5.0]])
    simulation = xr.Dataset({"a": (("seed", "time"), runs)}, {"time": times})
    # Means 2 and 5; errors 1 (two runs one apart from the mean) and 3.
    np.testing.assert_allclose(_shared.z_scores(theory, simulation, "a"), [1.0, 4 / 3])


def test_printed_equation_is_the_printed_one() -> None:
    """Eq. 15, letter by letter, against the path from the same start."""
    step = 1e-4
    path = eq15._printed(np.array([0.0, step]))
    slopes = {name: (path[name][1] - path[name][0]).values / step for name in ("alignment", "overlap")}
    a, c, eps, n = path.alignment.values[0, :, 0], path.overlap.values[0], eq15.EPSILON, 2
    brake = 1 - sum(c[k, k] for k in range(n)) / n
    for i in range(n):
        expected = eps / 2 * brake * a[i] - sum((1 + eps**2 * c[i, j]) * a[j] for j in range(n)) / n + eps * a[i]
        # The path is curved: errors of order step.
        assert slopes["alignment"][i, 0] == pytest.approx(expected, abs=1e-3)
        for j in range(n):
            cubic = sum(c[i, k] * c[k, j] * (2 + eps**2 * c[i, k] + eps**2 * c[k, j]) for k in range(n)) / n
            expected = eps * brake * c[i, j] - cubic + 2 * eps * a[i] * a[j]
            assert slopes["overlap"][i, j] == pytest.approx(expected, abs=1e-3)


def test_printed_time_depends_on_alpha_twice_too_much() -> None:
    model = _shared.paper_task(np.inf, 1e-3, eq20.EPSILON, alignment=(0.01, -0.01), overlap=np.eye(2))
    smaller = _shared.paper_task(np.inf, 1e-4, eq20.EPSILON, alignment=(0.01, -0.01), overlap=np.eye(2))
    corrected = float(smaller.escape_time().escape_time - model.escape_time().escape_time)
    assert eq20.printed_time(1e-4, 0.01) - eq20.printed_time(1e-3, 0.01) == pytest.approx(2 * corrected, rel=1e-12)


def test_flow_time_takes_the_place_of_steps() -> None:
    steps = xr.Dataset({"c": (("time", "earlier_time"), np.eye(2))}, {"time": [2.0, 5.0], "earlier_time": [2.0, 5.0]})
    found = _shared.on_flow_time(steps.assign_coords(flow_time=("time", [0.2, 0.5])))
    np.testing.assert_array_equal(found.time, [0.2, 0.5])
    np.testing.assert_array_equal(found.earlier_time, [0.2, 0.5])
    np.testing.assert_array_equal(_shared.steps_near([0.21, 0.24, 0.98], 0.1), [2, 10])


@pytest.mark.parametrize("neurons", [2, 10, 100])
def test_wide_networks_begin_with_weights_that_exist(neurons: int) -> None:
    alignment, overlap = wide.start(neurons)
    assert np.linalg.eigvalsh(overlap - np.outer(alignment, alignment)).min() == pytest.approx(1, rel=1e-12)
    assert alignment.sum() == pytest.approx(0, abs=1e-12)


# Claims on made-up data -----------------------------------------------------------------------------------------------


def test_the_gap_is_taken_without_what_sampling_puts_there() -> None:
    """Losses that differ by 3/γ and a sampling error of 0.1, where the formula says 1/γ."""
    times = {"time": np.arange(1.0, 4.0)}

    def losses(gap: float, formula: float) -> xr.Dataset:
        curves = {"train_loss": 1.0, "test_loss": 1.1 + gap, "loss_gap": formula}
        return xr.Dataset({name: ("time", np.full(3, value)) for name, value in curves.items()}, times)

    data = {f"theory-{gamma:g}": losses(3 / gamma, 1 / gamma) for gamma in eq18.GAMMAS} | {"no-gap": losses(0, 1)}
    for gamma in eq18.GAMMAS:
        np.testing.assert_allclose(eq18.true_gap(data, gamma), 3 / gamma, rtol=1e-12)
        np.testing.assert_allclose(eq18.ratio_to_formula(data, gamma), 3, rtol=1e-12)
    measured = {claim.name: claim.measured for claim in eq18.claims(data)}
    assert measured["γ = 2, t = 6: true gap over eq. 18"] == pytest.approx(3)


def test_half_of_the_final_alignment() -> None:
    """Exponential growth by 1/2 until it stops at t = 10: half of that was there at 10 - 2 ln 2."""
    times = np.linspace(0, 20, 41)
    values = np.exp(np.minimum(times, 10) / 2)[:, None, None]
    data = {"online-0.001-0.01": xr.Dataset({"alignment": (("time", "neuron", "index"), values)}, {"time": times})}
    assert eq20.half_time(data, 1e-3, 0.01) == pytest.approx(10 - 2 * np.log(2), rel=1e-12)


def of_two_sizes(limit: float) -> dict[str, xr.Dataset]:
    """Theory that says 1, and simulations that go to ``limit`` as 30 / D, with a noise of one in a thousand."""
    shapes = {
        "train_loss": {"time": 7},
        "test_loss": {"time": 7},
        "alignment": {"time": 7, "neuron": 2, "index": 1},
        "overlap": {"time": 7, "neuron": 2, "other_neuron": 2},
    }
    about, draw = {"setting": "any", "scale": "quick"}, np.random.default_rng(3)
    theory = {name: (list(shape), np.ones(list(shape.values()))) for name, shape in shapes.items()}
    errors = {f"{name}_error": (dims, 0.0 * values) for name, (dims, values) in theory.items()}
    data = {"theory-0": xr.Dataset(theory | errors, attrs={**about, "system": '{"dimension": null}'})}
    for dimension in (100, 200):
        runs = {}
        for name, shape in shapes.items():
            values = limit + 30 / dimension + 1e-3 * draw.normal(size=(20, *shape.values()))
            # Overlaps are symmetric.
            values = (values + values.swapaxes(-1, -2)) / 2 if name == "overlap" else values
            runs[name] = (["seed", *shape], values)
        data[f"simulation-0-{dimension}"] = xr.Dataset(runs, attrs={**about, "system": f'{{"dimension": {dimension}}}'})
    return data


def test_agreement_is_claimed_in_the_limit_of_infinite_dimension() -> None:
    right, wrong = agreement.claims(of_two_sizes(1.0)), agreement.claims(of_two_sizes(1.01))
    assert [claim.passed for claim in right] == [True] * 4
    assert [claim.passed for claim in wrong] == [False] * 4


def test_an_overlap_of_two_neurons_counts_once() -> None:
    data = of_two_sizes(1.0)
    assert agreement._scores(data["theory-0"], list(data.values())[1:]).size == 7 * (1 + 1 + 2 + 3)


def test_times_of_a_wide_network_are_extrapolated_in_the_dimension() -> None:
    """Losses that fall to the level at 100 (1 + 5 / D)."""
    times = np.geomspace(1, 1e4, 400)
    theory = xr.Dataset({"train_loss": ("time", _shared.LEARNED * 100 / times)}, {"time": times})
    theory.attrs["system"] = '{"dimension": null}'
    simulations = []
    for dimension in (40, 80):
        at = 100 * (1 + 5 / dimension) * (1 + 0.01 * np.array([-1.0, 0.0, 1.0]))
        losses = _shared.LEARNED * at[:, None] / times
        runs = xr.Dataset({"train_loss": (("seed", "time"), losses)}, {"time": times})
        simulations.append(runs.assign_attrs(system=f'{{"dimension": {dimension}}}'))
    found, error = _shared.limit_of_fall_times(theory, simulations, "train_loss")
    assert found == pytest.approx(100, rel=1e-9)
    # The limit is 2 y(80) - y(40), each with a jackknife error of one per cent over the root of three.
    assert error == pytest.approx(np.hypot(2 * 106.25, 112.5) * 0.01 / np.sqrt(3), rel=1e-3)


@pytest.mark.parametrize(
    ("delay", "steps", "rows"),
    [
        ([[np.nan, np.nan], [5.0, 9.0], [3.0, 4.0]], 1.0, 1.0),
        ([[np.nan, np.nan], [5.0, 9.0], [6.0, 4.0]], 0.75, 0.5),
        ([[2.0, 3.0], [5.0, np.nan], [3.0, 4.0]], 2 / 3, 1.0),
    ],
)
def test_delays_fall_with_samples_and_grow_with_the_output_scale(
    delay: list[list[float]], steps: float, rows: float
) -> None:
    """Steps up in γ among cells that learn, and γ whose last α learns; never is the longest delay."""
    plane = xr.Dataset({"delay": (("gamma", "alpha"), delay)})
    assert [claim.measured for claim in delay_map.claims({"delay": plane})] == pytest.approx([steps, rows])


def test_a_share_that_falls_as_one_over_gamma() -> None:
    gammas = [fig3.GAMMA, *fig3.MANY]
    shares = xr.DataArray(1 / np.array(gammas), dims="gamma", coords={"gamma": gammas})
    first, power = fig3._share_claims(shares)
    assert first.measured == 1 / fig3.GAMMA
    assert power.measured == pytest.approx(1)


def test_delays_of_a_wide_network_are_claimed_dataset_by_dataset() -> None:
    """Losses 1/t times what fits or learns when it should; the second dataset is learned at once, or never."""

    def run(learned: list[float], kernel: list[float]) -> xr.Dataset:
        times = np.geomspace(1, 1e5, 200)
        level = _shared.LEARNED
        losses = {"train_loss": [10.0, 10.0], "test_loss": learned}
        data = {name: (("seed", "time"), level * np.outer(at, 1 / times)) for name, at in losses.items()}
        return xr.Dataset({**data, "kernel_alignment": (("seed", "time"), np.outer(kernel, times))}, {"time": times})

    data = {"simulation-0.5": run([1500.0, 20.0], [2.0, 2.0]), "simulation-2": run([4000.0, 1e9], [1.0, 3.0])}
    measured = [claim.measured for claim in fig1.claims(data)]
    steps = np.log10((1490 + 10) / 2 / fig1.LEARNING_RATE[0.5])
    assert measured == pytest.approx([0.5, 1.0, steps, 1.0, 0.5], rel=1e-6)
