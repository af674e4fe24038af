"""Presets for the figures of linear-grokking, all of the linear estimator."""

from collections.abc import Mapping
from typing import Any

from solvable.explorer.presets.preset import Preset, changed


def presets() -> list[Preset]:
    def make(figure: str, label: str, a: Mapping[str, str], b: Mapping[str, str] | None = None, **more: Any) -> Preset:
        return Preset("linear-grokking", figure, label, "linear-estimator", a, b, **more)

    two_layers = {"outputs": "5", "learning_rate": "0.5", "times": "1:3000:61log", "dimension": "300"}
    noisy = {"label_noise": "0.1", "threshold": "0.05"}
    return [
        make("fig1", "Fig. 1: aspect ratio 0.1", {"aspect_ratio": "0.1", "times": "1:1000:61log"}),
        make("fig1", "Fig. 1: aspect ratios 0.9 and 1.5", {"aspect_ratio": "0.9"}, {"aspect_ratio": "1.5"}),
        make(
            "fig2",
            "Fig. 2: 50 and 700 outputs",
            {"outputs": "50", "times": "10:3e6:61log"},
            {"outputs": "700", "times": "10:3e6:61log"},
        ),
        make("fig3", "Fig. 3: weight decay 1e-5 and 1e-2", {"weight_decay": "1e-5"}, {"weight_decay": "0.01"}),
        make("fig3", "Fig. 3: weight decay 1e-3", {"weight_decay": "0.001"}),
        make(
            "fig4",
            "Fig. 4: delay over weight decay and outputs",
            {},
            tab="phase",
            views={"plane": "delay", "px": "weight_decay", "py": "outputs"},
        ),
        make(
            "fig4",
            "Fig. 4: delay over weight decay and aspect ratio",
            {},
            tab="phase",
            views={"plane": "delay", "px": "weight_decay", "py": "aspect_ratio"},
        ),
        make(
            "fig4",
            "Fig. 4: delay over outputs and aspect ratio",
            {},
            tab="phase",
            views={"plane": "delay", "px": "outputs", "py": "aspect_ratio"},
        ),
        make(
            "fig5",
            "Fig. 5: hidden layers of width 50 and 200",
            changed(two_layers, width="50", threshold="0.0004"),
            changed(two_layers, width="200", threshold="0.0001"),
        ),
        make("fig6", "Fig. 6: late times at aspect ratio 0.9", {"times": "1e3:1e6:61log"}),
        make(
            "eq12",
            "Eq. 12: delay over aspect ratio and threshold",
            {},
            tab="phase",
            views={"plane": "delay", "px": "aspect_ratio", "py": "threshold"},
        ),
        make(
            "eq16",
            "Eq. 16: where weight decay ends",
            {"weight_decay": "0.01"},
            tab="phase",
            views={"plane": "limit", "px": "aspect_ratio", "py": "weight_decay"},
        ),
        make(
            "output-maximum",
            "The number of outputs with the longest delay",
            {"outputs": "20"},
            tab="phase",
            views={"plane": "delay", "px": "outputs", "py": "aspect_ratio"},
        ),
        make("eq19", "Eq. 19: two layers", changed(two_layers, width="50", threshold="0.0001")),
        make("initial-scale", "Larger initial weights: α = 4 and 1", {"initial_scale": "4"}, {}),
        make("label-noise", "Label noise at aspect ratios 0.9 and 1.5", noisy, changed(noisy, aspect_ratio="1.5")),
        make(
            "minibatch",
            "Batches of 100 samples, and full batches",
            {"batch_size": "100", "theory_dimension": "400", "times": "1:1e4:41log"},
            {"times": "1:1e4:41log"},
        ),
    ]
