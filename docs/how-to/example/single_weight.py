"""A single weight learns a slope from a few samples: every run is exponential, their mean is a power law."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.numerics.ensemble import ensemble
from solvable.timegrid import check_times
from solvable.checks import check_count, rules
from solvable.dataset import Meaning, Stopwatch, make_dataset, provenance
from solvable.model import Model, parameter


class SingleWeight(Model):
    """``f(x) = w x`` learns ``S x`` from ``n`` Gaussian inputs, by gradient flow from ``w = 0``.

    With ``s`` the mean square of the drawn inputs, ``w = S (1 - exp(-s t))``. As ``n s`` is chi-square with ``n``
    degrees of freedom, the means over training sets are

        L_gen = E[(S - w)^2] / 2   = S^2 / 2 (1 + 4 t / n)^(-n/2)
        L_tr  = E[s (S - w)^2] / 2 = S^2 / 2 (1 + 4 t / n)^(-n/2 - 1)
    """

    name: ClassVar[str] = "single-weight"

    samples: int = parameter("number of training samples", rules.count, symbol="n")
    target: float = parameter("slope of the target", rules.finite, symbol="S", default=1.0)

    def predict(self, times: Any) -> xr.Dataset:
        """The mean losses over training sets."""
        watch = Stopwatch()
        times = check_times(times)
        stretched = 1 + 4 * jnp.asarray(times) / self.samples
        test = self.target**2 / 2 * stretched ** (-self.samples / 2)
        return make_dataset(
            {"train_loss": (("time",), test / stretched), "test_loss": (("time",), test)},
            {"time": times},
            provenance(self, "theory", {}, watch),
            _MEANINGS,
        )

    def simulate(
        self,
        times: Any,
        *,
        seeds: Annotated[int, "number of independent runs"] = 10,
        key: Annotated[int, "key of the random numbers"] = 0,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Draw a training set for each seed and follow the flow on it."""
        watch = Stopwatch()
        times = check_times(times)
        check_count("seeds", seeds)
        check_count("key", key, 0)

        def run(key: jax.Array) -> dict[str, jax.Array]:
            power = jnp.mean(jax.random.normal(key, (int(self.samples),)) ** 2)
            test = (self.target * jnp.exp(-power * times)) ** 2 / 2
            return {"train_loss": power * test, "test_loss": test}

        losses = ensemble(run, seeds=seeds, key=key, bytes_per_run=8 * (self.samples + times.size), progress=progress)
        return make_dataset(
            {name: (("seed", "time"), values) for name, values in losses.items()},
            {"time": times, "seed": np.arange(seeds)},
            provenance(self, "simulation", {"seeds": seeds, "key": key}, watch),
            _MEANINGS,
        )


# Names that differ from solvable.models.base.VARIABLES, or are not there.
_MEANINGS: Mapping[str, Meaning] = {
    "train_loss": Meaning("training loss", "1", "L_tr"),
    "test_loss": Meaning("test loss", "1", "L_gen"),
    "time": Meaning("training time", "learning rate × steps", "t"),
}
