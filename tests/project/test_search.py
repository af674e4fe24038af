"""The search of the built documentation finds the page that explains a term, first."""

import shutil

import pytest
from paths import ROOT

SITE = ROOT / "docs/_build/html"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FIRST = {
    "double descent": "models/linear-features.html",
    "edge of stability": "models/feature-scaling.html",
    "gradient accumulation": "training.html",
    "learning rate schedule": "training.html",
}


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium found: apt-get install chromium")
@pytest.mark.skipif(not (SITE / "searchindex.js").is_file(), reason="the documentation is not built: make docs")
def test_the_right_page_is_found_first():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install 'solvable[test]')")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            page = browser.new_context(offline=True).new_page()
            for query, address in FIRST.items():
                page.goto(f"{(SITE / 'search.html').as_uri()}?q={query.replace(' ', '+')}")
                link = page.locator("#search-results li a").first
                link.wait_for(timeout=30_000)
                found = link.get_attribute("href").partition("?")[0].partition("#")[0]
                assert found == address, f"{query}: {found}"
        finally:
            browser.close()
