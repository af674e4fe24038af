"""The picture of docs/networks/augmentation.md: images as they are, and under them four changed copies of each."""

from pathlib import Path

import jax
import numpy as np

from solvable.networks import load_images
from solvable.networks.data.augmentation import heavy_augmentation
from solvable.plotting import new_figure

FIGURES = Path(__file__).parents[1]
COPIES = 4


def sheet(name: str) -> np.ndarray:
    images = load_images(name, train=10, balanced=True, flatten=False, key=2).train_inputs
    images = images[np.argsort(load_images(name, train=10, balanced=True, key=2).train_labels)]
    augment = jax.jit(heavy_augmentation())
    rows = [images, *(np.asarray(augment(jax.random.key(copy), images)) for copy in range(COPIES))]
    return np.clip(np.concatenate([np.concatenate(list(row), axis=1) for row in rows]), 0, 1).squeeze()


if __name__ == "__main__":
    figure, axes = new_figure(2, width=4.2, height=2.4)
    for ax, (name, title) in zip(axes, (("mnist", "MNIST"), ("cifar-10", "CIFAR-10")), strict=True):
        picture = sheet(name)
        ax.imshow(picture, cmap="gray", interpolation="nearest")
        ax.axhline(picture.shape[0] / (COPIES + 1) - 0.5, color="tab:orange")
        ax.set_title(title, fontsize="medium")
        ax.axis("off")
    path = FIGURES / "networks-augmentation.png"
    figure.savefig(path, dpi=95)
    # 64 colours are enough for thumbnails, and make a small file.
    from PIL import Image

    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)
