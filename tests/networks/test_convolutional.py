"""Image networks: the same numbers as PyTorch's, batch statistics, precision, scales, bad input."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from solvable.networks import parts
from solvable.networks.convolutional.cnn import CNN
from solvable.networks.convolutional.layers import BatchNorm, last_layer, max_pool, relu
from solvable.networks.convolutional.resnet import ResNet18
from solvable.networks.convolutional.vgg import VGG16

KEY = jax.random.key(0)
RATE, MOMENTUM, DECAY = 0.05, 0.9, 0.01
# The networks are tiny: they run in no time, and compiling them is all that takes any.
QUICKLY = {"compiler_options": {"xla_backend_optimization_level": 0}}


def size(make):
    trained = eqx.filter_eval_shape(lambda: eqx.filter(make(), parts.trainable(make())))
    return sum(leaf.size for leaf in jax.tree.leaves(trained))


def test_numbers_of_parameters():
    """ResNet18 and VGG16 as in the literature; the small ones by hand."""
    assert size(lambda: ResNet18(key=KEY)) == 11_173_962
    assert size(lambda: VGG16(key=KEY)) == 14_728_266
    # Batch normalisation has two numbers for each of 2 (64 + 128) + 3 (256 + 512 + 512) channels.
    assert size(lambda: VGG16(key=KEY, batch_norm=False)) == 14_728_266 - 2 * 4224
    assert size(lambda: CNN(key=KEY)) == (9 + 1) * 32 + (9 * 32 + 1) * 64 + (7 * 7 * 64 + 1) * 1024 + 1025 * 10


def filled(make):
    """The network with other numbers than it starts with: errors hide in ones and zeros. NumPy compiles nothing."""
    random = np.random.default_rng(0)

    def fill(leaf):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if leaf.ndim < 2:
            return jnp.asarray(random.uniform(0.2, 1.5, leaf.shape), leaf.dtype)
        fan_in = leaf.shape[1] if leaf.ndim == 2 else np.prod(leaf.shape[:-1])
        return jnp.asarray(random.normal(size=leaf.shape) * (2 / fan_in) ** 0.5, leaf.dtype)

    return jax.tree.map(fill, eqx.filter_eval_shape(make))


@eqx.filter_jit(**QUICKLY)
def in_use(network, images):
    return jax.vmap(network)(images)


@eqx.filter_jit(**QUICKLY)
def a_step(network, images, labels, optimiser_state, optimiser):
    def loss(network):
        outputs, after = parts.training_forward(network, images)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(outputs, labels)), (outputs, after)

    (_, (outputs, after)), slope = eqx.filter_value_and_grad(loss, has_aux=True)(network)
    trained = eqx.filter(network, parts.trainable(network))
    slope = eqx.filter(slope, parts.trainable(slope))
    updates, optimiser_state = optimiser.update(slope, optimiser_state, trained)
    return outputs, slope, eqx.apply_updates(after, updates), optimiser_state


def compare_with_torch(network, module, shape, rtol):
    """In use; then two steps of SGD with momentum and weight decay: outputs, gradients, weights, running values."""
    import torch
    from torch_images import as_torch, given_weights, pairs

    dtype = network.last.weight.dtype
    module = given_weights(module.to(torch.float64 if dtype == jnp.float64 else torch.float32), network)
    draws = np.random.default_rng(1).normal(size=(3, 6, *shape)).astype(dtype)
    labels = np.arange(6)

    def close(ours, theirs):
        theirs = theirs.detach().numpy()
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=rtol, atol=rtol * np.abs(theirs).max())

    with torch.no_grad():
        close(in_use(network, draws[0]), module.eval()(as_torch(draws[0])))
    module.train()
    ours = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE, momentum=MOMENTUM))
    theirs = torch.optim.SGD(module.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY)
    state = ours.init(eqx.filter(network, parts.trainable(network)))
    for images in draws[1:]:
        outputs, slope, network, state = a_step(network, images, labels, state, ours)
        theirs.zero_grad()
        expected = module(as_torch(images))
        torch.nn.functional.cross_entropy(expected, torch.from_numpy(labels)).backward()
        close(outputs, expected)
        for array, tensor in pairs(eqx.combine(slope, network), module):
            if tensor.grad is not None:
                # A bias under batch normalisation has no gradient; theirs is what is left of a sum.
                scale = max(float(tensor.grad.abs().max()), 1e-3)
                np.testing.assert_allclose(np.asarray(array), tensor.grad.numpy(), rtol=rtol, atol=rtol * scale)
        theirs.step()
        for array, tensor in pairs(network, module):
            close(array, tensor)


def test_a_small_resnet_is_that_of_torch():
    """Stem, a plain block and one that halves the image, in float64: only the order of sums differs."""
    pytest.importorskip("torch")
    import torch_images

    network = filled(lambda: ResNet18((7, 6, 2), 10, key=KEY, width=3, blocks=(1, 1), dtype=jnp.float64))
    compare_with_torch(network, torch_images.resnet(2, 10, 3, (1, 1)), (7, 6, 2), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_resnet18_is_that_of_torch(dtype):
    pytest.importorskip("torch")
    import torch_images

    network = filled(lambda: ResNet18((16, 16, 3), 10, key=KEY, width=4, dtype=dtype))
    compare_with_torch(network, torch_images.resnet(3, 10, 4), (16, 16, 3), 1e-9 if dtype == "float64" else 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize(("rows", "pools"), [(32, 5), (9, 3)])
def test_vgg16_is_that_of_torch(batch_norm, rows, pools):
    pytest.importorskip("torch")
    import torch_images

    network = filled(lambda: VGG16((rows, rows, 3), 10, key=KEY, width=2, batch_norm=batch_norm, dtype=jnp.float64))
    module = torch_images.vgg(3, 10, 2, batch_norm, pools)
    compare_with_torch(network, module, (rows, rows, 3), rtol=1e-9)


@pytest.mark.parametrize("batch_norm", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_small_vgg_is_that_of_torch(batch_norm, monkeypatch):
    """Two groups and one pool, as the whole network has five: biases under batch normalisation, odd rows."""
    pytest.importorskip("torch")
    import torch_images

    groups = ((1, 1), (1, 2))
    monkeypatch.setattr("solvable.networks.convolutional.vgg._GROUPS", groups)
    network = filled(lambda: VGG16((3, 2, 2), 10, key=KEY, width=3, batch_norm=batch_norm, dtype=jnp.float64))
    module = torch_images.vgg(2, 10, 3, batch_norm, pools=1, groups=groups)
    compare_with_torch(network, module, (3, 2, 2), rtol=1e-10)


def test_batch_norm_far_from_zero():
    """A mean of a thousand standard deviations: exact once the running mean is near, and finite before."""
    images = (1000 + np.random.default_rng(0).normal(size=(8, 4, 4, 2))).astype(np.float32)
    learn = eqx.filter_jit(lambda norm: norm.training_forward(jnp.asarray(images)), **QUICKLY)
    norm = BatchNorm(2)
    first, after = learn(norm)
    assert np.isfinite(first).all()
    normalised, _ = learn(eqx.tree_at(lambda norm: norm.mean.value, norm, jnp.full(2, 995.0, jnp.float32)))
    exact = images.astype(np.float64)
    exact = (exact - exact.mean((0, 1, 2))) / np.sqrt(exact.var((0, 1, 2)) + 1e-5)
    np.testing.assert_allclose(normalised, exact, atol=3e-4)  # float32 has steps of 6e-5 at a thousand
    np.testing.assert_allclose(after.mean.value, 100, rtol=1e-2)
    with pytest.raises(ValueError, match="take a batch of 2 or more"):
        norm.training_forward(jnp.asarray(images[:1, :1, :1]))


def test_pixels_that_are_halved_and_slopes():
    images = np.arange(15.0).reshape(1, 3, 5, 1)
    slope = jax.jit(jax.grad(lambda images: max_pool(images).sum()))
    np.testing.assert_array_equal(max_pool(images)[0, :, :, 0], [[6.0, 8.0]])
    np.testing.assert_array_equal(np.flatnonzero(slope(images)), [6, 8])
    np.testing.assert_array_equal(np.flatnonzero(slope(np.ones((1, 3, 5, 1)))), [0, 2])  # of equals, the first
    images[0, 0, 0, 0] = np.nan
    assert np.isnan(max_pool(images)[0, 0, 0, 0])
    np.testing.assert_array_equal(jax.vmap(jax.grad(relu))(jnp.array([-1.0, 0.0, 2.0])), [0, 0, 1])


def low_precision(network):
    kept, computed = eqx.partition(network, parts.running(network))
    return eqx.combine(parts.cast(computed, jnp.bfloat16), kept)


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


@pytest.mark.parametrize(
    "network",
    [
        lambda: ResNet18((8, 8, 3), key=KEY, width=2, blocks=(1, 1), richness=0.5),
        lambda: VGG16((8, 8, 3), key=KEY, width=1, richness=2.0),
        lambda: CNN((8, 8, 3), key=KEY, channels=(2, 3), width=4, parameterisation="mean-field"),
    ],
    ids=["ResNet18", "VGG16", "CNN"],
)
def test_a_bfloat16_step_multiplies_nothing_wider(network):
    """All convolutions and products, forward and backward, are of bfloat16; running values stay float32."""
    images = jnp.ones((4, 8, 8, 3), jnp.bfloat16)
    shapes, rest = eqx.partition(eqx.filter_eval_shape(network), lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def loss(arrays):
        outputs, after = parts.training_forward(low_precision(eqx.combine(arrays, rest)), images)
        assert outputs.dtype == jnp.bfloat16
        carried = jax.tree.leaves(eqx.filter(after, parts.running(after)))
        assert all(leaf.dtype == jnp.float32 for leaf in carried)
        return outputs.astype(jnp.float32).sum()

    found = list(equations(jax.make_jaxpr(jax.grad(loss))(shapes).jaxpr))
    products = [each for each in found if each.primitive.name in ("conv_general_dilated", "dot_general")]
    assert len(products) >= 8
    for product in products:
        assert {str(end.aval.dtype) for end in (*product.invars, *product.outvars)} == {"bfloat16"}


@pytest.mark.parametrize("parameterisation", ["standard", "ntk", "mean-field"])
def test_sizes_of_cnns_at_the_start(parameterisation):
    """Weights have unit spread, or one over the root of the fan-in; outputs are of size one, or 1/sqrt(width)."""
    made = CNN((8, 8, 3), 5, key=KEY, channels=(64,), width=512, parameterisation=parameterisation, weight_scale=2**0.5)
    fan_in = np.array([27, 1024, 512]) if parameterisation == "standard" else np.ones(3)
    weights = [made.convolutions[0].weight, made.hidden.weight, made.last.weight]
    for weight, fan in zip(weights, fan_in, strict=True):
        # The variance of n Gaussian numbers has the relative error sqrt(2/n): four of these.
        assert np.var(weight) == pytest.approx(2 / fan, rel=4 * (2 / weight.size) ** 0.5)
    images = jnp.asarray(np.random.default_rng(0).normal(size=(40, 8, 8, 3)), jnp.float32)
    outputs = np.asarray(in_use(made, images)) * (512**0.5 if parameterisation == "mean-field" else 1)
    assert 0.5 < outputs.std() < 3


def speed(make):
    """Outputs, tangent kernel times the scale of the learning rate, and that scale, of three images at any richness."""

    @functools.partial(jax.jit, **QUICKLY)
    def found(richness, images):
        network = make(richness)
        trained, rest = eqx.partition(network, parts.trainable(network))
        outputs, slopes = (
            function(lambda trained: jax.vmap(eqx.combine(trained, rest))(images)[:, 0], trained)
            for function in (lambda f, x: f(x), lambda f, x: jax.jacrev(f)(x))
        )
        flat = jnp.concatenate([slope.reshape(len(images), -1) for slope in jax.tree.leaves(slopes)], 1)
        return outputs, flat @ flat.T * network.learning_rate_scale, network.learning_rate_scale

    images = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 4, 1)), jnp.float32)
    return lambda richness: found(jnp.asarray(richness, jnp.float32), images)


def test_mean_field_cnns_learn_at_a_speed_without_width_and_richness():
    """The kernel times the learning-rate scale is the same at any richness, and tends to a limit in the width."""
    kernels = {}
    for width in (1024, 256):
        settings = {"channels": (8,), "width": width, "parameterisation": "mean-field"}
        of = speed(lambda richness, settings=settings: CNN((4, 4, 1), 1, key=KEY, richness=richness, **settings))
        (outputs, kernels[width], scale), (lazy_outputs, lazy_kernel, lazy_scale) = of(1.0), of(0.01)
        assert float(scale) == pytest.approx(width)
        assert float(lazy_scale) == pytest.approx(1e-4 * width)
        np.testing.assert_allclose(lazy_kernel, kernels[width], rtol=1e-4)  # float32
        np.testing.assert_allclose(0.01 * lazy_outputs, outputs, rtol=1e-4)
    # Entries are means over neurons of numbers about as large as the diagonal: four standard errors at width 256.
    np.testing.assert_allclose(kernels[1024], kernels[256], atol=4 * kernels[1024].max() / 16, rtol=0)


@pytest.mark.slow  # its last layer is tested below
def test_richness_of_a_resnet_scales_outputs_and_not_the_speed():
    of = speed(lambda richness: ResNet18((4, 4, 1), 1, key=KEY, width=4, blocks=(1,), richness=richness))
    (outputs, kernel, scale), (lazy_outputs, lazy_kernel, lazy_scale) = of(1.0), of(0.01)
    np.testing.assert_allclose(0.01 * lazy_outputs, outputs, rtol=1e-4)
    np.testing.assert_allclose(lazy_kernel, kernel, rtol=1e-4)
    assert (float(scale), float(lazy_scale)) == pytest.approx((4, 4e-4))


def test_the_last_layer_with_a_richness():
    """f = W φ / (richness n) with weights of variance one; without a richness it is PyTorch's, and so is its rate."""
    layer, scale = last_layer(KEY, 500, 20, 0.1, jnp.float32)
    features = np.random.default_rng(0).uniform(size=500).astype(np.float32)
    np.testing.assert_allclose(layer(features), np.asarray(layer.weight) @ features / (0.1 * 500), rtol=1e-4)
    # The variance of n Gaussian numbers has the relative error sqrt(2/n): four of these.
    assert np.var(layer.weight) == pytest.approx(1, rel=4 * (2 / layer.weight.size) ** 0.5)
    assert float(scale.value) == pytest.approx(0.1**2 * 500)
    plain, scale = last_layer(KEY, 500, 20, None, jnp.float32)
    assert np.abs(plain.weight).max() <= 500**-0.5
    assert np.std(plain.weight) == pytest.approx((3 * 500) ** -0.5, rel=0.02)
    assert float(scale.value) == 1


@pytest.mark.slow
def test_the_last_layer_is_found_by_the_diagnostics():
    from solvable.equinox import diagnose

    network = ResNet18((4, 4, 1), 3, key=KEY, width=4, blocks=(1,), richness=0.5)
    inputs = jax.random.normal(KEY, (64, 4, 4, 1), jnp.float32)
    report = diagnose(network, (inputs, jnp.arange(64) % 3), (inputs, jnp.arange(64) % 3))
    assert report.features == 4


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_training_learns_and_carries_statistics(precision):
    """Two blobs of images: learnt within thirty steps, also as measured with the running values."""
    from solvable.networks import Fixed, train

    labels = jnp.arange(64) % 2
    images = jax.random.normal(KEY, (64, 8, 8, 1), jnp.float32) + 2 * labels[:, None, None, None].astype(jnp.float32)
    training = train(
        lambda key: ResNet18((8, 8, 1), 2, key=key, width=4, blocks=(1, 1)),
        Fixed(images, labels, images, labels),
        optax.sgd(0.05, momentum=0.9),
        steps=40, batch_size=32, loss="cross-entropy", precision=precision, runs_per_group=1, measure_at=(0, 40),
        progress=False,
    )  # fmt: skip
    assert float(training.curves.test_accuracy.isel(time=-1).squeeze()) == 1
    trained = training.network(0)
    assert float(jnp.abs(trained.stem.norm.mean.value).max()) > 0.05
    assert trained.stem.norm.mean.value.dtype == jnp.float32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CNN((8, 8), key=KEY), "shape must be \\(rows, columns, channels\\)"),
        (lambda: ResNet18((8, 0, 1), key=KEY), "columns of the shape must be a whole number"),
        (lambda: CNN((4, 7, 1), key=KEY, channels=(2, 2, 2)), "4 by 7 are too small to be halved 3 times"),
        (lambda: CNN(outputs=0, key=KEY), "outputs must be a whole number, 1 or more"),
        (lambda: ResNet18(outputs=0, key=KEY), "outputs must be a whole number, 1 or more"),
        (lambda: VGG16(outputs=0, key=KEY), "outputs must be a whole number, 1 or more"),
        (lambda: ResNet18(blocks=(), key=KEY), "blocks must have"),
        (lambda: ResNet18(blocks=(2, 0), key=KEY), "each of blocks must be"),
        (lambda: last_layer(KEY, 8, 2, 0.0, jnp.float32), "richness must be a positive finite number"),
        (lambda: CNN((8, 8, 1), key=KEY, richness=0.5), "richness belongs to parameterisation='mean-field'"),
        (lambda: CNN((8, 8, 1), key=KEY, parameterisation="mup"), "parameterisation must be one of"),
        (lambda: CNN((8, 8, 1), key=KEY, activation="softplus"), "activation must be one of"),
    ],
)
def test_bad_networks(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bad_images():
    network = filled(lambda: CNN((4, 4, 1), 3, key=KEY, channels=(1,), width=1))
    with pytest.raises(
        ValueError, match=r"takes images \(rows, columns, channels\) of \(4, 4, 1\), not of \(1, 4, 4\)"
    ):
        network(jnp.ones((1, 4, 4)))
    numbers = np.arange(16, dtype=np.uint8).reshape(4, 4, 1)
    np.testing.assert_array_equal(in_use(network, numbers[None]), in_use(network, numbers[None].astype(np.float32)))
    with pytest.raises(ValueError, match=r"one by one, or as a batch to `training_forward`"):
        filled(lambda: ResNet18((4, 4, 1), 3, key=KEY, width=1, blocks=(1,))).training_forward(jnp.ones((4, 4, 1)))
