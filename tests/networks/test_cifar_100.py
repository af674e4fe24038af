"""CIFAR-100 from an archive of the user's: a small one of the same format, what is refused, and damage."""

import dataclasses
import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from solvable.cli import main
from solvable.networks import add_images, load_images
from solvable.networks.data import archives, catalogue

TRAIN, TEST = 200, 100


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CIFAR-100 with two training images and one test image of each class, and a cache of its own."""
    whole = catalogue.find("cifar-100")
    changed = dataclasses.replace(whole, train=TRAIN, test=TEST)
    monkeypatch.setattr(catalogue, "CATALOGUE", {**catalogue.CATALOGUE, "cifar-100": changed})
    monkeypatch.setenv("SOLVABLE_DATA", str(tmp_path / "cache"))


def records(count: int, key: int = 0) -> np.ndarray:
    """Coarse label, fine label, and 3072 bytes of red, green and blue."""
    generator = np.random.default_rng(key)
    fine = generator.permutation(np.arange(count) % 100)
    pixels = generator.integers(0, 256, (count, 3072))
    return np.concatenate([(fine // 5)[:, None], fine[:, None], pixels], axis=1).astype(np.uint8)


def archive(path: Path, train: bytes, test: bytes, folder: str = "cifar-100-binary", **others: bytes) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in {f"{folder}/train.bin": train, f"{folder}/test.bin": test, **others}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def good(path: Path, **others: bytes) -> Path:
    return archive(path, records(TRAIN).tobytes(), records(TEST, 1).tobytes(), **others)


def test_images_and_labels_are_those_of_the_records(tmp_path: Path) -> None:
    kept, source = add_images("cifar-100", good(tmp_path / "own.tar.gz"))
    assert kept == tmp_path / "cache" / "cifar-100.npz"
    assert "structure checked only" in source
    images = load_images("cifar-100", flatten=False)
    assert images.source == source
    assert images.train_inputs.shape == (TRAIN, 32, 32, 3)
    raw = records(TRAIN)
    np.testing.assert_array_equal(images.train_labels, raw[:, 1])
    # Row 3, column 5 of image 7: byte 3 * 32 + 5 of each colour.
    expected = raw[7, 2 + np.array([101, 1024 + 101, 2048 + 101])] / 255
    np.testing.assert_allclose(images.train_inputs[7, 3, 5], expected, rtol=1e-6)
    assert len(images.classes) == len(set(images.classes)) == 100
    assert images.classes[:2] == ("apple", "aquarium fish")
    assert (images.classes[-1], images.classes[70]) == ("worm", "rose")
    assert load_images("cifar-100", classes=[3, 70]).classes == ("bear", "rose")


def test_the_published_archive_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = good(tmp_path / "cifar-100-binary.tar.gz")
    monkeypatch.setitem(archives.PUBLISHED, "cifar-100", hashlib.sha256(path.read_bytes()).hexdigest())
    assert "the published archive by its sha256" in add_images("cifar-100", path)[1]


def test_nothing_is_unpacked(tmp_path: Path) -> None:
    """Members that would leave the folder are not written anywhere."""
    path = good(tmp_path / "own.tar.gz", **{"../escaped": b"out", "/tmp/absolute-escape": b"out"})
    add_images("cifar-100", path)
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["cache", "cifar-100.npz", "own.tar.gz"]


def test_what_is_refused(tmp_path: Path) -> None:
    train, test = records(TRAIN), records(TEST, 1)
    bytes_of = (train.tobytes(), test.tobytes())
    unequal, group = train.copy(), train.copy()
    unequal[train[:, 1] == 7, 1] = 8
    group[0, 0] = (group[0, 0] + 1) % 20
    many = {f"cifar-100-binary/{number}": b"" for number in range(100)}
    cases = {
        "python": (archive(tmp_path / "a", b"\x80\x04.", b"\x80\x04.", "cifar-100-python"), "pickled and never opened"),
        "short": (archive(tmp_path / "b", bytes_of[0][:-1], bytes_of[1]), r"train.bin has \d+ bytes and 200 records"),
        "unequal": (archive(tmp_path / "c", unequal.tobytes(), bytes_of[1]), "2 images of each of 100 classes"),
        "groups": (archive(tmp_path / "d", group.tobytes(), bytes_of[1]), "coarse and fine labels do not belong"),
        "other": (archive(tmp_path / "e", *bytes_of, "cifar-10-batches-bin"), "no member cifar-100-binary/train.bin"),
        "many": (archive(tmp_path / "f", *bytes_of, **many), "unpacks to more"),
    }
    (tmp_path / "g").write_bytes(b"not an archive")
    cases["text"] = (tmp_path / "g", "cannot be read as cifar-100-binary.tar.gz")
    with tarfile.open(tmp_path / "h", "w:gz") as tar:
        link = tarfile.TarInfo("cifar-100-binary/train.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    cases["link"] = (tmp_path / "h", "is not a regular file")
    for path, message in cases.values():
        with pytest.raises(ValueError, match=message) as caught:
            add_images("cifar-100", path)
        assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="give the archive cifar-100-binary.tar.gz"):
        add_images("cifar-100", tmp_path / "nowhere")
    with pytest.raises(ValueError, match="mnist is fetched, not added"):
        add_images("mnist", tmp_path / "a")
    assert not (tmp_path / "cache").exists()


def test_without_it_one_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="download cifar-100-binary.tar.gz .* `solvable data add cifar-100"):
        load_images("cifar-100")


def test_damage_is_noticed(tmp_path: Path) -> None:
    kept, _ = add_images("cifar-100", good(tmp_path / "own.tar.gz"))
    with np.load(kept) as stored:
        arrays = dict(stored)
    arrays["train_images"][0, 0, 0, 0] ^= 1
    np.savez_compressed(kept, **arrays)
    with pytest.raises(FileNotFoundError, match=r"was damaged \(the sha256 differs for train_images\)"):
        load_images("cifar-100")
    assert not kept.exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(("data", "add", "cifar-100", str(good(tmp_path / "own.tar.gz"))))
    assert not caught.value.code
    assert "cifar-100.npz is complete (from own.tar.gz" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(("data", "add", "cifar-100", str(tmp_path / "nowhere")))
    error = capsys.readouterr().err
    assert caught.value.code == 2
    assert error.count("\n") == 1
