"""Presets for the figures of delayed-features, all of the committee."""

from collections.abc import Mapping
from typing import Any

from solvable.explorer.presets.preset import Preset, changed


def presets() -> list[Preset]:
    def make(figure: str, label: str, a: Mapping[str, str], b: Mapping[str, str] | None = None, **more: Any) -> Preset:
        return Preset("delayed-features", figure, label, "committee", a, b, **more)

    eye4 = "1,0,0,0;0,1,0,0;0,0,1,0;0,0,0,1"
    four = {
        "samples_per_dimension": "4.5",
        "activation": "quadratic(0.05)",
        "initial_overlap": eye4,
        "initial_alignment": "0.1;-0.1;0.1;-0.1",
        # Gradient flow in the units of gradient descent, which simulates the same setting.
        "training": "flow",
        "learning_rate": "0.2",
        "times": "25:4000:23log",
        "dimension": "200",
    }
    signs = [0.2 * (-1) ** place for place in range(10)]
    rows = [[one * other + (row == column) for column, other in enumerate(signs)] for row, one in enumerate(signs)]
    ten = {
        **four,
        "output_scale": "0.5",
        "learning_rate": "0.25",
        "initial_alignment": ";".join(f"{one:g}" for one in signs),
        "initial_overlap": ";".join(",".join(f"{one:.3g}" for one in row) for row in rows),
        "times": "16:4800:19log",
    }
    early = {
        "samples_per_dimension": "inf",
        "activation": "quadratic(0.1)",
        "initial_overlap": "1,0;0,1",
        "initial_alignment": "0.01;-0.01",
        "output_scale": "0.001",
        "learning_rate": "0.1",
        "times": "0:1400:71",
    }
    # Two neurons that overlap a little.
    two = {
        "samples_per_dimension": "2",
        "activation": "quadratic(0.5)",
        "output_scale": "1",
        "initial_overlap": "1,0.2;0.2,1",
        "initial_alignment": "0.3;-0.1",
        "learning_rate": "0.1",
        "times": "0:120:41",
    }
    online = {**two, "samples_per_dimension": "60", "solver": "online", "times": "0:40:41"}
    return [
        make("fig2", "Fig. 2: two neurons, γ = 2", two),
        make(
            "fig3",
            "Fig. 3: γ = 2 beside the online limit",
            two,
            changed(two, samples_per_dimension="inf"),
        ),
        make(
            "eq15",
            "Eqs. 14, 15: online limit, α = 0.5 and 2",
            changed(online, output_scale="0.5"),
            changed(online, output_scale="2"),
        ),
        make(
            "eq18",
            "Eq. 18: the gap of the losses, γ = 10",
            changed(two, samples_per_dimension="10", learning_rate="0.2", times="1:30:30"),
        ),
        make("eq20", "Eqs. 19, 20: escape with many samples", early, views={"lower": "alignment", "yscale": "log"}),
        make(
            "agreement",
            "γ = 8, ε = 1, one neuron",
            {
                "samples_per_dimension": "8",
                "activation": "quadratic(1)",
                "output_scale": "1",
                "initial_alignment": "0.3",
                "initial_overlap": "1",
                "learning_rate": "0.05",
                "times": "0:60:31",
            },
        ),
        make("agreement", "γ = 3 with weight decay", changed(two, samples_per_dimension="3", weight_decay="0.2")),
        make("wide", "Ten neurons that grok", ten),
        make("grokking", "Four neurons that grok, α = 0.5", changed(four, output_scale="0.5")),
        make(
            "grokking",
            "Four neurons that grok later, α = 2",
            changed(four, output_scale="2", learning_rate="0.1", times="50:16000:23log"),
        ),
    ]
