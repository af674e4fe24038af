"""What the page shows of the skill model."""

from typing import Any

from solvable.controls import Controls, Slider, Summary, log_slider, of_method


def _emergence(skill: int, word: str) -> Summary:
    def of(model: Any, training: Any) -> Any:
        return model.emergence_time(training=training, max_skills=skill).emergence_time.data[skill - 1]

    return Summary(word, f"{word} skill emerges at", of, "time")


CONTROLS = Controls(
    sliders={
        "exponent": Slider(0.05, 2, count=39),
        "skills": log_slider(1, 1000, whole=True, after=("inf",)),
        "target_scale": log_slider(0.1, 10),
        "initial_strength": log_slider(1e-6, 0.5),
        "learning_rate": log_slider(1e-3, 10),
        "basis": log_slider(1, 1000, whole=True, after=("inf",)),
        "samples": log_slider(1, 1e6, whole=True, after=("inf",)),
        "rate": log_slider(1e-3, 10),
        "shots": log_slider(1, 1000, whole=True),
        "neurons_per_skill": Slider(1, 16, whole=True),
    },
    start={"seeds": "6"},
    summaries=(
        _emergence(1, "first"),
        _emergence(5, "fifth"),
        Summary("time", "exponent in time", of_method("exponents", "time")),
        Summary("samples", "exponent in samples", of_method("exponents", "samples")),
        Summary("basis", "exponent in basis functions", of_method("exponents", "basis")),
        Summary("budget", "exponent in compute", of_method("exponents", "budget")),
    ),
    plane=("fifth", "exponent", "initial_strength"),
)
