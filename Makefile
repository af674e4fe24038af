# Two commands do everything on a fresh machine: `make demo` and `make test`. They need Python 3.11+ and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OPENBLAS_NUM_THREADS ?= 1
WORKERS ?= 2

.PHONY: demo test lint docs bench reproduce clean

# One stamp per set of extras: an install is repeated only when pyproject.toml changes.
$(VENV)/stamp-%: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing solvable[$*] into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@

comma := ,

$(VENV)/stamp-core: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing solvable into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

demo: $(VENV)/stamp-core
	@$(BIN)/solvable demo --out demo

test: $(VENV)/stamp-test$(comma)torch
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

lint: $(VENV)/stamp-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/stamp-docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

bench: $(VENV)/stamp-test
	$(BIN)/python -m benchmarks

reproduce: $(VENV)/stamp-core
	$(BIN)/solvable reproduce all --scale quick --out report

clean:
	rm -rf $(VENV) build dist docs/_build demo reproduction report
