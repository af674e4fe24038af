"""The story of the scalar network, the marks on its curves, and the path of its weights."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.story import Explanation, Level, Mark, Point, Step, Story, SystemView, crossing, readable

# The first weight of the lazy partner of a start, which has the same output.
_FAR = 3.0
_POSITIONS = 61


def facts(model: Any, training: Any) -> Mapping[str, Any]:
    """Numbers of one setting that the texts insert."""
    first, second = float(model.initial_first[0]), float(model.initial_second[0])
    partner_second = model.initial_output * model.output_scale / _FAR
    partner = model.replace(initial_first=[_FAR], initial_second=[partner_second])
    ratio = float(model.kernel_ratio().kernel_ratio)
    return {
        "target": model.target,
        "output_scale": model.output_scale,
        "initial_output": model.initial_output,
        "imbalance": first**2 - second**2,
        "kernel_ratio": ratio,
        "kernel_change": abs(ratio - 1),
        "distance": float(model.distance_from_linear().distance_from_linear),
        "weight_size": model.weight_size,
        "partner_first": _FAR,
        "partner_second": partner_second,
        "partner_distance": float(partner.distance_from_linear().distance_from_linear),
    }


def explain(model: Any, training: Any, curves: xr.Dataset) -> Explanation:
    """How much the kernel changes by the last time, and how far the output leaves that of the linearised network."""
    output, linear, kernel = (curves[name].values for name in ("output", "linear_output", "kernel"))
    marks: tuple[Mark, ...] = (Level("output", float(model.target), "target"),)
    gap = abs(model.target - model.initial_output)
    if kernel[0] == 0:
        return Explanation("All weights are zero, and a product of zeros has no slope: nothing ever moves.", marks)
    if gap == 0:
        return Explanation("The output is right from the start, and nothing has to move.", marks)
    half = crossing(curves.time, curves.test_loss, float(model.input_power) * gap**2 / 8)
    if math.isfinite(half):
        marks += (Point("test_loss", half, f"half learned: {readable(half)}"),)
    distance, ratio = float(np.max(np.abs(output - linear))) / gap, float(kernel[-1] / kernel[0])
    change = f"grows {readable(ratio)}-fold" if ratio >= 2 else f"ends at {readable(ratio)} times its first value"
    verdict = "lazy" if distance < 0.1 else "rich" if distance > 0.5 else "between lazy and rich"
    size, far = readable(float(model.weight_size)), readable(gap)
    sentence = (
        f"Learning is {verdict}: the kernel {change}, and the output leaves that of the linearised network by up to "
        f"{distance:.0%} of the first error, since weights of size {size} have to move the output by {far}."
    )
    return Explanation(sentence, marks)


def system(model: Any, training: Any, times: np.ndarray) -> SystemView:
    """The weights on their plane: a point with its two hyperbolas for one hidden unit, and one arrow per unit for more.

    The products of both coordinates, summed and divided by the output scale, are the output.
    """
    curves = model.predict(times, training)
    first, second = curves["first"].values, curves["second"].values
    names = ({"long_name": "first weight", "units": "1"}, {"long_name": "second weight", "units": "1"})
    if first.shape[1] > 1:
        data = xr.Dataset(
            {"x": (("time", "index"), first, names[0]), "y": (("time", "index"), second, names[1])},
            {"time": curves.time.values, "index": curves.neuron.values},
        )
        return SystemView("arrows", "Hidden units", "Each arrow shows both weights of one hidden unit.", data)
    x, y = first[:, 0], second[:, 0]
    reach = 1.2 * max(float(np.abs(x).max()), float(np.abs(y).max()), math.sqrt(abs(model.target * model.output_scale)))
    line_x, line_y = _hyperbola(model.target * model.output_scale, reach or 1.0)
    data = xr.Dataset(
        {
            "x": ("time", x, names[0]),
            "y": ("time", y, names[1]),
            "line_x": (("line", "position"), line_x),
            "line_y": (("line", "position"), line_y),
        },
        {"time": curves.time.values},
    )
    caption = "The point moves until the product of the weights is right: on the curves that stand still."
    return SystemView("path", "The two weights", caption, data)


def _hyperbola(product: float, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Both branches of ``x y = product`` within the square of half-width ``reach``; the axes where the product is 0."""
    if product == 0:
        line, zero = np.linspace(-reach, reach, _POSITIONS), np.zeros(_POSITIONS)
        return np.stack([line, zero]), np.stack([zero, line])
    branch = np.geomspace(abs(product) / reach, reach, _POSITIONS)
    return np.stack([branch, -branch]), np.stack([product / branch, -product / branch])


STORY = Story(
    question="When does a network stop being lazy?",
    steps=(
        Step(
            "Two weights, one number",
            "The output of this network is the product of two weights, and it has to become {target:g}. On the way the "
            "difference of the two squares stays at {imbalance:.2g}, so that training slides along a hyperbola.",
            {"times": "0:6:61"},
            question="How much does the network itself change?",
            look_at="system",
            play=True,
        ),
        Step(
            "Near the origin: rich",
            "The kernel, the sum of both squared weights, sets the speed of learning, and it grows {kernel_ratio:.2g}-"
            "fold. A network linearised at the start would differ by up to {distance:.0%} of the first error.",
            {"times": "0:6:61"},
            question="What if the weights start large?",
            look_at="kernel",
        ),
        Step(
            "Far out: lazy",
            "One large weight can stay where it is while the small one does all the work: the kernel changes by "
            "{kernel_change:.1%}. The network behaves like a linear one, to within {distance:.1%} of the first error.",
            {"initial_first": "3", "times": "0:1:61"},
            question="Are large weights always lazy?",
            look_at="linear_output",
            play=True,
        ),
        Step(
            "The same weights, a smaller output",
            "With the output divided by {output_scale:g}, both weights have to grow, and the kernel grows "
            "{kernel_ratio:.2g}-fold. What counts is the size of the weights in units of the output, here "
            "{weight_size:.2g}, beside the distance to the target.",
            {"initial_first": "3", "output_scale": "30", "times": "0:120:61"},
            question="Then a small target must be lazy?",
            look_at="kernel",
        ),
        Step(
            "A small target is not enough",
            "The target is only {target:g}, but the output starts at {initial_output:g} and has to be unlearned. The "
            "kernel falls to {kernel_ratio:.1%} of its first value: rich again.",
            {"initial_first": "1", "initial_second": "1", "target": "0.01", "times": "0:50:101"},
            question="Now it is your turn: does the output at the start decide?",
            look_at="kernel",
        ),
        Step(
            "Your turn",
            "Move the two weights at the start and watch the kernel.",
            {"times": "0:6:61"},
        ),
    ),
    challenge="Find a start with the same output as this one that is lazy.",
    answer="Keep the product and go far out: weights of {partner_first:g} and {partner_second:.2g} give the same "
    "output, and the distance from the linear network falls from {distance:.0%} to {partner_distance:.1%}.",
    sliders=("initial_first", "initial_second", "target"),
    variables=(("output", "linear_output"), ("kernel",), ("test_loss",)),
    facts=facts,
    # Other signs give mirror images, or starts that first have to cross zero.
    ranges={"initial_first": (0, 3), "initial_second": (0, 3), "target": (0, 5)},
)
