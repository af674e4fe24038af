"""Real networks trained beside the theory: tasks, networks, and training of many seeds at once.

The public names of the room are listed here, one line for each file that has any.
"""

from solvable.networks.data import Images, data_folder, fetch_images, image_sets, load_images
from solvable.networks.measures import feature_metrics, kernel_metrics
from solvable.networks.mlp import MLP, Constant, centred, trainable
from solvable.networks.results import DivergedError, Training
from solvable.networks.schedule import log_steps
from solvable.networks.sources import Fixed, Fresh
from solvable.networks.training import train

__all__ = [
    "MLP",
    "Constant",
    "DivergedError",
    "Fixed",
    "Fresh",
    "Images",
    "Training",
    "centred",
    "data_folder",
    "feature_metrics",
    "fetch_images",
    "image_sets",
    "kernel_metrics",
    "load_images",
    "log_steps",
    "train",
    "trainable",
]
