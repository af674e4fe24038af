"""``solvable forecast``: exponents of the loss from the tangent kernel of a network before training."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from solvable.cli.diagnose import network_maker, read_file, with_weights
from solvable.cli.outputs import check_outputs, print_report
from solvable.inference.inferring import as_runs
from solvable.inference.readers import read_curves
from solvable.networks.forecast import forecast as measure
from solvable.networks.forecast_report import ForecastReport
from solvable.networks.initialisations import built_in, make
from solvable.networks.run_forecast_report import RunForecast
from solvable.training import GradientDescent


def forecast(
    model: str,
    data: str,
    checkpoint: str | None,
    options: dict[str, Any],
    as_json: bool,
    plot: str | None,
    logged: dict[str, Any],
) -> None:
    """Print the forecast for a network and the data in a file."""
    check_outputs({"plot": plot})
    _check_log(logged)
    inputs, targets = inputs_and_targets(data)
    maker = built_in(model, inputs[0].size, _width(targets))
    if maker is None:
        maker = network_maker(model)
    else:
        inputs = inputs.reshape(len(inputs), -1).astype(float)
    if checkpoint is None:
        report = measure(maker, inputs, targets, **options)
    else:
        if options["seeds"] not in (None, 1):
            raise ValueError(f"--seeds {options['seeds']}: a checkpoint is one network, leave --seeds out")
        report = measure(with_weights(make(maker, options["key"]), checkpoint), inputs, targets, **options)
        note = (
            f"measured at the weights of {checkpoint}: if they are trained, the kernel has changed, and the forecast "
            "is of what is left to learn only with --initial-outputs network"
        )
        report = dataclasses.replace(report, notes=(*report.notes, note))
    if logged["log"] is None:
        print_report(report.to_json() if as_json else report.summary(), report, plot)
        return
    learned = _learned(report, logged)
    if as_json:
        text = json.dumps({**json.loads(report.to_json()), "run": json.loads(learned.to_json())})
    else:
        text = f"{learned.summary()}\n\nbefore training\n{report.summary()}"
    print_report(text, learned, plot)


def _check_log(logged: dict[str, Any]) -> None:
    """Reject a log without a learning rate, and a learning rate without a log, before the work."""
    log, rate = logged["log"], logged["learning_rate"]
    if log is not None and not Path(log).exists():
        raise ValueError(f"there is no file {log}: --log is the log of the start of a run")
    if log is not None and rate is None:
        raise ValueError(f"--log {log} needs --learning-rate: a kernel's time is the learning rate times the steps")
    if log is None and rate is not None:
        raise ValueError(f"--learning-rate {rate:g} is that of a run: give its log with --log")


def _learned(report: ForecastReport, logged: dict[str, Any]) -> RunForecast:
    """The forecast after the start of the run in a log."""
    runs = as_runs(read_curves(logged["log"]))
    if len(runs) != 1:
        raise ValueError(f"{logged['log']} holds {len(runs)} runs, and a forecast learns from one: split the log")
    training = GradientDescent(logged["learning_rate"], momentum=logged["momentum"])
    return report.update(runs[0].steps, runs[0].loss, training, loss=logged["loss"])


def inputs_and_targets(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs with the targets or labels beside them, from an ``.npz`` file."""
    arrays = read_file(path, ("inputs",), ("targets", "labels"))
    given = [name for name in ("targets", "labels") if name in arrays]
    if len(given) != 1:
        found = "both targets and labels" if given else "neither targets nor labels"
        raise ValueError(
            f"{path} has {found} beside inputs: save one of them, numpy.savez(path, inputs=..., targets=...)"
        )
    inputs, goal = arrays["inputs"], arrays[given[0]]
    if inputs.ndim < 1 or len(inputs) == 0:
        raise ValueError(f"inputs of {path} must have one row per point, not the shape {inputs.shape}")
    if goal.shape[:1] != inputs.shape[:1]:
        raise ValueError(f"{path} has {len(inputs)} inputs and {given[0]} of shape {goal.shape}: each input needs one")
    if given == ["labels"]:
        if goal.dtype.kind not in "iub" or goal.ndim != 1:
            raise ValueError(f"labels of {path} must have one integer per point, not {goal.shape} of {goal.dtype}")
        return inputs, goal
    # Targets are real numbers, even if they happen to be integers.
    return inputs, goal.astype(float)


def _width(targets: np.ndarray) -> int:
    """Number of outputs that a network for these targets needs."""
    if targets.dtype.kind in "iub":
        return int(targets.max()) + 1
    return int(np.prod(targets.shape[1:]))
