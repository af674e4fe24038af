"""Work in pieces, downloads and uploads."""

import io
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest
from settings_made import QUICK, changed

import solvable
from solvable.explorer import diagnosis, files
from solvable.numerics.ensemble import ensemble, seeds_from
from solvable.plotting import series as curves
from solvable.progress import progress_bar, progress_callback, progress_part
from solvable.settings import theory_of

# Pieces of an ensemble, and progress -------------------------------------------------------------------------------


def test_seeds_can_be_run_in_pieces() -> None:
    whole = ensemble(jax.random.normal, seeds=4, key=3)
    with seeds_from(2):
        rest = ensemble(jax.random.normal, seeds=2, key=3)
    assert np.array_equal(whole[2:], rest)
    assert len(set(whole.tolist())) == 4


def test_work_reports_its_share_and_stops_when_its_listener_raises() -> None:
    heard: list[float] = []
    with progress_callback(heard.append), progress_part(0.5, 0.5), progress_bar("outer", 4) as advance:
        advance()
        with progress_bar("inner", 10) as inner:
            inner(5)
        advance(3)
    assert heard == [0.625, 0.625, 1.0]

    def stop(share: float) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError), progress_callback(stop), progress_bar("work", 2) as advance:
        advance()


# Files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".nc", ".csv"])
def test_downloads_read_back(ending: str, tmp_path: Path) -> None:
    theory = theory_of(changed("diagonal-network", QUICK["diagonal-network"]))
    path = tmp_path / f"theory{ending}"
    path.write_bytes(files.data_file(theory, ending).getvalue())
    back = solvable.load(path)
    if ending == ".nc":
        assert back.equals(theory)
    else:
        assert np.array_equal(back.strength_mode_1.values, theory.strength.sel(mode=1).values)
    assert back.attrs["model"] == "diagonal-network"


def test_pictures_are_pictures() -> None:
    curve = curves.Curve("test loss", 0, np.arange(1.0, 4), np.array([1.0, 0.5, 0.1]))
    points = curves.Curve("test loss", 0, np.arange(1.0, 4), np.array([1.0, 0.5, 0.1]), np.full(3, 0.1), np.zeros(3))
    panel = {"lines": [(curve, False), (curve, True)], "points": [points], "hollow": False, "x_log": True}
    panel |= {"y_log": True, "y_range": (0.01, 1.0), "x_label": "t", "y_label": "loss", "whose": ("λ = 0.9", "λ = 1.5")}
    assert files.picture([panel], ".png", "title").getvalue().startswith(b"\x89PNG")
    assert b"<svg" in files.picture([panel], ".svg", "title").getvalue()


# Uploads -----------------------------------------------------------------------------------------------------------


def _npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _features(**changes: np.ndarray) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for part, count in (("train", 60), ("test", 40)):
        labels = np.arange(count) % 3
        hidden = np.eye(3)[labels] @ draw.normal(size=(3, 8)) + 0.1 * draw.normal(size=(count, 8))
        arrays |= {
            f"{part}_features": hidden,
            f"{part}_labels": labels,
            f"{part}_outputs": hidden @ draw.normal(size=(8, 3)),
        }
    return {**arrays, **changes}


def test_a_file_of_features_gives_the_librarys_report() -> None:
    from solvable import diagnostics

    path = diagnosis.received(_npz(**_features()), 1_000_000)
    page = diagnosis.diagnose(str(path))
    assert not path.exists(), "uploads are not kept"
    arrays = _features()
    gathered = []
    for part in ("train", "test"):
        statistics = diagnostics.FeatureStatistics()
        statistics.update(arrays[f"{part}_features"], arrays[f"{part}_outputs"], arrays[f"{part}_labels"])
        gathered.append(statistics)
    report = diagnostics.features(*gathered)
    assert report.regime in page
    assert f"{report.mp_distance:.4g}" in page
    assert "data:image/svg+xml" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_the_sample_file_can_be_diagnosed() -> None:
    path = diagnosis.received(diagnosis.sample_file().getvalue(), 8_000_000)
    report = diagnosis.diagnose(str(path))
    assert "Features:" in report
    assert "Neural collapse" in report
    assert diagnosis.sample_file().getvalue() == diagnosis.sample_file().getvalue()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "empty"),
        (b"not a zip at all", "not an .npz file"),
        (b"x" * 2_000_001, "more than the 2 MB"),
    ],
)
def test_what_is_no_npz_is_not_even_kept(content: bytes, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        diagnosis.received(content, 2_000_000)


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"train_features": np.array([{"a": 1}], dtype=object)}, "Python objects, which could run code"),
        ({"train_features": np.array(["a", "b"])}, "must be an array of numbers"),
        ({"train_features": np.full((60, 8), np.nan)}, "not finite"),
        ({"train_labels": np.zeros(5)}, "equally many rows"),
    ],
)
def test_features_that_are_no_numbers_are_refused(arrays: dict[str, np.ndarray], match: str) -> None:
    path = diagnosis.received(_npz(**_features(**arrays)), 10_000_000)
    with pytest.raises(ValueError, match=match):
        diagnosis.diagnose(str(path))
    assert not path.exists()


def test_an_array_that_says_it_is_huge_is_refused_unread() -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**6)})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in _features().items():
            inner = io.BytesIO()
            np.save(inner, array)
            archive.writestr(f"{name}.npy", header.getvalue() if name == "test_features" else inner.getvalue())
    path = diagnosis.received(buffer.getvalue(), 10_000_000)
    with pytest.raises(ValueError, match="more than the 200 MB allowed"):
        diagnosis.diagnose(str(path))
    missing = diagnosis.received(_npz(other=np.zeros(3)), 10_000_000)
    with pytest.raises(ValueError, match="no array 'train_features'.*holds other"):
        diagnosis.diagnose(str(missing))
