"""Transfer of learning rates of torch networks: the same numbers as plain loops, parameter groups, random state."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import solvable.torch  # noqa: E402

INPUTS = torch.tensor(np.random.default_rng(0).normal(size=(48, 5)), dtype=torch.float32)
TARGETS = INPUTS[:, :1].clamp(min=0) - 0.5 * INPUTS[:, 1:2]
OPTIONS = {"learning_rates": [0.05, 0.1, 0.2], "widths": [4, 8], "steps": 6, "seeds": 4}


def make_model(width):
    return torch.nn.Sequential(torch.nn.Linear(5, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))


def with_groups(width):
    """Rates of maximal-update parameterisation by SGD, in powers of the width over 4."""
    model, ratio = make_model(width), width / 4
    first, last = model[0], model[2]
    return model, [
        {"params": first.parameters(), "lr_factor": ratio},
        {"params": [last.weight], "lr_factor": 1 / ratio},
        {"params": [last.bias]},
    ]


def test_losses_are_those_of_a_plain_loop():
    report = solvable.torch.transfer(make_model, (INPUTS, TARGETS), key=2, **OPTIONS)
    torch.manual_seed(2003)
    model = make_model(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(INPUTS), TARGETS).backward()
        optimizer.step()
    expected = float(torch.nn.functional.mse_loss(model(INPUTS), TARGETS))
    assert report.losses[1, 1, 3] == pytest.approx(expected, rel=1e-6)
    assert list(report.coordinates.layer.values) == ["0", "2"]
    assert report.loss_name == "train_loss"


def test_groups_have_rates_of_their_own():
    """With factors, one step moves every array in proportion to its factor."""
    moved = []
    for maker, options in ((make_model, {}), (with_groups, {})):
        seen = {}

        def optimizer(groups, lr, seen=seen):
            made = torch.optim.SGD(groups, lr=lr)
            seen[sum(p.numel() for g in made.param_groups for p in g["params"]), lr] = [
                g["lr"] for g in made.param_groups
            ]
            return made

        solvable.torch.transfer(maker, (INPUTS, TARGETS), optimizer=optimizer, **OPTIONS, **options)
        moved.append(seen)
    assert moved[0][57, 0.1] == [0.1]
    assert moved[1][57, 0.1] == pytest.approx([0.2, 0.05, 0.1])
    assert moved[1][29, 0.1] == pytest.approx([0.1, 0.1, 0.1])


def test_random_state_and_loader_are_restored():
    generator = torch.Generator().manual_seed(5)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(INPUTS, TARGETS), batch_size=16, shuffle=True, generator=generator
    )
    torch.manual_seed(11)
    states = torch.get_rng_state(), generator.get_state()
    first, again = (solvable.torch.transfer(make_model, loader, **OPTIONS) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(generator.get_state(), states[1])
    np.testing.assert_array_equal(first.losses, again.losses)


def test_classes_test_data_and_divergence():
    labels = (INPUTS[:, 0] > 0).long()

    def classifier(width):
        return torch.nn.Sequential(torch.nn.Linear(5, width), torch.nn.Tanh(), torch.nn.Linear(width, 2))

    options = OPTIONS | {"learning_rates": [0.1, 0.3, 1e9], "batch_size": 16}
    report = solvable.torch.transfer(
        classifier, (INPUTS[:32], labels[:32]), test_data=(INPUTS[32:], labels[32:]), **options
    )
    assert report.loss_name == "test_loss"
    assert report.diverged[:, :2].sum() == 0
    assert report.diverged[:, 2].all()
    assert report.coordinates is not None
    assert report.coordinates.attrs["learning_rate"] < 1


def test_the_drift_of_copies_is_one_octave():
    """A sum of w copies of a linear model: the best rate of one step falls by one octave per doubling, exactly."""

    class Copies(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.weights = torch.nn.Parameter(torch.zeros(width, 5, dtype=torch.float64))
            self.scale = torch.randn(())

        def forward(self, inputs):
            return inputs @ self.weights.sum(0)[:, None]

    report = solvable.torch.transfer(
        Copies, (INPUTS.double(), TARGETS.double()), widths=[1, 2, 4, 8], seeds=4, steps=1, coordinate_steps=1,
        learning_rates=2.0 ** np.arange(-6, 2, 0.5), window=1.0,
    )  # fmt: skip
    assert report.drift.slope == pytest.approx(-1, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 2}, "an interval needs 4 seeds or more"),
        ({"learning_rates": [0.1]}, "an optimum needs three learning rates"),
        ({"make_model": lambda width: make_model(4)}, "widths 4 and 8 make networks of the same 29 parameters"),
        ({"make_model": lambda width: 3}, "make_model must return a torch.nn.Module"),
        ({"make_model": lambda width: (make_model(width), [])}, "0.weight is in no parameter group"),
        ({"batch_size": 99}, "batch_size must be at most the 48 samples, not 99"),
        ({"data": []}, "the data are empty"),
    ],
)
def test_bad_arguments(change, message):
    options = {"make_model": make_model, "data": (INPUTS, TARGETS), **OPTIONS}
    with pytest.raises((ValueError, TypeError), match=message) as raised:
        solvable.torch.transfer(**{**options, **change})
    assert "\n" not in str(raised.value)
