"""Check every link of a built site without a network: ``python check_links.py docs/_build/html``.

A link within the site must lead to a file that is there and, with an anchor, to a place that is in it. A link out of it
must be an address over https on a host of the list below: that somebody looked at it once is all that can be known.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HOSTS = {
    "arxiv.org",
    "doi.org",
    "github.com",
    "jobqueue.dask.org",
    "kubernetes.dask.org",
    "zarr.dev",
    # What the theme and its extensions put into every page.
    "pradyunsg.me",
    "sphinx-gallery.github.io",
    "www.sphinx-doc.org",
}


class Page(HTMLParser):
    """The links of a page, and the places a link can lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src") and tag != "base":
                self.links.append(value)
            if value and name in ("id", "name"):
                self.places.add(value)


def problem_outside(link: str) -> str | None:
    """What is wrong with an address of another site, if anything."""
    parts = urlsplit(link)
    if parts.hostname == "127.0.0.1":  # the reader's own machine
        return None
    if parts.scheme != "https":
        return "is not https"
    if parts.hostname not in HOSTS:
        return f"is on {parts.hostname}, which is not in the list of docs/_extensions/check_links.py"
    return None


def broken_links(site: Path) -> list[str]:
    """Every link of the pages under a folder that leads nowhere, with the reason."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            problem = _problem(site, pages, path, link)
            if problem:
                broken.append(f"{path.relative_to(site)}: {link} {problem}")
    return broken


def _problem(site: Path, pages: dict[Path, Page], path: Path, link: str) -> str | None:
    parts = urlsplit(link)
    if parts.scheme in ("data", "javascript", "mailto"):
        return None
    if parts.scheme or parts.netloc:
        return problem_outside(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site) or not target.is_file():
        return "leads to no file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
        return "leads to no such place"
    return None


def main() -> None:
    site = Path(sys.argv[1]).resolve()
    broken = broken_links(site)
    print(*broken, sep="\n")
    if broken or not (site / "index.html").is_file():
        sys.exit(f"{len(broken)} broken links in {site}")
    print(f"every link of {sum(1 for _ in site.rglob('*.html'))} pages leads somewhere")


if __name__ == "__main__":
    main()
