# Two commands do everything on a machine with Python and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-paper check format clean paper-quick

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.ready  ## set up, then bins against splines on built-in data: a table, a picture, a model
	$(BIN)/splinefm demo --out build/demo

test: $(VENV)/.test $(if $(TORCH),$(VENV)/.torch)  ## set up, then all tests of the package (TORCH=1 adds those against torch)
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --ignore tests/paper
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q tests/encode/test_kernels.py tests/model/test_vectors.py

test-paper: $(VENV)/.test  ## tests of the experiments in paper/
	$(BIN)/python -m pytest --numprocesses 2 tests/paper

check: $(VENV)/.test  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.test  ## let ruff rewrite the files
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

paper-quick: $(VENV)/.test  ## every experiment of paper/ on reduced settings (DATA=folder: read data there, else download)
	for name in synthetic tabular criteo ab; do \
	  $(BIN)/python paper/$$name.py --quick $(if $(DATA),--data $(DATA)) || exit 1; \
	done

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src -name '*.nb[ci]' -delete

# A stamp per stage: a later stage adds packages to the same environment.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[plots]'
	touch $@

$(VENV)/.test: $(VENV)/.ready
	$(PIP) --editable '.[all,dev]'
	touch $@

$(VENV)/.torch: $(VENV)/.test
	$(PIP) torch==2.13.0
	touch $@
