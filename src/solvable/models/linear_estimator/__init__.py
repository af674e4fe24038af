"""Linear teacher-student regression that groks (linear-grokking paper).

``model`` is the public class; ``theory`` the losses of one layer, ``two_layer`` with a hidden layer, ``grokking`` the
times at which accuracies are reached, ``late_time`` the asymptotic forms, ``simulation`` the finite-size runs.
"""

from solvable.models.linear_estimator.model import LinearEstimator

__all__ = ["LinearEstimator"]
