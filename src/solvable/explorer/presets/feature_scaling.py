"""Presets for the figures of feature-scaling, all of the model of that name."""

from collections.abc import Mapping
from typing import Any

from solvable.explorer.presets.preset import Preset, changed


def presets() -> list[Preset]:
    def make(figure: str, label: str, a: Mapping[str, str], b: Mapping[str, str] | None = None, **more: Any) -> Preset:
        return Preset("feature-scaling", figure, label, "feature-scaling", a, b, **more)

    flow = {"modes": "inf", "training": "flow", "times": "1:1e5:41log"}
    # Late times need the limit of small steps; a flow time of 1 is 20 steps.
    noisy = {"modes": "inf", "source": "0.4", "learning_rate": "0.05", "times": "20:2e5:31log"}
    linear = {"capacity": "2", "features": "100", "learning_rate": "0.01", "modes": "600"}
    return [
        make(
            "fig1",
            "Fig. 1: phases over capacity and source",
            flow,
            tab="phase",
            views={"plane": "time", "px": "capacity", "py": "source"},
        ),
        make("fig1", "Fig. 1: hard task, rich and lazy", flow, changed(flow, richness="0")),
        make("fig1", "Fig. 1: super-easy task", changed(flow, source="3.6")),
        make(
            "fig2",
            "Fig. 2: 64 features",
            {"features": "64", "modes": "400", "times": "1:300:31log"},
            {"modes": "400", "times": "1:300:31log"},
        ),
        make(
            "fig3",
            "Fig. 3: batches of 4 and 64",
            {"features": "128", "batch_size": "4", "modes": "400", "times": "1:100:21log", "exact_batch": "true"},
            {"features": "128", "batch_size": "64", "modes": "400", "times": "1:100:21log", "exact_batch": "true"},
        ),
        make(
            "fig4",
            "Fig. 4: 64 and 256 features over time",
            changed(flow, richness="0.75", features="64", times="1:1e4:31log"),
            changed(flow, richness="0.75", features="256", times="1:1e4:31log"),
        ),
        make("fig10", "Fig. 10: hard task β = 0.4", changed(flow, source="0.4", times="1:1e8:65log")),
        make("fig11", "Fig. 11: hard task of the linear network", changed(linear, source="0.2", times="1:300:31log")),
        make(
            "fig12",
            "Fig. 12: easy task of the linear network",
            changed(linear, source="1.2", times="1:300:31log"),
            views={"lower": "kernel_growth"},
        ),
        make("eq8", "Eq. 8: a training set of 32 samples", {"samples": "32", "modes": "300", "times": "1:300:31log"}),
        make(
            "sgd-noise",
            "Batch noise stops feature learning",
            changed(noisy, batch_size="1", solver="slot-march"),
            changed(noisy, solver="exponential-midpoint"),
            views={"lower": "kernel_growth"},
        ),
        make("table1", "Table 1: compute exponents of β = 0.5", flow),
    ]
