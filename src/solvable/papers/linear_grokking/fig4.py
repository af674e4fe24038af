"""Fig. 4: phase diagrams of the grokking delay over weight decay, output dimension and aspect ratio."""

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.models.linear_estimator.grokking import loss_threshold
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import FLOW, closed_form_times
from solvable.plotting import draw_plane, new_figure


def reproduce(scale: Scale) -> Reproduction:
    points = 80 if scale == "quick" else 200
    decays, ratios = np.geomspace(1e-6, 1e-1, points), np.linspace(0.05, 3, points)
    outputs = np.unique(np.geomspace(1, 1000, points).round())
    model = LinearEstimator(aspect_ratio=0.9)
    planes = {
        "decay-outputs": model.phase_diagram(training=FLOW, outputs=outputs, weight_decay=decays),
        "decay-ratio": model.phase_diagram(training=FLOW, weight_decay=decays, aspect_ratio=ratios),
        "outputs-ratio": model.phase_diagram(training=FLOW, outputs=outputs, aspect_ratio=ratios),
    }
    figure, panels = new_figure(3, height=4.2)
    logs = ("weight_decay", "outputs")
    draw_plane(figure, panels[0], planes["decay-outputs"].delay, x="weight_decay", y="outputs", log=logs)
    draw_plane(figure, panels[1], planes["decay-ratio"].delay, x="weight_decay", y="aspect_ratio", log=logs)
    draw_plane(figure, panels[2], planes["outputs-ratio"].delay, x="outputs", y="aspect_ratio", log=logs)
    panels[0].set_title("λ = 0.9; hatched: never reached", fontsize="medium")
    panels[1].set_title("one output", fontsize="medium")
    panels[2].set_title("no weight decay", fontsize="medium")
    return Reproduction(planes, figure, [*_boundary_claims(), _wide_claim(), _edge_claim(planes["outputs-ratio"])])


def _boundary_claims() -> list[Claim]:
    """More data dimensions than samples still grok if enough outputs make the threshold easy."""
    claims = []
    for outputs in (1, 50, 500, 700):
        model = LinearEstimator(aspect_ratio=0.9, outputs=outputs)
        allowed = outputs * float(loss_threshold(model, 0.95))
        critical = float(model.critical_aspect_ratio().critical_aspect_ratio)
        claims.append(
            Claim(
                f"{outputs} outputs: largest aspect ratio that groks",
                critical,
                1 / (1 - allowed),
                1e-12,
                "1 - 1/λ = outputs x threshold loss, exactly",
                relative=True,
                printed=1.0 if outputs == 1 else None,
            )
        )
    return claims


def _wide_claim() -> Claim:
    model = LinearEstimator(aspect_ratio=1.1, outputs=500)
    threshold = 500 * float(loss_threshold(model, 0.95))
    train, test = closed_form_times(model.aspect_ratio, threshold)
    return Claim(
        "500 outputs, λ = 1.1: grokking delay (steps)",
        float(model.grokking_time(training=FLOW).delay),
        500 * (test - train),
        1e-8,
        "Bessel and Marcum functions",
        relative=True,
    )


def _edge_claim(plane: xr.Dataset) -> Claim:
    """Cells of the plane are reached exactly where the boundary says."""
    reached = plane.test_reached
    wrong = 0
    for outputs in reached.outputs.values:
        critical = LinearEstimator(outputs=int(outputs)).critical_aspect_ratio().critical_aspect_ratio
        wrong += int((reached.sel(outputs=outputs) != (reached.aspect_ratio < float(critical))).sum())
    return Claim("cells of the plane on the wrong side of the boundary", wrong, 0, 0, "a count")
