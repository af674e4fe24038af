"""Bad input of the measures for practitioners: one line each, which names the value, the rule and the remedy."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable import networks
from solvable.diagnostics import stability
from solvable.networks.forecast import forecast

torch = pytest.importorskip("torch")
import solvable.torch  # noqa: E402

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(12, 4)).astype(np.float32)
LABELS = RNG.integers(0, 3, 12)
TARGETS = RNG.normal(size=(12, 1)).astype(np.float32)
TENSORS = torch.tensor(INPUTS), torch.tensor(LABELS)
WEIGHTS = jnp.ones((4, 3))


def linear(weights, inputs):
    return inputs @ weights


def make(width):
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 3))


def refused(words, function, *arguments, error=ValueError, **options):
    with pytest.raises(error, match=words) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)


GRID = {"widths": [4, 8], "learning_rates": [0.1, 0.2, 0.4], "seeds": 4, "steps": 3, "progress": False}
# Losses in PyTorch and in JAX that are not what a loss is.
LOSSES = {
    "one number for each class": (lambda f, y: (f**2).mean(0), r"one for each of 12 samples, not shape \(3,\)"),
    "nothing": (lambda f, y: None, "one for each of 12 samples, not NoneType"),
    "text": (lambda f, y: "small", "one for each of 12 samples, not str"),
    "a pair": (lambda f, y: ((f**2).mean(), 1), "one for each of 12 samples, not tuple"),
}


@pytest.mark.parametrize(("loss", "words"), LOSSES.values(), ids=LOSSES)
def test_losses_of_another_shape(loss, words):
    refused(words, stability, make(4), TENSORS, loss=loss, progress=False)
    refused(words, stability, linear, (INPUTS, LABELS), loss=loss, parameters=WEIGHTS, progress=False)
    refused(words, solvable.torch.transfer, make, TENSORS, loss=loss, **GRID)
    refused(
        words.replace(r"\(3,", r"\(1,"),
        networks.transfer,
        "standard",
        networks.Fixed(INPUTS, TARGETS),
        loss=loss,
        **GRID,
    )


def test_losses_without_derivatives():
    refused("real numbers", stability, make(4), TENSORS, loss=lambda f, y: (f**2).mean() * 1j, progress=False)
    given = {"parameters": WEIGHTS, "progress": False}
    data = INPUTS, LABELS
    refused(
        "not int(32|64): look for argmax", stability, linear, data, loss=lambda f, y: (f.argmax(1) == y).sum(), **given
    )
    refused("functions of jax.numpy", stability, linear, data, loss=lambda f, y: np.mean(np.asarray(f) ** 2), **given)
    refused("no derivative", solvable.torch.transfer, make, TENSORS, loss=lambda f, y: (f.detach() ** 2).mean(), **GRID)


def test_a_loss_for_each_sample_is_as_good_as_its_mean():
    function = torch.nn.functional.cross_entropy
    reports = [
        solvable.torch.transfer(make, TENSORS, loss=lambda f, y, kind=kind: function(f, y, reduction=kind), **GRID)
        for kind in ("none", "mean")
    ]
    np.testing.assert_allclose(*(report.losses for report in reports), rtol=1e-5)


def test_losses_that_are_not_finite_before_training():
    """No learning rate can mend those: the advice was to extend the grid."""
    words = "width 4 is not finite before training: look for NaN"
    refused(words, solvable.torch.transfer, make, (TENSORS[0] * torch.nan, TENSORS[1]), **GRID)
    for inputs, targets in ((INPUTS * np.nan, TARGETS), (INPUTS, TARGETS * np.nan)):
        refused(words, networks.transfer, "standard", networks.Fixed(inputs, targets), **GRID)


@pytest.mark.parametrize("wrong", [3, -1])
def test_labels_that_are_no_classes(wrong):
    labels = np.where(np.arange(12) == 5, wrong, LABELS)
    words = f"label {wrong} is none of the 3 classes"
    refused(words, stability, linear, (INPUTS, labels), parameters=WEIGHTS, progress=False)
    refused(words, stability, make(4), (TENSORS[0], torch.tensor(labels)), progress=False)
    refused(words, solvable.torch.transfer, make, (TENSORS[0], torch.tensor(labels)), **GRID)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learning_rates": "fast"}, "list of positive finite numbers, not 'fast'"),
        ({"learning_rates": [[0.1, 0.2, 0.4]]}, "list of positive finite numbers"),
        ({"learning_rates": [0.1]}, "three learning rates or more, not 1"),
        ({"learning_rates": [-0.1, 0.1, 0.2]}, "positive finite numbers"),
        ({"seeds": 3}, "4 seeds or more, not 3"),
    ],
)
def test_grids_that_decide_nothing(change, words):
    refused(words, solvable.torch.transfer, make, TENSORS, **{**GRID, **change})
    refused(words, networks.transfer, "standard", networks.Fixed(INPUTS, TARGETS), **{**GRID, **change})


def test_what_makes_no_network():
    empty = TENSORS[0][:0], TENSORS[1][:0]
    refused("the data are empty", solvable.torch.transfer, make, empty, **GRID)
    words = "function of the width, not Sequential"
    refused(words, solvable.torch.transfer, make(4), TENSORS, **GRID, error=TypeError)
    data = networks.Fixed(INPUTS, TARGETS)
    refused("width 4 has no parameters", networks.transfer, lambda width, key: None, data, **GRID)
    words = r"a function of \(width, key\), but <lambda> is not: .*"
    refused(words, networks.transfer, lambda width: None, data, **GRID)
    words = r"not tuple: give networks.Fixed\(inputs, targets\)"
    refused(words, networks.transfer, "standard", (INPUTS, TARGETS), **GRID, error=TypeError)


def test_a_log_whose_file_is_removed_starts_again_with_a_header(tmp_path):
    tracker = solvable.torch.Tracker(make(4), TENSORS, TENSORS, log=tmp_path / "log.csv", progress=False)
    tracker(0)
    (tmp_path / "log.csv").unlink()
    tracker(1)
    header, row = (tmp_path / "log.csv").read_text().splitlines()
    assert header.startswith("epoch,")
    assert row.startswith("1,")


@pytest.mark.parametrize("name", ["log.csv", "events"])
def test_a_log_whose_folder_is_removed(name, tmp_path):
    if name == "events":
        pytest.importorskip("tensorboard")
    folder = tmp_path / "run"
    folder.mkdir()
    tracker = solvable.torch.Tracker(make(4), TENSORS, TENSORS, log=folder / name, progress=False)
    tracker(0)
    shutil.rmtree(folder)
    refused("make the folder again", tracker, 1)
    assert tracker.history.sizes["epoch"] == 2


def test_a_log_that_is_no_text(tmp_path):
    (tmp_path / "log.csv").write_bytes(bytes([0xD5, 0x80, 0xFF]))
    refused("it is not text", solvable.torch.Tracker, make(4), TENSORS, TENSORS, log=tmp_path / "log.csv")


def test_a_run_of_another_optimiser_is_not_forecast():
    """Printing an optimiser of torch takes many lines."""
    network = networks.MLP(4, 1, width=16, depth=2, key=jax.random.key(0))
    report = forecast(network, RNG.normal(size=(40, 4)), RNG.normal(size=40), progress=False)
    steps = np.arange(1, 40)
    adam = torch.optim.Adam(make(4).parameters())
    for training, words in ((adam, "not Adam: the forecast is of gradient descent"), ("adam", "not 'adam': the")):
        refused(words, report.update, steps, np.exp(-steps / 30), training)
