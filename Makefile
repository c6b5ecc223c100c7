# `make demo` and `make test` do all the set-up they need; `make` alone lists the targets.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := dev,plots,trees,certify,files,serve,docs

# The first interpreter that runs and is new enough; `make PYTHON=/path/to/python` overrides it.
IS_NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13 python; do \
	$$python $(IS_NEW_ENOUGH) 2>/dev/null && echo $$python && break; done)

# Every install, build environments included, takes exactly the pinned versions.
export PIP_CONSTRAINT := $(abspath constraints.txt)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Data files and published runs, where they lie beside the repository.
ifneq ($(wildcard ../shared/data/.),)
PLAUSIFLOW_DATA ?= $(abspath ../shared/data)
export PLAUSIFLOW_DATA
endif
ifneq ($(wildcard ../shared/reference/.),)
PLAUSIFLOW_REFERENCE ?= $(abspath ../shared/reference)
export PLAUSIFLOW_REFERENCE
endif

# Two test processes with one thread each. Compiled files are kept, also where the environment says otherwise: without
# them every process compiles the package and rewrites the asserts of all tests again.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
PARALLEL := -n 2 --dist worksteal

PYTHON_FILES := src bench tests tools conftest.py docs/conf.py docs/_ext docs/figures docs/gallery

MINIMUM_TESTS := tests/tables tests/core tests/solvers tests/explanations tests/report \
	tests/explainer/test_explainer.py tests/explainer/test_explainer_answers.py tests/explainer/test_sklearn_conventions.py

BENCH_DATA := moons,wine
BENCH := --datasets $(BENCH_DATA) --folds 0 --seed 0

.DEFAULT_GOAL := help
.PHONY: help setup demo browser test test-slow test-minimum lint types docs docs-version dist bench soak clean distclean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## make the virtual environment and install everything

$(READY): pyproject.toml bench/pyproject.toml constraints.txt wheels.sha256
	@test -n "$(PYTHON)" && $(PYTHON) $(IS_NEW_ENOUGH) || { \
		echo "plausiflow needs Python 3.11 or newer; found: $$($(or $(PYTHON),python3) --version 2>&1)." \
			"Install it, or name one: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing plausiflow[$(EXTRAS)], plausiflow-bench and the pinned versions of constraints.txt"
	@$(BIN)/python -m pip install -qq --report $(VENV)/installed.json --editable ".[$(EXTRAS)]" --editable ./bench
	@$(PYTHON) tools/check_wheels.py $(VENV)/installed.json wheels.sha256
	@touch $@

demo: $(READY)  ## explain a bundled example: prints a table, writes a report to out/
	@$(BIN)/plausiflow demo

# Tests of pages need a browser; where none is found and none can be installed, they say so and are skipped.
BROWSER := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

browser:
	@test -n "$(BROWSER)" || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		echo "installing chromium" && apt-get install -qq -y chromium >/dev/null 2>&1; } || \
		echo "no browser: tests of pages are skipped"

test: lint types browser  ## lint, types, fast tests and doctests
	$(PYTEST) $(PARALLEL) -m "not slow"
	$(PYTEST) $(PARALLEL) --doctest-modules src/plausiflow bench/src/plausiflow_bench

test-slow: $(READY)  ## the slow tests alone
	$(PYTEST) $(PARALLEL) -m slow

lint: $(READY)  ## ruff
	$(BIN)/ruff check $(PYTHON_FILES)
	$(BIN)/ruff format --check $(PYTHON_FILES)

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

docs: $(READY)  ## the documentation, in docs/_build/html; warnings are errors
	OMP_NUM_THREADS=1 MPLBACKEND=agg $(BIN)/python -m sphinx -b html -W --keep-going -n docs docs/_build/html
	@echo "open docs/_build/html/index.html"

docs-version: docs  ## put the documentation beside those of other versions, in docs/_build/site
	$(BIN)/python tools/version_docs.py docs/_build/html docs/_build/site \
		$$($(BIN)/python -c "import plausiflow; print(plausiflow.__version__)")

dist: $(READY)  ## wheels and source distributions of both packages, in dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist bench

# The lowest versions that pyproject.toml allows, in an environment of their own.
MINIMUM := .venv-minimum
test-minimum:  ## fast tests with the lowest allowed version of each dependency
	$(PYTHON) tools/minimum_versions.py > $(MINIMUM).txt
	test -x $(MINIMUM)/bin/python || $(PYTHON) -m venv $(MINIMUM)
	PIP_CONSTRAINT=$(abspath $(MINIMUM).txt) $(MINIMUM)/bin/python -m pip install -qq . pytest hypothesis pytest-xdist
	OMP_NUM_THREADS=1 $(MINIMUM)/bin/python -m pytest $(PARALLEL) -m "not slow" $(MINIMUM_TESTS)

bench: $(READY)  ## the benchmarks on two small data sets, results in out/
	@mkdir -p out
	$(BIN)/plausiflow benchmark published $(BENCH) --json out/published.json
	$(BIN)/plausiflow benchmark solvers $(BENCH) --classifiers lr,mlp --json out/solvers.json
	$(BIN)/plausiflow benchmark densities $(BENCH) --json out/densities.json

soak: $(READY)  ## 20 minutes of bad clients, kills, damaged files and odd tables
	@mkdir -p out
	OMP_NUM_THREADS=1 $(BIN)/plausiflow benchmark soak --json out/soak.json

clean:  ## remove results, builds and caches
	rm -rf out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf docs/_build docs/auto_examples docs/api docs/sg_execution_times*
	find src bench tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove the virtual environment too
	rm -rf $(VENV)
