"""Training with any Optax optimiser."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.checks import is_traced, rules
from solvable.training import MOMENTUM, STEP, Training, check_averaging, check_sampling, option


class OptaxDescent(Training):
    """Gradient descent with any Optax optimiser, on full batches or mini-batches.

    Theories cover optimisers that are linear in the gradients and act on each weight alone: momentum, weight decay,
    schedules, gradient accumulation and chains of them. Others, such as Adam and clipping, can be simulated.

    Parameters
    ----------
    optimiser
        An Optax gradient transformation, such as ``optax.chain(optax.trace(0.9), optax.scale(-0.1))``. The weights of
        each layer have a name (``"w"`` and ``"A"`` in :class:`solvable.FeatureScaling`), for ``optax.partition``.
    batch_size
        Number of samples in each batch; None for full batches.
    sampling
        Where a batch comes from, as in :class:`solvable.SGD`.
    ema_decay, average_from
        Which average of the weights is kept, as in :class:`solvable.GradientDescent`.
    """

    name: ClassVar[str] = "optax"

    optimiser: Any = eqx.field(static=True, metadata={"help": "an Optax gradient transformation"})
    batch_size: Any = option("samples in each batch", rules.count, default=None, symbol="B")
    sampling: str | None = eqx.field(default=None, static=True, metadata={"help": "where a batch comes from"})
    ema_decay: float | None = option("decay of an exponential moving average of the weights", MOMENTUM, default=None)
    average_from: int | None = option("step from which on the weights are averaged", STEP, default=None)

    def __check_init__(self) -> None:
        Training.__check_init__(self)
        if not (callable(getattr(self.optimiser, "init", None)) and callable(getattr(self.optimiser, "update", None))):
            raise ValueError(f"optimiser must be an Optax gradient transformation, not {self.optimiser!r}")
        check_averaging(self)
        check_sampling(self.sampling)

    def __repr__(self) -> str:
        # A transformation prints the addresses of its functions, which differ from run to run.
        made_by = getattr(self.optimiser.update, "__qualname__", "optimiser").removesuffix(".<locals>.update_fn")
        given = [
            f"{name}={value!r}"
            for name, value in self.parameters().items()
            if name != "optimiser" and value is not None
        ]
        return f"OptaxDescent({', '.join([made_by, *given])})"

    @property
    def is_constant(self) -> bool:
        """Whether nothing follows a schedule: not known of an optimiser."""
        return False

    def epochs(self, times: Any, samples: float | None = None) -> np.ndarray | None:
        """How often the training set has been passed at each time; None where batches are not drawn from one.

        Parameters
        ----------
        times
            Increasing numbers of steps.
        samples
            Size of the training set; None where it is not known.
        """
        drawn = self.batch_size is not None and self.sampling not in (None, "online")
        known = samples is not None and not is_traced(samples, self.batch_size) and np.isfinite(samples)
        return np.asarray(times, float) * self.batch_size / samples if drawn and known else None

    def flow_time(self, times: Any) -> Any:
        """How far a constant gradient of 1 has moved a weight at each time.

        Parameters
        ----------
        times
            Increasing times, in the units of the training.
        """
        times = np.asarray(times, float)

        def step(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], Any]:
            weight, state = carry
            update, state = self.optimiser.update(jnp.ones_like(weight), state, weight)
            return (weight + update, state), -weight

        with jax.enable_x64(True):
            start = jnp.zeros(())
            path = jax.lax.scan(step, (start, self.optimiser.init(start)), None, length=int(times[-1]) + 1)[1]
        return np.asarray(path)[times.astype(int)]
