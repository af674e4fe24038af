"""The reproduction report: what is in it, what is reused, and what happens if a figure fails, raises or is stopped."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from paths import DOCS

from solvable import papers
from solvable.cli import main
from solvable.papers.report import fingerprint
from solvable.papers.report.markup import html_of
from solvable.papers.report.mathml import mathml

SHARED = """
from pathlib import Path
import xarray as xr
from solvable.papers.claims import Claim
from solvable.plotting import new_figure

def called(name):
    with open(Path(__file__).parent / "calls.txt", "a") as file:
        file.write(name + "\\n")

def curve(name):
    called(name)
    return {"curve": xr.Dataset({"y": ("x", [1.0])})}

def picture(data):
    return new_figure()[0]
"""
GOOD = '''"""Fig. 1: a <good> figure."""
from {package}._shared import Claim, curve, picture

def compute(scale):
    return curve("good")

def claims(data):
    (curve,) = data.values()
    return [Claim("one | <b>is</b> one", curve.y[0], 1.0, 0.1, "by \\"definition\\" & <i>", printed=2.5)]

def draw(data):
    return picture(data)
'''
WRONG = '''"""Fig. 2: one claim holds, one fails and one says never."""
from solvable.papers.claims import Claim
from {package}._shared import curve, picture

def compute(scale):
    return curve("wrong")

def claims(data):
    nan = float("nan")
    return [Claim("holds", 1, 1, 0, "a"), Claim("breaks", 1, 2, 0.1, "b", True), Claim("never", nan, nan, 0, "c")]

draw = picture
'''
RAISES = '''"""Fig. 3: raises."""

def compute(scale):
    raise ZeroDivisionError("no <number> here")
'''
DATA = fingerprint.data_fingerprint
ERRATA = """## Misprints

| eq. | printed | correct | evidence |
|---|---|---|---|
| 1 | $a<b$ | `a <= b` | <script>alert(1)</script> |
"""


class Page(HTMLParser):
    """What a browser would see: tags that match, links, addresses and text."""

    EMPTY = ("meta", "img", "input", "mspace")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, attribute: str) -> list[str]:
        return [str(attributes[attribute]) for _, attributes in self.tags if attribute in attributes]


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Makes the only papers there are: packages on the path whose figures count how often they are run."""
    monkeypatch.setattr(papers, "_PAPERS", {})
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def make(paper: str, **figures: str) -> Path:
        package = f"fake_{paper}"
        folder = tmp_path / package
        folder.mkdir()
        (folder / "__init__.py").write_text(f'"""The paper {paper} & co."""\n')
        (folder / "_shared.py").write_text(SHARED)
        (folder / "errata.md").write_text(ERRATA)
        for name, source in figures.items():
            (folder / f"{name}.py").write_text(source.replace("{package}", package))
        papers._PAPERS[paper] = package
        return folder

    yield make
    for name in set(sys.modules) - before:
        if name.startswith("fake_"):
            del sys.modules[name]


def reproduce(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *map(str, arguments)])
    return int(stop.value.code or 0)


def calls(folder: Path) -> list[str]:
    found = (folder / "calls.txt").read_text().split() if (folder / "calls.txt").exists() else []
    (folder / "calls.txt").unlink(missing_ok=True)
    return found


def edit(path: Path, old: str, new: str) -> None:
    """Change a figure's source, and forget that it was imported."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    forget(f"{path.parent.name}.{path.stem}")


def forget(*names: str) -> None:
    """As a new process would, which has imported none of it yet."""
    for name in names:
        sys.modules.pop(name, None)


def test_the_report_holds_everything(fakes: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    fakes("first", good=GOOD, raises=RAISES, wrong=WRONG)
    fakes("second", good=GOOD)
    out = tmp_path / "report"
    assert reproduce("all", "--out", out) == 1
    shown = capsys.readouterr()
    assert "5 claims of 4 figures: 4 passed, 1 failed, 1 figure raised." in shown.out
    assert "RAISED first raises: ZeroDivisionError: no <number> here" in shown.err
    assert "FAILED first wrong: breaks" in shown.err
    assert "[4/4] second good" in shown.err

    ledger = json.loads((out / "claims.json").read_text())
    assert (ledger["passed"], ledger["failed"], ledger["errors"]) == (4, 1, 1)
    assert ledger["paper"] == ["first", "second"]
    assert [claim["name"] for claim in ledger["claims"]].count("breaks") == 1
    assert ledger["figures"][1]["error"].endswith("ZeroDivisionError: no <number> here")
    markdown = (out / "claims.md").read_text()
    assert r"one \| &lt;b>is&lt;/b> one" in markdown
    assert "| breaks (b) | 1 | 2 | ± 0.2 (0.1 of it) |  | **FAIL** |" in markdown
    assert "| never (c) | – | – | ± 0 |  | pass |" in markdown

    html = (out / "index.html").read_text()
    page = Page(html)
    assert page.text.count("✗ fail") == 1
    assert page.text.count("✓ pass") == 4
    assert "1 of 3 failed" in page.text
    assert "one | <b>is</b> one" in page.text
    assert 'by "definition" & <i>' in page.text
    assert "no <number> here" in page.text
    assert "The paper second & co." in page.text
    assert "<script>alert(1)</script>" in page.text
    assert "2.5" in page.text
    for word in ("jax", "device", "cores", "date"):
        assert word in page.text
    assert (out / "first" / "good.png").exists()
    assert (out / "second" / "good-curve.nc").exists()
    assert not list((out / "first").glob("raises*"))


def test_the_report_loads_nothing(fakes: Callable[..., Path], tmp_path: Path) -> None:
    fakes("first", good=GOOD, wrong=WRONG)
    reproduce("first", "--out", tmp_path / "report")
    html = (tmp_path / "report" / "index.html").read_text()
    page = Page(html)
    names = [tag for tag, _ in page.tags]
    assert not {"script", "link", "iframe", "object", "base"} & set(names)
    assert names.count("img") == 2
    assert all(source.startswith("data:image/png;base64,") for source in page.all("src"))
    assert all(page.all("alt"))
    assert not re.search(r"https?:|@import|url\(", html)
    identities = page.all("id")
    assert len(identities) == len(set(identities))
    assert {link.removeprefix("#") for link in page.all("href")} <= set(identities)
    assert "default-src 'none'" in html


@pytest.mark.slow
def test_only_what_failed_is_shown(fakes: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    fakes("first", good=GOOD, raises=RAISES, wrong=WRONG)
    fakes("second", good=GOOD)
    assert reproduce("all", "--only", "failing", "--out", tmp_path / "report") == 1
    page = Page((tmp_path / "report" / "index.html").read_text())
    assert {"first--wrong", "first--raises"} <= set(page.all("id"))
    assert not {"first--good", "second--good", "second", "first--errata"} & set(page.all("id"))
    assert "2 of 4 figures" in page.text
    assert "4claims passed" in page.text
    assert page.all("id").count("environment") == 1
    # The ledger leaves nothing out.
    assert json.loads((tmp_path / "report" / "claims.json").read_text())["passed"] == 4
    assert "first good:" not in capsys.readouterr().out


def test_finished_figures_are_reused(fakes: Callable[..., Path], tmp_path: Path) -> None:
    folder = fakes("first", good=GOOD, wrong=WRONG)
    out = tmp_path / "report"
    assert reproduce("first", "--out", out) == 1
    assert calls(folder) == ["good", "wrong"]
    before = json.loads((out / "claims.json").read_text())["claims"]
    # Nothing changed: nothing is run, and a claim that failed still fails.
    assert reproduce("first", "--out", out) == 1
    assert calls(folder) == []
    after = json.loads((out / "claims.json").read_text())
    assert after["claims"] == before
    assert all(figure["reused"] for figure in after["figures"])
    assert "kept from" in (out / "index.html").read_text()

    reproduce("first", "--out", out, "--fresh")
    assert calls(folder) == ["good", "wrong"]
    reproduce("first", "--out", out, "--scale", "full")
    assert calls(folder) == ["good", "wrong"]


@pytest.mark.parametrize("victim", ["good-curve.nc", "good.json", "good.png"])
def test_what_is_lost_is_made_again(fakes: Callable[..., Path], tmp_path: Path, victim: str) -> None:
    """Only from whole datasets are claims and picture made again without computing."""
    folder = fakes("first", good=GOOD)
    out = tmp_path / "report"
    for damage in (Path.unlink, lambda path: path.write_text("{")):
        reproduce("first", "--out", out)
        files = {path.name for path in out.iterdir()}
        calls(folder)
        damage(out / victim)
        assert reproduce("first", "--out", out) == 0
        assert calls(folder) == ["good"] * (victim == "good-curve.nc")
        assert {path.name for path in out.iterdir()} == files


def test_what_changed_is_computed_again(fakes: Callable[..., Path], tmp_path: Path) -> None:
    folder = fakes("first", good=GOOD, wrong=WRONG)
    out = tmp_path / "report"
    reproduce("first", "--out", out)
    calls(folder)
    edit(folder / "wrong.py", 'curve("wrong")', 'curve("other")')
    assert reproduce("first", "--out", out) == 1
    assert calls(folder) == ["other"]
    # What both import; the dataset gets another name, and the file with the old one goes.
    edit(folder / "_shared.py", '"curve"', '"line"')
    forget("fake_first.good")
    assert reproduce("first", "good", "--out", out) == 0
    assert calls(folder) == ["good"]
    assert {path.name for path in out.glob("good*")} == {"good.data.json", "good.json", "good.png", "good-line.nc"}
    # A figure that now raises leaves nothing of what it was.
    (folder / "good.py").write_text(RAISES)
    forget("fake_first.good")
    assert reproduce("first", "good", "--out", out) == 1
    assert not list(out.glob("good*"))


def test_claims_and_pictures_change_without_computing_again(fakes: Callable[..., Path], tmp_path: Path) -> None:
    """In the figure's file, and in one that it shares with others; the report says how old the datasets are."""
    folder = fakes("first", good=GOOD, wrong=WRONG)
    out = tmp_path / "report"
    reproduce("first", "--out", out)
    seconds = json.loads((out / "claims.json").read_text())["figures"][0]["seconds"]
    calls(folder)
    edit(folder / "wrong.py", "1, 2, 0.1", "1, 1, 0.1")
    assert reproduce("first", "--out", out) == 0
    edit(folder / "_shared.py", "new_figure()", "new_figure(2)")
    forget("fake_first.good", "fake_first.wrong")
    before = (out / "good.png").read_bytes()
    assert reproduce("first", "--out", out) == 0
    assert calls(folder) == []
    assert (out / "good.png").read_bytes() != before
    figure = json.loads((out / "claims.json").read_text())["figures"][0]
    assert figure["data_from"]
    assert not figure["reused"]
    assert figure["seconds"] >= seconds - 0.1, "those of the datasets are counted"
    assert "datasets kept from" in (out / "index.html").read_text()


@pytest.mark.parametrize("stage", ["claims", "draw"])
def test_datasets_outlive_claims_and_pictures_that_raise(
    fakes: Callable[..., Path], tmp_path: Path, stage: str
) -> None:
    """A figure that took hours to compute: its datasets stay, and once it is corrected it goes on from them."""
    folder = fakes("first", good=GOOD, other=GOOD)
    edit(folder / "good.py", f"def {stage}(data):", f"def {stage}(data):\n    raise ZeroDivisionError('no number')")
    out = tmp_path / "report"
    assert reproduce("first", "--out", out) == 1
    figure, other = json.loads((out / "claims.json").read_text())["figures"]
    assert figure["error"].endswith("ZeroDivisionError: no number")
    assert list(figure["files"]) == ["good-curve.nc"]
    assert other["passed"] == 1
    assert {path.name for path in out.glob("good*")} == {"good.data.json", "good-curve.nc"}
    assert "Claims or picture raised; the datasets are kept" in Page((out / "index.html").read_text()).text
    assert papers.load_data("first", "good", out)["curve"].y.values.tolist() == [1.0]
    calls(folder)
    # The same again, without computing; and then with a mended figure.
    assert reproduce("first", "--out", out) == 1
    edit(folder / "good.py", "    raise ZeroDivisionError('no number')\n", "")
    assert reproduce("first", "--out", out) == 0
    assert calls(folder) == []
    assert (out / "good.png").exists()


def test_a_picture_that_raises_replaces_the_one_there_was(fakes: Callable[..., Path], tmp_path: Path) -> None:
    folder = fakes("first", good=GOOD)
    out = tmp_path / "report"
    reproduce("first", "--out", out)
    edit(folder / "good.py", "return picture(data)", "raise ZeroDivisionError")
    assert reproduce("first", "--out", out) == 1
    assert {path.name for path in out.glob("good*")} == {"good.data.json", "good-curve.nc"}


def test_saved_datasets_can_be_interpreted(fakes: Callable[..., Path], tmp_path: Path) -> None:
    """Read back by name, from the folder of one paper or of several, and only those of the paper asked for."""
    fakes("first", good=GOOD, wrong=WRONG)
    fakes("second", good=GOOD, raises=RAISES)
    reproduce("first", "--out", tmp_path / "one", "--scale", "full")
    reproduce("all", "--out", tmp_path / "all")
    for folder, scale in ((tmp_path / "one", "full"), (tmp_path / "all", "quick")):
        data = papers.load_data("first", "good", folder)
        assert list(data) == ["curve"]
        assert papers.scale_of(data) == scale
        assert papers.interpret("first", "good", data).claims[0].passed
        assert not papers.interpret("first", "good", {"curve": data["curve"] + 1}).claims[0].passed
    for paper, figure, folder in (
        ("second", "good", tmp_path / "one"),
        ("second", "raises", tmp_path / "all"),
        ("first", "good", tmp_path / "nowhere"),
    ):
        with pytest.raises(ValueError, match=f"no datasets of {paper} {figure} in .*: solvable reproduce {paper}"):
            papers.load_data(paper, figure, folder)
    with pytest.raises(ValueError, match="did you mean 'good'"):
        papers.load_data("first", "goood", tmp_path / "one")
    (tmp_path / "one" / "good-curve.nc").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="cannot be read"):
        papers.load_data("first", "good", tmp_path / "one")


def test_an_interrupted_figure_leaves_nothing(
    fakes: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    stop = GOOD.replace("return curve(", "raise KeyboardInterrupt\n    return curve(")
    folder = fakes("first", good=GOOD, stop=stop, wrong=WRONG)
    out = tmp_path / "report"
    assert reproduce("first", "--out", out) == 130
    err = capsys.readouterr().err
    assert f"1 of 3 figures are finished and kept in {out}; the same command goes on" in err
    files = {"claims.json", "claims.md", "good-curve.nc", "good.data.json", "good.json", "good.png", "index.html"}
    assert {path.name for path in out.iterdir()} == files
    assert "first stop, first wrong" in Page((out / "index.html").read_text()).text
    (folder / "stop.py").write_text(GOOD.replace("{package}", "fake_first").replace('"good"', '"stop"'))
    forget("fake_first.stop")
    calls(folder)
    assert reproduce("first", "--out", out) == 1
    assert calls(folder) == ["stop", "wrong"]


def test_an_interrupted_fresh_start_goes_on_without_it(
    fakes: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """What was finished before the fresh start is not taken for what was asked to be computed again."""
    folder = fakes("first", good=GOOD, other=GOOD.replace('"good"', '"other"'))
    out = tmp_path / "report"
    reproduce("first", "--out", out)
    other = sys.modules["fake_first.other"]
    working = other.compute

    def stop(scale: str) -> None:
        raise KeyboardInterrupt

    other.compute = stop
    assert reproduce("first", "--out", out, "--fresh") == 130
    assert "without --fresh goes on" in capsys.readouterr().err
    other.compute = working
    calls(folder)
    assert reproduce("first", "--out", out) == 0
    assert calls(folder) == ["other"]


@pytest.mark.parametrize(
    ("what", "left"),
    [
        ("report.outcomes.save_figure", {"good-curve.nc", "good.data.json"}),
        ("storage.save", set()),
        ("storage.write_atomically", set()),
    ],
)
def test_a_figure_interrupted_while_it_is_saved_leaves_what_is_whole(
    fakes: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, left: set[str]
) -> None:
    """All of the datasets or none of them, and no picture."""
    folder = fakes("first", good=GOOD)
    out = tmp_path / "report"

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"solvable.papers.{what}", stop)
        assert reproduce("first", "--out", out) == 130
    assert {path.name for path in out.iterdir()} == {"index.html"} | left
    calls(folder)
    assert reproduce("first", "--out", out) == 0
    assert calls(folder) == ([] if left else ["good"])


def test_a_figure_that_cannot_be_read_does_not_stop_the_others(
    fakes: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    fakes("first", absent="import nowhere_at_all", good=GOOD, typo="def (")
    assert reproduce("first", "--out", tmp_path / "report") == 1
    err = capsys.readouterr().err
    assert "RAISED absent: ModuleNotFoundError" in err
    assert "RAISED typo: SyntaxError" in err
    assert json.loads((tmp_path / "report" / "claims.json").read_text())["passed"] == 1


@pytest.mark.parametrize("files", [["../precious.txt"], {"../precious.txt": "no checksum"}, None])
def test_records_do_not_lead_out_of_their_folder(fakes: Callable[..., Path], tmp_path: Path, files: object) -> None:
    folder = fakes("first", good=GOOD)
    out = tmp_path / "report"
    reproduce("first", "--out", out)
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    for name in ("good.json", "good.data.json"):
        record = json.loads((out / name).read_text())
        (out / name).write_text(json.dumps({**record, "files": files}))
    calls(folder)
    with pytest.raises(ValueError, match="no datasets"):
        papers.load_data("first", "good", out)
    reproduce("first", "--out", out)
    assert calls(folder) == ["good"]
    assert precious.exists()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["all", "good"], "'all' stands for every figure"),
        (["firts"], "did you mean 'first'"),
        (["first", "goood"], "did you mean 'good'"),
        (["first", "good", "second", "wrong"], "no figure of second is named 'wrong'"),
        (["first", "--only", "passing"], "'failing'"),
    ],
)
def test_mistakes_are_told_before_any_work(
    fakes: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture, names: list[str], message: str
) -> None:
    folders = [fakes("first", good=GOOD, wrong=WRONG), fakes("second", good=GOOD)]
    assert reproduce(*names, "--out", tmp_path / "report") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
    assert [calls(folder) for folder in folders] == [[], []]


@pytest.mark.slow
def test_figures_of_several_papers_can_be_chosen(fakes: Callable[..., Path], tmp_path: Path) -> None:
    fakes("first", good=GOOD, wrong=WRONG)
    fakes("second", good=GOOD, other=GOOD)
    assert reproduce("first", "good", "second", "--out", tmp_path / "report") == 0
    ledger = json.loads((tmp_path / "report" / "claims.json").read_text())
    found = [(figure["paper"], figure["figure"]) for figure in ledger["figures"]]
    assert found == [("first", "good"), ("second", "good"), ("second", "other")]


def test_the_fingerprint_covers_what_a_figure_imports() -> None:
    """What Python really loads for a figure that imports much, in a process of its own, is among its sources."""
    name = papers.home("delayed-features", "wide")
    script = f"import sys, {name}; print(*(name for name in sys.modules if name.split('.')[0] == 'solvable'))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    found = fingerprint.sources(name)
    assert set(loaded) <= set(found)
    # And not everything is: else every edit would make all figures run again.
    assert not any(other in module for module in found for other in ("skills", "linear_estimator", "solvable.cli"))


def test_who_loads_by_name_depends_on_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    everything = len(fingerprint._whole_package())
    for number, line in enumerate(
        ["import solvable", "from solvable import SkillModel", "from solvable import models", "import solvable.models"]
    ):
        (tmp_path / f"alone{number}.py").write_text(f"def later():\n    {line}\n")
        assert len(fingerprint.sources(f"alone{number}")) == everything + 1
    (tmp_path / "typed.py").write_text(
        "if TYPE_CHECKING:\n    import solvable\nelse:\n    import solvable.numerics.roots\n"
    )
    assert set(fingerprint.sources("typed")) == {
        "typed",
        "solvable",
        "solvable._version",
        "solvable.numerics",
        "solvable.numerics.roots",
    }


def test_the_environment_is_part_of_the_fingerprint() -> None:
    name = "solvable.papers.claims"
    marks = {
        fingerprint.fingerprint(*arguments)
        for arguments in [(name, "quick", {"a": "1"}), (name, "full", {"a": "1"}), (name, "quick", {"a": "2"})]
    }
    assert len(marks) == 3


COMPUTED = """
import functools
from typing import TYPE_CHECKING
from {package} import _other
from {package}._helpers import *
from {package}._helpers import helper, painter
if TYPE_CHECKING:
    import solvable.models.skills
SIZE = 3
COLOUR = "red"
TABLE = {}
TABLE["entry"] = 4

@functools.cache
def compute(scale):
    from {package}._late import late
    return Inner.size(SIZE) + helper() + late() + _other.anything

class Inner:
    size = abs

def draw(data):
    return painter(COLOUR)
"""
COMPUTED_FILES = {
    "_helpers": "from solvable.timegrid import log_times\nDEEP = 2\nPALE = 1\n"
    "def helper(): return log_times(DEEP)\ndef painter(colour): return PALE\n",
    "_other": "anything = 1\nunused = 2\n",
    "_late": "def late(): return 7\ndef unused(): return 8\n",
}


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("figure", "SIZE = 3", "SIZE = 4", True),
        ("figure", "size = abs", "size = int", True),
        ("figure", "@functools.cache", "@functools.lru_cache", True),
        ("figure", '["entry"] = 4', '["entry"] = 5', True),
        ("figure", 'COLOUR = "red"', 'COLOUR = "blue"', False),
        ("figure", "return painter(", "return 2 * painter(", False),
        ("figure", "import solvable.models.skills", "import solvable.models.committee", False),
        ("_helpers", "DEEP = 2", "DEEP = 3", True),
        ("_helpers", "log_times\n", "whole_steps as log_times\n", True),
        # Everything of a module of which everything is imported, and of one whose attributes are used.
        ("_helpers", "PALE = 1", "PALE = 2", True),
        ("_other", "unused = 2", "unused = 3", True),
        ("_late", "return 7", "return 8", True),
        ("_late", "return 8", "return 9", False),
    ],
)
def test_datasets_depend_on_what_compute_needs(
    fakes: Callable[..., Path], file: str, old: str, new: str, changes: bool
) -> None:
    folder = fakes("first", figure=COMPUTED, **COMPUTED_FILES)
    before = {kind: kind("fake_first.figure", "quick", {}) for kind in (fingerprint.fingerprint, DATA)}
    edit(folder / f"{file}.py", old, new)
    assert fingerprint.fingerprint("fake_first.figure", "quick", {}) != before[fingerprint.fingerprint]
    assert (DATA("fake_first.figure", "quick", {}) != before[DATA]) is changes


def test_a_model_that_compute_uses_is_in_its_fingerprint() -> None:
    """All modules that the models of a figure import, and none of those that draw."""
    name = papers.home("linear-grokking", "fig1")
    _, modules = fingerprint._needed(name, "compute")
    found = set(fingerprint.sources(*modules))
    assert set(fingerprint.sources("solvable.models.linear_estimator")) <= found
    assert found < set(fingerprint.sources(name))
    assert not any(module.startswith("solvable.plotting") for module in found)


def test_a_new_matplotlib_draws_again_and_computes_nothing() -> None:
    name = papers.home("linear-grokking", "eq12")
    versions: list[dict[str, object]] = [{"matplotlib": "1", "jax": "1"}, {"matplotlib": "2", "jax": "1"}, {"jax": "2"}]
    assert len({fingerprint.fingerprint(name, "quick", version) for version in versions}) == 3
    assert [DATA(name, "quick", version) == DATA(name, "quick", versions[0]) for version in versions] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("paper", papers.papers())
def test_errata_can_be_shown(paper: str) -> None:
    """Every formula is one the page can draw, and every row has its four cells."""
    text = papers.errata(paper)
    formulas = re.findall(r"\$([^$]+)\$", text)
    assert len(formulas) > 30
    for formula in formulas:
        ElementTree.fromstring(mathml(formula))
    html = html_of(text)
    Page(html)
    rows = re.findall(r"<tr>(<td.*?)</tr>", html)
    assert len(rows) > 10
    assert all(row.count("<td") == 4 for row in rows)


def test_markup_escapes_wherever_it_is() -> None:
    bad = '<img src="x">&amp;'
    text = f"## {bad}\n\n{bad} `{bad}` {bad} **{bad}** ${bad}$ {bad}\n\n| {bad} | b |\n|---|---|\n| {bad} | `{bad}` |\n"
    page = Page(html_of(text))
    assert "img" not in [tag for tag, _ in page.tags]
    assert page.text.count(bad) == 10
    assert page.all("data-label") == [bad, "b"]


def test_the_documentation_shows_the_same_errata() -> None:
    page = (DOCS / "errata.md").read_text()
    folder = Path(papers.__file__).parent
    for part in folder.glob("*/errata*.md"):
        assert f"{{include}} ../src/solvable/papers/{part.parent.name}/{part.name}\n" in page


@pytest.mark.parametrize(
    ("tex", "text", "element"),
    [
        (r"\frac12", "12", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
        (r"x^12", "x12", "<msup><mi>x</mi><mn>1</mn></msup><mn>2</mn>"),
        (r"10^{-3}", "10−3", "<msup><mn>10</mn><mrow>"),
        (r"d_{\rm in}", "din", "<mtext>in</mtext>"),
        (r"C^w_{ij}", "Cijw", "<msubsup>"),
        (r"\mathcal B\mathcal P", "ℬ𝒫", "<mi>"),
        (r"a<b", "a<b", "&lt;"),
        (r"\left(\frac S{ab}\right)^2", "(Sab)2", '<mo stretchy="true">(</mo>'),
    ],
)
def test_formulas(tex: str, text: str, element: str) -> None:
    found = mathml(tex)
    assert "".join(ElementTree.fromstring(found).itertext()) == text
    assert element in found


@pytest.mark.parametrize("tex", [r"\unheardof x", r"\frac1", r"{a", "a}", "a^b^c", r"\left( a", "^"])
def test_formulas_that_cannot_be_drawn_are_shown_as_written(tex: str) -> None:
    with pytest.raises(ValueError):
        mathml(tex)
    assert Page(html_of(f"See ${tex}$ here.")).text == f"See {tex} here."
