"""Callbacks of Lightning and Hugging Face that measure a network during training."""

from collections.abc import Callable
from typing import Any, TypeAlias

# A tracker: called with the epoch and further numbers.
Measure: TypeAlias = Callable[..., Any]


def lightning_callback(tracker: Measure, every: int = 1) -> Any:
    """A Lightning callback that calls a tracker after training epochs.

    Parameters
    ----------
    tracker
        The tracker, which also stores the logged metrics.
    every
        Number of epochs between two measurements.
    """
    try:
        from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as error:
            raise ImportError("a Lightning callback needs Lightning: pip install lightning") from error

    class TrackFeatures(Callback):  # type: ignore[misc, valid-type]
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch % every == 0:
                metrics = {name.replace("/", "_"): float(value) for name, value in trainer.callback_metrics.items()}
                tracker(trainer.current_epoch, **metrics)

    return TrackFeatures()


def hugging_face_callback(tracker: Measure, every: int = 1) -> Any:
    """A Hugging Face ``TrainerCallback`` that calls a tracker after training epochs.

    Parameters
    ----------
    tracker, every
        As in :func:`lightning_callback`.
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise ImportError("a Trainer callback needs Hugging Face Transformers: pip install transformers") from error

    class TrackFeatures(TrainerCallback):  # type: ignore[misc, valid-type]
        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if round(state.epoch) % every == 0:
                tracker(state.epoch)

    return TrackFeatures()
