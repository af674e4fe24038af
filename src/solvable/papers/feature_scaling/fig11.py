"""Fig. 11: a plain linear network of two layers, trained on easy and hard tasks (appendix G)."""

import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._linear import CAPACITY, RICHNESS, SPANS, TASKS, mean_exponent, train
from solvable.papers.feature_scaling._shared import draw_power, rich_exponent, shades
from solvable.plotting import draw_curve, log_losses, new_figure


def reproduce(scale: Scale) -> Reproduction:
    figure, panels = new_figure(2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for panel, (task, source) in zip(panels, TASKS.items(), strict=True):
        runs = train(source, scale)
        for colour, richness in zip(shades(len(RICHNESS)), RICHNESS, strict=True):
            datasets[f"{task}-{richness:g}"] = runs[richness]
            draw_curve(panel, runs[richness].test_loss, colour, f"γ = {richness:g}")
        lazy, rich = (runs[richness].test_loss.mean("seed") for richness in (RICHNESS[0], RICHNESS[-1]))
        draw_power(panel, lazy, source, "$t^{-\\beta}$", at=0.9, shift=1.4, since=30)
        if source < 1:
            draw_power(
                panel, rich, rich_exponent(source), "$t^{-2\\beta/(1+\\beta)}$", at=0.9, since=30, linestyle="--"
            )
        panel.set(xscale="log", xlabel="steps", ylabel="test loss")
        panel.set_title(f"{task}, β = {source:g}, α = {CAPACITY:g}", fontsize="medium")
        log_losses(panel)
        panel.legend(fontsize="small", loc="lower left")
        claims += _claims(task, source, runs)
    return Reproduction(datasets, figure, claims)


def _claims(task: str, source: float, runs: dict[float, xr.Dataset]) -> list[Claim]:
    claims = []
    found = []
    first, last = SPANS[task]
    for richness, expected in ((RICHNESS[0], source), (RICHNESS[-1], rich_exponent(source))):
        found.append(mean_exponent(runs[richness].test_loss, first, last))
        claims.append(
            Claim(
                f"{task}, β = {source:g}, γ = {richness:g}: exponent of the loss over steps {first} ... {last}",
                found[-1],
                expected,
                0.15 * expected,
                "the approach: flow time is at most 100; lazy and rich are 67 % apart for the hard task",
            )
        )
    claims.append(
        Claim(
            f"{task}, β = {source:g}: what learned features add to that exponent",
            found[1] - found[0],
            rich_exponent(source) - source,
            0.05,
            "the approach: flow time is at most 100",
        )
    )
    return claims
