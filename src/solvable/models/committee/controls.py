"""What the page shows of the committee machine."""

import math

from solvable.controls import Controls, Slider, Summary, log_slider, of_method, of_trained

CONTROLS = Controls(
    sliders={
        "samples_per_dimension": log_slider(0.3, 100, after=("inf",)),
        "output_scale": log_slider(0.05, 5),
        "initial_alignment": Slider(-0.6, 0.6, count=60),
        "learning_rate": log_slider(0.01, 1),
        "weight_decay": log_slider(1e-4, 1, before=("0",)),
    },
    # One-pass SGD takes one sample at a time.
    start={"seeds": "8", "batch_size": "1"},
    summaries=(
        Summary(
            "rate",
            "early growth rate of alignment",
            of_trained("early_alignment_rate", "early_alignment_rate"),
            "1/time",
        ),
        Summary("escape", "escape time, eq. 20 corrected", of_method("escape_time", "escape_time"), "flow time"),
    ),
    plane=("rate", "output_scale", "weight_decay"),
    # Mean-field theory of finite data.
    slow=lambda model, training: not math.isinf(model.samples_per_dimension),
)
