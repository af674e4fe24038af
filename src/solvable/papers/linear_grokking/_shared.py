"""What the figures share: independent closed forms, and theory compared with simulation."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ive
from scipy.stats import ncx2

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale
from solvable.plotting import draw_curve, log_losses, set_axis
from solvable.timegrid import log_times, whole_steps
from solvable.training import SGD, GradientDescent, GradientFlow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The paper's training, and the gradient flow that its equations describe; time counts the same steps for both.
DESCENT = GradientDescent(learning_rate=0.01)
FLOW = GradientFlow(learning_rate=0.01)


def bessel_train_loss(aspect_ratio: float, s: np.ndarray | float) -> np.ndarray:
    """Training loss for one output, no weight decay, at ``s = 4 eta t`` (eq. 9): a Bessel function."""
    root = np.sqrt(aspect_ratio)
    x = np.maximum(2 * np.asarray(s, float) * root, 1e-12)
    return 2 * np.exp(-((1 - root) ** 2) * np.asarray(s)) * ive(1, x) / x


def marcum_test_loss(aspect_ratio: float, s: np.ndarray | float) -> np.ndarray:
    """Test loss for one output, no weight decay: the closed form that the paper says does not exist.

    It is the survival function of the busy period of an M/M/1 queue, whose density is the training loss.
    """
    root, s = np.sqrt(aspect_ratio), np.asarray(s, float)
    x = 2 * s * root
    bessel = np.exp(-((1 - root) ** 2) * s) * (ive(0, x) + root * ive(1, x)) / aspect_ratio
    return (1 - 1 / aspect_ratio) * ncx2.sf(2 * s, 2, 2 * aspect_ratio * s) + bessel


def closed_form_times(aspect_ratio: float, threshold_loss: float) -> tuple[float, float]:
    """Training and test time of ``FLOW`` for one output, from the closed forms alone; NaN where never."""

    def time(loss: Callable[[float, float], np.ndarray], limit: float) -> float:
        if limit >= threshold_loss:
            return float("nan")
        late = -5.0
        while loss(aspect_ratio, np.exp(late)) > threshold_loss:
            late += 0.5
        excess = partial(_log_excess, loss, aspect_ratio, threshold_loss)
        return float(np.exp(brentq(excess, -5.0, late, xtol=1e-13))) / (4 * FLOW.learning_rate)

    return time(bessel_train_loss, 0.0), time(marcum_test_loss, max(0.0, 1 - 1 / aspect_ratio))


def _log_excess(
    loss: Callable[[float, float], np.ndarray], aspect_ratio: float, threshold_loss: float, log_s: float
) -> float:
    return float(np.log(loss(aspect_ratio, np.exp(log_s)) / threshold_loss))


def theory_and_simulation(
    name: str, model: LinearEstimator, training: GradientDescent | SGD, times: np.ndarray, scale: Scale, key: int
) -> dict[str, xr.Dataset]:
    """The datasets ``theory-<name>`` and ``simulation-<name>``, the first at more times than the second."""
    dimension, seeds = sizes(scale)
    # Several outputs and random batches have corrections of finite dimension, which theory includes.
    finite = model.outputs > 1 or isinstance(training, SGD)
    return {
        f"theory-{name}": model.predict(smooth(times), training, dimension=dimension if finite else None),
        f"simulation-{name}": model.simulate(times, training, dimension=dimension, seeds=seeds, key=key),
    }


def pair(data: Mapping[str, xr.Dataset], name: object) -> tuple[xr.Dataset, xr.Dataset]:
    """Theory and simulation of this name."""
    return data[f"theory-{name}"], data[f"simulation-{name}"]


def sizes(scale: Scale) -> tuple[int, int]:
    """Input dimension and number of seeds of a simulation. The paper's input dimension is 1000."""
    return (400, 40) if scale == "quick" else (1000, 100)


def smooth(times: np.ndarray) -> np.ndarray:
    """The times of a simulation, and enough whole steps between them for a smooth curve of theory."""
    first = max(times[0], 1.0)
    return np.union1d(times, whole_steps(log_times(first, times[-1], 120)))


def agreement(
    label: str,
    theory: xr.Dataset,
    simulation: xr.Dataset,
    variables: tuple[str, ...] = ("train_loss", "test_loss"),
) -> list[Claim]:
    """One claim per variable: theory and simulation differ by no more than their noise."""
    return [Claim.agrees(f"{label}: {name.replace('_', ' ')} agrees", theory, simulation, name) for name in variables]


def quadrature_losses(model: LinearEstimator, training: GradientFlow, time: float) -> tuple[float, float]:
    """Losses of gradient flow for one layer by adaptive quadrature of the Marchenko-Pastur density.

    This is an independent route to what the model computes, at any weight decay, initial scale and label noise.
    """
    ratio, shift = model.aspect_ratio, training.weight_decay / 2
    low, high = (1 - np.sqrt(ratio)) ** 2, (1 + np.sqrt(ratio)) ** 2
    kappa = 2 * training.learning_rate / model.outputs

    def profile(nu: float) -> tuple[float, float]:
        left = np.exp(-kappa * (nu + shift) * time)
        teacher = (left * nu + shift) / (nu + shift)
        return (model.initial_scale**2 * left**2 + teacher**2) / 2, teacher**2

    def average(function: Callable[[float], float]) -> float:
        # nu = low + (high - low) sin^2 removes both square roots of the density.
        def integrand(angle: float) -> float:
            nu = low + (high - low) * np.sin(angle) ** 2
            density = (high - low) ** 2 * np.sin(2 * angle) ** 2 / (4 * np.pi * ratio * nu)
            return density * function(nu)

        return float(quad(integrand, 0, np.pi / 2, epsabs=0, epsrel=1e-12, limit=400)[0])

    noise = model.label_noise**2
    null = max(0.0, 1 - 1 / ratio)
    null_signal = (model.initial_scale**2 * np.exp(-2 * kappa * shift * time) + 1) / 2
    test = (average(lambda nu: profile(nu)[0]) + null * null_signal) / model.outputs
    train = average(lambda nu: nu * profile(nu)[0]) / model.outputs
    if noise:
        test += noise * ratio * average(lambda nu: nu * (-np.expm1(-kappa * (nu + shift) * time) / (nu + shift)) ** 2)
        train += noise * (max(0.0, 1 - ratio) + ratio * average(lambda nu: profile(nu)[1]))
    return train, test


def resolvent_square(aspect_ratio: float, shift: float) -> float:
    """``E[(shift / (nu + shift))^2]`` in closed form, from the derivative of the Stieltjes transform."""
    b = 1 - aspect_ratio + shift
    root = np.sqrt(b**2 + 4 * aspect_ratio * shift)
    value = (root - b) / (2 * aspect_ratio * shift)
    slope = ((b + 2 * aspect_ratio) / root - 1) / (2 * aspect_ratio * shift) - value / shift
    return float(-(shift**2) * slope)


def draw_run(panels: Sequence["Axes"], theory: xr.Dataset, simulation: xr.Dataset, colour: str, label: str) -> None:
    """Draw theory and simulation into a panel of losses and, if there is a second one, a panel of accuracies."""
    for panel, quantity in zip(panels, ("loss", "accuracy"), strict=False):
        for kind in ("train", "test"):
            name, train = f"{kind}_{quantity}", kind == "train"
            draw_curve(panel, theory[name], colour, None if train else label, dashed=train)
            draw_curve(panel, simulation[name], colour, dashed=train)
        set_axis(panel, "x", theory.time, log=True)
        panel.set_ylabel(f"{quantity} (dashed: training, solid: test)")
    log_losses(panels[0])
    panels[0].legend()
