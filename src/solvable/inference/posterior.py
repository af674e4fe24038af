"""The posterior by the No-U-Turn sampler of BlackJAX, for any law: density and gradient are computed outside of JAX."""

import math

import numpy as np

from solvable.inference.draws import Draws
from solvable.inference.fitting import Fit
from solvable.inference.profiles import covariance
from solvable.precision import in_float64

_WARM_UP, _KEPT = 300, 600
_DIFFERENCE = 1e-4
_REMEDY = "uncertainty='nuts' needs BlackJAX: install solvable[infer], or use uncertainty='profile'"


@in_float64
def nuts(fit: Fit, *, warm_up: int = _WARM_UP, draws: int = _KEPT, seed: int = 0) -> Draws:
    """Sample all fitted numbers and the scale of the noise, with priors that are flat within the boxes.

    Coordinates are mapped to the line by a logistic function of their box; coefficients, which are positive, and the
    scale are sampled as logarithms. Correlation and tail of the noise keep their estimates.

    Parameters
    ----------
    fit
        The fit, from which the sampler starts.
    warm_up
        Number of draws that adapt step size and mass matrix, and are left out.
    draws
        Number of draws that are kept.
    seed
        Random seed.
    """
    try:
        import blackjax
    except ImportError as error:
        raise ImportError(_REMEDY) from error
    import jax
    import jax.numpy as jnp

    posterior = _Posterior(fit)
    # Callbacks run in threads of their own, where JAX is in float32: numbers travel as a rounded part and a rest.
    shape = jax.ShapeDtypeStruct((2, posterior.size + 1), jnp.float32)

    def outside(pair: np.ndarray) -> np.ndarray:
        found = posterior.value_and_gradient(np.asarray(pair, float).sum(axis=0))
        rounded = np.clip(found, -1e30, 1e30).astype(np.float32)
        return np.stack([rounded, (found - rounded).astype(np.float32)])

    def both(position: jax.Array) -> jax.Array:
        rounded = position.astype(jnp.float32)
        pair = jnp.stack([rounded, (position - rounded).astype(jnp.float32)])
        return jax.pure_callback(outside, shape, pair).astype(jnp.float64).sum(axis=0)

    @jax.custom_vjp
    def density(position: jax.Array) -> jax.Array:
        return both(position)[0]

    def forward(position: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = both(position)
        return found[0], found[1:]

    def backward(gradient: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
        return (cotangent * gradient,)

    density.defvjp(forward, backward)
    first, second = jax.random.split(jax.random.key(seed))
    adaptation = blackjax.window_adaptation(blackjax.nuts, density, is_mass_matrix_diagonal=False)
    (state, tuned), _ = adaptation.run(first, jnp.asarray(posterior.start), num_steps=warm_up)
    step = blackjax.nuts(density, **tuned).step

    def advance(state: object, key: jax.Array) -> tuple[object, tuple[jax.Array, jax.Array]]:
        state, info = step(key, state)
        return state, (state.position, info.is_divergent)  # type: ignore[attr-defined]

    _, (positions, diverged) = jax.lax.scan(advance, state, jax.random.split(second, draws))
    natural = [posterior.outward(position) for position in np.asarray(positions) * posterior.unit + posterior.centre]
    share = float(np.mean(np.asarray(diverged)))
    effective = float(np.min(np.asarray(blackjax.ess(positions[None]))))
    if share > 0.05:
        effective = 0.0
    return Draws(np.array([one[0] for one in natural]), np.array([one[1] for one in natural]), "NUTS", effective)


class _Posterior:
    """The log-density over unbounded positions, whitened by the covariance at the optimum."""

    def __init__(self, fit: Fit) -> None:
        self.fit, problem = fit, fit.problem
        self.count, self.terms = len(problem.space), len(problem.columns)
        self.size = self.count + self.terms + 1
        low, high = problem.box
        share = np.clip((fit.best.coordinates - low) / (high - low), 0.01, 0.99)
        matrix, _ = problem.design(fit.best.coordinates)
        least = 0.01 * min(float(run.loss.min()) for run in problem.runs)
        small = least / np.maximum(matrix.max(axis=0), 1e-300)
        coefficients = np.log(np.maximum(fit.best.coefficients, small))
        self.centre = np.concatenate([np.log(share / (1 - share)), coefficients, [0.0]])
        slopes = np.concatenate([1 / (share * (1 - share) * (high - low)), np.ones(self.terms)])
        errors = np.sqrt(np.diag(covariance(fit))) * slopes
        self.unit = np.append(np.clip(errors, 1e-3, 2.0), 1 / math.sqrt(2 * problem.points))
        self.start = np.zeros(self.size)
        self.logs = np.concatenate(problem.logs)

    def outward(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        low, high = self.fit.problem.box
        share = 1 / (1 + np.exp(-position[: self.count]))
        return low + (high - low) * share, np.exp(position[self.count : -1]), float(position[-1])

    def value_and_gradient(self, scaled: np.ndarray) -> np.ndarray:
        """The log-density at a scaled position, and its gradient.

        Derivatives by the nonlinear coordinates are differences of the law; all others are in closed form.
        """
        problem, noise = self.fit.problem, self.fit.problem.noise
        position = np.asarray(scaled, float) * self.unit + self.centre
        coordinates, coefficients, stretch = self.outward(position)
        low, high = problem.box
        share = 1 / (1 + np.exp(-position[: self.count]))
        matrix, known = problem.design(coordinates)
        curve = np.maximum(matrix @ coefficients + known, 1e-300)
        columns = []
        for number in range(self.count):
            step = _DIFFERENCE * problem.steps[number]
            moved = coordinates.copy()
            moved[number] += step if moved[number] + step <= high[number] else -step
            other, rest = problem.design(moved)
            ahead = np.log(np.maximum(other @ coefficients + rest, 1e-300)) - np.log(curve)
            slope = (high[number] - low[number]) * share[number] * (1 - share[number])
            columns.append(ahead / (moved[number] - coordinates[number]) * slope)
        columns += [matrix[:, number] * value / curve for number, value in enumerate(coefficients)]
        slopes = problem.whiten(np.array(columns).T)
        scale = noise.scale * math.exp(stretch)
        standard = problem.whiten(self.logs - np.log(curve)) / scale
        if math.isinf(noise.freedom):
            value, pull = -0.5 * float(standard @ standard), standard
        else:
            value = -(noise.freedom + 1) / 2 * float(np.log1p(standard**2 / noise.freedom).sum())
            pull = standard * (noise.freedom + 1) / (noise.freedom + standard**2)
        # Flat in the box, in the coefficients themselves, and in the logarithm of the scale.
        value += float(np.log(np.maximum(share * (1 - share), 1e-300)).sum() + position[self.count : -1].sum())
        gradient = np.append(slopes.T @ pull / scale, float(pull @ standard) - standard.size)
        gradient[: self.count] += 1 - 2 * share
        gradient[self.count : -1] += 1
        return np.concatenate([[value - standard.size * stretch], gradient * self.unit])
