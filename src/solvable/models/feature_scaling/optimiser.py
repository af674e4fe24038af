"""A linear optimiser as a kernel: ``w_t = w_0 - sum_s Theta(t, s) g_s`` with the gradients ``g_s`` of the steps.

Momentum, Nesterov's momentum and learning-rate schedules differ in Theta only, which is zero for ``s >= t``:

    gradient descent   Theta(t + 1, s) = Theta(t, s) + eta_t delta(t, s)
    heavy ball         Theta(t + 1, s) = Theta(t, s) + eta_t mu^(t - s)
    Nesterov           Theta(t + 1, s) = Theta(t, s) + eta_t (delta(t, s) + mu^(t - s + 1))

>>> import numpy as np
>>> from solvable.models.feature_scaling.optimiser import update_kernel
>>> np.asarray(update_kernel(0.1, 3, momentum=0.5), float).round(3)
array([[0.  , 0.  , 0.  ],
       [0.1 , 0.  , 0.  ],
       [0.15, 0.1 , 0.  ]])
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def rates_of(learning_rate: Any, steps: int) -> Float[Array, "time"]:
    """The learning rate of each step, from one number or one number per step."""
    return jnp.broadcast_to(jnp.asarray(learning_rate, float), (steps,))


def update_kernel(
    learning_rate: Any, steps: int, momentum: Any = 0.0, nesterov: bool = False
) -> Float[Array, "time time"]:
    """Theta at the times ``0 ... steps - 1``.

    Parameters
    ----------
    learning_rate
        One number, or one number per step.
    steps
        Number of times.
    momentum
        Momentum mu; may be traced.
    nesterov
        Whether momentum is Nesterov's.
    """
    rates = rates_of(learning_rate, steps)
    if not isinstance(momentum, jax.core.Tracer) and momentum == 0:
        return jnp.tril(jnp.broadcast_to(rates, (steps, steps)), -1)
    lag = np.subtract.outer(np.arange(steps), np.arange(steps))
    # Powers with a positive exponent only: the derivative of mu^0 at mu = 0 would be NaN.
    left = jnp.where(lag > 0, jnp.asarray(momentum, float) ** np.maximum(lag, 1), lag == 0)
    moved = rates[:, None] * ((lag == 0) + momentum * left if nesterov else left)
    return jnp.pad(jnp.cumsum(moved, axis=0)[:-1], ((1, 0), (0, 0)))
