"""Where the parts of the project are, for tests that read or run them."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
SOURCE = ROOT / "src"
DOCS = ROOT / "docs"
EXAMPLE = DOCS / "how-to" / "example"
