"""A text out of installed packages, windows of it, the language model that reads them, and its tangent model."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from solvable import networks
from solvable.networks.data import text as texts
from solvable.networks.data.text import Text, docstrings, load_text, windows
from solvable.networks.language import LanguageModel, next_token_loss
from solvable.networks.linearised import linearised

KEY = jax.random.key(0)
LONG = "This line is here to be long enough for a docstring to count. " * 3
SOURCE = f'''"""Module. {LONG}"""
raise SystemExit("files are read and never run")
def function():
    """Function. {LONG}"""
class Thing:
    """Short."""
    async def method(self):
        """Method. {LONG}"""
add_newdoc("numpy", "thing", """Added. {LONG}""")
text = """Not a docstring. {LONG}"""
'''


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A standard library of forty small files and one topic, and a package of one."""
    library = tmp_path / "lib"
    for number in range(40):
        file = library / f"part{number % 4}" / f"file{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'"""Document {number}. {LONG}"""')
    (library / "tests").mkdir()
    (library / "tests" / "test_it.py").write_text(f'"""A test. {LONG}"""')
    (library / "pydoc_data").mkdir()
    (library / "pydoc_data" / "topics.py").write_text("topics = {'if': 'The if statement, ' 'explained.'}")
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text(f'"""Document 3. {LONG}"""\ndef f():\n    """Package. {LONG}"""')
    monkeypatch.setattr(texts.sysconfig, "get_path", lambda _: str(library))
    monkeypatch.setattr(texts, "_folder_of", lambda _: package)
    monkeypatch.setenv("SOLVABLE_DATA", str(tmp_path / "data"))
    return library


def made(train: bytes, test: bytes) -> Text:
    parts = [np.frombuffer(part, np.uint8) for part in (train, test)]
    return Text("made", *parts, (1, 1), {}, "")


# ---- the text


def test_docstrings_are_read_and_nothing_is_run(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(SOURCE)
    assert [words.split(".")[0] for words in docstrings(path)] == ["Module", "Function", "Method", "Added"]
    path.write_text("def broken(:")
    assert docstrings(path) == []


def test_each_document_is_in_one_part(library: Path) -> None:
    text = load_text(packages=["numpy"])
    train, test = (bytes(part).decode() for part in (text.train, text.test))
    for number in range(40):
        assert train.count(f"Document {number}.") + test.count(f"Document {number}.") == 1  # and 3, which comes twice
    assert sum(text.documents) == 42
    # One in ten: 4.2 of 42; with these names, always the same.
    assert 1 <= text.documents[1] <= 10
    assert "Package." in train + test
    assert "The if statement, explained." in train + test
    assert "A test." not in train + test
    assert "42 documents" in repr(text)


def test_the_split_does_not_move_with_other_files(library: Path) -> None:
    before = bytes(load_text(packages=[]).test).decode()
    (library / "part0" / "aaa.py").write_text(f'"""Something new. {LONG}"""')
    for path in (Path(texts.data_folder()) / "text").iterdir():
        path.unlink()
    after = bytes(load_text(packages=[]).test).decode()
    documents = {f"Document {number}." for number in range(40)}
    assert {d for d in documents if d in before} == {d for d in documents if d in after} != set()


def test_kept_and_read_again_unless_damaged(library: Path, monkeypatch) -> None:
    text = load_text(packages=["numpy"])
    assert set(text.versions) == {"python", "numpy"}
    (kept,) = (Path(texts.data_folder()) / "text").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(texts, "_documents", None)
        again = load_text(packages=["numpy"])
    assert again.sha256 == text.sha256
    assert again.documents == text.documents
    np.testing.assert_array_equal(again.test, text.test)
    kept.write_bytes(kept.read_bytes()[:-100])
    assert load_text(packages=["numpy"]).sha256 == text.sha256
    assert networks.data.stored_images() == {}  # it is not taken for images


def test_entropies_by_hand() -> None:
    text = made(b"ab" * 5000, b"ab" * 500)
    assert text.unigram_entropy == pytest.approx(np.log(2), abs=0.03)  # half a count for each of 254 other bytes
    assert text.bigram_entropy == pytest.approx(np.log((5000 + 128) / 5000.5), abs=1e-4)


# ---- windows


def test_windows_are_followed_by_the_next_byte() -> None:
    text = made(bytes(range(200)), bytes(range(100, 256)))
    source = windows(text, 8, test=5)
    inputs, targets = eqx.filter_jit(source.sample)(KEY, 3000)
    assert inputs.shape == targets.shape == (3000, 8)
    assert inputs.dtype == jnp.int32
    np.testing.assert_array_equal(targets, inputs + 1)
    # Starts 0 ... 191 are equally likely: 3000 draws miss a given one of the two ends once in 6e6.
    assert (int(inputs.min()), int(targets.max())) == (0, 199)
    np.testing.assert_array_equal(source.test_targets, source.test_inputs + 1)
    starts = np.asarray(source.test_inputs[:, 0])
    assert starts[0] == 100
    assert (np.diff(starts) >= 8).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: load_text("c4"), "no text called 'c4': choose one of python-docs"),
        (lambda: load_text(packages=["no_such_package"]), "no package 'no_such_package' on this machine: install it"),
        (lambda: load_text(packages=["../etc"]), "no package '../etc'"),
        (lambda: windows(made(b"a" * 50, b"b" * 50), 10, test=5), "has room for 4 windows; ask for fewer"),
        (lambda: windows(made(b"a" * 9, b"b" * 50), 10, test=2), "training text has 9 bytes"),
        (lambda: windows(made(b"a" * 50, b"b" * 50), 0), "length must be"),
        (lambda: LanguageModel(9, 4, key=KEY, width=6, heads=4), "multiple of heads, not 6 with 4 heads"),
        (lambda: LanguageModel(9, 4, key=KEY, width=8, richness=0.0), "richness must be .* not 0.0: .*linearised"),
    ],
)
def test_bad_input(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# ---- the network


def small(richness: float = 1.0, width: int = 16) -> LanguageModel:
    return LanguageModel(7, 6, key=KEY, width=width, layers=2, heads=2, richness=richness)


def test_places_see_no_later_tokens_and_all_earlier_ones() -> None:
    tokens = np.array([[1, 5, 2, 6, 0, 3], [4, 5, 2, 6, 0, 3], [1, 5, 2, 4, 0, 3]])
    outputs = np.asarray(jax.jit(lambda rows: jax.vmap(small())(rows))(tokens))
    assert outputs.shape == (3, 6, 7)
    for row, place in ((1, 0), (2, 3)):
        changed = (outputs[row] != outputs[0]).any(axis=1)
        np.testing.assert_array_equal(changed, np.arange(6) >= place)


def test_the_loss_is_the_mean_surprise() -> None:
    outputs = jax.random.normal(KEY, (3, 4, 7))
    targets = np.array([[0, 1, 2, 3], [6, 6, 6, 6], [5, 0, 5, 0]])
    numbers = np.exp(np.asarray(outputs))
    chances = numbers / numbers.sum(axis=-1, keepdims=True)
    expected = [-np.mean([np.log(chances[i, j, int(targets[i, j])]) for j in range(4)]) for i in range(3)]
    np.testing.assert_allclose(jax.jit(next_token_loss)(outputs, targets), expected, rtol=1e-12)


@pytest.mark.slow
def test_linearised_is_the_derivative() -> None:
    """Against a difference quotient; the network is then a centred one of small richness, whose features stay."""
    network = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf, small())
    tangent = linearised(network)
    tokens = jnp.array([1, 5, 2, 6])
    np.testing.assert_array_equal(tangent(tokens), 0)
    assert float(tangent.learning_rate_scale) == 16
    where = networks.trainable(network)
    move = jax.tree.map(
        lambda leaf: jnp.cos(jnp.arange(leaf.size, dtype=float)).reshape(leaf.shape), eqx.filter(network, where)
    )

    @eqx.filter_jit
    def ends(step: float):
        moved = eqx.apply_updates(network, jax.tree.map(lambda leaf: step * leaf, move))
        back = eqx.apply_updates(network, jax.tree.map(lambda leaf: -step * leaf, move))
        changed = eqx.tree_at(lambda t: t.moved, tangent, jax.tree.map(lambda leaf: step * leaf, move))
        return (moved(tokens) - back(tokens)) / 2, changed(tokens)

    quotient, linear = ends(1e-4)
    np.testing.assert_allclose(linear, quotient, rtol=1e-5, atol=1e-9)  # the third order is 1e-8 of the first
    far = ends(1e-2)[1]
    np.testing.assert_allclose(far, 100 * linear, rtol=1e-10)


@pytest.mark.slow
def test_a_lazy_network_becomes_the_linearised_one() -> None:
    """Centred, of vanishing richness, in 64 bits: after the same training both give the same losses."""
    points = np.linspace(-1, 1, 12)[:, None]
    data = networks.Fixed(points, np.sin(3 * points))

    def network(key: jax.Array, richness: float) -> networks.MLP:
        return networks.MLP(1, 1, 24, 3, key=key, activation="tanh", parameterisation="mean-field", richness=richness)

    def losses(make, richness: float) -> np.ndarray:
        optimiser = optax.sgd(0.1 * richness**2 * 24)
        curves = networks.train(make, data, optimiser, steps=100, precision="float64", seeds=2).curves
        return curves.train_loss.values

    lazy = losses(lambda key: networks.centred(network(key, 1e-5)), 1e-5)
    tangent = losses(lambda key: linearised(network(key, 1.0)), 1.0)
    np.testing.assert_allclose(lazy, tangent, rtol=1e-3)  # of first order in the richness
    assert (tangent[:, -1] < 0.9 * tangent[:, 0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("richness", [0.1, 1.0])
def test_the_speed_of_the_function_depends_on_neither_width_nor_richness(richness: float) -> None:
    """The kernel times the rate's scale, at one place, averaged over keys: the same for widths 32 and 128."""

    def speed(key: jax.Array, width: int) -> jax.Array:
        network = LanguageModel(7, 6, key=key, width=width, layers=2, heads=2, richness=richness)
        parameters, rest = eqx.partition(network, networks.trainable(network))
        gradient = jax.grad(lambda p: eqx.combine(p, rest)(jnp.array([1, 5, 2, 6]))[2, 3])(parameters)
        return network.learning_rate_scale * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient))

    found = [jax.jit(jax.vmap(lambda key, w=width: speed(key, w)))(jax.random.split(KEY, 64)) for width in (32, 128)]
    means, errors = zip(*((float(f.mean()), float(f.std()) / 8) for f in found), strict=True)
    # Corrections of finite width are of order 1/32; five standard errors more.
    assert means[0] == pytest.approx(means[1], abs=0.1 * means[1] + 5 * np.hypot(*errors))
    assert 0.3 < means[1] < 30


@pytest.mark.slow
def test_the_real_documentation(tmp_path: Path) -> None:
    text = load_text(folder=tmp_path)
    assert 5e6 < text.train.size < 5e7
    assert 0.05 < text.test.size / text.train.size < 0.25
    assert b"eigenvalue" in text.train.tobytes()
    assert 2.5 < text.bigram_entropy < text.unigram_entropy < 3.8
