"""The picture of docs/networks/forecast.md: forecasts of two networks from their first 200 of 2000 steps."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from solvable.networks import MLP, centred, circle, log_steps, train
from solvable.networks.forecast import forecast
from solvable.networks.run_forecast_report import draw
from solvable.plotting import new_figure

FIGURES = Path(__file__).parents[1]
POINTS, UNITS, STEPS, KNOWN = 256, 2000, 2000, 200


def network(parameters, inputs):
    into, out = parameters
    return (jax.nn.relu(inputs @ into) @ out / np.sqrt(out.size))[:, None]


def initial(rng):
    into, out = rng.normal(size=(3, UNITS // 2)), rng.normal(size=UNITS // 2)
    return jnp.concatenate([into, into], axis=1), jnp.concatenate([out, -out])


@partial(jax.jit, static_argnames="steps")
def losses(start, inputs, target, rate, steps):
    """Half the mean square error before each step."""

    def loss(parameters):
        return jnp.mean((network(parameters, inputs)[:, 0] - target) ** 2) / 2

    def descend(parameters, _):
        value, slope = jax.value_and_grad(loss)(parameters)
        return jax.tree.map(lambda now, s: now - rate * s, parameters, slope), value

    return jax.lax.scan(descend, start, length=steps)[1]


def tutorial():
    """The ReLU network of tutorial 3."""
    angle = (np.arange(POINTS) + 0.5) * 2 * np.pi / POINTS
    inputs = np.stack([np.cos(angle), np.sin(angle), np.ones(POINTS)], axis=1)
    target = angle / np.pi - 1
    start = initial(np.random.default_rng(0))
    before = forecast(network, inputs, target, parameters=start, progress=False)
    rate = 0.5 / float(before.eigenvalues.max())
    return before, rate, np.asarray(losses(start, inputs, target, rate, STEPS + 1))


def rich():
    """A tanh network whose features learn, on a circle."""
    task = circle(source=0.5, points=POINTS)
    start = centred(MLP(2, 1, 128, 2, key=jax.random.key(0), activation="tanh", parameterisation="mean-field",
                        richness=2.0))  # fmt: skip
    before = forecast(start, task.inputs, task.targets, progress=False)
    rate = 0.2 / float(before.eigenvalues.max())
    trained = train(start, task, optax.sgd(rate), steps=STEPS, loss="half-mse", progress=False)
    return before, rate, dict(zip(trained.curves.time.values, trained.curves.train_loss.values.ravel(), strict=True))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    figure, axes = new_figure(2)
    steps = np.array(log_steps(STEPS))
    known = steps <= KNOWN
    for ax, make, title in zip(axes, (tutorial, rich), ("lazy so far", "not lazy"), strict=True):
        before, rate, curve = make()
        values = np.array([curve[step] for step in steps])
        learned = before.update(steps[known], values[known], training=rate)
        print(learned.summary())
        end = learned.predict([STEPS]).isel(time=0)
        print("ends at", values[-1], "log error", np.log(values[-1] / float(end.loss)))
        draw(ax, learned)
        ax.plot(steps[~known], values[~known], "o", color="black", markersize=3, markerfacecolor="white", label="later")
        ax.legend(fontsize="small", loc="lower left")
        ax.set_title(title)
    figure.savefig(FIGURES / "run-forecast.png", dpi=90)
