"""Fig. 4: phase diagrams of the grokking delay over weight decay, output dimension and aspect ratio."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.models.linear_estimator.grokking import loss_threshold
from solvable.papers.claims import Claim, Scale
from solvable.papers.linear_grokking._shared import FLOW, closed_form_times
from solvable.plotting import draw_plane, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Numbers of outputs at which the boundary is claimed, beside those of the plane.
CLAIMED_OUTPUTS = (1, 50, 500, 700)
WIDE_OUTPUTS, WIDE_RATIO = 500, 1.1


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Three planes of the delay, the largest aspect ratio that groks, and a delay beyond an aspect ratio of one."""
    points = 80 if scale == "quick" else 200
    decays, ratios = np.geomspace(1e-6, 1e-1, points), np.linspace(0.05, 3, points)
    outputs = np.unique(np.geomspace(1, 1000, points).round())
    model = LinearEstimator(aspect_ratio=0.9)
    return {
        "decay-outputs": model.phase_diagram(training=FLOW, outputs=outputs, weight_decay=decays),
        "decay-ratio": model.phase_diagram(training=FLOW, weight_decay=decays, aspect_ratio=ratios),
        "outputs-ratio": model.phase_diagram(training=FLOW, outputs=outputs, aspect_ratio=ratios),
        "boundary": _boundary(model, np.union1d(outputs, CLAIMED_OUTPUTS)),
        "wide": model.replace(aspect_ratio=WIDE_RATIO, outputs=WIDE_OUTPUTS).grokking_time(training=FLOW),
    }


def _boundary(model: LinearEstimator, outputs: np.ndarray) -> xr.Dataset:
    """The aspect ratio beyond which the test accuracy is never reached, for each number of outputs."""
    found = [model.replace(outputs=int(number)).critical_aspect_ratio() for number in outputs]
    return xr.concat(found, "outputs", combine_attrs="drop_conflicts").assign_coords(outputs=outputs)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The boundary and a delay against closed forms, and the plane against the boundary."""
    critical = data["boundary"].critical_aspect_ratio
    return [*_boundary_claims(critical), _wide_claim(data["wide"]), _edge_claim(data["outputs-ratio"], critical)]


def _boundary_claims(critical: xr.DataArray) -> list[Claim]:
    """More data dimensions than samples still grok if enough outputs make the threshold easy."""
    made = []
    for outputs in CLAIMED_OUTPUTS:
        allowed = outputs * float(loss_threshold(LinearEstimator(aspect_ratio=0.9, outputs=outputs), 0.95))
        made.append(
            Claim(
                f"{outputs} outputs: largest aspect ratio that groks",
                float(critical.sel(outputs=outputs)),
                1 / (1 - allowed),
                1e-12,
                "1 - 1/λ = outputs x threshold loss, exactly",
                relative=True,
                printed=1.0 if outputs == 1 else None,
            )
        )
    return made


def _wide_claim(times: xr.Dataset) -> Claim:
    threshold = float(loss_threshold(LinearEstimator(outputs=WIDE_OUTPUTS), 0.95))
    train, test = closed_form_times(WIDE_RATIO, WIDE_OUTPUTS * threshold)
    return Claim(
        "500 outputs, λ = 1.1: grokking delay (steps)",
        float(times.delay),
        WIDE_OUTPUTS * (test - train),
        1e-8,
        "Bessel and Marcum functions",
        relative=True,
    )


def _edge_claim(plane: xr.Dataset, critical: xr.DataArray) -> Claim:
    """Cells of the plane are reached exactly where the boundary says."""
    expected = plane.aspect_ratio < critical.sel(outputs=plane.outputs)
    wrong = int((plane.test_reached != expected).sum())
    return Claim("cells of the plane on the wrong side of the boundary", wrong, 0, 0, "a count")


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The three planes, hatched where the test accuracy is never reached."""
    figure, panels = new_figure(3, height=4.2)
    planes = (
        ("decay-outputs", "weight_decay", "outputs", "λ = 0.9; hatched: never reached"),
        ("decay-ratio", "weight_decay", "aspect_ratio", "one output"),
        ("outputs-ratio", "outputs", "aspect_ratio", "no weight decay"),
    )
    for panel, (name, x, y, title) in zip(panels, planes, strict=True):
        draw_plane(figure, panel, data[name].delay, x=x, y=y, log=("weight_decay", "outputs"))
        panel.set_title(title, fontsize="medium")
    return figure
