"""The gallery's scripts, one for each figure of the papers: title and text, the command, picture, claims, source.

Nothing is run while the documentation is built. Pictures and claims are taken from a folder that
``solvable reproduce all --out FOLDER`` has written, if there is one; that command can be resumed and survives a figure
that raises, neither of which holds for scripts that are executed in the middle of a build. Without such a folder, the
committed pictures are shown.
"""

import ast
import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solvable import papers
from solvable.papers.claims import relation

if TYPE_CHECKING:
    from PIL import Image

HEADER = """\
Gallery
=======

Every figure and table of the papers that is reproduced here, with its source and its picture at quick scale. A page
lists the claims that are tested, with the numbers measured, if the figures were computed before the site was built
(``make gallery``).

"""


def write_gallery(scripts: Path, pictures: Path, reproduced: Path, committed: Path) -> None:
    """Write one script for each figure, with its picture and its claims.

    Parameters
    ----------
    scripts : Path
        Folder that the scripts are written to.
    pictures : Path
        Folder that the pictures of the pages are copied to.
    reproduced : Path
        Folder that ``solvable reproduce --out`` has written; it need not exist.
    committed : Path
        Folder of the pictures in the repository: those of the overview under ``gallery``, and under ``pictures`` those
        that a page shows if ``reproduced`` has none.
    """
    ledger = read_ledger(reproduced)
    written = {_write(scripts / "GALLERY_HEADER.rst", HEADER)}
    for paper in papers.papers():
        title = papers.title(paper)
        about = f"``solvable reproduce {paper}`` reproduces all of it.\n"
        written.add(_write(scripts / paper / "GALLERY_HEADER.rst", f"{heading(title, '-')}\n{about}"))
        for figure in papers.figures(paper):
            file = Path(paper) / f"{figure}.png"
            choices = [find_picture(reproduced, ledger, paper, figure), committed / "pictures" / file]
            picture = _copy(next((path for path in choices if path and path.is_file()), None), pictures / file)
            own = [claim for claim in ledger if (claim["paper"], claim["figure"]) == (paper, figure)]
            text = script(paper, figure, picture, own)
            text += thumbnail_line([committed / "gallery" / file, picture], pictures.parent)
            written.add(_write(scripts / paper / f"{paper}-{figure}.py", text))
    # A figure that is gone leaves no page behind.
    for path in {*scripts.rglob("*.py"), *scripts.rglob("*.rst")} - written:
        path.unlink()


def script(paper: str, figure: str, picture: Path | None, claims: list[dict[str, Any]]) -> str:
    """A script as sphinx-gallery reads it: a docstring with a title, then the figure's own source."""
    title, text, body = read_source(paper, figure)
    head = [heading(title, "="), text, ""]
    if picture:
        head += [f".. image:: /{picture.parent.parent.name}/{paper}/{figure}.png", f"   :alt: {title}", ""]
    head += [f"On the command line: ``solvable reproduce {paper} {figure} --out reproduction``", ""]
    head += claims_table(claims)
    call = f'papers.reproduce("{paper}", "{figure}")'
    last = ["", "# %%", "# The picture and the claims, in a notebook:", "from solvable import papers", "", call]
    return "\n".join(['r"""', *head, '"""', body, *last, ""])


def thumbnail_line(choices: list[Path | None], docs: Path) -> str:
    """How a script tells sphinx-gallery which picture stands for it in the overview: the first that there is."""
    found = [path for path in choices if path and path.is_file()]
    return f"# sphinx_gallery_thumbnail_path = '{found[0].relative_to(docs).as_posix()}'\n" if found else ""


def read_source(paper: str, figure: str) -> tuple[str, str, str]:
    """Title and text of the docstring of a figure's file, and the code after it. Read, not imported."""
    spec = importlib.util.find_spec(papers.home(paper, figure))
    source = Path(spec.origin).read_text("utf-8")
    tree = ast.parse(source)
    docstring = tree.body[0]
    title, _, text = ast.get_docstring(tree).partition("\n")
    body = "\n".join(source.splitlines()[docstring.end_lineno :]).strip("\n")
    return title.strip().rstrip("."), as_restructured_text(text.strip("\n")), body


def read_ledger(reproduced: Path) -> list[dict[str, Any]]:
    """The claims of a folder, each with the paper it belongs to; none if there is no ledger."""
    try:
        ledger = json.loads((reproduced / "claims.json").read_text("utf-8"))
    except OSError:
        return []
    return [{"paper": ledger["paper"], **claim} for claim in ledger["claims"]]


def find_picture(reproduced: Path, ledger: list[dict[str, Any]], paper: str, figure: str) -> Path | None:
    """Of several papers each has a folder for its figures; a single paper has not."""
    single = {claim["paper"] for claim in ledger} == {paper}
    for folder in [reproduced / paper, *([reproduced] if single else [])]:
        if (folder / f"{figure}.png").is_file():
            return folder / f"{figure}.png"
    return None


def claims_table(claims: list[dict[str, Any]]) -> list[str]:
    if not claims:
        return []
    rows = [["claim", "measured", "expected", "may differ by", ""]]
    for claim in claims:
        allowed = number(claim["allowed"]) if claim.get("kind", "equals") == "equals" else ""
        numbers = [number(claim["measured"]), escape(relation(claim)), allowed]
        rows.append([escape(claim["name"]), *numbers, "passed" if claim["passed"] else "**failed**"])
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 50 14 14 14 8", ""]
    for row in rows:
        lines += [f"   {'*' if place == 0 else ' '} - {cell}" for place, cell in enumerate(row)]
    return [*lines, ""]


def number(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, int | float) else escape(str(value))


def heading(title: str, line: str) -> str:
    # Characters of some scripts are two columns wide; a line that is too long is no error.
    return f"{escape(title)}\n{line * (2 * len(title))}\n"


def escape(text: str) -> str:
    """Text that reStructuredText must not read as markup; code in double backticks stays code."""
    parts = re.split(r"(``.+?``)", " ".join(text.split()))
    return "".join(part if part.startswith("``") else re.sub(r"([*`|_\\])", r"\\\1", part) for part in parts)


def as_restructured_text(docstring: str) -> str:
    """Docstrings are written to be read in the source: indented blocks are formulas, and |x| is a norm, no reference.

    Formulas keep their lines, instead of being flowed as a quotation.
    """
    paragraphs: list[str] = []
    for paragraph in re.split(r"\n[ ]*\n", docstring):
        if paragraph.startswith("    "):
            if paragraphs and not paragraphs[-1].startswith(("    ", "..", "::")) and not paragraphs[-1].endswith("::"):
                paragraphs.append("::")
        elif not paragraph.startswith((">>>", "..")):
            code_or_text = re.split(r"(``.+?``)", paragraph, flags=re.S)
            code_or_text[::2] = [re.sub(r"(?<!\\)\|", r"\\|", text) for text in code_or_text[::2]]
            paragraph = "".join(code_or_text)
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


def keep_pictures(reproduced: Path, committed: Path) -> None:
    """Reduce the pictures of a reproduction to sizes that are committed: one for the page, one for the overview."""
    from PIL import Image

    ledger = read_ledger(reproduced)
    for paper in papers.papers():
        for figure in papers.figures(paper):
            picture = find_picture(reproduced, ledger, paper, figure)
            if picture is None:
                continue
            with Image.open(picture) as image:
                whole = image.convert("RGB")
            # Panels side by side are too small to see in the overview: the first one stands for all.
            panels = max(1, round(whole.width / whole.height / 1.35))
            first = whole.crop((0, 0, whole.width // panels, whole.height))
            for folder, version, size, colours in (
                ("pictures", whole, (1100, 1100), 128),
                ("gallery", first, (320, 224), 64),
            ):
                version.thumbnail(size, Image.Resampling.LANCZOS)
                target = committed / folder / paper / f"{figure}.png"
                target.parent.mkdir(parents=True, exist_ok=True)
                fewer_colours(version, colours).save(target, optimize=True)


def fewer_colours(image: "Image.Image", colours: int) -> "Image.Image":
    """The image with few colours, chosen for coverage; the median cut, the default, merges those of thin lines."""
    from PIL import Image

    return image.quantize(colours, method=Image.Quantize.MAXCOVERAGE)


def _copy(source: Path | None, target: Path) -> Path | None:
    target.unlink(missing_ok=True)
    if source is None:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return target


def _write(path: Path, text: str) -> Path:
    """Only if it changed: what has not is not built again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
    return path


if __name__ == "__main__":
    keep_pictures(Path(sys.argv[1]), Path(__file__).parents[1] / "figures")
