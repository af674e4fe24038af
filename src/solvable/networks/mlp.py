"""Fully connected networks in four parameterisations, and their tangent kernels."""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.checks import check_choice, check_count, is_traced
from solvable.networks.parameterisations import (
    OptimiserName,
    Role,
    check_base_width,
    check_optimiser_name,
    rate_factor,
    uniform_factors,
)
from solvable.networks.parts import Constant
from solvable.precision import in_float64

Parameterisation = Literal["standard", "ntk", "mean-field"]
LayerwiseParameterisation = Literal["standard", "ntk", "mean-field", "maximal-update"]
Initialisation = Literal["normal", "uniform"]
Activation = Literal["relu", "tanh", "gelu", "linear"]

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "linear": lambda inputs: inputs,
}


class Dense(eqx.nn.Linear):
    """``output_factor (W (input_factor x) + b)``: a linear layer whose step sizes do not depend on its width."""

    input_factor: Constant | None
    output_factor: Constant | None

    def __init__(self, weight: Array, bias: Array | None, input_factor: Any = None, output_factor: Any = None) -> None:
        self.out_features, self.in_features = weight.shape
        self.use_bias = bias is not None
        self.weight, self.bias = weight, bias
        self.input_factor, self.output_factor = (
            None if factor is None or is_one(factor) else Constant(factor) for factor in (input_factor, output_factor)
        )

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        # The factors multiply weights and outputs, so that a batch of activations is not read once more for them.
        # They are stored in full precision also where the rest is not, and must not widen what they multiply.
        weight = self.weight
        if self.input_factor is not None:
            weight = weight * jnp.asarray(self.input_factor.held, weight.dtype)
        summed = weight @ x
        if self.bias is not None:
            summed = summed + self.bias
        return summed if self.output_factor is None else summed * jnp.asarray(self.output_factor.held, summed.dtype)


class PowerReLU(eqx.Module):
    """``max(h, 0)^q``; the derivative at zero is zero, also for q < 1."""

    power: Constant

    def __call__(self, inputs: Array) -> Array:
        positive = inputs > 0
        return jnp.where(positive, jnp.where(positive, inputs, 1) ** self.power.held.astype(inputs.dtype), 0)


class MLP(eqx.Module):
    """A fully connected network of one input vector.

    In each parameterisation a layer computes ``h = W φ / factor + b`` from the activations φ of the layer below:

    * ``"standard"``: weights of variance ``weight_scale² / fan_in``, no factor.
    * ``"ntk"``: weights of variance ``weight_scale²`` and the factor ``sqrt(fan_in)``.
    * ``"mean-field"``: the same, and the output divided by ``richness sqrt(width)`` (γ₀ of the feature-scaling paper).
      The learning rate of gradient descent is to be multiplied by :attr:`learning_rate_scale`, which is
      richness² width: then the function moves at a speed that depends on neither, while features move in proportion
      to the richness.
    * ``"maximal-update"`` (μP): the standard one at ``base_width``. At m times that width, variances of hidden weights
      are divided by m, the output weights are multiplied by 1 / m, and each array has a learning rate of its own,
      :meth:`learning_rate_factors`, so that the best learning rate depends on the width as little as possible.

    All scales may be traced.

    Parameters
    ----------
    inputs, outputs
        Numbers of inputs and outputs.
    width
        Number of neurons of every hidden layer.
    depth
        Number of linear layers: 2 is one hidden layer.
    key
        JAX key of the initial weights.
    activation
        A name, or a function.
    power
        With ``activation="relu"``, the exponent q of ``max(h, 0)^q``.
    parameterisation
        ``"standard"``, ``"ntk"``, ``"mean-field"`` or ``"maximal-update"``, as above.
    richness
        The richness γ₀ of mean-field parameterisation.
    weight_scale
        Scale of the initial weights, as above.
    bias
        Whether layers have biases.
    bias_scale
        Standard deviation of the initial biases.
    initialisation
        ``"normal"``, or ``"uniform"``: weights and biases within ``±weight_scale / sqrt(fan_in)``, as in PyTorch.
    std
        Standard deviation of all weights and biases; overrides the scales above.
    input_scale, output_scale
        Factors that multiply the input and the output.
    base_width
        Width at which ``"maximal-update"`` is the standard parameterisation; by default 64.
    active_width
        Neurons from this one on are always zero, so that networks of many widths train side by side in arrays of one
        size.
    dtype
        Type of the weights.

    >>> import jax, solvable.networks
    >>> network = solvable.networks.MLP(2, 1, width=64, depth=3, key=jax.random.key(0), parameterisation="mean-field")
    >>> network(jax.numpy.ones(2)).shape, float(network.learning_rate_scale)
    ((1,), 64.0)
    """

    layers: tuple[Dense, ...]
    activation: Callable[[Array], Array]
    input_scale: Constant | None
    mask: Constant | None
    learning_rate: Constant
    width_ratio: Constant | None
    width: int = eqx.field(static=True)
    parameterisation: str = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int,
        depth: int,
        *,
        key: jax.Array,
        activation: Activation | Callable[[Array], Array] = "relu",
        power: Any = 1.0,
        parameterisation: LayerwiseParameterisation = "standard",
        richness: Any = 1.0,
        weight_scale: Any = 1.0,
        bias: bool = True,
        bias_scale: Any = 0.0,
        initialisation: Initialisation = "normal",
        std: Any = None,
        input_scale: Any = 1.0,
        output_scale: Any = 1.0,
        base_width: int | None = None,
        active_width: Any = None,
        dtype: Any = jnp.float32,
    ) -> None:
        for name, value in (("inputs", inputs), ("outputs", outputs), ("width", width), ("depth", depth)):
            check_count(name, value)
        check_choice("initialisation", initialisation, get_args(Initialisation))
        check_parameterisation(parameterisation, richness, get_args(LayerwiseParameterisation))
        base_width = check_base_width(parameterisation, base_width)
        for name, value in (("power", power), ("std", std), ("active_width", active_width)):
            if value is not None:
                check_positive(name, value)
        if active_width is not None and not is_traced(active_width) and active_width > width:
            raise ValueError(f"active_width must be at most the width of {width}, not {active_width}")
        self.width, self.parameterisation = width, parameterisation
        self.activation = make_activation(activation, power)
        self.input_scale = None if is_one(input_scale) else Constant(jnp.asarray(input_scale, dtype))
        used = width if active_width is None else active_width
        self.mask = None if active_width is None else Constant((jnp.arange(width) < active_width).astype(dtype))
        ratio = None if base_width is None or depth == 1 else jnp.asarray(used / base_width, dtype)
        self.width_ratio = None if ratio is None else Constant(ratio)
        plain = parameterisation in ("standard", "maximal-update")
        uniform = initialisation == "uniform" and std is None
        columns, rows = [inputs] + [width] * (depth - 1), [width] * (depth - 1) + [outputs]
        layers = []
        for index, fan_in in enumerate([inputs] + [used] * (depth - 1)):
            weight_key, bias_key = jax.random.split(jax.random.fold_in(key, index))
            root = jnp.sqrt(jnp.asarray(fan_in if ratio is None or index == 0 else base_width, dtype))
            spread = jnp.asarray(weight_scale, dtype) / root if plain else jnp.asarray(weight_scale, dtype)
            bias_spread = spread if uniform else jnp.asarray(bias_scale, dtype)
            if std is not None:
                spread = bias_spread = jnp.asarray(std, dtype)
            if ratio is not None and 0 < index < depth - 1:
                spread = spread / jnp.sqrt(ratio)
            draw = _uniform if uniform else jax.random.normal
            weight = spread * draw(weight_key, (rows[index], columns[index]), dtype)
            offset = bias_spread * draw(bias_key, (rows[index],), dtype) if bias else None
            factor = None
            if index == depth - 1 and parameterisation == "mean-field":
                factor = jnp.asarray(output_scale, dtype) / (jnp.asarray(richness, dtype) * root)
            elif index == depth - 1 and not is_one(output_scale):
                factor = jnp.asarray(output_scale, dtype)
            inward = None if plain else 1 / root
            if ratio is not None and index == depth - 1:
                inward = 1 / ratio
            layers.append(Dense(weight, offset, inward, factor))
        self.layers = tuple(layers)
        self.learning_rate = learning_rate_constant(parameterisation, richness, used, dtype)

    @property
    def learning_rate_scale(self) -> Array:
        """The factor by which the learning rate of gradient descent is to be multiplied in this parameterisation."""
        if self.width_ratio is not None:
            raise ValueError(
                "maximal-update parameterisation has a learning rate for each array: use learning_rate_factors()"
            )
        return self.learning_rate.value

    def learning_rate_factors(self, optimiser: OptimiserName = "sgd") -> Any:
        """Factors of the learning rate, one number in place of each trained array, for :func:`scale_layers`.

        Parameters
        ----------
        optimiser
            ``"sgd"``, with or without momentum, or ``"adam"``, for optimisers whose steps do not depend on the size of
            gradients. Mean-field parameterisation has factors for SGD only.
        """
        check_optimiser_name(optimiser)
        if self.parameterisation == "mean-field" and optimiser == "adam":
            raise ValueError("mean-field parameterisation has no learning rates for 'adam': use 'maximal-update'")
        factors = uniform_factors(self, self.learning_rate.value)
        if self.width_ratio is None:
            return factors
        values, last = [], len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            roles: tuple[Role, ...] = ("hidden", "vector")
            if index in (0, last):
                roles = ("output", "output-bias") if index else ("input", "vector")
            kept = roles if layer.bias is not None else roles[:1]
            values += [rate_factor(role, optimiser, self.width_ratio.value) for role in kept]
        return eqx.tree_at(_weights_and_biases, factors, values)

    def layer_outputs(self, x: Array) -> dict[str, Array]:
        """What every layer computes, before its activation function, by name: ``layer_1`` to ``output``.

        Parameters
        ----------
        x
            One input.
        """
        hidden = x if self.input_scale is None else x * self.input_scale.held
        found = {}
        for index, layer in enumerate(self.layers[:-1]):
            found[f"layer_{index + 1}"] = sums = layer(hidden)
            hidden = self.activation(sums)
            if self.mask is not None:
                hidden = hidden * self.mask.held
        return {**found, "output": self.layers[-1](hidden)}

    def features(self, x: Array) -> Array:
        """The activations of the last hidden layer.

        Parameters
        ----------
        x
            One input.
        """
        hidden = x if self.input_scale is None else x * self.input_scale.held
        for layer in self.layers[:-1]:
            hidden = self.activation(layer(hidden))
            if self.mask is not None:
                hidden = hidden * self.mask.held
        return hidden

    def __call__(self, x: Array) -> Array:
        return self.layers[-1](self.features(x))


def _weights_and_biases(network: MLP) -> list[Array]:
    """All weights and biases, layer by layer."""
    return [array for layer in network.layers for array in (layer.weight, layer.bias) if array is not None]


def is_one(value: Any) -> bool:
    """Whether a factor is the plain number 1, which is left out of computations."""
    return isinstance(value, float | int) and value == 1


def check_positive(name: str, value: Any, advice: str = "") -> None:
    """Raise a ValueError unless a number is positive and finite, or traced."""
    if not is_traced(value) and not 0 < float(value) < math.inf:
        raise ValueError(f"{name} must be a positive finite number, not {value!r}{advice}")


def check_parameterisation(
    parameterisation: str, richness: Any, choices: tuple[str, ...] = get_args(Parameterisation)
) -> None:
    """Check the name of a parameterisation, and that only the mean-field one has a richness."""
    check_choice("parameterisation", parameterisation, choices)
    check_positive("richness", richness)
    if parameterisation != "mean-field" and not is_one(richness):
        raise ValueError(f"richness belongs to parameterisation='mean-field', not to {parameterisation!r}")


def learning_rate_constant(parameterisation: str, richness: Any, width: Any, dtype: Any) -> Constant:
    """The ``learning_rate_scale`` of a parameterisation."""
    rate = jnp.asarray(richness, dtype) ** 2 * width if parameterisation == "mean-field" else 1.0
    return Constant(jnp.asarray(rate, dtype))


def make_activation(activation: Any, power: Any = 1) -> Callable[[Array], Array]:
    """An activation function from its name; functions are returned unchanged."""
    if not isinstance(activation, str):
        return activation
    check_choice("activation", activation, get_args(Activation))
    if is_one(power):
        return _ACTIVATIONS[activation]
    if activation != "relu":
        raise ValueError(f"power belongs to activation='relu', not to {activation!r}")
    return PowerReLU(Constant(jnp.asarray(power)))


def _uniform(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> Array:
    return jax.random.uniform(key, shape, dtype, -1, 1)


class Centred(eqx.Module):
    """A network minus its initial function; see :func:`centred`."""

    network: Any
    initial: Constant

    def __call__(self, x: Array) -> Array:
        return self.network(x) - jax.lax.stop_gradient(self.initial.value(x))

    @property
    def learning_rate_scale(self) -> Array:
        return self.network.learning_rate_scale

    def learning_rate_factors(self, optimiser: OptimiserName = "sgd") -> Any:
        factors = uniform_factors(self, 1.0)
        return eqx.tree_at(lambda tree: tree.network, factors, self.network.learning_rate_factors(optimiser))

    def layer_outputs(self, x: Array) -> dict[str, Array]:
        return self.network.layer_outputs(x) | {"output": self(x)}


def centred(network: Any) -> Centred:
    """The network minus a copy of itself, which is not trained, so that the function starts at zero.

    The initial output of a lazy network is far larger than what it learns, and would hide it.

    Parameters
    ----------
    network
        A network of one input.

    >>> import jax, solvable.networks
    >>> network = solvable.networks.MLP(2, 1, width=8, depth=2, key=jax.random.key(0))
    >>> float(solvable.networks.centred(network)(jax.numpy.ones(2))[0])
    0.0
    """
    return Centred(network, Constant(jax.tree.map(lambda leaf: leaf, network)))


@in_float64
def layer_kernel(network: MLP, inputs: Any) -> Float[Array, "input input"]:
    """The tangent kernel of an MLP, traced over outputs, layer by layer and in float64.

    It is ``sum_l (δ_l δ_l^T) ∘ (φ_l φ_l^T + [bias])`` over layers l with inputs φ_l, where δ_l are the derivatives of
        the outputs with respect to the layer's outputs. No gradient with respect to weights is formed, which
    :func:`solvable.diagnostics.ntk` needs once to find such layers. Networks with ``active_width`` are rejected.

    >>> import jax, numpy as np
    >>> from solvable import diagnostics, networks
    >>> from solvable.networks.mlp import layer_kernel
    >>> network, inputs = networks.MLP(3, 1, width=8, depth=2, key=jax.random.key(0)), np.eye(3)
    >>> bool(np.allclose(layer_kernel(network, inputs), diagnostics.ntk(network, inputs), atol=1e-6))
    True
    """
    if network.mask is not None:
        raise ValueError("a network with active_width has no tangent kernel here: make one of that width")
    return _kernel(network, jnp.asarray(inputs, jnp.float64))


@eqx.filter_jit
def _kernel(network: MLP, inputs: Array) -> Array:
    def wide(value: Any, missing: float) -> Array:
        value = value.value if isinstance(value, Constant) else value
        return jnp.asarray(missing if value is None else value, jnp.float64)

    # Weights, biases, input and output factors of each layer.
    layers = [
        (wide(layer.weight, 0), wide(layer.bias, 0), wide(layer.input_factor, 1), wide(layer.output_factor, 1))
        for layer in network.layers
    ]
    below, derivatives = [inputs * wide(network.input_scale, 1)], []
    for weight, bias, inward, outward in layers[:-1]:
        sums = outward * (inward * below[-1] @ weight.T + bias)
        hidden, derivative = jax.jvp(network.activation, (sums,), (jnp.ones_like(sums),))
        below.append(hidden)
        derivatives.append(derivative)
    points, outputs = inputs.shape[0], layers[-1][0].shape[0]
    kernel = jnp.zeros((points, points))
    # δ: derivatives of every output with respect to the outputs of a layer, (outputs, points, width).
    delta = jnp.broadcast_to(jnp.eye(outputs)[:, None], (outputs, points, outputs))
    for index in reversed(range(len(layers))):
        weight, _, inward, outward = layers[index]
        delta = outward * delta
        similarity = inward**2 * below[index] @ below[index].T + (network.layers[index].bias is not None)
        flat = jnp.moveaxis(delta, 0, 1).reshape(points, -1)
        kernel = kernel + (flat @ flat.T) * similarity
        if index:
            delta = inward * (delta @ weight) * derivatives[index - 1]
    return kernel
