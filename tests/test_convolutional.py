"""Image networks: the same numbers as PyTorch's, batch statistics, precision, scales, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from solvable import diagnostics
from solvable.networks import parts
from solvable.networks.convolutional.cnn import CNN
from solvable.networks.convolutional.layers import BatchNorm, halved, relu
from solvable.networks.convolutional.resnet import ResNet18
from solvable.networks.convolutional.vgg import VGG16

KEY = jax.random.key(0)
RATE, MOMENTUM, DECAY = 0.05, 0.9, 0.01


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


def disturbed(network):
    """All trained numbers and running values away from where they start, where errors would hide in ones and zeros."""
    leaves, tree = jax.tree.flatten(network)
    keys = jax.random.split(KEY, len(leaves))
    moved = [
        leaf * (1 + 0.3 * jax.random.uniform(key, leaf.shape, leaf.dtype)) + 0.1
        if eqx.is_inexact_array(leaf) and leaf.ndim == 1
        else leaf
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(tree, moved)


@eqx.filter_jit
def in_use(network, images):
    return jax.vmap(network)(images)


@eqx.filter_jit
def a_step(network, images, labels, optimiser_state, optimiser):
    def loss(network):
        outputs, after = parts.learning(network, images)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(outputs, labels)), (outputs, after)

    (_, (outputs, after)), slope = eqx.filter_value_and_grad(loss, has_aux=True)(network)
    trained = eqx.filter(network, parts.trainable(network))
    slope = eqx.filter(slope, parts.trainable(slope))
    updates, optimiser_state = optimiser.update(slope, optimiser_state, trained)
    return outputs, slope, eqx.apply_updates(after, updates), optimiser_state


def compare_with_torch(network, module, shape, rtol, trained=True):
    """In use; then two steps of SGD with momentum and weight decay: outputs, gradients, weights, running values."""
    import torch

    from torch_images import as_torch, given_weights, pairs

    dtype = network.last.weight.dtype
    module = given_weights(module.to(torch.float64 if dtype == jnp.float64 else torch.float32), network)
    draws = jax.random.normal(jax.random.key(1), (3, 6, *shape), dtype)
    labels = jnp.arange(6) % 10

    def close(ours, theirs):
        theirs = theirs.detach().numpy()
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=rtol, atol=rtol * np.abs(theirs).max())

    with torch.no_grad():
        close(in_use(network, draws[0]), module.eval()(as_torch(draws[0])))
    if not trained:
        return
    module.train()
    ours = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE, momentum=MOMENTUM))
    theirs = torch.optim.SGD(module.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY)
    state = ours.init(eqx.filter(network, parts.trainable(network)))
    for images in draws[1:]:
        outputs, slope, network, state = a_step(network, images, labels, state, ours)
        theirs.zero_grad()
        expected = module(as_torch(images))
        torch.nn.functional.cross_entropy(expected, torch.from_numpy(np.array(labels))).backward()
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

    network = disturbed(ResNet18((7, 6, 2), 10, key=KEY, width=3, blocks=(1, 1), dtype=jnp.float64))
    compare_with_torch(network, torch_images.resnet(2, 10, 3, (1, 1)), (7, 6, 2), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_resnet18_is_that_of_torch(dtype):
    pytest.importorskip("torch")
    import torch_images

    network = disturbed(ResNet18((16, 16, 3), 10, key=KEY, width=4, dtype=dtype))
    compare_with_torch(network, torch_images.resnet(3, 10, 4), (16, 16, 3), 1e-9 if dtype == "float64" else 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize(("rows", "pools"), [(32, 5), (9, 3)])
def test_vgg16_is_that_of_torch(batch_norm, rows, pools):
    pytest.importorskip("torch")
    import torch_images

    network = disturbed(VGG16((rows, rows, 3), 10, key=KEY, width=2, batch_norm=batch_norm, dtype=jnp.float64))
    module = torch_images.vgg(3, 10, 2, batch_norm, pools)
    compare_with_torch(network, module, (rows, rows, 3), rtol=1e-9)


def test_vgg16_in_use_is_that_of_torch():
    pytest.importorskip("torch")
    import torch_images

    network = disturbed(VGG16((9, 8, 1), 10, key=KEY, width=1, dtype=jnp.float64))
    compare_with_torch(network, torch_images.vgg(1, 10, 1, pools=3), (9, 8, 1), rtol=1e-10, trained=False)


def test_batch_norm_far_from_zero():
    """A mean of a thousand standard deviations: exact once the running mean is near, and finite before."""
    norm = BatchNorm(2)
    images = 1000 + jax.random.normal(KEY, (8, 4, 4, 2), jnp.float32)
    first, after = norm.learning(images)
    assert np.isfinite(first).all()
    near = eqx.tree_at(lambda norm: norm.mean.value, norm, jnp.full(2, 995.0, jnp.float32))
    normalised, _ = near.learning(images)
    exact = np.asarray(images, np.float64)
    exact = (exact - exact.mean((0, 1, 2))) / np.sqrt(exact.var((0, 1, 2)) + 1e-5)
    np.testing.assert_allclose(normalised, exact, atol=3e-4)  # float32 has steps of 6e-5 at a thousand
    np.testing.assert_allclose(after.mean.value, 100, rtol=1e-2)
    with pytest.raises(ValueError, match="take a batch of 2 or more"):
        norm.learning(images[:1, :1, :1])


def test_pixels_that_are_halved_and_slopes():
    images = jnp.arange(15.0).reshape(1, 3, 5, 1)
    np.testing.assert_array_equal(halved(images)[0, :, :, 0], [[6.0, 8.0]])
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
        outputs, after = parts.learning(low_precision(eqx.combine(arrays, rest)), images)
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
    """Weights have unit spread or that over the root of the fan-in; outputs are of size one, or richness sqrt(width)."""
    made = CNN((8, 8, 3), 5, key=KEY, channels=(64,), width=512, parameterisation=parameterisation, weight_scale=2**0.5)
    fan_in = np.array([27, 1024, 512]) if parameterisation == "standard" else np.ones(3)
    weights = [made.convolutions[0].weight, made.hidden.weight, made.last.weight]
    for weight, fan in zip(weights, fan_in, strict=True):
        # The variance of n Gaussian numbers has the relative error sqrt(2/n): four of these.
        assert np.var(weight) == pytest.approx(2 / fan, rel=4 * (2 / weight.size) ** 0.5)
    images = jax.random.normal(jax.random.key(3), (40, 8, 8, 3), jnp.float32)
    outputs = np.asarray(jax.vmap(made)(images)) * (512**0.5 if parameterisation == "mean-field" else 1)
    assert 0.5 < outputs.std() < 3


def test_mean_field_cnns_learn_at_a_speed_without_width_and_richness():
    """The kernel times the learning-rate scale is the same at any richness, and tends to a limit in the width."""
    images = jax.random.normal(jax.random.key(3), (3, 4, 4, 1), jnp.float64)
    kernels = {}
    for width, richness in ((2048, 1.0), (2048, 0.01), (512, 1.0)):
        network = CNN(
            (4, 4, 1), 1, key=KEY, channels=(8,), width=width, parameterisation="mean-field", richness=richness,
            dtype=jnp.float64,
        )  # fmt: skip
        assert float(network.learning_rate_scale) == pytest.approx(richness**2 * width)
        kernels[width, richness] = diagnostics.ntk(network, images).values * float(network.learning_rate_scale)
    np.testing.assert_allclose(kernels[2048, 1.0], kernels[2048, 0.01], rtol=1e-9)
    # Entries are means over neurons with spread about that of the diagonal: four standard errors of the smaller width.
    np.testing.assert_allclose(
        kernels[2048, 1.0], kernels[512, 1.0], atol=4 * kernels[2048, 1.0].max() * 512**-0.5, rtol=0
    )


def test_richness_of_a_resnet_scales_outputs_and_not_the_speed():
    """Gradient times the scale of the rate times gradient: the first change of the function, same at any richness."""
    images = jax.random.normal(jax.random.key(3), (2, 4, 4, 1), jnp.float64)
    found = {}
    for richness in (1.0, 0.01):
        network = ResNet18((4, 4, 1), 2, key=KEY, width=4, blocks=(1,), richness=richness, dtype=jnp.float64)
        assert float(network.learning_rate_scale) == pytest.approx(richness**2 * 4)
        kernel = diagnostics.ntk(network, images).values * float(network.learning_rate_scale)
        found[richness] = np.asarray(jax.vmap(network)(images)) * richness, kernel
    for one, other in zip(found[1.0], found[0.01], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    plain = ResNet18((4, 4, 1), 2, key=KEY, width=4, blocks=(1,))
    assert float(plain.learning_rate_scale) == 1
    # The features are read by weights of variance one: f = W φ / (richness · 4).
    features = jax.vmap(network.features)(images)
    np.testing.assert_allclose(found[0.01][0], features @ network.last.weight.T / 4, rtol=1e-12)


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
        steps=40, batch=32, loss="cross-entropy", precision=precision, at_once=1, at=(0, 40), progress=False,
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
        (lambda: ResNet18(richness=0.0, width=1, blocks=(1,), key=KEY), "richness must be a positive finite number"),
        (lambda: CNN((8, 8, 1), key=KEY, richness=0.5), "richness belongs to parameterisation='mean-field'"),
        (lambda: CNN((8, 8, 1), key=KEY, parameterisation="mup"), "parameterisation must be one of"),
        (lambda: CNN((8, 8, 1), key=KEY, activation="softplus"), "activation must be one of"),
    ],
)
def test_bad_networks(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bad_images():
    network = ResNet18((4, 4, 1), 3, key=KEY, width=1, blocks=(1,))
    with pytest.raises(
        ValueError, match=r"takes images \(rows, columns, channels\) of \(4, 4, 1\), not of \(1, 4, 4\)"
    ):
        network(jnp.ones((1, 4, 4)))
    with pytest.raises(ValueError, match=r"one by one, or a batch of them to `learning`"):
        network.learning(jnp.ones((4, 4, 1)))
    np.testing.assert_array_equal(network(np.ones((4, 4, 1), np.uint8)), network(jnp.ones((4, 4, 1), jnp.float32)))
