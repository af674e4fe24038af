"""Fully connected networks in three parameterisations."""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.checks import check_choice, check_count, is_traced
from solvable.networks.parts import Constant

Parameterisation = Literal["standard", "ntk", "mean-field"]
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
        # A factor of one is no factor: nothing is multiplied by it.
        self.input_factor, self.output_factor = (
            None if factor is None or (isinstance(factor, float | int) and factor == 1) else Constant(factor)
            for factor in (input_factor, output_factor)
        )

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        # The factors go to the small side: a batch of activations is not read once more for them.
        # They are kept in full precision also where the rest is not, and must not widen what they multiply.
        weight = self.weight
        if self.input_factor is not None:
            weight = weight * jnp.asarray(self.input_factor.held, weight.dtype)
        summed = weight @ x
        if self.bias is not None:
            summed = summed + self.bias
        return summed if self.output_factor is None else summed * jnp.asarray(self.output_factor.held, summed.dtype)


class PowerReLU(eqx.Module):
    """``max(h, 0)^q``; the derivative at zero is zero, also where q < 1."""

    power: Constant

    def __call__(self, inputs: Array) -> Array:
        positive = inputs > 0
        return jnp.where(positive, jnp.where(positive, inputs, 1) ** self.power.held.astype(inputs.dtype), 0)


class MLP(eqx.Module):
    """A fully connected network of one input vector; ``depth`` counts its linear layers, so 2 has one hidden layer.

    In each parameterisation a layer computes ``h = W φ / factor + b`` of the layer below, with φ its activations:

    * ``"standard"``: weights of variance ``weight_scale² / fan_in``, no factor. ``initialisation="uniform"`` draws
      weights and biases uniformly within ``weight_scale / sqrt(fan_in)``, as PyTorch does.
    * ``"ntk"``: weights of variance ``weight_scale²`` and the factor ``sqrt(fan_in)``.
    * ``"mean-field"``: the same, and the output divided by ``richness sqrt(width)`` (γ₀ of the feature-scaling paper).
      A step of gradient descent is to be multiplied by :attr:`learning_rate_scale`, which is richness² width: then
      the function moves at a speed that depends on neither, while features move in proportion to the richness.

    ``std`` overrides all this: every weight and bias is Gaussian with that standard deviation. Biases start at zero,
    or with the standard deviation ``bias_scale``. The input is multiplied by ``input_scale``, the output by
    ``output_scale``. Neurons from ``active_width`` on are dead and stay so: networks of many widths train side by side
    in arrays of one size. All scales may be traced.

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
        parameterisation: Parameterisation = "standard",
        richness: Any = 1.0,
        weight_scale: Any = 1.0,
        bias: bool = True,
        bias_scale: Any = 0.0,
        initialisation: Initialisation = "normal",
        std: Any = None,
        input_scale: Any = 1.0,
        output_scale: Any = 1.0,
        active_width: Any = None,
        dtype: Any = jnp.float32,
    ) -> None:
        for name, value in (("inputs", inputs), ("outputs", outputs), ("width", width), ("depth", depth)):
            check_count(name, value)
        check_choice("parameterisation", parameterisation, get_args(Parameterisation))
        check_choice("initialisation", initialisation, get_args(Initialisation))
        positive = {"richness": richness, "power": power, "std": std, "active_width": active_width}
        for name, value in positive.items():
            if not is_traced(value) and value is not None and not 0 < float(value) < math.inf:
                raise ValueError(f"{name} must be a positive finite number, not {value!r}")
        if not is_traced(active_width) and active_width is not None and active_width > width:
            raise ValueError(f"active_width must be at most the width of {width}, not {active_width}")
        plain = parameterisation == "standard"
        if plain and not (isinstance(richness, float | int) and richness == 1):
            raise ValueError(f"richness belongs to parameterisation='mean-field', not to {parameterisation!r}")
        self.width, self.parameterisation = width, parameterisation
        self.activation = _activation(activation, power)
        scale = _factor(input_scale, dtype)
        self.input_scale = None if scale is None else Constant(scale)
        used = width if active_width is None else active_width
        self.mask = None if active_width is None else Constant((jnp.arange(width) < active_width).astype(dtype))
        below = [inputs] + [used] * (depth - 1)
        shapes = list(zip([inputs] + [width] * (depth - 1), [width] * (depth - 1) + [outputs], strict=True))
        layers = []
        for index, (fan_in, (columns, rows)) in enumerate(zip(below, shapes, strict=True)):
            weight_key, bias_key = jax.random.split(jax.random.fold_in(key, index))
            root = jnp.sqrt(jnp.asarray(fan_in, dtype))
            spread = jnp.asarray(weight_scale, dtype) / root if plain else jnp.asarray(weight_scale, dtype)
            bias_spread = jnp.asarray(bias_scale, dtype)
            if initialisation == "uniform":
                bias_spread = spread
            if std is not None:
                spread = bias_spread = jnp.asarray(std, dtype)
            draw = _uniform if initialisation == "uniform" and std is None else jax.random.normal
            weight = spread * draw(weight_key, (rows, columns), dtype)
            offset = bias_spread * draw(bias_key, (rows,), dtype) if bias else None
            last = index == depth - 1
            factor = _factor(output_scale, dtype) if last else None
            if last and parameterisation == "mean-field":
                factor = jnp.asarray(output_scale, dtype) / (jnp.asarray(richness, dtype) * root)
            layers.append(Dense(weight, offset, None if plain else 1 / root, factor))
        self.layers = tuple(layers)
        rate = jnp.asarray(richness, dtype) ** 2 * used if parameterisation == "mean-field" else 1.0
        self.learning_rate = Constant(jnp.asarray(rate, dtype))

    @property
    def learning_rate_scale(self) -> Array:
        """What the step of gradient descent must be multiplied by in this parameterisation."""
        return self.learning_rate.value

    def features(self, x: Array) -> Array:
        """The activations of the last hidden layer."""
        hidden = x if self.input_scale is None else x * self.input_scale.held
        for layer in self.layers[:-1]:
            hidden = self.activation(layer(hidden))
            if self.mask is not None:
                hidden = hidden * self.mask.held
        return hidden

    def __call__(self, x: Array) -> Array:
        return self.layers[-1](self.features(x))


def _uniform(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> Array:
    return jax.random.uniform(key, shape, dtype, -1, 1)


def _factor(value: Any, dtype: Any) -> Array | None:
    return None if isinstance(value, float | int) and value == 1 else jnp.asarray(value, dtype)


def _activation(activation: Any, power: Any) -> Callable[[Array], Array]:
    if not isinstance(activation, str):
        return activation
    check_choice("activation", activation, get_args(Activation))
    if isinstance(power, float | int) and power == 1:
        return _ACTIVATIONS[activation]
    if activation != "relu":
        raise ValueError(f"power belongs to activation='relu', not to {activation!r}")
    return PowerReLU(Constant(jnp.asarray(power)))


class Centred(eqx.Module):
    """A network less what it was when it was made; see :func:`centred`."""

    network: Any
    initial: Constant

    def __call__(self, x: Array) -> Array:
        return self.network(x) - jax.lax.stop_gradient(self.initial.value(x))

    @property
    def learning_rate_scale(self) -> Array:
        return self.network.learning_rate_scale


def centred(network: Any) -> Centred:
    """The network minus its own copy as it is now, so that the function starts at zero.

    A lazy network starts with an output far larger than what it learns, which would hide it. The copy is not trained.

    >>> import jax, solvable.networks
    >>> network = solvable.networks.MLP(2, 1, width=8, depth=2, key=jax.random.key(0))
    >>> float(solvable.networks.centred(network)(jax.numpy.ones(2))[0])
    0.0
    """
    return Centred(network, Constant(jax.tree.map(lambda leaf: leaf, network)))
