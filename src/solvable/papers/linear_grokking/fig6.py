"""Fig. 6: late-time forms against the exact losses; eq. 11 for the test loss fails where the paper uses it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale
from solvable.papers.linear_grokking._shared import FLOW, bessel_train_loss, marcum_test_loss
from solvable.plotting import COLOURS, draw_curve, log_losses, new_figure, set_axis
from solvable.timegrid import log_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ASPECT_RATIO = 0.9
CLAIMED_TIMES = np.array([1e2, 1e3, 1e4, 1e5])


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The exact losses, and their late-time forms."""
    model, times = LinearEstimator(aspect_ratio=ASPECT_RATIO), np.union1d(log_times(10, 1e5, 60), CLAIMED_TIMES)
    return {"exact": model.predict(times, FLOW), "late": model.late_time(times, FLOW)}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The exact losses against closed forms, and the late-time forms against the exact losses."""
    exact, late = (data[name].sel(time=CLAIMED_TIMES) for name in ("exact", "late"))
    s = 4 * FLOW.learning_rate * CLAIMED_TIMES
    made = []
    for name, closed in (("train_loss", bessel_train_loss), ("test_loss", marcum_test_loss)):
        worst = float(np.max(np.abs(exact[name] / closed(ASPECT_RATIO, s) - 1)))
        label = f"{name.replace('_', ' ')} against its closed form"
        made.append(Claim(label, worst, 0, 1e-9, "accuracy of the special functions"))
    # Eq. 22 is off by 3 / (8 x), x = 8 eta t sqrt(lambda), to leading order.
    off = float(late.train_loss[1] / exact.train_loss[1]) - 1
    leading = 3 / (16 * s[1] * np.sqrt(ASPECT_RATIO))
    made.append(Claim("eq. 22 at t = 1000: relative error", off, leading, 0.05, "next order", relative=True))
    return made + [_leading_claim(exact.sel(time=time), late.sel(time=time)) for time in CLAIMED_TIMES]


def _leading_claim(exact: xr.Dataset, late: xr.Dataset) -> Claim:
    """Eq. 11 over the exact test loss at one time."""
    time = float(exact.time)
    s = 4 * FLOW.learning_rate * time
    train, test = bessel_train_loss(ASPECT_RATIO, s), marcum_test_loss(ASPECT_RATIO, s)
    return Claim(
        f"eq. 11 over the exact test loss at t = {time:g}",
        float(late.test_loss_leading / exact.test_loss),
        float(train / (1 - np.sqrt(ASPECT_RATIO)) ** 2 / test),
        3 / (8 * s),
        "eq. 22 stands for the training loss in eq. 11: its relative error",
        relative=True,
        printed=1.0,
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The exact losses, and their late-time forms beside them."""
    exact, late = data["exact"], data["late"]
    figure, (panel,) = new_figure(width=6.4, height=4.4)
    draw_curve(panel, exact.train_loss, COLOURS[0], "training loss, exact")
    draw_curve(panel, exact.test_loss, COLOURS[1], "test loss, exact")
    panel.plot(late.time, late.train_loss, color=COLOURS[6], linestyle="--", label="eq. 22")
    panel.plot(late.time, late.test_loss, color=COLOURS[2], linestyle="--", label="eq. 23")
    panel.plot(late.time, late.test_loss_leading, color=COLOURS[3], linestyle=":", label="eq. 11, test loss")
    set_axis(panel, "x", exact.time, log=True)
    panel.set_ylabel("loss")
    log_losses(panel)
    panel.legend()
    return figure
