"""The posterior by the No-U-Turn sampler of BlackJAX, from several chains in parallel.

Positions are whitened by the covariance at the optimum (Laplace's approximation), so that the sampler starts with a
mass matrix that is nearly right. Laws with a basis in JAX (:meth:`solvable.inference.Law.differentiable`) have a
density that is compiled; all others are evaluated outside of JAX, which is slower.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from solvable.inference.draws import Draws
from solvable.inference.fitting import Fit
from solvable.inference.profiles import covariance
from solvable.precision import in_float64

_WARM_UP, _KEPT, _CHAINS = 150, 250, 4
# Trajectories have at most 2^7 steps: the density is nearly isotropic.
_MOST_DOUBLINGS = 7
# Chains start this far from the optimum, in standard errors.
_SPREAD = 0.7
_MOST_DIVERGENT = 0.05
_DIFFERENCE = 1e-4
_TINY = 1e-300
_REMEDY = "uncertainty='nuts' needs BlackJAX: install solvable[infer], or use uncertainty='profile'"


@in_float64
def nuts(fit: Fit, *, warm_up: int = _WARM_UP, draws: int = _KEPT, chains: int = _CHAINS, seed: int = 0) -> Draws:
    """Sample all fitted numbers and the scale of the noise, with priors that are flat within the boxes.

    Coordinates are mapped to the line by a logistic function of their box; coefficients, which are positive, and the
    scale are sampled as logarithms. Correlation and tail of the noise keep their estimates.

    Parameters
    ----------
    fit
        The fit, from which the chains start.
    warm_up
        Number of draws of each chain that adapt step size and mass matrix, and are left out.
    draws
        Number of draws of each chain that are kept.
    chains
        Number of chains, at least two for R-hat.
    seed
        Random seed.
    """
    try:
        import blackjax
    except ImportError as error:
        raise ImportError(_REMEDY) from error
    import jax

    posterior = _Posterior(fit)
    density = posterior.compiled() or posterior.called_back()
    adaptation = blackjax.window_adaptation(
        blackjax.nuts, density, is_mass_matrix_diagonal=False, max_num_doublings=_MOST_DOUBLINGS
    )
    kernel = blackjax.nuts.build_kernel()

    def chain(key: jax.Array, start: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, second = jax.random.split(key)
        (state, tuned), _ = adaptation.run(first, start, num_steps=warm_up)
        tuned = {**tuned, "max_num_doublings": _MOST_DOUBLINGS}

        def advance(state: Any, own: jax.Array) -> tuple[Any, tuple[jax.Array, jax.Array]]:
            state, info = kernel(own, state, density, **tuned)
            return state, (state.position, info.is_divergent)

        return jax.lax.scan(advance, state, jax.random.split(second, draws))[1]

    spread, own = jax.random.split(jax.random.key(seed))
    starts = _SPREAD * jax.random.normal(spread, (chains, posterior.size))
    positions, diverged = jax.jit(jax.vmap(chain))(jax.random.split(own, chains), starts)
    found = np.asarray(positions, float)
    natural = [posterior.outward(position) for position in found.reshape(-1, posterior.size)]
    effective = float(np.min(np.asarray(blackjax.ess(positions))))
    mixing = float(np.max(np.asarray(blackjax.rhat(positions)))) if chains > 1 else math.nan
    divergent = float(np.mean(np.asarray(diverged)))
    coordinates, coefficients = (np.array([one[part] for one in natural]) for part in (0, 1))
    if not (np.isfinite(coordinates).all() and np.isfinite(coefficients).all()):
        raise FloatingPointError("the sampler left the range of numbers: use uncertainty='profile'")
    return Draws(coordinates, coefficients, "NUTS", effective if divergent < _MOST_DIVERGENT else 0.0, mixing)


class _Posterior:
    """The log-density over unbounded positions, whitened by the covariance at the optimum."""

    def __init__(self, fit: Fit) -> None:
        self.fit, problem = fit, fit.problem
        self.count, self.terms = len(problem.space), len(problem.columns)
        self.size = self.count + self.terms + 1
        self.low, self.high = problem.box
        share = np.clip((fit.best.coordinates - self.low) / (self.high - self.low), 0.05, 0.95)
        matrix, _ = problem.design(fit.best.coordinates)
        least = 0.01 * min(float(run.loss.min()) for run in problem.runs)
        small = least / np.maximum(matrix.max(axis=0), _TINY)
        coefficients = np.log(np.maximum(fit.best.coefficients, small))
        self.centre = np.concatenate([np.log(share / (1 - share)), coefficients, [0.0]])
        # The covariance in logits and logarithms, with a prior of unit width that bounds what the data leave open.
        slopes = np.concatenate([1 / (share * (1 - share) * (self.high - self.low)), np.ones(self.terms)])
        precision = np.linalg.inv(covariance(fit)) / np.outer(slopes, slopes)
        root = np.linalg.cholesky(np.linalg.inv(precision + 0.25 * np.eye(precision.shape[0])))
        self.root = np.zeros((self.size, self.size))
        self.root[:-1, :-1] = root
        self.root[-1, -1] = 1 / math.sqrt(2 * problem.points)
        self.logs = np.concatenate(problem.logs)

    def outward(self, scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Coordinates, coefficients and the logarithm of the noise's scale over its estimate."""
        position = self.centre + self.root @ np.asarray(scaled, float)
        share = 1 / (1 + np.exp(-position[: self.count]))
        return self.low + (self.high - self.low) * share, np.exp(position[self.count : -1]), float(position[-1])

    def compiled(self) -> Callable[[Any], Any] | None:
        """The density as a pure function of JAX, if the law has a basis in JAX."""
        import jax
        import jax.numpy as jnp

        problem, noise = self.fit.problem, self.fit.problem.noise
        bases = [problem.law.differentiable(run) for run in problem.runs]
        if any(basis is None for basis in bases):
            return None
        white = problem.whiten(np.eye(problem.points)) if noise.correlation > 0 or not problem.is_plain else None
        terms, span = problem.law.terms, self.high - self.low

        def theta(coordinates: Any, group: str) -> dict[str, Any]:
            chosen = dict(problem.fixed)
            for one, value in zip(problem.space, coordinates, strict=True):
                if one.group is None or one.group == group:
                    chosen[one.parameter.name] = one.parameter.traced(value)
            return chosen

        def law(coordinates: Any, coefficients: Any) -> Any:
            parts = []
            for run, basis in zip(problem.runs, bases, strict=True):
                columns = basis(theta(coordinates, run.group))  # type: ignore[misc]
                total = sum(problem.fixed[term] * columns[terms.index(term)] for term in terms if term in problem.fixed)
                for value, column in zip(coefficients, problem.columns, strict=True):
                    if column.group is None or column.group == run.group:
                        total = total + value * columns[terms.index(column.term)]
                parts.append(total)
            return jnp.concatenate(parts)

        def density(scaled: Any) -> Any:
            position = self.centre + self.root @ scaled
            logit, logarithm, stretch = position[: self.count], position[self.count : -1], position[-1]
            share = jax.nn.sigmoid(logit)
            curve = law(list(self.low + span * share), list(jnp.exp(logarithm)))
            residual = self.logs - jnp.log(jnp.maximum(curve, _TINY))
            standard = (residual if white is None else white @ residual) / (noise.scale * jnp.exp(stretch))
            if math.isinf(noise.freedom):
                value = -0.5 * standard @ standard
            else:
                value = -(noise.freedom + 1) / 2 * jnp.log1p(standard**2 / noise.freedom).sum()
            # Flat in the box, in the coefficients themselves, and in the logarithm of the scale.
            prior = (jax.nn.log_sigmoid(logit) + jax.nn.log_sigmoid(-logit)).sum() + logarithm.sum()
            return value + prior - problem.points * stretch

        return density

    def called_back(self) -> Callable[[Any], Any]:
        """The density of a law without a basis in JAX, computed by NumPy outside of the compiled program."""
        import jax
        import jax.numpy as jnp

        # Callbacks run in threads of their own, where JAX is in float32: numbers travel as a rounded part and a rest.
        shape = jax.ShapeDtypeStruct((2, self.size + 1), jnp.float32)

        def outside(pair: np.ndarray) -> np.ndarray:
            found = self.value_and_gradient(np.asarray(pair, float).sum(axis=0))
            rounded = np.clip(found, -1e30, 1e30).astype(np.float32)
            return np.stack([rounded, (found - rounded).astype(np.float32)])

        def both(position: jax.Array) -> jax.Array:
            rounded = position.astype(jnp.float32)
            pair = jnp.stack([rounded, (position - rounded).astype(jnp.float32)])
            found = jax.pure_callback(outside, shape, pair, vmap_method="sequential")
            return found.astype(jnp.float64).sum(axis=0)

        @jax.custom_vjp
        def density(position: jax.Array) -> jax.Array:
            return both(position)[0]

        def forward(position: jax.Array) -> tuple[jax.Array, jax.Array]:
            found = both(position)
            return found[0], found[1:]

        def backward(gradient: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
            return (cotangent * gradient,)

        density.defvjp(forward, backward)
        return density

    def value_and_gradient(self, scaled: np.ndarray) -> np.ndarray:
        """The log-density at a whitened position, and its gradient.

        Derivatives by the nonlinear coordinates are differences of the law; all others are in closed form.
        """
        problem, noise = self.fit.problem, self.fit.problem.noise
        coordinates, coefficients, stretch = self.outward(scaled)
        position = self.centre + self.root @ np.asarray(scaled, float)
        share = 1 / (1 + np.exp(-position[: self.count]))
        matrix, known = problem.design(coordinates)
        curve = np.maximum(matrix @ coefficients + known, _TINY)
        columns = []
        for number in range(self.count):
            step = _DIFFERENCE * problem.steps[number]
            moved = coordinates.copy()
            moved[number] += step if moved[number] + step <= self.high[number] else -step
            other, rest = problem.design(moved)
            ahead = np.log(np.maximum(other @ coefficients + rest, _TINY)) - np.log(curve)
            slope = (self.high[number] - self.low[number]) * share[number] * (1 - share[number])
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
        value += float(np.log(np.maximum(share * (1 - share), _TINY)).sum() + position[self.count : -1].sum())
        gradient = np.append(slopes.T @ pull / scale, float(pull @ standard) - standard.size)
        gradient[: self.count] += 1 - 2 * share
        gradient[self.count : -1] += 1
        return np.concatenate([[value - standard.size * stretch], self.root.T @ gradient])
