"""What the page and the command line need to know of the committee: sliders, summaries, stories and a quick look."""

import math
from typing import TYPE_CHECKING, Any, ClassVar

from solvable.controls import Controls, Slider, Summary, log_slider, of_method, of_trained
from solvable.models.committee import story
from solvable.models.committee.flow import Flow
from solvable.models.committee.latent import Latent
from solvable.training import GradientFlow, Training

if TYPE_CHECKING:
    from solvable.models.committee.model import Committee


class _QuickLatent(Latent):
    """One small set of samples: a look at the curves, without the errors that a result needs."""

    least_replicates: ClassVar[int] = 1


class _QuickFlow(Flow):
    """As :class:`_QuickLatent`, for gradient flow."""

    least_replicates: ClassVar[int] = 1


def _quick_look(model: "Committee", training: Training) -> dict[str, Any]:
    """Options of ``predict`` for a quick look: few samples, and a coarse latent basis."""
    if math.isinf(model.samples_per_dimension):
        return {}
    solver = _QuickFlow if isinstance(training, GradientFlow) else _QuickLatent
    return {"solver": solver(samples=512, replicates=1, tolerance=0.05)}


CONTROLS = Controls(
    sliders={
        "samples_per_dimension": log_slider(0.3, 100, after=("inf",)),
        "output_scale": log_slider(0.05, 5),
        "initial_alignment": Slider(-0.6, 0.6, count=60),
        "learning_rate": log_slider(0.01, 1),
        "weight_decay": log_slider(1e-4, 1, before=("0",)),
        "huber_width": log_slider(0.05, 5),
        "label_noise": Slider(0, 2, count=40),
        "label_flips": Slider(0, 0.5, count=50),
        "batch_fraction": Slider(0.05, 1, count=95),
        "ema_decay": Slider(0, 0.99, count=99, before=("",)),
        "max_gradient_norm": log_slider(0.01, 10, before=("",)),
        "temperature": log_slider(1e-4, 1, before=("0",)),
        "readout_learning_rate": log_slider(0.001, 1, before=("",)),
    },
    start={"seeds": "8", "batch_fraction": "0.25"},
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
    stories=(story.STORY,),
    explain=story.explain,
    system=story.system,
    # Mean-field theory of finite data.
    slow=lambda model, training: not math.isinf(model.samples_per_dimension),
    quick=_quick_look,
)
