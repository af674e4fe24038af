"""Image networks: a step of ResNet18 compared with PyTorch on the same device, and the cost of measurements.

Both take steps of SGD with momentum and weight decay in bfloat16 on images on the device: ours inside
``networks.train``, PyTorch's eagerly, with autocast and channels last. Its network is that of torchvision with the stem
for small images if torchvision is installed, and otherwise an equivalent one. Sizes are those of CIFAR-10 on an
accelerator, and tiny on a CPU. Compilation is not included.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.timing import Result
from solvable.networks import Fixed, feature_record, train
from solvable.networks.convolutional.resnet import ResNet18
from solvable.networks.data.augmentation import crops_and_flips

ON_CPU = jax.default_backend() == "cpu"
WIDTH, SIZE, COUNT, POINTS = (8, 16, 1000, 200) if ON_CPU else (64, 32, 50_000, 5000)
FEWER = POINTS // 5
BATCHES = (16, 64) if ON_CPU else (128, 512)
FIRST, STEPS = (2, 7) if ON_CPU else (100, 500)
RATE, MOMENTUM, DECAY = 0.05, 0.9, 5e-4


def images() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(COUNT, SIZE, SIZE, 3)).astype(np.float32), random.integers(0, 10, COUNT)


def step_seconds(batch: int, augment: Any = None, look: Callable[..., Any] | None = None) -> float:
    """Seconds per step inside ``train``; ``look`` is called with the network and its data at the end."""
    inputs, labels = images()
    marks: list[float] = []

    def mark(network: Any, data: Any, initial: Any) -> dict[str, float]:
        jax.block_until_ready(jax.tree.leaves(network)[0])
        marks.append(time.perf_counter())
        if look is not None and len(marks) == 2:
            look(network, data)
        return {}

    train(
        lambda key: ResNet18((SIZE, SIZE, 3), 10, key=key, width=WIDTH),
        Fixed(inputs, labels, inputs[:POINTS], labels[:POINTS], augment=augment),
        optax.chain(optax.add_decayed_weights(jnp.float32(DECAY)), optax.sgd(RATE, momentum=MOMENTUM)),
        steps=STEPS,
        batch_size=batch,
        loss="cross-entropy",
        measure_at=(),
        inspect=mark,
        inspect_at=(FIRST, STEPS),
        precision="bfloat16",
        runs_per_group=1,
        # The labels are random, and the learning rate is not adapted to them: the loss is irrelevant here.
        on_divergence="keep",
        progress=False,
    )
    return (marks[1] - marks[0]) / (STEPS - FIRST)


def torch_network() -> Any:
    from torch import nn

    try:
        from torchvision.models import resnet18
    except ImportError:
        resnet18 = None
    if resnet18 is None or WIDTH != 64:
        from tests.torch_images import resnet

        return resnet(3, 10, WIDTH)
    network = resnet18(num_classes=10)
    network.conv1, network.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return network


def torch_step_seconds(batch: int) -> float:
    """Seconds per step of the same training with PyTorch."""
    import torch

    device = "cpu" if ON_CPU else "cuda"
    torch.backends.cudnn.benchmark = True
    network = torch_network().to(device, memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(network.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY)
    inputs, labels = (torch.from_numpy(array).to(device) for array in images())
    inputs = inputs.permute(0, 3, 1, 2)  # Channels last.

    def steps(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            rows = torch.randint(0, COUNT, (batch,), device=device)
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(network(inputs[rows]), labels[rows])
            loss.backward()
            optimiser.step()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    steps(FIRST)
    return min(steps(STEPS - FIRST) for _ in range(2))


def measuring_seconds(network: Any, data: Fixed, points: int = POINTS) -> float:
    """Seconds of all feature measures and neural collapse, without compilation."""
    record = feature_record(points, last_layer=lambda network: network.last, loss="cross-entropy")
    record(network, data, network)
    begin = time.perf_counter()
    record(network, data, network)
    return time.perf_counter() - begin


def run() -> list[Result]:
    size = f"width {WIDTH}, {SIZE}x{SIZE}, bfloat16"
    measuring: dict[int, float] = {}

    def look(network: Any, data: Fixed) -> None:
        measuring.update({points: measuring_seconds(network, data, points) for points in (FEWER, POINTS)})

    steps = {BATCHES[0]: step_seconds(BATCHES[0], look=look)}
    steps |= {batch: step_seconds(batch) for batch in BATCHES[1:]}
    epoch = COUNT / BATCHES[0] * steps[BATCHES[0]]
    results = [Result(f"step of ResNet18, batch {batch}, {size}", 1e3 * s, "ms") for batch, s in steps.items()]
    results += [Result(f"images per second, batch {batch}", batch / s, "1/s") for batch, s in steps.items()]
    try:
        import torch

        comparable = ON_CPU or torch.cuda.is_available()
    except ImportError:
        comparable = False
    for batch, ours in steps.items() if comparable else ():
        theirs = torch_step_seconds(batch)
        results.append(Result(f"step of PyTorch's, batch {batch}", 1e3 * theirs, "ms"))
        promised = None if ON_CPU else 1.3
        results.append(Result(f"our step over PyTorch's, batch {batch}", ours / theirs, "times", at_most=promised))
    turned = step_seconds(BATCHES[0], augment=crops_and_flips())
    results.append(Result("step with crops and flips over one without", turned / steps[BATCHES[0]], "times"))
    first, last = BATCHES
    results.append(Result(f"step at batch {last} over that at {first}", steps[last] / steps[first], "times"))
    results.append(Result(f"epoch of {COUNT} images at batch {first}", epoch, "s"))
    for points, seconds in measuring.items():
        results.append(Result(f"all feature measures on {points} + {points} images", 1e3 * seconds, "ms"))
        promised = None if ON_CPU or points < POINTS else 0.1
        results.append(Result("the same as a fraction of the epoch", seconds / epoch, "", at_most=promised))
    return results
