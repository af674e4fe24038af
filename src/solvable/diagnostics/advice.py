"""What to do after a diagnosis, in words."""

# Test samples for each dimension of the targets, below which chance is a good part of quality and utilisation.
_FEW = 10

_START = (
    "to learn whether training was lazy or rich, diagnose the network with its start: initial=... in Python, "
    "--initial on the command line"
)
_STEPS: dict[tuple[str, str | None], str] = {
    ("minimum-feature", "rich"): (
        "the features that were learned are those of the outputs, and no others are left: look at neural collapse "
        "(collapse), and stop earlier or lower the weight decay if the features are to serve other tasks"
    ),
    ("extended-feature", "rich"): (
        "features were learned, and more of them than the outputs need are left: follow them with a Tracker, and train "
        "longer or with more weight decay to see whether they go"
    ),
    ("minimum-feature", "lazy"): (
        "the features were those of the outputs before training, as in a network that is narrow or was trained before: "
        "diagnose the start as well, and measure on data that need more features"
    ),
    ("extended-feature", "lazy"): (
        "the features are still those of the start, and kernel regression describes this network: "
        "solvable.networks.forecast says how its loss falls; to learn features, start from smaller outputs or weights, "
        "or train longer"
    ),
    ("minimum-feature", "intermediate"): (
        "training left its tangent model in part, and the features are those of the outputs: follow both with a "
        "Tracker along training to see when the features went"
    ),
    ("extended-feature", "intermediate"): (
        "training left its tangent model in part: train longer, or start from smaller outputs or weights, and diagnose "
        "again to see which way it goes"
    ),
    ("minimum-feature", None): (
        "the features are those of the outputs, and no others are left: look at neural collapse (collapse)"
    ),
    ("extended-feature", None): (
        "there are more features than the outputs need: compare with the network before training and later in training "
        "(Tracker) to see whether they are learned, left over or on their way out"
    ),
}


def next_steps(regime: str, training: str | None, test_samples: int, dimension: int) -> tuple[str, ...]:
    """Advice for a regime of features and of training (None: not measured) on so many test samples."""
    steps = [_STEPS[regime, training]]
    if training is None:
        steps.append(_START)
    if test_samples < _FEW * dimension:
        steps.append(
            f"give more test samples: {test_samples} for targets of dimension {dimension} leave much to chance; "
            f"{_FEW * dimension} or more are better"
        )
    return tuple(steps)
