"""A single weight learns a slope from a few samples: every run is exponential, their mean is a power law."""

from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.checks import check_count, rules
from solvable.dataset import Stopwatch, make_dataset, provenance
from solvable.model import Model, parameter
from solvable.numerics.ensemble import ensemble
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
        """Predict the mean losses over training sets.

        Parameters
        ----------
        times
            Increasing times, in the units of the training.
        training
            ``GradientFlow``, which is also the default.
        """
        watch = Stopwatch()
        times, training = self.check_run(times, training, "predict")
        stretched = 1 + 4 * jnp.asarray(training.flow_time(times)) / self.samples
        test = self.target**2 / 2 * stretched ** (-self.samples / 2)
        return make_dataset(
            {"train_loss": (("time",), test / stretched), "test_loss": (("time",), test)},
            {"time": times},
            provenance(self, "theory", {}, watch, training=training),
            training=training,
        )

    def simulate(
        self,
        times: Any,
        training: Training | None = None,
        *,
        seeds: Annotated[int, "number of independent runs"] = 10,
        key: Annotated[int, "random seed of the first run"] = 0,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Draw a training set for each seed and follow the flow on it.

        Parameters
        ----------
        times
            Increasing times, in the units of the training.
        training
            ``GradientFlow``, which is also the default.
        seeds
            Number of independent runs.
        key
            Random seed of the first run.
        progress
            Whether to show a progress bar; by default on a terminal.
        """
        watch = Stopwatch()
        times, training = self.check_run(times, training, "simulate")
        check_count("seeds", seeds)
        check_count("key", key, 0)
        clock = training.flow_time(times)

        def run(key: jax.Array) -> dict[str, jax.Array]:
            power = jnp.mean(jax.random.normal(key, (int(self.samples),)) ** 2)
            test = (self.target * jnp.exp(-power * clock)) ** 2 / 2
            return {"train_loss": power * test, "test_loss": test}

        losses = ensemble(run, seeds=seeds, key=key, bytes_per_run=8 * (self.samples + times.size), progress=progress)
        return make_dataset(
            {name: (("seed", "time"), values) for name, values in losses.items()},
            {"time": times, "seed": np.arange(seeds)},
            provenance(self, "simulation", {"seeds": seeds, "key": key}, watch, training=training),
            training=training,
        )
