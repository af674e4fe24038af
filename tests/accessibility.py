"""What axe-core, the usual checker of accessibility (WCAG and good practice), finds wrong with a page."""

import importlib.util
from pathlib import Path

import pytest


def violations(page: object) -> list[str]:
    """One line for every rule that a page breaks, with the first element that does."""
    spec = importlib.util.find_spec("axe_playwright_python")
    if spec is None or spec.origin is None:
        pytest.skip("needs axe-playwright-python (pip install 'solvable[test]')")
    page.evaluate((Path(spec.origin).parent / "axe.min.js").read_text("utf-8"))
    return page.evaluate(
        """async () => {
          const found = await axe.run(document, { resultTypes: ["violations"] });
          return found.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes[0].html.slice(0, 200)}`);
        }"""
    )
