"""What the page shows of the linear model in its eigenbasis."""

from typing import Any

from solvable.controls import Controls, Slider, Summary, log_slider, of_method


def _first(model: Any, training: Any) -> str:
    if model.samples is None:
        return "no noise is fitted"
    times = model.phases()
    ratio = float(times.noise_time) / float(times.signal_time)
    return "signal first" if ratio > 3 else "noise first" if ratio < 1 / 3 else "together"


CONTROLS = Controls(
    sliders={
        "intensities": log_slider(1e-4, 10, before=("0",)),
        "target": Slider(-2, 2, count=80),
        "samples": log_slider(1, 2000, whole=True, after=("",)),
        "noise": Slider(0, 2),
    },
    start={"seeds": "40"},
    summaries=(
        Summary("limit", "test loss in the end", of_method("limit", "test_loss")),
        Summary("signal_time", "signal half learned at", of_method("phases", "signal_time"), "flow time"),
        Summary("noise_time", "noise half fitted at", of_method("phases", "noise_time"), "flow time"),
        Summary("kappa", "κ, modes above are learned", lambda model, training: model.kappa),
        Summary("regime", "what comes first", _first, planar=False),
    ),
    plane=("limit", "samples", "noise"),
)
