"""Claims and pictures of the thesis on layerwise linear models, from data that nobody has to compute or train."""

import numpy as np
import pytest
import xarray as xr

from solvable.models.skills import SkillModel
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise import (
    fig1_4,
    fig4_2,
    fig6_5,
    minimum_projection,
    neural_collapse,
    saddle_to_saddle,
    table4_1,
)
from solvable.papers.layerwise import stage_overlap as overlaps
from solvable.papers.layerwise._grokking import Row


def failed(claims: list[Claim]) -> list[str]:
    return [claim.name for claim in claims if not claim.passed]


def power_laws(alpha: float, change: dict[str, float]) -> dict[str, xr.Dataset]:
    """Losses that are exact power laws over a decade, with the exponents of table 4.1, some of them changed."""
    exponents = {
        "time": alpha / (alpha + 1),
        "samples": alpha / (alpha + 1),
        "basis": alpha,
        "budget": alpha / (alpha + 2),
    }
    resource = np.geomspace(1e3, 1e4, 5)
    attrs = {"scale": "quick"}
    data = {f"exponents-{alpha:g}": SkillModel(alpha).exponents().assign_attrs(attrs)}
    for name, exponent in exponents.items():
        loss = 7 * resource ** -(exponent + change.get(name, 0.0))
        data[f"{name}-{alpha:g}"] = xr.Dataset({"test_loss": (name, loss)}, {name: resource}, attrs)
    return data


def test_exponents_of_power_laws_are_those_of_the_table_and_others_are_not() -> None:
    right = {name: part for alpha in (0.3, 0.6, 0.9) for name, part in power_laws(alpha, {}).items()}
    claims = table4_1.claims(right)
    assert len(claims) == 12
    assert not failed(claims)
    wrong = right | power_laws(0.6, {"samples": 0.01})
    assert failed(table4_1.claims(wrong)) == ["α = 0.6: exponent of data D"]


def test_prefactors_are_read_off_the_end_of_the_last_decade() -> None:
    data = {}
    for alpha in fig4_2.EXPONENTS:
        model = SkillModel(alpha, skills=np.inf)
        for name, last, shift in (("time", 1e6, 0.0), ("samples", 1e6, 0.0), ("basis", 1e4, 0.5)):
            resource = np.array([last / 10, last])
            loss = float(model.prefactors()[name]) * (resource + shift) ** -float(model.exponents()[name])
            data[f"{name}-{alpha:g}-decade"] = xr.Dataset({"test_loss": (name, loss)}, {name: resource})
    assert not failed(fig4_2.claims(data))
    data["basis-0.6-decade"] = data["basis-0.6-decade"] * 1.001
    assert failed(fig4_2.claims(data)) == ["α = 0.6, basis: prefactor"]


def test_the_printed_overlap_is_negative_where_the_corrected_one_is_a_fraction() -> None:
    # E[x²] = 1 and 1/2 from a start of 1e-2: the exponent is (1 - 1/2)/(1 + 1/2), and 99^(1/3) is 4.626.
    ratios, start = np.array([0.5]), np.array(overlaps.STARTS)
    right = 1 / (1 + (1 / start - 1) ** (1 / 3))
    data = xr.Dataset(
        {
            "overlap": (("start", "ratio"), right[:, None]),
            "overlap_by_roots": (("start", "ratio"), right[:, None]),
            "overlap_at_half": ("start", right),
        },
        {"start": start, "ratio": ratios},
    )
    claims = overlaps.claims({"overlap": data})
    assert not failed(claims)
    assert claims[1].expected == pytest.approx(1 / (1 + 4.626), rel=1e-4)
    assert float(claims[1].printed or 0) == pytest.approx(1 / (1 - 33))
    data["overlap_by_roots"] = data.overlap_by_roots * (1 + 1e-9)
    assert len(failed(overlaps.claims({"overlap": data}))) == 3


def test_peaks_of_the_dirichlet_kernel_are_half_as_high_at_0_3_over_the_modes() -> None:
    # sin(2 pi p u) / (2 pi p u) = 1/2 at p u = 0.30168 for many modes p.
    assert fig1_4.dirichlet_half_width(2000) * 2000 == pytest.approx(0.3017, rel=1e-3)


def test_features_that_have_collapsed_form_a_simplex() -> None:
    classes = np.repeat(np.arange(neural_collapse.CLASSES), 2)
    task = neural_collapse.Task(np.eye(8), np.eye(4)[classes], classes)
    # Each class has a direction of its own in the first layer, and the second layer is the first one turned around.
    first = np.eye(4)[classes]
    last = xr.Dataset(
        {"first": (("seed", "input", "unit"), first[None]), "second": (("seed", "unit", "output"), np.eye(4)[None])}
    )
    found = {name: float(values[0]) for name, (_, values, _) in neural_collapse.collapse_measures(task, last).items()}
    assert found == pytest.approx({"scatter": 0.0, "mean_cosine": -1 / 3, "misalignment": 0.0}, abs=1e-12)


def test_noise_makes_the_operator_less_of_a_projection() -> None:
    assert minimum_projection.distance_with_noise(0.0) == 0
    assert minimum_projection.scatter_with_noise(0.0, 100) == 0
    # Pure noise: κ_CKA tends to 1, and NC1 to (C - 1) n / (C p), which is the chance scatter of class means.
    assert minimum_projection.distance_with_noise(1e6) == pytest.approx(1, abs=1e-9)
    assert minimum_projection.scatter_with_noise(1e6, 100) == pytest.approx(4 * 100 / (5 * 40))


def test_plateaus_are_those_of_the_saddles() -> None:
    # Losses with the first modes of (3, -1.5, 0.75, 0.35) learned: halves of the sums of the other squares.
    levels = [1.4675, 0.34250, 0.06125]
    plateaus = xr.Dataset(
        {"half_time": ("mode", [1.0, 2.0, 3.0, 4.0]), "overlap": ("stage", [1e-3] * 3), "loss": ("stage", levels)}
    )
    times = np.arange(3.0)
    runs = xr.Dataset(
        {"strength": (("seed", "time"), np.random.default_rng(0).normal(1, 0.1, (8, 3)))}, {"time": times}
    )
    theory = xr.Dataset({"strength": ("time", np.ones(3))}, {"time": times})
    data = {f"plateaus-{start:g}": plateaus for start in saddle_to_saddle.STAGED}
    data |= {"expected": theory, "simulation": runs}
    assert not failed(saddle_to_saddle.claims(data))
    data["plateaus-1e-05"] = plateaus.assign(half_time=plateaus.half_time[::-1], loss=plateaus.loss * 1.01)
    assert len(failed(saddle_to_saddle.claims(data))) == 4


# Fig. 6.5: a network that groks -------------------------------------------------------------------------------------


def grokking(scale: Scale) -> dict[str, xr.Dataset]:
    """What training would give: the default generalises long after it fits, and with a remedy at once."""
    rows, seeds, time = fig6_5._rows(scale), 2, np.array([0.0, 1, 10, 100, 1000])
    both = np.ones((len(rows), seeds))
    delay = both * np.array([_delay(row) for row in rows])[:, None]
    growth = {"default": 0.1, "weight": 2.0, "target": 1.0, "input": 3.0, "output": 1.0}
    table = xr.Dataset(
        {
            "fits": (("variant", "seed"), 10 * both),
            "generalises": (("variant", "seed"), 10 * delay),
            "delay": (("variant", "seed"), delay),
            "delay_strict": (("variant", "seed"), np.maximum(delay, 10)),
            "best": (("variant", "seed"), 0.9 * both),
            "at_fit": (("variant", "seed"), 0.5 * both),
            "growth": ("variant", [growth[row.configuration] for row in rows]),
        },
        attrs={"level": 0.8},
    )
    accuracy = np.broadcast_to(time / 1000, (len(rows), seeds, time.size))
    curves = {f"{part}_accuracy": (("variant", "seed", "time"), accuracy) for part in ("train", "test")}
    features = {"mp_distance": (("variant", "seed", "step"), both[..., None] * [0.5, 0.4, 0.2])}
    parts = {"curves": xr.Dataset(curves, {"time": time}), "delays": table, "features": xr.Dataset(features)}
    # A variant is a number in training; rows have names.
    parts = {name: part.assign_coords(variant=np.arange(len(rows))) for name, part in parts.items()}
    return {name: fig6_5._named(part, rows).assign_attrs(part.attrs, scale=scale) for name, part in parts.items()}


def _delay(row: Row) -> float:
    if row.configuration == "default":
        return np.inf if row.decay == "none" else 40.0
    if row.standardised:
        return 1.0 if row.configuration == "weight" else 30.0
    return {"weight": 0.8, "target": 1.5, "input": 0.7, "output": 1.5}[row.configuration]


@pytest.mark.parametrize(("scale", "count"), [("quick", 11), ("full", 13)])
def test_claims_of_grokking_hold_for_runs_that_grok(scale: Scale, count: int) -> None:
    data = grokking(scale)
    claims = fig6_5.claims(data)
    assert len(claims) == count
    assert not failed(claims)
    assert len(fig6_5.draw(data).axes) == 6


def test_claims_of_grokking_fail_for_a_default_that_never_generalises() -> None:
    data = grokking("quick")
    default = (data["delays"].configuration == "default") & (data["delays"].decay == "gradient")
    never = {name: data["delays"][name].where(~default, np.inf) for name in ("delay", "generalises")}
    names = failed(fig6_5.claims(data | {"delays": data["delays"].assign(never)}))
    assert [name.split(":")[1].split()[0] for name in names] == ["share", "share"]


def test_pairs_of_configurations_are_counted_in_the_order_of_their_growth() -> None:
    data = grokking("quick")
    # Ten pairs, of which target and output have the same growth. Input and weight exchanged: one pair in nine.
    swapped = data["delays"].copy()
    swapped["growth"] = swapped.growth.where(swapped.configuration != "input", 1.5)
    claim = fig6_5._order_claim(swapped)
    assert claim.measured == pytest.approx(8 / 9)
    assert claim.passed
    swapped["growth"] = swapped.growth.where(swapped.configuration != "input", 0.5)
    assert not fig6_5._order_claim(swapped).passed
