r"""Sphinx extension that renders formulas to MathML at build time, so that reading them needs no network.

``latex2mathml`` translates the TeX. Browsers implement MathML Core, which is smaller than the MathML 3 it writes, so
that the tree is rewritten to what they lay out: letters in bold, script or sans serif become the Unicode characters
for them, columns are aligned by CSS, and boxes are drawn by CSS. A formula that cannot be translated stops the build.
"""

import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.errors import SphinxError
from sphinx.util.math import get_node_equation_number

# MathML 3's names of the alphabets, and those of Unicode.
ALPHABETS = {
    "bold": "BOLD",
    "bold-italic": "BOLD ITALIC",
    "script": "SCRIPT",
    "sans-serif": "SANS-SERIF",
    "double-struck": "DOUBLE-STRUCK",
    "fraktur": "FRAKTUR",
    "monospace": "MONOSPACE",
}
TEXT_STYLES = {"bold": "font-weight: bold", "italic": "font-style: italic", "monospace": "font-family: monospace"}
# What an unfinished formula lacks: TeX that ends within \frac{1 is translated without complaint.
CHILDREN = {"mfrac": 2, "msub": 2, "msup": 2, "msubsup": 3, "munder": 2, "mover": 2, "munderover": 3, "mroot": 2}


class FormulaError(SphinxError):
    """A formula that cannot be rendered."""

    category = "Formula"


def to_mathml(formula: str, display: bool) -> str:
    """MathML of a formula in TeX.

    Parameters
    ----------
    formula : str
        TeX, without the dollar signs around it.
    display : bool
        Whether the formula stands on lines of its own, instead of in the text.
    """
    formula = re.sub(r"\\(begin|end)\{(aligned|split)\}", r"\\\1{align*}", formula)
    formula = re.sub(r"\\texttt\{[^}]*\}", lambda match: match[0].replace(r"\_", "_"), formula)
    if r"\\" in formula and r"\begin" not in formula:
        formula = rf"\begin{{align*}}{formula}\end{{align*}}"
    try:
        text = convert(formula, display="block" if display else "inline")
        root = ElementTree.fromstring(text.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', ""))
    except Exception as error:  # latex2mathml raises many kinds, and a stray & is an error of XML
        raise FormulaError(f"{formula!r} cannot be rendered: {type(error).__name__} {error}") from error
    unknown = [element.text for element in root.iter() if re.search(r"\\|[&$]", element.text or "")]
    if unknown:
        raise FormulaError(
            f"{formula!r} cannot be rendered: {', '.join(map(str, unknown))} is not known to latex2mathml"
        )
    for element in root.iter():
        if len(element) != CHILDREN.get(element.tag, len(element)):
            raise FormulaError(f"{formula!r} cannot be rendered: an argument is missing")
        _to_core(element)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _to_core(element: ElementTree.Element) -> None:
    """Replace what MathML Core lacks in one element."""
    if element.tag == "mo" and len(element):  # \mathrel{...} wraps operators in another one
        element.text = "".join(element.itertext())
        element[:] = []
    if element.tag == "mo" and element.text in ("|", "‖") and not element.attrib:
        element.set("stretchy", "false")
    if element.tag == "mpadded":
        element.attrib.clear()
    if element.tag == "menclose":
        element.tag, element.attrib = "mrow", {"class": "boxed"}
    if element.get("width") == "negativethinmathspace":
        element.set("width", "-0.167em")
    if align := element.attrib.pop("columnalign", None):
        element.set("style", f"text-align: {align}")
    # \rm gen arrives letter by letter, each an identifier of its own.
    if element.tag == "mrow" and len(element) > 1 and all(_is_upright(child) for child in element):
        name = ElementTree.Element("mi")
        name.text = "".join(element.itertext())
        element[:] = [name]
    variant = element.get("mathvariant", "normal")
    if variant != "normal":
        del element.attrib["mathvariant"]
        if element.tag == "mtext":
            element.set("style", TEXT_STYLES[variant])
        else:
            element.text = "".join(_letter(char, ALPHABETS[variant]) for char in element.text or "")


def _is_upright(element: ElementTree.Element) -> bool:
    return element.tag == "mi" and element.get("mathvariant") == "normal" and (element.text or "").isalpha()


def _letter(char: str, alphabet: str) -> str:
    """A letter or digit of one of Unicode's mathematical alphabets; other characters stay as they are."""
    name = re.sub(r"^(LATIN|GREEK) (CAPITAL|SMALL) LETTER", r"\2", unicodedata.name(char, ""))
    # Some letters of these alphabets are older than the rest, and have shorter names: SCRIPT CAPITAL L.
    for candidate in (f"MATHEMATICAL {alphabet} {name}", f"{alphabet} {name}", f"BLACK-LETTER {name}"):
        try:
            return unicodedata.lookup(candidate)
        except KeyError:
            continue
    return char


def _render(node: nodes.Element, display: bool) -> str:
    try:
        return to_mathml(node.astext(), display)
    except FormulaError as error:
        raise FormulaError(f"{node.source or ''}:{node.line or ''}: {error}") from error


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_render(node, display=False))
    raise nodes.SkipNode


def visit_display(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    if node.get("number"):
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})')
        translator.add_permalink_ref(node, "Link to this equation")
        translator.body.append("</span>")
    translator.body.append(_render(node, display=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
