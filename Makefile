# Two commands do everything on a fresh machine: `make demo` and `make test`. They need Python 3.11+ and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OPENBLAS_NUM_THREADS ?= 1
# Three on two cores: tests in the browser and of child processes wait more than they compute.
WORKERS ?= 3
# Versions that are tested; empty for the newest ones that pyproject.toml allows.
CONSTRAINTS ?= $(wildcard .ci/constraints.txt)
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS:%=--constraint %) --editable

.PHONY: everything demo test slow claims oldest newest distributions lint docs gallery bench reproduce clean

# One stamp per set of extras: an install is repeated only when pyproject.toml changes.
$(VENV)/stamp-%: pyproject.toml $(CONSTRAINTS)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing solvable[$*] into $(VENV)"
	@$(INSTALL) ".[$*]"
	@touch $@

comma := ,

$(VENV)/stamp-core: pyproject.toml $(CONSTRAINTS)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing solvable into $(VENV)"
	@$(INSTALL) .
	@touch $@

# Installs the requirements of all targets below in one step.
everything: $(VENV)/stamp-lint$(comma)docs$(comma)test$(comma)torch
	@touch $(VENV)/stamp-core $(VENV)/stamp-lint $(VENV)/stamp-docs$(comma)torch$(comma)sweep $(VENV)/stamp-test$(comma)torch

demo: $(VENV)/stamp-core
	@$(BIN)/solvable demo --out demo

# All tests of a file run in the same worker, because they share compiled programs and the browser.
test: $(VENV)/stamp-test$(comma)torch
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

# The slow tests of the physics, with compiler optimisations. Slow tests of the infrastructure are left out, and so are the
# figures, which "make claims" reproduces. Tests that have not started after LIMIT seconds are skipped and listed.
LIMIT ?= 3600
INFRASTRUCTURE := cli explorer files papers project sweeps
slow: $(VENV)/stamp-test$(comma)torch
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --slow -m slow --begin-within $(LIMIT) \
	    $(INFRASTRUCTURE:%=--ignore=tests/%) $(PYTEST_ARGS)

# The claims of every figure at quick scale. Fails if a claim fails that is not in .ci/known-failures.txt.
FIGURES ?= all
claims: $(VENV)/stamp-core
	$(BIN)/python .ci/claims.py $(LIMIT) $(FIGURES)

# The tests with the oldest direct dependencies that pyproject.toml allows, and with the newest on a Python of your choice:
# "make newest PYTHON=python3.13". Both leave .venv alone. Tests of the bridge to torch are skipped without torch.
oldest newest:
	@test -x .venv-$@/bin/python || $(PYTHON) -m venv .venv-$@
	@.venv-$@/bin/python -m pip install --quiet --disable-pip-version-check uv
	@.venv-$@/bin/uv pip install --quiet --python .venv-$@/bin/python \
	    --resolution $(if $(filter oldest,$@),lowest-direct,highest) --editable ".[test]"
	.venv-$@/bin/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

# Builds wheel and source distribution into dist, installs each into a clean environment, and lets every model predict.
distributions:
	$(PYTHON) .ci/distributions.py dist

lint: $(VENV)/stamp-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Warnings are errors. Then all links are checked, without network access. Docstrings of the interfaces to torch and zarr
# are included. All pages are read anew (-E): a build of changed pages alone loses index entries, and so what search finds.
docs: $(VENV)/stamp-docs$(comma)torch$(comma)sweep
	$(BIN)/python -m sphinx -q -W -E --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/_extensions/check_links.py docs/_build/html
	@echo "open docs/_build/html/index.html"

# The same with the claims of each figure: all figures are computed first (21 minutes on two cores; existing ones are kept),
# and the committed pictures are renewed.
gallery:
	-$(MAKE) reproduce
	$(BIN)/python docs/_extensions/paper_gallery.py report
	$(MAKE) docs

bench: $(VENV)/stamp-test
	$(BIN)/python -m benchmarks

reproduce: $(VENV)/stamp-core
	$(BIN)/solvable reproduce all --scale quick --out report

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest build dist docs/_build docs/gallery docs/gallery-pictures docs/gallery-scripts demo reproduction report
