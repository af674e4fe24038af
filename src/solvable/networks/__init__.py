"""Networks trained beside the theory: tasks, architectures, training of many seeds at once, and a forecast."""

from solvable.diagnostics.transfer import TransferReport
from solvable.divergence import DivergedError
from solvable.networks.compensation import compensated
from solvable.networks.convolutional.cnn import CNN
from solvable.networks.convolutional.resnet import ResNet18
from solvable.networks.convolutional.vgg import VGG16
from solvable.networks.data import Images, add_images, data_folder, fetch_images, image_sets, load_images
from solvable.networks.data.augmentation import crops_and_flips, heavy_augmentation, stream_images
from solvable.networks.data.text import Text, load_text, windows
from solvable.networks.forecast import forecast
from solvable.networks.forecast_report import ForecastReport
from solvable.networks.language import LanguageModel, next_token_loss
from solvable.networks.linearised import Linearised, linearised
from solvable.networks.measures import feature_metrics, feature_record, kernel_metrics
from solvable.networks.mlp import MLP, centred
from solvable.networks.parameterisations import scale_layers
from solvable.networks.parts import Constant, Running, trainable
from solvable.networks.program import log_steps
from solvable.networks.results import Training
from solvable.networks.run_forecast_report import RunForecast
from solvable.networks.sources import Fixed, Fresh
from solvable.networks.stable_rate import stable_learning_rate
from solvable.networks.tasks.circle import circle, fourier_decay
from solvable.networks.tasks.circle_kernel import circle_spectrum, lazy_loss
from solvable.networks.tasks.heaviside import heaviside
from solvable.networks.tasks.modular import ModularArithmetic
from solvable.networks.tasks.parity import SparseParity
from solvable.networks.training import train
from solvable.networks.transfer import transfer
from solvable.networks.transformer import Transformer

__all__ = [
    "CNN",
    "MLP",
    "VGG16",
    "Constant",
    "DivergedError",
    "Fixed",
    "ForecastReport",
    "Fresh",
    "Images",
    "LanguageModel",
    "Linearised",
    "ModularArithmetic",
    "ResNet18",
    "RunForecast",
    "Running",
    "SparseParity",
    "Text",
    "Training",
    "TransferReport",
    "Transformer",
    "add_images",
    "centred",
    "circle",
    "circle_spectrum",
    "compensated",
    "crops_and_flips",
    "data_folder",
    "feature_metrics",
    "feature_record",
    "fetch_images",
    "forecast",
    "fourier_decay",
    "heaviside",
    "heavy_augmentation",
    "image_sets",
    "kernel_metrics",
    "lazy_loss",
    "linearised",
    "load_images",
    "load_text",
    "log_steps",
    "next_token_loss",
    "scale_layers",
    "stable_learning_rate",
    "stream_images",
    "train",
    "trainable",
    "transfer",
    "windows",
]
