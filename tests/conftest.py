"""Set-up for all tests: one BLAS thread per worker, slow tests on request, shapes checked at run time."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest
from jaxtyping import install_import_hook

# Every jaxtyping annotation in the package is checked by beartype when a test calls the function.
install_import_hook("solvable.engines", "shapes.check")

# The same examples in every run; more of them where there is time.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=10, derandomize=True)
hypothesis.settings.register_profile("slow", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests that take minutes too")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--slow"):
        hypothesis.settings.load_profile("slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
