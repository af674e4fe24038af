"""Single weight: the mean loss falls as a power of time, though every run is exponential."""

import numpy as np

from solvable.comparison import compare
from solvable.models.single_weight import SingleWeight
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, draw_curve, log_losses, new_figure, set_axis


def reproduce(scale: Scale) -> Reproduction:
    model, seeds = SingleWeight(samples=4), 2000 if scale == "quick" else 50_000
    times = np.geomspace(0.1, 3, 12)
    theory, simulation = model.predict(times), model.simulate(times, seeds=seeds, key=1)
    figure, (panel,) = new_figure()
    draw_curve(panel, theory.test_loss, COLOURS[0], "theory")
    draw_curve(panel, simulation.test_loss, COLOURS[0], "simulation")
    set_axis(panel, "x", theory.time, log=True)
    panel.set_ylabel("test loss")
    log_losses(panel)
    panel.legend()
    scores = compare(theory, simulation).test_loss.sel(statistic="z_score").values
    late = model.predict([1e6, 1e7]).test_loss
    claims = [
        Claim(
            "test loss agrees",
            float(np.sqrt(np.mean(scores**2))),
            0.0,
            3.0,
            "root mean square z-score over times; 3 standard errors, seeds fixed",
        ),
        Claim(
            "exponent of the late test loss",
            float(np.log10(late[1] / late[0])),
            -model.samples / 2,
            1e-5,
            "next order: n² / 8t = 2e-6 at t = 1e6, over a factor of ten in time",
        ),
    ]
    return Reproduction({"theory": theory, "simulation": simulation}, figure, claims)
