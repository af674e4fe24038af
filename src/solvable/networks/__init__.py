"""Real networks trained beside the theory: tasks, networks, training of many seeds at once, and a forecast.

The public names of the room are listed here, one line for each file that has any.
"""

from solvable.networks.compensation import compensated
from solvable.networks.data import Images, data_folder, fetch_images, image_sets, load_images
from solvable.networks.forecast import forecast
from solvable.networks.forecast_report import ForecastReport
from solvable.networks.measures import feature_metrics, feature_record, kernel_metrics
from solvable.networks.mlp import MLP, centred
from solvable.networks.parts import Constant, Running, trainable
from solvable.networks.results import DivergedError, Training
from solvable.networks.schedule import log_steps
from solvable.networks.sources import Fixed, Fresh
from solvable.networks.tasks.circle import circle, fourier_decay
from solvable.networks.tasks.circle_kernel import circle_spectrum, lazy_loss
from solvable.networks.tasks.heaviside import heaviside
from solvable.networks.tasks.modular import ModularArithmetic
from solvable.networks.tasks.parity import SparseParity
from solvable.networks.training import train
from solvable.networks.transformer import Transformer

__all__ = [
    "MLP",
    "Constant",
    "DivergedError",
    "Fixed",
    "ForecastReport",
    "Fresh",
    "Images",
    "ModularArithmetic",
    "Running",
    "SparseParity",
    "Training",
    "Transformer",
    "centred",
    "circle",
    "circle_spectrum",
    "compensated",
    "data_folder",
    "feature_metrics",
    "feature_record",
    "fetch_images",
    "forecast",
    "fourier_decay",
    "heaviside",
    "image_sets",
    "kernel_metrics",
    "lazy_loss",
    "load_images",
    "log_steps",
    "train",
    "trainable",
]
