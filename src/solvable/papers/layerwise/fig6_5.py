"""Fig. 6.5 and table 6.1: a network that groks images, and four ways to take the delay away.

A run fits when its training accuracy reaches ``FITTED``, and generalises when its test accuracy reaches ``SHARE`` of
the best that any setting reaches (the mean over its seeds): one level for all runs, so that a run that never
generalises cannot count its own poor best as success. The delay is the second step over the first; below 1, a network
generalises before it fits. It is infinite where the level is not reached.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

from solvable.models.scalar_network import ScalarNetwork
from solvable.networks import MLP, Fixed, Training, log_steps, train
from solvable.networks.data import load_images
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Table 6.1: weight, target, input and output scale.
TABLE = {
    "default": (5, 3, 1, 1),
    "weights × 1/5": (1, 3, 1, 1),
    "target × 10": (5, 30, 1, 1),
    "input × 0.01": (5, 3, 0.01, 1),
    "output × 0.1": (5, 3, 1, 0.1),
}
REMEDIES = tuple(TABLE)[1:]
SCALES = ("weight_scale", "target_scale", "input_scale", "output_scale")
# Weight decay in the gradient that Adam sees, none, and beside Adam (AdamW).
DECAYS = ("in the gradient", "none", "beside Adam")
FITTED, SHARE = 0.99, 0.9


@dataclasses.dataclass(frozen=True)
class Setting:
    """Sizes and rates of a scale; the full ones are those of section 6.4.3."""

    images: str = "mnist"
    points: int = 1000
    test_points: int = 5000
    width: int = 512
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    batch: int = 128
    epochs: int = 2000
    seeds: int = 5

    @property
    def batches(self) -> int:
        """Whole batches an epoch; the rest of the points waits for the next epoch."""
        return self.points // self.batch


QUICK = Setting("digits", 200, 1000, 128, 3e-3, 1e-3, 100, 1000, 2)


def reproduce(scale: Scale) -> Reproduction:
    setting = QUICK if scale == "quick" else Setting()
    rows = runs(setting, everything=scale == "full")
