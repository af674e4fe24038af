"""solvable.torch: the right layer is found and read, and the network is left as it was."""

import json
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from resnet import ResNet18  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import solvable.torch  # noqa: E402
from solvable import diagnostics  # noqa: E402


def small_network(classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, classes))


def batches(count: int = 4, size: int = 16, classes: int = 3, key: int = 1) -> list[tuple]:
    generator = torch.Generator().manual_seed(key)
    return [
        (torch.randn(size, 4, generator=generator), torch.randint(classes, (size,), generator=generator))
        for _ in range(count)
    ]


def by_hand(network: nn.Module, data: list[tuple]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with torch.no_grad():
        inputs, labels = torch.cat([x for x, _ in data]), torch.cat([y for _, y in data])
        hidden = torch.relu(network[0](inputs))
        return hidden.numpy(), network[2](hidden).numpy(), labels.numpy()


def test_report_is_that_of_the_arrays() -> None:
    network, train, test = small_network(), batches(), batches(key=2)
    report = solvable.torch.diagnose(network, train, test)
    expected = diagnostics.features(by_hand(network, train), by_hand(network, test))
    np.testing.assert_allclose(report.intensity, expected.intensity, rtol=1e-6)
    np.testing.assert_allclose(report.utilisation, expected.utilisation, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(report.mp_distance, expected.mp_distance, rtol=1e-5)
    assert report.regime == expected.regime


def snapshot(network: nn.Module) -> dict:
    return {
        "state": {name: tensor.clone() for name, tensor in network.state_dict().items()},
        "modes": [module.training for module in network.modules()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in network.parameters()],
        "needs": [p.requires_grad for p in network.parameters()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in network.modules()],
        "identity": [id(p) for p in network.parameters()],
        "random": torch.get_rng_state(),
    }


def assert_same(before: dict, after: dict) -> None:
    assert before.keys() == after.keys()
    for name, tensor in before["state"].items():
        assert torch.equal(tensor, after["state"][name]), name
    for one, two in zip(before["gradients"], after["gradients"], strict=True):
        assert (one is None) == (two is None)
        assert one is None or torch.equal(one, two)
    for name in ("modes", "needs", "hooks", "identity"):
        assert before[name] == after[name], name
    assert torch.equal(before["random"], after["random"])


def test_resnet18_is_diagnosed_and_left_untouched() -> None:
    torch.manual_seed(0)
    network = ResNet18().train()
    network.layer2.eval()  # somebody froze the statistics of one block
    network.conv1.weight.requires_grad_(False)
    data = TensorDataset(torch.randn(40, 3, 32, 32), torch.arange(40) % 10)
    loader = DataLoader(data, batch_size=20, shuffle=True)
    network(data.tensors[0][:4]).sum().backward()
    before = snapshot(network)
    report = solvable.torch.diagnose(network, loader, loader)
    assert_same(before, snapshot(network))
    # Forty points in 512 dimensions: at most forty directions, and random weights are no minimum features.
    assert 10 <= report.rank <= 40
    assert report.regime == "extended-feature"
    assert solvable.torch.find_last_layer(network, loader) is network.fc


def test_left_untouched_when_the_data_are_bad() -> None:
    network = small_network().train()
    bad = [*batches(2), (torch.full((16, 4), torch.nan), torch.zeros(16, dtype=torch.long))]
    before = snapshot(network)
    with pytest.raises(ValueError, match="batch"):
        solvable.torch.diagnose(network, bad, batches())
    assert_same(before, snapshot(network))
    assert torch.is_grad_enabled()


def test_shuffling_with_an_own_generator_is_undone() -> None:
    """Or measuring between two epochs would change the training that follows."""
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.arange(64) % 3), 16, shuffle=True, generator=generator)
    state = generator.get_state()
    solvable.torch.diagnose(small_network(), loader, loader)
    assert torch.equal(generator.get_state(), state)


def test_buffers_that_move_in_evaluation_mode_are_put_back() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.head(x)

    network = Counting()
    solvable.torch.diagnose(network, batches(), batches(key=2))
    assert network.calls == 0


def test_the_last_layer_told_or_found() -> None:
    network = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3))
    data = batches()
    assert solvable.torch.find_last_layer(network, data) is network[4]
    assert solvable.torch.find_last_layer(network, data, "2") is network[2]
    assert solvable.torch.diagnose(network, data, data).intensity.size <= 5
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1))  # a softmax has no parameters: the logits are the outputs
    assert solvable.torch.find_last_layer(network, data) is network[0]


def test_hugging_face_batches_and_tokens() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Embedding(11, 6), nn.Linear(6, 3)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(self.body(input_ids)))

    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(11, (8, 7), generator=generator)
    labels = torch.randint(3, (8, 7), generator=generator)
    labels[:, 5:] = -100
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}
    statistics = solvable.torch.statistics(Tagger(), [batch])
    assert statistics.count == 8 * 5


def test_regression_and_one_output() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1))
    data = [(x, x[:, 0] ** 2) for x, _ in batches()]
    report = solvable.torch.diagnose(network, data, data)
    assert (report.outputs, report.classes, report.target_rank) == (1, None, 1)
    binary = [(x, (x[:, 0] > 0).long()) for x, _ in batches()]
    assert solvable.torch.diagnose(network, binary, binary).classes == 2


def test_half_precision_is_measured_in_full() -> None:
    network = small_network().to(torch.bfloat16)
    data = [(x.to(torch.bfloat16), y) for x, y in batches()]
    report = solvable.torch.diagnose(network, data, data)
    assert np.isfinite(report.intensity).all()
    assert report.precision == "bfloat16"


def test_a_pair_of_whole_arrays_is_one_set_of_data() -> None:
    network, data = small_network(), batches(3, 16)
    inputs, labels = (torch.cat(parts) for parts in zip(*data, strict=True))
    expected = solvable.torch.diagnose(network, data, data)
    for pair in ((inputs, labels), [inputs, labels], (inputs.double().numpy(), labels.numpy())):
        report = solvable.torch.diagnose(network, pair, [pair] if isinstance(pair[0], torch.Tensor) else pair)
        assert report.train_samples == report.test_samples == 48
        assert report.mp_distance == pytest.approx(expected.mp_distance, rel=1e-5)
    assert solvable.torch.collapse(network, (inputs, labels)).classes == 3
    tracker = solvable.torch.Tracker(network, (inputs, labels), (inputs, labels))
    assert tracker(0).train_samples == 48


def test_a_hidden_layer_is_not_taken_for_the_last() -> None:
    torch.manual_seed(0)
    network, data = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, 3)), batches()
    for measure in (
        lambda: solvable.torch.diagnose(network, data, data, last_layer="0"),
        lambda: solvable.torch.collapse(network, data, last_layer="0"),
        lambda: solvable.torch.Tracker(network, data, data, last_layer=network[0])(0),
    ):
        with pytest.raises(ValueError, match=r"'0' .* is not the last step .* its 50 outputs are not the network's 3"):
            measure()
    # As many outputs as the network, and still not its own.
    network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
    with pytest.raises(ValueError, match="its outputs are not the network's"):
        solvable.torch.diagnose(network, data, data, last_layer="0")
    # After a last layer a softmax, or a scale for each output, may follow.
    for end in (nn.Softmax(-1), nn.LayerNorm(3)):
        network = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3), end)
        assert solvable.torch.diagnose(network, data, data, last_layer="2").classes == 3
    # Twice as many numbers as the network gives are not its outputs.
    network = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 6), nn.GLU())
    with pytest.raises(ValueError, match="its 6 outputs are not the network's 3"):
        solvable.torch.diagnose(network, data, data)


def test_labels_advice_names_what_exists() -> None:
    data = [(x, y + 1) for x, y in batches()]
    with pytest.raises(ValueError, match=r"go from 1 to 3 .*FeatureStatistics\(classes=...\)") as caught:
        solvable.torch.diagnose(small_network(), data, data)
    assert "\n" not in str(caught.value)
    from solvable.diagnostics import FeatureStatistics

    assert FeatureStatistics(classes=4).update(np.ones((4, 2)), np.ones((4, 3)), np.arange(4)).classes == 4


def test_the_start_tells_lazy_from_rich() -> None:
    """A linear model is its own tangent model; a network whose first layer was replaced is not."""
    data = batches(4, 32)
    for network, regime in ((nn.Sequential(nn.Linear(4, 3)), "lazy"), (small_network(), "rich")):
        start = {name: value.clone() for name, value in network.state_dict().items()}
        torch.manual_seed(3)
        moved = {name: value + torch.randn_like(value) for name, value in start.items()}
        before = snapshot(network)
        report = solvable.torch.diagnose(network, data, data, initial=moved)
        assert_same(before, snapshot(network))
        assert report.training_regime == regime
        expected = diagnostics.laziness(network, moved, start, torch.cat([x for x, _ in data]), kernel_inputs=64)
        assert report.training.distance == pytest.approx(expected.distance, rel=1e-5, abs=1e-6)
        assert f"training regime                          {regime}" in report.summary()
        assert "training regime on 128 test inputs" in report.summary()
        assert json.loads(report.to_json())["training_regime"] == regime
        assert json.loads(report.to_json())["training"]["verdict"] == regime
        assert regime in report._repr_html_()
        assert report.to_dataset().attrs["training_regime"] == regime
        assert regime in report.plot().get_suptitle()
    report = solvable.torch.diagnose(network, data, data)
    assert report.training_regime is None
    assert "initial=" in report.summary()
    assert "not measured" in report.plot().get_suptitle()
    with pytest.raises(ValueError, match="did not move"):
        solvable.torch.diagnose(network, data, data, initial=network.state_dict())


def test_every_report_ends_with_what_to_do_next() -> None:
    data = batches(4, 32)
    report = solvable.torch.diagnose(small_network(), data, data)
    last = report.summary().splitlines()[-1]
    assert last.startswith("next ")
    assert report.next_steps[-1] in last
    assert json.loads(report.to_json())["next_steps"] == list(report.next_steps)


def test_collapse_is_that_of_the_arrays() -> None:
    network, data = small_network(), batches(8, 32)
    report = solvable.torch.collapse(network, data)
    features, outputs, labels = by_hand(network, data)
    statistics = diagnostics.FeatureStatistics(classes=3).update(features, outputs, labels)
    weights, bias = network[2].weight.detach().numpy(), network[2].bias.detach().numpy()
    expected = diagnostics.collapse(statistics, weights, bias, batches=[(features, outputs, labels)])
    for name in ("within_class", "mean_norms", "mean_angles", "self_duality", "nearest_class"):
        assert getattr(report, name) == pytest.approx(getattr(expected, name), rel=1e-4), name
    assert solvable.torch.collapse(network, data, second_pass=False).nearest_class is None


def test_tracker_keeps_the_history(tmp_path) -> None:
    network, train, test = small_network(), batches(), batches(key=2)
    tracker = solvable.torch.Tracker(network, train, test, collapse=True)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
    for epoch in range(3):
        report = tracker(epoch, train_loss=1.0 / (1 + epoch))
        for inputs, labels in train:
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(inputs), labels).backward()
            optimiser.step()
    history = tracker.history
    assert history.sizes["epoch"] == 3
    assert history["mp_distance"].values[-1] == report.mp_distance
    np.testing.assert_allclose(history["train_loss"], [1, 1 / 2, 1 / 3])
    assert history["mp_distance"].values[0] != history["mp_distance"].values[-1]
    assert np.isfinite(history["within_class"]).all()
    solvable.save(history, tmp_path / "history.nc")
    assert solvable.load(tmp_path / "history.nc")["regime"].values[0] == history["regime"].values[0]
    figure = tracker.plot()
    assert len(figure.axes) == 4
    with pytest.raises(ValueError, match="epochs must increase"):
        tracker(1)
    with pytest.raises(ValueError, match="mp_distance is measured by the tracker"):
        tracker(9, mp_distance=0.0)


def test_trainers_callbacks_call_the_tracker(monkeypatch) -> None:
    """With stand-ins for the base classes; each call is what Lightning and Hugging Face make after an epoch."""
    lightning = types.ModuleType("lightning.pytorch")
    lightning.Callback = type("Callback", (), {})
    transformers = types.ModuleType("transformers")
    transformers.TrainerCallback = type("TrainerCallback", (), {})
    monkeypatch.setitem(sys.modules, "lightning", types.ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", lightning)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    tracker = solvable.torch.Tracker(small_network(), batches(), batches(key=2))
    callback = solvable.torch.lightning_callback(tracker, every=2)
    assert isinstance(callback, lightning.Callback)
    for epoch in range(3):
        trainer = types.SimpleNamespace(current_epoch=epoch, callback_metrics={"val/loss": torch.tensor(0.5)})
        callback.on_train_epoch_end(trainer, tracker.model)
    assert list(tracker.history["epoch"]) == [0, 2]
    assert list(tracker.history["val_loss"]) == [0.5, 0.5]
    tracker = solvable.torch.Tracker(small_network(), batches(), batches(key=2))
    callback = solvable.torch.hugging_face_callback(tracker)
    assert isinstance(callback, transformers.TrainerCallback)
    callback.on_epoch_end(None, types.SimpleNamespace(epoch=1.0), None, model=tracker.model)
    assert list(tracker.history["epoch"]) == [1]


def test_without_the_trainers_the_error_says_what_to_install(monkeypatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    tracker = solvable.torch.Tracker(small_network(), batches(), batches())
    with pytest.raises(ImportError, match="pip install lightning"):
        solvable.torch.lightning_callback(tracker)
    with pytest.raises(ImportError, match="pip install transformers"):
        solvable.torch.hugging_face_callback(tracker)


def test_bad_input() -> None:
    data = batches()
    convolutional = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (6, 1)), nn.Conv1d(6, 3, 1), nn.Flatten())
    with pytest.raises(ValueError, match=r"no linear last layer: it ends in 2 .*FeatureStatistics"):
        solvable.torch.diagnose(convolutional, data, data)
    with pytest.raises(ValueError, match="runs no layer with parameters"):
        solvable.torch.diagnose(nn.ReLU(), data, data)
    with pytest.raises(ValueError, match=r"no layer 'head'; it has 0, 1, 2"):
        solvable.torch.diagnose(small_network(), data, data, last_layer="head")
    with pytest.raises(ValueError, match="not a part of this Sequential"):
        solvable.torch.diagnose(small_network(), data, data, last_layer=nn.Linear(2, 2))
    with pytest.raises(ValueError, match="training set is empty"):
        solvable.torch.diagnose(small_network(), [], data)
    with pytest.raises(ValueError, match=r"\(inputs, targets\) or a mapping with labels, not Tensor"):
        solvable.torch.diagnose(small_network(), [torch.ones(3, 4)], data)
    with pytest.raises(ValueError, match="none of labels"):
        solvable.torch.diagnose(small_network(), [{"input": torch.ones(3, 4)}], data)
    with pytest.raises(TypeError, match="must be a torch.nn.Module, not function"):
        solvable.torch.diagnose(lambda x: x, data, data)
    with pytest.raises(ValueError, match=r"label"):
        solvable.torch.diagnose(small_network(), [(x, y + 7) for x, y in data], data)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.head(x))

    with pytest.raises(ValueError, match="ran 2 times"):
        solvable.torch.diagnose(Twice(), data, data)
