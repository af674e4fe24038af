"""ResNet18 and VGG16 for small images in PyTorch, and how weights go from this package's networks to them."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import torch
from torch import nn

from solvable.networks.convolutional.layers import BatchNorm, Convolution


class BasicBlock(nn.Module):
    def __init__(self, below: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(below, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential()
        if stride != 1 or below != channels:
            self.downsample = nn.Sequential(nn.Conv2d(below, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.downsample(x))


def resnet(channels: int = 3, outputs: int = 10, width: int = 64, blocks: tuple[int, ...] = (2, 2, 2, 2)) -> nn.Module:
    parts: list[nn.Module] = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    below = width
    for group, number in enumerate(blocks):
        for index in range(number):
            parts.append(BasicBlock(below, width * 2**group, 2 if group and not index else 1))
            below = width * 2**group
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(below, outputs))


def vgg(
    channels: int = 3,
    outputs: int = 10,
    width: int = 64,
    batch_norm: bool = True,
    pools: int = 5,
    groups: tuple[tuple[int, int], ...] = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8)),
) -> nn.Module:
    """Groups of so many convolutions with so many times the width channels; the last ``pools`` of them end in one."""
    parts: list[nn.Module] = []
    below = channels
    for group, (number, times) in enumerate(groups):
        for _ in range(number):
            parts.append(nn.Conv2d(below, times * width, 3, padding=1))
            below = times * width
            parts += [nn.BatchNorm2d(below), nn.ReLU()] if batch_norm else [nn.ReLU()]
        if group >= len(groups) - pools:
            parts.append(nn.MaxPool2d(2))
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(below, outputs))


def pairs(network: Any, module: nn.Module) -> list[tuple[Any, torch.Tensor]]:
    """Each array of the network beside the tensor of the module, arrays in the module's order of axes."""
    kinds = (Convolution, BatchNorm, eqx.nn.Linear)
    layers = [
        layer
        for layer in jax.tree.leaves(network, is_leaf=lambda node: isinstance(node, kinds))
        if isinstance(layer, kinds)
    ]
    found = []
    for ours, theirs in zip(kinds, (nn.Conv2d, nn.BatchNorm2d, nn.Linear), strict=True):
        own = [layer for layer in layers if isinstance(layer, ours)]
        others = [layer for layer in module.modules() if isinstance(layer, theirs)]
        for layer, other in zip(own, others, strict=True):
            if ours is BatchNorm:
                found += [(layer.scale, other.weight), (layer.shift, other.bias)]
                found += [(layer.mean.value, other.running_mean), (layer.variance.value, other.running_var)]
            else:
                weight = np.asarray(layer.weight)
                weight = weight.transpose(3, 2, 0, 1) if ours is Convolution else weight
                found += [(weight, other.weight)]
                found += [] if layer.bias is None else [(layer.bias, other.bias)]
    return found


def given_weights(module: nn.Module, network: Any) -> nn.Module:
    """The module with the arrays of the network."""
    with torch.no_grad():
        for array, tensor in pairs(network, module):
            tensor.copy_(torch.from_numpy(np.array(array)))
    return module


def as_torch(images: Any) -> torch.Tensor:
    return torch.from_numpy(np.moveaxis(np.array(images), -1, 1).copy())
