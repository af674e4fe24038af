"""Uploaded features: the file is checked (size, format, plain numbers only) and diagnosed."""

import base64
import io
import os
import tempfile
import zipfile
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

# Bytes of all arrays together once they are unpacked: a small file can hold very many zeros.
_UNPACKED = 200_000_000


def received(content: bytes, limit: int) -> Path:
    """Store an upload in a temporary file for a worker, without reading its arrays; a ValueError says what is wrong."""
    if not content:
        raise ValueError("the file is empty")
    if len(content) > limit:
        raise ValueError(f"the file has {len(content) / 1e6:.1f} MB, more than the {limit / 1e6:.0f} MB a page takes")
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise ValueError("this is not an .npz file: write it with numpy.savez(path, train_features=..., ...)")
    handle, path = tempfile.mkstemp(prefix="solvable-features-", suffix=".npz")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return Path(path)


def sample_file() -> io.BytesIO:
    """A file to try the diagnosis with: features of three classes, noisy, with the readout of least squares."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(3, 12))
    arrays: dict[str, Any] = {}
    readout: Any = None
    for part, count in (("train", 150), ("test", 90)):
        labels = np.arange(count) % 3
        features = centres[labels] + 0.5 * draw.normal(size=(count, 12))
        if part == "train":
            readout = np.linalg.lstsq(features, np.eye(3)[labels], rcond=None)[0]
        outputs = features @ readout
        arrays |= {f"{part}_features": features, f"{part}_outputs": outputs, f"{part}_labels": labels}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, weights=readout.T, bias=np.zeros(3), **arrays)
    buffer.seek(0)
    return buffer


def diagnose(path: str) -> str:
    """The report of a file of features as HTML. The file is removed in any case."""
    from solvable.diagnostics.archives import FEATURES, LAST_LAYER, read_arrays, reports

    try:
        arrays = read_arrays(path, FEATURES, LAST_LAYER, most_bytes=_UNPACKED)
    finally:
        Path(path).unlink(missing_ok=True)
    report, collapsed = reports(arrays)
    parts = [f"<h3>Features: {escape(report.regime)}</h3><pre>{escape(report.summary())}</pre>"]
    if collapsed is not None:
        parts.append(f"<h3>Neural collapse</h3><pre>{escape(collapsed.summary())}</pre>")
    parts.append(_picture(report.plot()))
    return "".join(parts)


def _picture(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="Quality, utilisation and intensity of the features" src="data:image/svg+xml;base64,{data}">'
