"""A single weight learns a slope from a few samples: every run is exponential, their mean is a power law."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.checks import rules
from solvable.model import Key, MemoryLimit, Model, Seeds, parameter
from solvable.numerics.ensemble import ensemble, run_options
from solvable.training import Training


class SingleWeight(Model):
    """``f(x) = w x`` learns ``S x`` from ``n`` Gaussian inputs, by gradient flow from ``w = 0``.

    With ``s`` the mean square of the drawn inputs, ``w = S (1 - exp(-s t))``. As ``n s`` is chi-square with ``n``
    degrees of freedom, the means over training sets are

        L_gen = E[(S - w)^2] / 2   = S^2 / 2 (1 + 4 t / n)^(-n/2)
        L_tr  = E[s (S - w)^2] / 2 = S^2 / 2 (1 + 4 t / n)^(-n/2 - 1)
    """

    name: ClassVar[str] = "single-weight"
    loss_convention: ClassVar[str] = "half the mean square error"
    usual_times: ClassVar[str] = "0:20:41"
    vectorised_fields: ClassVar[tuple[str, ...]] = ("target",)

    samples: int = parameter("number of training samples", rules.count, symbol="n", default=8)
    target: float = parameter("slope of the target", rules.finite, symbol="S", default=1.0)

    def predict(self, times: Any, training: Training | None = None) -> xr.Dataset:
        """Predict the mean losses over training sets."""
        times, training = self.check_run(times, training, "predict")
        stretched = 1 + 4 * jnp.asarray(training.flow_time(times)) / self.samples
        test = self.target**2 / 2 * stretched ** (-self.samples / 2)
        losses = {"train_loss": test / stretched, "test_loss": test}
        return self.dataset("theory", losses, {"time": times}, training=training)

    def simulate(
        self,
        times: Any,
        training: Training | None = None,
        *,
        seeds: Seeds = 10,
        key: Key = 0,
        devices: Any = None,
        memory_limit: MemoryLimit = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Draw a training set for each seed and follow the flow on it."""
        times, training = self.check_run(times, training, "simulate")
        options = run_options(self.name, seeds, key, devices, memory_limit, progress)
        clock = training.flow_time(times)

        def run(key: jax.Array) -> dict[str, jax.Array]:
            power = jnp.mean(jax.random.normal(key, (int(self.samples),)) ** 2)
            test = (self.target * jnp.exp(-power * clock)) ** 2 / 2
            return {"train_loss": power * test, "test_loss": test}

        losses = ensemble(run, bytes_per_run=8 * (self.samples + times.size), **options)
        coordinates = {"seed": np.arange(seeds), "time": times}
        return self.dataset("simulation", losses, coordinates, {"seeds": seeds, "key": key}, training=training)
