"""``solvable transfer``: whether the best learning rate of narrow networks holds for wide ones, on the user's data."""

from typing import Any, get_args

import numpy as np

from solvable.checks import check_choice
from solvable.cli.diagnose import network_maker
from solvable.cli.forecast import inputs_and_targets
from solvable.cli.outputs import check_outputs, print_report
from solvable.networks.mlp import LayerwiseParameterisation
from solvable.networks.sources import Fixed
from solvable.networks.transfer import transfer as measure
from solvable.ranges import parse_range


def transfer(
    model: str, data: str, widths: str, learning_rates: str, test_share: float, options: dict[str, Any], as_json: bool,
    plot: str | None,
) -> None:  # fmt: skip
    """Train networks of all widths at all rates, and print what became of the best rate."""
    check_outputs({"plot": plot})
    names = get_args(LayerwiseParameterisation)
    if ":" not in model:
        check_choice("--model", model, names)
    network: Any = network_maker(model) if ":" in model else model
    numbers, rates = _whole(widths), np.asarray(parse_range(learning_rates, "--learning-rates"), float).tolist()
    inputs, targets = inputs_and_targets(data)
    classes = targets.dtype.kind in "iub"
    if ":" not in model:
        inputs = inputs.reshape(len(inputs), -1).astype(float)
    if not classes and targets.ndim == 1:
        targets = targets[:, None]
    options = {**options, "loss": options["loss"] or ("cross-entropy" if classes else "mse")}
    report = measure(
        network, _split(inputs, targets, test_share, options["key"]), widths=numbers, learning_rates=rates, **options
    )
    print_report(report.to_json() if as_json else report.summary(), report, plot)


def _whole(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--widths {text!r} must be whole numbers such as 32,64,128") from None


def _split(inputs: Any, targets: Any, share: float, key: int) -> Fixed:
    """A random share of the data as test set; none for a share of zero, where the loss is that of the training set."""
    if not 0 <= share < 1:
        raise ValueError(f"--test-share {share:g} must be zero or more and below one")
    held = int(share * len(inputs))
    if not held:
        return Fixed(inputs, targets)
    order = np.random.default_rng(key).permutation(len(inputs))
    test, train = order[:held], order[held:]
    return Fixed(inputs[train], targets[train], inputs[test], targets[test])
