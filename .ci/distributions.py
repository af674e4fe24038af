"""Build the wheel and the source distribution, install each into its own environment, and try what users do first.

    python .ci/distributions.py [FOLDER]

The distributions are left in FOLDER, ``dist`` by default. Only the standard library is needed: ``build`` is installed
into an environment of its own. Nothing of the checkout is on the path of the installed package.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
# What must work with nothing but the dependencies of the core, each in a process of its own.
COMMANDS = (
    ["--version"],
    ["models"],
    ["compare", "scalar-network"],
    ["reproduce", "status", "--json"],
    ["diagnose", "--help"],
)
# Optional packages are not installed here, and importing ours does not ask for them.
IMPORT = """
import json, sys
import solvable
from solvable import models

assert "site-packages" in solvable.__file__, solvable.__file__
found = sorted({"torch", "dask", "panel", "zarr", "sklearn", "blackjax"} & set(sys.modules))
assert not found, found
print(json.dumps(list(models.names())))
"""


def run(*command: str | Path, folder: Path) -> str:
    """What a command prints in a folder, with no sources of ours on its path; if it fails, all ends with its output."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        words = " ".join(str(word) for word in command)
        sys.exit(f"{words}: exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def environment(folder: Path) -> Path:
    """A new environment; the folder with its programs is returned."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin")


def install(programs: Path, *what: str, folder: Path) -> None:
    run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what, folder=folder)


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="solvable-dist-") as name:
        folder = Path(name)
        programs = environment(folder / "build")
        install(programs, "build", folder=folder)
        made = folder / "made"
        # The wheel is built from the source distribution, so that a file that the latter lacks is found here.
        run(programs / "python", "-m", "build", "--outdir", made, ROOT, folder=folder)
        for package in sorted(made.iterdir()):
            print(f"{package.name}: {package.stat().st_size / 1e6:.1f} MB", flush=True)
            programs = environment(folder / package.name.replace(".", "-"))
            install(programs, str(package), folder=folder)
            for words in COMMANDS:
                run(programs / "solvable", *words, folder=folder)
            names = json.loads(run(programs / "python", "-c", IMPORT, folder=folder))
            for model in names:
                run(programs / "solvable", "predict", model, folder=folder)
            print(f"{package.name}: installed, and {len(names)} models predict", flush=True)
        target.mkdir(parents=True, exist_ok=True)
        for package in made.iterdir():
            shutil.copy2(package, target)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve())
