"""Linear teacher-student regression that groks (linear-grokking paper).

``model`` is the public class; ``theory`` has the losses of one layer, ``two_layer`` those with a hidden layer,
``curves`` their numerical error, ``grokking`` the times at which accuracies are reached, ``late_time`` the asymptotic
forms, ``stability`` the stable learning rates. Finite-size runs are in ``simulation``, with what is drawn in
``system`` and the solvers in ``eigenmodes`` and ``steps``. ``spectra`` and ``chi_square`` are the two laws that
everything is averaged over.
"""

from solvable.models.linear_estimator.model import LinearEstimator

__all__ = ["LinearEstimator"]
