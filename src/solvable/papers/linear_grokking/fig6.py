"""Fig. 6: late-time forms against the exact losses; eq. 11 for the test loss fails where the paper uses it."""

import numpy as np

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import FLOW, bessel_train_loss, marcum_test_loss
from solvable.plotting import COLOURS, draw_curve, log_losses, new_figure, set_axis
from solvable.timegrid import log_times


def reproduce(scale: Scale) -> Reproduction:
    model = LinearEstimator(aspect_ratio=0.9)
    times = log_times(10, 1e5, 60)
    exact, late = model.predict(times, FLOW), model.late_time(times, FLOW)
    figure, (panel,) = new_figure(width=6.4, height=4.4)
    draw_curve(panel, exact.train_loss, COLOURS[0], "training loss, exact")
    draw_curve(panel, exact.test_loss, COLOURS[1], "test loss, exact")
    panel.plot(times, late.train_loss, color=COLOURS[6], linestyle="--", label="eq. 22")
    panel.plot(times, late.test_loss, color=COLOURS[2], linestyle="--", label="eq. 23")
    panel.plot(times, late.test_loss_leading, color=COLOURS[3], linestyle=":", label="eq. 11, test loss")
    set_axis(panel, "x", exact.time, log=True)
    panel.set_ylabel("loss")
    log_losses(panel)
    panel.legend()
    return Reproduction({"exact": exact, "late": late}, figure, _claims(model))


def _claims(model: LinearEstimator) -> list[Claim]:
    times = np.array([1e2, 1e3, 1e4, 1e5])
    late, exact = model.late_time(times, FLOW), model.predict(times, FLOW)
    s = 4 * FLOW.learning_rate * times
    claims = []
    for name, closed in (("train_loss", bessel_train_loss), ("test_loss", marcum_test_loss)):
        worst = float(np.max(np.abs(exact[name] / closed(0.9, s) - 1)))
        claims.append(
            Claim(
                f"{name.replace('_', ' ')} against its closed form", worst, 0, 1e-9, "accuracy of the special functions"
            )
        )
    # Eq. 22 is off by 3 / (8 x), x = 8 eta t sqrt(lambda), to leading order.
    off = float(late.train_loss[1] / exact.train_loss[1]) - 1
    claims.append(
        Claim(
            "eq. 22 at t = 1000: relative error", off, 3 / (16 * s[1] * np.sqrt(0.9)), 0.05, "next order", relative=True
        )
    )
    for place, time in enumerate(times):
        ratio = float(late.test_loss_leading[place] / exact.test_loss[place])
        leading = bessel_train_loss(0.9, s[place]) / (1 - np.sqrt(0.9)) ** 2 / marcum_test_loss(0.9, s[place])
        claims.append(
            Claim(
                f"eq. 11 over the exact test loss at t = {time:g}",
                ratio,
                float(leading),
                3 / (8 * s[place]),
                "eq. 22 stands for the training loss in eq. 11: its relative error",
                relative=True,
                printed=1.0,
            )
        )
    return claims
