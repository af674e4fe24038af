"""Readers of logs: the same curve comes back from every format, and every doubt and defect is one clear line."""

import gzip
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import solvable
from solvable.inference import CurveWarning, Run, count_forks_once, example_curves, read_curves

STEPS = np.arange(10, 510, 10.0)
LOSS = 2 + 3 * STEPS**-0.4


def table(**more: object) -> pd.DataFrame:
    return pd.DataFrame({"step": STEPS, "loss": LOSS, **more})


def check(curves: list[Run], count: int = 1) -> None:
    assert len(curves) == count
    for run in curves:
        np.testing.assert_allclose(run.steps, STEPS)
        np.testing.assert_allclose(run.loss, LOSS, rtol=1e-6)


def quiet(source: object, **options: object) -> list[Run]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_curves(source, **options)  # type: ignore[arg-type]


def test_tables_arrays_and_datasets_give_the_same_curve() -> None:
    check(quiet(table()))
    check(quiet({"step": STEPS, "loss": LOSS}))
    check(quiet((STEPS, LOSS)))
    check(quiet(np.column_stack([STEPS, LOSS])))
    check(quiet(Run("one", STEPS, LOSS)))
    check(read_curves([(STEPS, LOSS), table()], announce=False), 2)
    assert quiet(LOSS)[0].steps.tolist() == list(range(1, 51))
    check(read_curves(xr.Dataset({"test_loss": ("time", LOSS)}, {"time": STEPS}), announce=False))
    seeds = xr.Dataset({"test_loss": (("seed", "time"), np.stack([LOSS, LOSS]))}, {"time": STEPS, "seed": [0, 1]})
    curves = read_curves(seeds, announce=False)
    check(curves, 2)
    assert [run.name for run in curves] == ["seed 0", "seed 1"]
    assert solvable.read_curves is read_curves


def test_csv_with_any_separator_compression_and_comments(tmp_path: Path) -> None:
    for name, separator in (("a.csv", ","), ("b.csv", ";"), ("c.tsv", "\t"), ("d.txt", " ")):
        table().to_csv(tmp_path / name, index=False, sep=separator)
        check(quiet(tmp_path / name))
    text = "# written by hand\n" + table().to_csv(index=False)
    (tmp_path / "e.csv").write_text(text)
    check(quiet(tmp_path / "e.csv"))
    (tmp_path / "f.csv.gz").write_bytes(gzip.compress(text.encode()))
    check(quiet(tmp_path / "f.csv.gz"))
    curves = read_curves([tmp_path / "a.csv", tmp_path / "f.csv.gz"], announce=False)
    assert [run.name for run in curves] == ["a", "f"]


def test_json_lines_and_trainer_states(tmp_path: Path) -> None:
    records = [{"step": step, "loss": loss} for step, loss in zip(STEPS, LOSS, strict=True)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, records)))
    check(quiet(tmp_path / "log.jsonl"))
    # Hugging Face writes evaluations between the training records, and a summary at the end.
    history = [*records, {"step": 500, "eval_runtime": 1.0}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history, "best_metric": None}))
    check(quiet(tmp_path / "trainer_state.json"))
    (tmp_path / "broken.jsonl").write_text('{"step": 1, "loss": 2}\n{"step": ')
    with pytest.raises(ValueError, match="line 2 is not a JSON record"):
        read_curves(tmp_path / "broken.jsonl")


def test_parquet_or_the_package_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_engine(path: object) -> None:
        raise ImportError("no engine")

    (tmp_path / "log.parquet").write_bytes(b"PAR1")
    with monkeypatch.context() as patch:
        patch.setattr(pd, "read_parquet", no_engine)
        with pytest.raises(ImportError, match="needs pyarrow: pip install 'solvable\\[logs\\]'"):
            read_curves(tmp_path / "log.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(pd, "read_parquet", lambda path: table())
        check(quiet(tmp_path / "log.parquet"))
    pytest.importorskip("pyarrow")
    table().to_parquet(tmp_path / "real.parquet")
    check(quiet(tmp_path / "real.parquet"))


def test_tensorboard_event_files_are_read_without_sampling(tmp_path: Path) -> None:
    """Two folders are two runs; 10 100 records are more than TensorBoard keeps by default."""
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    steps = np.arange(1, 10_101)
    for name, floor, count in (("wide", 1.0, 10_100), ("narrow", 2.0, 200)):
        writer = EventFileWriter(str(tmp_path / name))
        for step in steps[:count]:
            values = [Summary.Value(tag="train/loss", simple_value=floor + step**-0.5)]
            if step % 100 == 0:
                values.append(Summary.Value(tag="val/accuracy", simple_value=0.5))
            writer.add_event(Event(step=int(step), summary=Summary(value=values)))
        writer.close()
    with pytest.warns(CurveWarning, match="the loss is 'train/loss'"):
        curves = read_curves(tmp_path, per_decade=None)
    assert [run.name for run in curves] == ["narrow", "wide"]
    assert [run.size for run in curves] == [200, 10_100]
    np.testing.assert_allclose(curves[1].loss, 1 + steps**-0.5, rtol=1e-6)
    with pytest.warns(CurveWarning, match="10100 records are averaged in .* bins"):
        short = read_curves(tmp_path)[1]
    assert short.size < 170


def test_tensorboard_file_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "events.out.tfevents.1").write_bytes(b"not an event")
    with pytest.raises(ValueError, match="holds no scalars"):
        read_curves(tmp_path / "events.out.tfevents.1")


def test_exports_of_weights_and_biases(tmp_path: Path) -> None:
    """One column per run and metric, with extremes beside it, and empty cells where a run did not log."""
    steps = np.arange(0, 500, 5.0)
    lines = ["Step,big - train/loss,big - train/loss__MIN,big - train/loss__MAX,small - train/loss"]
    for place, step in enumerate(steps):
        big = f"{2 + (step + 1) ** -0.4}" if place % 2 == 0 else ""
        lines.append(f"{step:g},{big},{big},{big},{3 + (step + 1) ** -0.4}")
    (tmp_path / "wandb.csv").write_text("\n".join(lines))
    curves = read_curves(tmp_path / "wandb.csv", announce=False)
    assert [(run.name, run.size) for run in curves] == [("big", 50), ("small", 100)]
    np.testing.assert_allclose(curves[0].loss, 2 + (steps[::2] + 1) ** -0.4)
    # The frame of run.history() has NaN where a row has no validation.
    frame = pd.DataFrame({"_step": np.repeat(STEPS, 2), "_timestamp": 1.0})
    frame["val/loss"], frame["train/grad_norm"] = np.nan, 1.0
    frame.loc[::2, "val/loss"], frame.loc[::2, "train/grad_norm"] = LOSS, np.nan
    check(read_curves(frame, announce=False))
    as_frame = read_curves(pd.read_csv(tmp_path / "wandb.csv"), announce=False)
    assert [(run.name, run.size) for run in as_frame] == [("big", 50), ("small", 100)]


def test_logs_of_lightning(tmp_path: Path) -> None:
    """Training and validation are in rows of their own; the learning rate is that of its monitor."""
    folder = tmp_path / "lightning_logs" / "version_0"
    folder.mkdir(parents=True)
    lines = ["epoch,lr-AdamW,step,train_loss,val_acc"]
    for step, loss in zip(STEPS, LOSS, strict=True):
        lines += [f"0,,{step:g},{float(loss)!r},", f"0,0.001,{step:g},,", f"0,,{step:g},,0.5"]
    (folder / "metrics.csv").write_text("\n".join(lines))
    for place in (folder / "metrics.csv", tmp_path / "lightning_logs"):
        curves = read_curves(place, announce=False)
        check(curves)
        assert curves[0].peak == pytest.approx(1e-3)
    with pytest.warns(CurveWarning, match="the loss is 'train_loss', the learning rate is 'lr-AdamW'"):
        read_curves(folder / "metrics.csv")


def test_history_of_a_tracker() -> None:
    epochs = np.arange(1, 21.0)
    history = xr.Dataset(
        {
            "val_loss": ("epoch", 1 / epochs),
            "regime": ("epoch", ["lazy"] * 20),
            "quality": (("epoch", "mode"), np.ones((20, 3))),
        },
        {"epoch": epochs},
    )

    class Tracker:
        pass

    tracker = Tracker()
    tracker.history = history  # type: ignore[attr-defined]
    for source in (history, tracker):
        with pytest.warns(CurveWarning, match="the loss is 'val_loss', time is 'epoch'"):
            (run,) = read_curves(source)
        np.testing.assert_allclose(run.loss, 1 / epochs)


def test_rates_sizes_and_runs_are_found() -> None:
    frame = pd.concat(
        [table(run=name, lr=1e-3 * np.linspace(1, 0.1, 50), width=width) for name, width in (("a", 64), ("b", 128))]
    )
    with pytest.warns(CurveWarning, match="the learning rate is 'lr'"):
        curves = read_curves(frame)
    check(curves, 2)
    assert [run.sizes["width"] for run in curves] == [64, 128]
    assert curves[0].peak == pytest.approx(1e-3)
    assert curves[0].learning_rate is not None
    assert curves[0].learning_rate[-1] == pytest.approx(0.1)
    # The intrinsic time falls behind the steps as the rate decays.
    assert curves[0].flow_time[-1] < 0.6 * curves[0].steps[-1]


def test_warm_up_delays_the_intrinsic_time_by_half_of_its_length() -> None:
    (run,) = quiet((np.arange(100, 5000, 10.0), np.arange(100, 5000, 10.0) ** -0.3), warm_up=80)
    np.testing.assert_allclose(run.steps - run.flow_time, 40, atol=1)
    run = example_curves()[0]
    assert run.steps[0] - run.flow_time[0] == pytest.approx(1080, abs=2)


def test_forks_are_noticed_and_can_count_once() -> None:
    other = np.where(STEPS > 200, LOSS - 0.05, LOSS)
    with pytest.warns(CurveWarning, match="share their first 20 records, to step 200"):
        curves = read_curves([(STEPS, LOSS), (STEPS, other)])
    assert [run.size for run in count_forks_once(curves)] == [50, 30]


def test_restarts_keep_the_later_records() -> None:
    steps = np.concatenate([STEPS[:30], STEPS[20:]])
    losses = np.concatenate([LOSS[:30] + 0.5, LOSS[20:]])
    with pytest.warns(CurveWarning, match="steps go back 1 times, first to 210 .* 10 are left out"):
        (run,) = read_curves((steps, losses))
    np.testing.assert_allclose(run.steps, STEPS)
    np.testing.assert_allclose(run.loss[20:], LOSS[20:])
    with pytest.warns(CurveWarning, match="1 records repeat a step"):
        check(read_curves(pd.concat([table().iloc[:5], table().iloc[4:]])))


def test_several_epochs_of_training_loss_are_noticed() -> None:
    with pytest.warns(CurveWarning, match="covers 5 epochs"):
        read_curves(table(epoch=np.repeat(np.arange(5), 10)))


def test_bits_are_noticed() -> None:
    with pytest.warns(CurveWarning, match="is in bits"):
        read_curves(pd.DataFrame({"step": STEPS, "val_bpb": LOSS}))


def test_spikes_are_named_and_can_be_masked() -> None:
    losses = LOSS.copy()
    losses[[7, 9]] = np.nan, np.inf
    with pytest.raises(ValueError, match="'loss' is nan at step 80 \\(2 of 50 records\\).*mask_spikes=True"):
        read_curves((STEPS, losses))
    with pytest.warns(CurveWarning, match="these records are left out"):
        assert read_curves((STEPS, losses), mask_spikes=True)[0].size == 48


def _interleaved() -> pd.DataFrame:
    return pd.DataFrame({"step": np.repeat(STEPS, 2), "loss": np.column_stack([LOSS, LOSS + 2]).ravel()})


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (table(val_loss=LOSS), {}, "2 columns that could be the loss \\('loss', 'val_loss'\\)"),
        (
            pd.DataFrame({"step": STEPS, "accuracy": LOSS}),
            {},
            "no column that looks like a loss; it has step, accuracy",
        ),
        (pd.DataFrame({"x": STEPS, "loss": LOSS}), {}, "no column of steps; it has x, loss"),
        (table(), {"loss": "nll"}, "no column 'nll' for loss="),
        (pd.DataFrame({"step": STEPS, "ppl": LOSS}), {"loss": "ppl"}, "take its logarithm first"),
        ((STEPS, LOSS - 2.5), {}, "is this column a loss"),
        ((STEPS[:3], LOSS[:3]), {}, "3 records"),
        ((-STEPS, LOSS), {}, "steps are finite numbers, zero or more"),
        (_interleaved(), {}, "as if several runs or metrics had one name"),
        ([(STEPS, LOSS), {"epoch": STEPS, "loss": LOSS}], {}, "mixed units of time"),
        ((np.append(STEPS[:25], STEPS[24] + 1e5 * np.arange(1, 26)), LOSS), {}, "unit of time had changed"),
        ([], {}, "the list is empty"),
        (np.ones((3, 4, 5)), {}, "neither losses nor two columns"),
        (3, {}, "not int"),
        ({"step": STEPS, "loss": LOSS[:4]}, {}, "equally long"),
        ((STEPS, LOSS), {"warm_up": -1}, "warm_up must be"),
        ((STEPS, LOSS), {"per_decade": "many"}, "per_decade must be"),
        (
            pd.DataFrame({"step": STEPS, "loss": ["high"] * 50}),
            {"loss": "loss"},
            "must hold numbers, but there is 'high'",
        ),
        (pd.DataFrame(np.ones((5, 2)), columns=["loss", "loss"]), {}, "two columns called 'loss'"),
    ],
)
def test_bad_curves_are_one_clear_line(source: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_curves(source, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "is empty"),
        ("header.csv", b"step,loss\n", "no records"),
        ("numbers.csv", b"1,2\n3,4\n", "no line of column names"),
        ("page.csv", b"<html><body>sign in</body></html>", "page of markup"),
        ("ragged.csv", b"step,loss\n1,2\n3\n", "record 2 has 1 cells"),
        ("binary.csv", b"\x00\x01\x02\x03" * 50, "not a text file"),
        ("twice.csv", b"step,loss,loss\n1,2,3\n", "two columns called 'loss'"),
        ("model.pkl", b"\x80\x04", "refused: reading .pkl files can run code"),
        ("weights.pt", b"PK", "refused"),
        ("table.xlsx", b"PK", "is no known log"),
        ("list.json", b"[1, 2, 3]", "must hold records"),
        ("broken.json", b"{", "is not JSON"),
        ("none.jsonl", b"", "no records"),
        ("other.npz", b"PK", "cannot be read"),
    ],
)
def test_files_of_other_programs_are_one_clear_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_curves(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_places_without_logs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        read_curves(tmp_path / "nothing.csv")
    with pytest.raises(ValueError, match="holds neither TensorBoard event files nor"):
        read_curves(tmp_path)


def test_example_curves_are_those_of_the_sources() -> None:
    for size in ("25M", "100M"):
        runs = {run.name: run for run in example_curves(f"schedules-{size}")}
        assert len(runs) == 9
        assert runs["constant_24000"].is_constant
        assert not runs["cosine_24000"].is_constant
        assert runs["cosine_24000"].sizes["parameters"] == float(size[:-1]) * 1e6
        assert runs["cosine_24000"].peak == pytest.approx(3e-4)
        assert runs["cosine_72000"].rates([71_999])[0] == pytest.approx(0.1, rel=0.01)


def test_epochs_numbered_from_zero_are_noticed() -> None:
    """Keras' CSVLogger: the loss of epoch 0 is that after one epoch. Taken at time 0 the exponent is far too small."""
    epochs = np.arange(40)
    loss = 0.2 + 2.0 * (epochs + 1.0) ** -0.7
    kept = read_curves({"epoch": epochs, "val_loss": loss}, announce=False)
    assert kept[0].steps.tolist() == epochs.tolist()
    assert any(
        "if it was recorded at the end of its epoch, as Keras does, add 1 to the column" in n for n in kept.notes
    )
    added = read_curves({"epoch": epochs + 1, "val_loss": loss}, announce=False)
    exponents = [
        float(solvable.infer(curves, "power-law", uncertainty="none", backtest=False).parameters.estimate[0])
        for curves in (kept, added)
    ]
    assert exponents[0] < 0.35
    assert exponents[1] == pytest.approx(0.7, abs=1e-3)
    # Epochs from one on, parts of epochs, and steps from zero on have no such doubt.
    for name, values in (("epoch", epochs + 1.0), ("epoch", epochs / 4), ("step", epochs)):
        notes = read_curves({name: values, "val_loss": loss}, announce=False).notes
        assert not any("numbered from 0" in note for note in notes)
