"""Linear models in their eigenbasis (layerwise thesis, chapter 1).

``model`` is the public class with its theory; ``simulation`` draws training sets and trains on them.
"""

from solvable.models.linear_features.model import LinearFeatures

__all__ = ["LinearFeatures"]
