"""Run the Python of pages as a reader would, and keep the pictures they save: pages.py tutorials/1-... [...]."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DOCS = Path(__file__).parents[2]


def run(name: str) -> int:
    """The exit code; pictures that the page shows are copied from where it ran."""
    page = DOCS / f"{name.removesuffix('.md')}.md"
    text = page.read_text()
    code = "".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", code], cwd=folder)
        for picture in Path(folder).glob("*.png"):
            if f"figures/{picture.name}" in text:
                shutil.copy(picture, DOCS / "figures" / picture.name)
                print(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")
    print(f"{name}: exit code {done.returncode}, {time.perf_counter() - begin:.1f} s")
    return done.returncode


if __name__ == "__main__":
    sys.exit(max(map(run, sys.argv[1:]), default=0))
