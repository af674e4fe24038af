"""Features whose operator is a minimum projection, of which every metric is known."""

import numpy as np


def minimum_projection(classes: int, each: int, constant: float, projection: float, seed: int = 0):
    """Features whose operator is a₁|1⟩⟨1| + a₂P on the indicators of balanced classes (Definition 1), turned at random.

    P = Σ_i C|f_i⟩⟨f_i| because ⟨f_i|f_j⟩ = δ_ij/C.
    """
    labels = np.tile(np.arange(classes), each)
    indicators = np.eye(classes)[labels]
    plain = np.hstack([np.full((labels.size, 1), np.sqrt(constant)), np.sqrt(projection * classes) * indicators])
    plain = np.hstack([plain, np.zeros((labels.size, 3))])
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(plain.shape[1],) * 2))[0]
    return plain @ rotation, indicators, labels
