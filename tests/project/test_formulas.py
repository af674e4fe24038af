"""Formulas of the documentation are MathML: readable without a network, and broken ones stop the build."""

import re
import shutil
from pathlib import Path

import pytest
from paths import ROOT

pytest.importorskip("latex2mathml", reason="needs latex2mathml (pip install 'solvable[docs]')")
pytest.importorskip("myst_parser", reason="needs myst-parser (pip install 'solvable[docs]')")
from mathml import FormulaError, to_mathml
from sphinx.application import Sphinx

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Fractions, roots, aligned equations, bold and script letters, boxes.
PAGES = ["linear-estimator", "feature-scaling", "scalar-network", "parity-mode"]
CONFIGURATION = """
extensions = ["myst_parser", "mathml", "story"]
myst_enable_extensions = ["dollarmath", "amsmath"]
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["solvable.css"]
suppress_warnings = ["myst.xref_missing", "toc.not_included", "image.not_readable", "ref.doc", "ref.python"]
"""


def build(folder: Path) -> Path:
    site = folder / "site"
    Sphinx(folder, folder, site, folder / "doctrees", "html", status=None, warning=None).build()
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formulas")
    (folder / "conf.py").write_text(CONFIGURATION)
    shutil.copytree(ROOT / "docs/_static", folder / "_static")
    for page in PAGES:
        shutil.copy(ROOT / f"docs/models/{page}.md", folder)
    (folder / "index.md").write_text("# Formulas\n\nOf $x^2$.\n\n\\begin{equation}\ny=\\sqrt{2}\n\\end{equation}\n")
    return build(folder)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_mathml_and_no_script_for_formulas(site, page):
    text = (site / f"{page}.html").read_text("utf-8")
    source = (ROOT / f"docs/models/{page}.md").read_text("utf-8")
    assert text.count("<math") >= len(re.findall(r"\$\$", source)) // 2 > 0
    assert text.count('display="block"') == len(re.findall(r"\$\$", source)) // 2
    assert not re.search("<script[^>]*mathjax", text, flags=re.I)
    assert not re.search(r'(src|href)="(https?:)?//[^"]*\.(js|css)', text)
    assert raw_tex(re.sub(r"<(script|style|pre|code).*?</\1>|<[^>]*>", "", text, flags=re.S)) == []


def test_the_real_configuration_renders_formulas_the_same_way():
    text = (ROOT / "docs/conf.py").read_text("utf-8")
    assert 'html_math_renderer = "mathml"' in text
    assert "mathjax" not in text


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium found: apt-get install chromium")
def test_a_browser_lays_formulas_out_offline(site):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install 'solvable[test]')")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            page = browser.new_context(offline=True).new_page()
            for name in ["index", *PAGES]:
                page.goto((site / f"{name}.html").as_uri())
                assert raw_tex(page.locator("body").inner_text()) == []
                boxes = page.eval_on_selector_all(
                    "math", "all => all.map(math => math.getBoundingClientRect()).map(box => [box.width, box.height])"
                )
                assert boxes
                assert all(width > 3 and height > 3 for width, height in boxes)
            # A fraction is taller than its numerator: it is laid out, not read as a row of letters.
            heights = page.eval_on_selector_all(
                "mfrac",
                "all => all.map(f => [f, f.firstElementChild].map(part => part.getBoundingClientRect().height))",
            )
            assert all(fraction > 1.5 * numerator for fraction, numerator in heights)
        finally:
            browser.close()


def raw_tex(text: str) -> list[str]:
    return re.findall(r"\\[a-zA-Z]+|\$\$", text)


def test_letters_of_other_alphabets_are_characters_that_browsers_draw():
    assert "<mi>ℒ</mi>" in to_mathml(r"\mathcal L", display=False)
    assert "<mi>𝐄</mi>" in to_mathml(r"\mathbf E", display=False)
    assert "<mi>gen</mi>" in to_mathml(r"L_{\rm gen}", display=False)
    assert "text-align: right" in to_mathml(r"\begin{aligned}a&=b\\c&=d\end{aligned}", display=True)


@pytest.mark.parametrize("formula", [r"\nosuchcommand x", r"\frac{1", r"\left( x", "a & b"])
def test_a_formula_that_cannot_be_rendered_stops_the_build(formula, tmp_path):
    with pytest.raises(FormulaError, match="cannot be rendered"):
        to_mathml(formula, display=False)
    (tmp_path / "conf.py").write_text('extensions = ["myst_parser", "mathml"]\nhtml_math_renderer = "mathml"\n')
    (tmp_path / "index.md").write_text(f"# One\n\n```{{math}}\n{formula}\n```\n")
    with pytest.raises(FormulaError, match="index.md"):
        build(tmp_path)
