"""What a transfer of learning rates keeps of the runs of one width, and the file from which it resumes."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from solvable.files import check_writable, checksums, write_atomically
from solvable.networks.checkpoints import fingerprint


class WidthResult(NamedTuple):
    """Numbers of all runs of one width.

    ``losses`` after the last step, dims (rate, seed), are NaN for runs that diverged. ``initial`` and ``change`` are
    root mean squares of the outputs of each layer and of their change in the coordinate check, dims (layer, rate,
    seed); ``is_finite`` says at which rates all runs were finite then. ``stable_rate`` is 2 / λ of the tangent kernel,
    NaN where there is no such theory, and ``seconds`` is how long all this took.
    """

    losses: np.ndarray
    initial: np.ndarray
    change: np.ndarray
    is_finite: np.ndarray
    stable_rate: float
    seconds: float


def width_result(
    curves: xr.Dataset,
    layers: Sequence[str],
    coordinate_steps: int,
    diverged_above: float,
    stable_rate: float,
    seconds: float,
) -> WidthResult:
    """The numbers of one width from its curves at step 0, at that of the coordinate check, and at the last."""
    name = loss_name(curves)
    final, first = curves[name].isel(time=-1), curves[name].isel(time=0)
    # A run may also diverge in the last step.
    lost = (curves.diverged_at >= 0) | ~np.isfinite(final) | (final > diverged_above * first)
    losses = final.where(~lost).transpose("variant", "seed").values.astype(float)
    if (losses == 0).any():
        raise ValueError(
            "a final loss is exactly zero, so that it has no logarithm: train for fewer steps, or give a test set"
        )
    initial, change = [], []
    with np.errstate(over="ignore", invalid="ignore"):
        for layer in layers:
            before, after = (curves[f"layer {layer}"].values[:, :, index].astype(float) for index in (0, 1))
            initial.append(_root_mean_square(before))
            change.append(_root_mean_square(after - before))
    early = ((curves.diverged_at < 0) | (curves.diverged_at > coordinate_steps)).all("seed").values
    finite = early & np.isfinite(change).all(axis=(0, 2))
    return WidthResult(losses, np.array(initial), np.array(change), finite, stable_rate, seconds)


def loss_name(curves: xr.Dataset) -> str:
    """The loss on the test set where there is one."""
    return "test_loss" if "test_loss" in curves else "train_loss"


def _root_mean_square(values: np.ndarray) -> np.ndarray:
    """Over all axes but the first two."""
    return np.asarray(np.sqrt(np.mean(np.square(values), axis=tuple(range(2, values.ndim)))))


class Checkpoint:
    """The widths that are done, in one file, each with a fingerprint of what it was made from.

    Parameters
    ----------
    path
        The file; None keeps nothing.
    settings
        Plain values on which the numbers of all widths depend.
    """

    def __init__(self, path: str | Path | None, settings: dict[str, Any]) -> None:
        self.path = None if path is None else _with_suffix(Path(path))
        self.settings = settings
        self._arrays: dict[str, np.ndarray] = {}
        if self.path is not None:
            check_writable(self.path)
            self._arrays = _read(self.path)

    def fingerprint(self, width: int, step: Callable[[Any], Any], *trees: Any) -> str:
        """Hash of all that the numbers of this width depend on.

        ``step`` is a function of the trained arrays, first of the ``trees``, that uses the network, the loss and the
        optimiser: if one of them changes, so does the text of its program.
        """
        if self.path is None:
            return ""
        return fingerprint({**self.settings, "width": width}, jax.jit(step).lower(trees[0]).as_text(), *trees)

    def find(self, width: int, fingerprint: str) -> WidthResult | None:
        """The numbers of a width, None if it is not done; a ValueError if they were made from something else."""
        if f"{width}/fingerprint" not in self._arrays:
            return None
        if str(self._arrays[f"{width}/fingerprint"]) != fingerprint:
            raise ValueError(
                f"{self.path} holds width {width} of a transfer with other settings, data, network, loss or optimiser: "
                "choose another path, or delete it to start again"
            )
        return _result(self._arrays, width)

    def add(self, width: int, fingerprint: str, result: WidthResult) -> None:
        """Write the file anew, with this width."""
        if self.path is None:
            return
        self._arrays |= {f"{width}/{name}": np.asarray(values) for name, values in result._asdict().items()}
        self._arrays[f"{width}/fingerprint"] = np.array(fingerprint)
        content = io.BytesIO()
        np.savez(content, **self._arrays)  # type: ignore[arg-type]
        write_atomically(self.path, checksums.append(content.getvalue()))


def read_checkpoint(path: str | Path) -> dict[int, WidthResult]:
    """The widths that are done in the checkpoint of a transfer, in ascending order; none if there is no such file."""
    arrays = _read(_with_suffix(Path(path)))
    widths = sorted(int(name.split("/")[0]) for name in arrays if name.endswith("/fingerprint"))
    return {width: _result(arrays, width) for width in widths}


def _result(arrays: dict[str, np.ndarray], width: int) -> WidthResult:
    losses, initial, change, is_finite, *numbers = (arrays[f"{width}/{name}"] for name in WidthResult._fields)
    stable_rate, seconds = (float(number) for number in numbers)
    return WidthResult(losses, initial, change, is_finite, stable_rate, seconds)


def _with_suffix(path: Path) -> Path:
    return path if path.suffix == ".npz" else path.with_name(path.name + ".npz")


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        return {}
    try:
        content = path.read_bytes()
        checksums.verify(content)
        with np.load(io.BytesIO(content[: -checksums.LENGTH]), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is not a readable checkpoint ({error}): delete it to start again") from error
