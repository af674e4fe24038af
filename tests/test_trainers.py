"""Callbacks for Lightning and Hugging Face in a real training with the real packages, where they are installed."""

import numpy as np
import pytest

import solvable

torch = pytest.importorskip("torch")
bridge = pytest.importorskip("solvable.torch")
EPOCHS = 6
RNG = np.random.default_rng(0)
INPUTS = torch.tensor(RNG.normal(size=(48, 5)), dtype=torch.float32)
LABELS = torch.tensor(RNG.integers(0, 3, 48))


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def loader(shuffle):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(INPUTS, LABELS), 16, shuffle=shuffle)


def check(tracker, path, epochs):
    """The history, the log, and the curve that is read from it are of these epochs."""
    history = tracker.history
    np.testing.assert_array_equal(history.epoch, epochs)
    assert (history.sharpness > 0).all()
    np.testing.assert_allclose(history.edge_fraction, history.sharpness / history.edge_of_stability)
    table = np.genfromtxt(path, delimiter=",", names=True)
    np.testing.assert_array_equal(table["epoch"], epochs)
    np.testing.assert_array_equal(table["sharpness"], history.sharpness)


@pytest.mark.slow
def test_lightning_trains_with_the_tracker(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def forward(self, x):
            return self.network(x)

        def training_step(self, batch, _):
            loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
            self.log("train/loss", loss, on_step=False, on_epoch=True)
            return loss

        def configure_optimizers(self):
            self.optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return self.optimizer

    def run(*callbacks):
        lightning.seed_everything(0)
        module = module_of_run
        trainer = lightning.Trainer(
            max_epochs=EPOCHS,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=list(callbacks),
            default_root_dir=tmp_path,
        )
        trainer.fit(module, loader(shuffle=True))

    module_of_run = Module()
    run()
    plain = [value.clone() for value in module_of_run.parameters()]
    module_of_run = module = Module()
    path = tmp_path / "log.csv"
    tracker = bridge.Tracker(
        module, loader(False), loader(False), log=path, stability=lambda: {"optimizer": module.optimizer}
    )
    run(bridge.lightning_callback(tracker))
    check(tracker, path, range(EPOCHS))
    # The losses that Lightning logged came along, and are a curve.
    (curve,) = solvable.read_curves(path, announce=False)
    np.testing.assert_array_equal(curve.loss, tracker.history.train_loss)
    assert curve.loss[-1] < curve.loss[0]
    # Measuring has not changed the training.
    for one, other in zip(plain, module.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_hugging_face_trains_with_the_tracker(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network()

        def forward(self, inputs, labels=None):
            logits = self.network(inputs)
            if labels is None:
                return {"logits": logits}
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return len(LABELS)

        def __getitem__(self, place):
            return {"inputs": INPUTS[place], "labels": LABELS[place]}

    module, path = Classifier(), tmp_path / "log.csv"
    batches = [{"inputs": INPUTS[i : i + 16], "labels": LABELS[i : i + 16]} for i in (0, 16, 32)]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)
    tracker = bridge.Tracker(module, batches, batches, log=path, stability={"optimizer": optimizer})
    options = transformers.TrainingArguments(
        output_dir=str(tmp_path / "run"),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=16,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    callback = bridge.hugging_face_callback(tracker)
    trainer = transformers.Trainer(
        module, options, train_dataset=Rows(), callbacks=[callback], optimizers=(optimizer, None)
    )
    trainer.train()
    check(tracker, path, range(1, EPOCHS + 1))
    # The trainer lets the learning rate decay to zero, and the edge rises as it falls.
    edges = tracker.history.edge_of_stability.values
    assert (np.diff(edges[:-1]) > 0).all()
    assert np.isinf(edges[-1])
