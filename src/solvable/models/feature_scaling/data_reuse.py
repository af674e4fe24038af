"""How much reused data is worth: K epochs over P samples give the loss of E(K) epochs of new samples."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from solvable.models.feature_scaling.theory import curves
from solvable.training import SGD

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling

# Up to this number of steps every one is followed; later times are those of the flow.
_MOST_STEPS = 1200
# How far the curve of new samples is followed to where it meets the end of the reused ones.
_LATEST = 1e7


def crossing(times: Float[np.ndarray, "time"], losses: Float[np.ndarray, "time"], wanted: float) -> float:
    """The time at which a falling loss first is as small as wanted, between times by a power law; NaN if never."""
    place = int(np.argmax(losses <= wanted))
    if losses[place] > wanted:
        return math.nan
    if place == 0:
        return float(times[0])
    (low, high), (above, below) = times[place - 1 : place + 1], losses[place - 1 : place + 1]
    share = math.log(above / wanted) / math.log(above / below) if above > below else 1.0
    # The first interval begins at time zero.
    return float(low + share * (high - low)) if low == 0 else float(low * (high / low) ** share)


class Reuse:
    """Curves of reused and of new samples, over the same steps."""

    def __init__(
        self, model: "FeatureScaling", training: SGD, epochs: Float[np.ndarray, "epoch"], options: dict[str, Any]
    ) -> None:
        self._model, self._options = model, options
        self._per_epoch = model.sample_count / training.samples_per_batch(model.sample_count)
        self._online = (model.replace(samples=None), training.replace(sampling="online", batch_fraction=None))
        if training.batch_size is None:
            size = training.samples_per_batch(model.sample_count)
            self._online = (self._online[0], SGD(**{**self._online[1].parameters(), "batch_size": size}))
        last = math.ceil(float(epochs[-1]) * self._per_epoch)
        solver = options.get("solver") or ("march" if last <= _MOST_STEPS else "slot-march")
        self._options = {**options, "solver": solver}
        self.times = np.arange(last + 1.0) if solver == "march" else np.append(0.0, np.geomspace(0.1, last, 400))
        reused = curves(model, self.times, training, self._options)
        self.test_loss, self.train_loss = np.asarray(reused.test_loss), np.asarray(reused.train_loss)
        self.online_loss = np.asarray(self._new_samples(self.times, solver))
        self.solver = reused.solver
        self.error = reused.error

    def _new_samples(self, times: np.ndarray, solver: str) -> Any:
        return curves(self._online[0], times, self._online[1], {**self._options, "solver": solver}).test_loss

    @property
    def epochs(self) -> Float[np.ndarray, "time"]:
        return self.times / self._per_epoch

    def effective(self) -> Float[np.ndarray, "time"]:
        """E at every time: after how many epochs of new samples the loss is as small."""
        best = np.minimum.accumulate(self.online_loss)
        found = [crossing(self.times, best, float(loss)) for loss in self.test_loss]
        return np.array(found) / self._per_epoch

    def half_epoch(self, effective: Float[np.ndarray, "time"]) -> float:
        """K* where ``E(K) = K / 2``; NaN if that is after the last epoch."""
        with np.errstate(invalid="ignore"):
            share = effective[1:] / self.epochs[1:]
        # Within the first epoch E is K, up to the repeats of draws with replacement.
        return crossing(self.epochs[1:], np.where(self.epochs[1:] < 1, 1.0, share), 0.5)

    def at_the_end(self, end: float) -> float:
        """E(inf): when new samples reach the loss that the reused ones end at; infinite if they do not."""
        best = np.minimum.accumulate(self.online_loss)
        found = crossing(self.times, best, end)
        last = float(self.times[-1])
        while math.isnan(found) and last < _LATEST:
            last = min(30 * last, _LATEST)
            times = np.append(0.0, np.geomspace(0.1, last, 400))
            found = crossing(times, np.minimum.accumulate(np.asarray(self._new_samples(times, "slot-march"))), end)
        return math.inf if math.isnan(found) else found / self._per_epoch


def effective_epochs(
    model: "FeatureScaling", epochs: Float[np.ndarray, "epoch"], training: SGD, options: dict[str, Any]
) -> xr.Dataset:
    """The dataset of :meth:`FeatureScaling.effective_epochs`."""
    reuse = Reuse(model, training, epochs, options)
    everywhere = reuse.effective()
    # Noise of batches dies where the training set is learned by heart; otherwise the end is not known.
    learned = model.features >= model.sample_count and model.mode_count >= model.sample_count
    final = reuse.at_the_end(float(model.limit().test_loss)) if learned else math.nan
    best = float(reuse.epochs[int(np.argmin(reuse.test_loss))])
    half = reuse.half_epoch(everywhere)

    def at(values: np.ndarray) -> np.ndarray:
        return np.interp(epochs, reuse.epochs, values)

    variables = {
        "effective_epochs": at(everywhere),
        "test_loss": at(reuse.test_loss),
        "train_loss": at(reuse.train_loss),
        "online_test_loss": at(reuse.online_loss),
        "final_effective_epochs": ((), final),
        "half_epoch": ((), half),
        "best_epoch": ((), best),
    }
    dataset = model.dataset("theory", variables, {"epoch": epochs}, reuse.solver, training=training, error=reuse.error)
    facts = {"last": float(at(everywhere)[-1]), "half_epoch": half, "final": final, "best_epoch": best}
    return dataset.assign_attrs(sentence=sentence(facts, float(epochs[-1])))


def sentence(found: dict[str, Any], last: float) -> str:
    """What reuse is worth, in words."""
    parts = [f"{last:g} epochs over the same samples are worth {found['last']:.3g} epochs of new ones"]
    if math.isfinite(found["half_epoch"]):
        parts.append(f"half of an epoch's worth is lost from epoch {found['half_epoch']:.3g} on")
    if math.isfinite(found["final"]):
        parts.append(f"infinitely many epochs are worth {found['final']:.3g}")
    if found["best_epoch"] < last:
        parts.append(f"the test loss is least after {found['best_epoch']:.3g} epochs, and rises then")
    return "; ".join(parts)[0].upper() + "; ".join(parts)[1:] + "."
