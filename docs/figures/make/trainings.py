"""Pictures of the pages docs/how-to/mini-batches-and-epochs, momentum, best-schedule and reuse-data."""

import sys
from pathlib import Path

import numpy as np

from solvable import SGD, FeatureScaling, GradientDescent
from solvable.plotting import COLOURS, draw_curve, new_figure

FIGURES = Path(__file__).parents[1]


def mini_batches() -> None:
    """Test loss of three ways of drawing batches, beside new samples: theory and runs."""
    model = FeatureScaling(1.5, 0.4, features=128, modes=100, samples=64)
    steps = np.unique(np.geomspace(1, 96, 24).round())
    figure, (test, train) = new_figure(2)
    for colour, sampling in zip(COLOURS, ("online", "replacement", "epochs", "cyclic"), strict=False):
        one = model.replace(samples=None) if sampling == "online" else model
        training = SGD(0.2, batch_size=8, sampling=sampling)
        theory, runs = one.predict(steps, training), one.simulate(steps[::3], training, seeds=60, progress=False)
        draw_curve(test, theory.test_loss, colour, sampling)
        draw_curve(test, runs.test_loss, colour, None)
        if sampling != "online":
            draw_curve(train, theory.train_loss, colour, sampling)
            draw_curve(train, runs.train_loss, colour, None)
    for panel, name in ((test, "test loss"), (train, "training loss")):
        panel.axvline(8, color="grey", linestyle=":", linewidth=1)
        panel.set(xscale="log", yscale="log", xlabel="steps; dotted: the first epoch ends", ylabel=name)
        panel.legend(fontsize="small")
    figure.savefig(FIGURES / "mini-batches.png", dpi=90)


def momentum() -> None:
    """Momentum as another clock, and Nesterov's with a growing momentum, which changes the exponent."""
    model = FeatureScaling(1.5, 0.4, modes=np.inf)
    steps = np.unique(np.geomspace(1, 2000, 60).round())
    figure, (plain, clock) = new_figure(2)
    for colour, value in zip(COLOURS, (0.0, 0.5, 0.9), strict=False):
        curve = model.predict(steps, GradientDescent(0.02, momentum=value))
        draw_curve(plain, curve.test_loss, colour, f"momentum {value:g}")
        draw_curve(
            clock, curve.test_loss.assign_coords(time=curve.flow_time / (1 - value)), colour, f"momentum {value:g}"
        )
    plain.set(xscale="log", yscale="log", xlabel="steps", ylabel="test loss")
    clock.set(xscale="log", yscale="log", xlabel="flow time / (1 - momentum)", ylabel="test loss")
    for panel in (plain, clock):
        panel.legend(fontsize="small")
    figure.savefig(FIGURES / "momentum.png", dpi=90)


def best_schedule() -> None:
    """The best schedules of a hard and an easy task, with and without label noise, and what others lose."""
    cases = (("hard", 0.4, 0.0), ("easy", 1.5, 0.0), ("easy, label noise", 1.5, 0.3))
    figure, (rates, losses) = new_figure(2)
    names = None
    for place, (colour, (label, source, noise)) in enumerate(zip(COLOURS, cases, strict=False)):
        model = FeatureScaling(1.5, source, richness=0.0, modes=np.inf, label_noise=noise)
        found = model.best_schedule(1000, 0.5, 1)
        print(label, found.attrs["sentence"])
        rates.plot(found.step / 1000, found.learning_rate.sel(schedule="optimal"), color=colour, label=label)
        names = [str(name) for name in found.schedule.values[1:]]
        excess = found.excess.isel(horizon=0).values[1:]
        losses.barh(np.arange(len(names)) + 0.25 * (place - 1), 100 * excess, 0.25, color=colour, label=label)
    rates.set(yscale="log", ylim=(1e-3, 1), xlabel="fraction of the run", ylabel="best learning rate")
    losses.set(xscale="log", xlabel="loss above the best schedule's, in percent")
    losses.set_yticks(np.arange(len(names)), names, fontsize="small")
    for panel in (rates, losses):
        panel.legend(fontsize="small")
    figure.savefig(FIGURES / "best-schedule.png", dpi=90)


def reuse() -> None:
    """Effective epochs of lazy and rich networks, and the test loss with label noise."""
    epochs = np.geomspace(1, 24, 40)
    figure, (worth, noisy) = new_figure(2)
    for colour, richness in zip(COLOURS, (0.0, 1.0), strict=False):
        label = "rich" if richness else "lazy"
        model = FeatureScaling(1.5, 0.4, modes=np.inf, samples=64, richness=richness)
        found = model.effective_epochs(epochs, SGD(0.1, batch_size=8))
        print(label, found.attrs["sentence"])
        worth.plot(epochs, found.effective_epochs, color=colour, label=label)
        worth.axhline(float(found.final_effective_epochs), color=colour, linestyle=":", linewidth=1)
        easy = model.replace(source=1.2, label_noise=0.3)
        found = easy.effective_epochs(epochs, SGD(0.1, batch_size=8))
        print(label, "noisy labels", found.attrs["sentence"])
        noisy.plot(epochs, found.test_loss, color=colour, label=f"{label}, the same samples")
        noisy.plot(epochs, found.online_test_loss, color=colour, linestyle="--", label=f"{label}, new samples")
    worth.plot(epochs, epochs, color="grey", linewidth=1, label="new samples")
    worth.set(xscale="log", yscale="log", xlabel="epochs K", ylabel="worth in epochs of new samples, E(K)")
    noisy.set(xscale="log", yscale="log", xlabel="epochs K", ylabel="test loss, noisy labels")
    for panel in (worth, noisy):
        panel.legend(fontsize="small")
    figure.savefig(FIGURES / "reuse-data.png", dpi=90)


if __name__ == "__main__":
    for make in (best_schedule, reuse, momentum, mini_batches):
        if len(sys.argv) == 1 or make.__name__ in sys.argv[1:]:
            make()
