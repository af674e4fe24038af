"""The picture of docs/tutorials/6-add-your-own-model.md, from the worked example."""

import importlib.util
import sys
from pathlib import Path

FIGURES = Path(__file__).parents[1]
EXAMPLE = FIGURES.parent / "how-to" / "example"


def load(name: str, file: str):
    """A file of the example, under the name that a reader's copy has."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / file)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    load("solvable.models.single_weight", "single_weight.py")
    example = load("power_law", "power_law.py")
    example.draw(example.compute("quick")).savefig(FIGURES / "add-a-model.png", dpi=90)
