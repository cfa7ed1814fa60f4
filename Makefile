# Every target sets up .venv by itself the first time.
PYTHON ?= python3
BIN := .venv/bin
SEEDS := tests/federation/test_faults.py::test_many_more_seeds
# Three at a time on two cores: tests of real federations wait most of their time.
PYTEST := $(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder
BUDGET ?= 1800
# Compiled files are kept: tests start many processes, each of which would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE
# Matrices here are small: more threads of BLAS only wait for each other, and use cores that others want.
export OPENBLAS_NUM_THREADS := 1

.PHONY: run explore pictures docs documents test test-rest test-all golden golden-kernels check bench figures clean

run: .venv/.installed
	$(BIN)/agewise plan --out out
	$(BIN)/agewise run --out out/runs
	$(BIN)/agewise schemes
	$(BIN)/agewise reproduce all --out out

pictures: .venv/.installed
	$(BIN)/agewise reproduce all --out out
	cp out/level.png out/worth.png out/gains.png out/trust.png docs/images/

docs: .venv/.installed-docs
	rm -rf site build/docs
	$(BIN)/sphinx-build -q -W --keep-going -d build/docs/doctrees docs build/docs/site
	mv build/docs/site site
	@echo "Open site/index.html"

# For every release, and for every change of what is written: make documents LABEL=0.1.0
documents: .venv/.installed-dev
	$(BIN)/python tests/golden/documents/archives.py $(or $(LABEL),$(error LABEL is missing: a release or a date))

explore: .venv/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[explore]"
	$(BIN)/agewise explore

test: .venv/.installed-dev
	@echo "The quick tests: about 6,900, some six minutes on two idle cores. All tests: make test-all"
	$(PYTEST)

test-rest: .venv/.installed-dev
	@echo "What make test leaves out, as far as it is begun within $(BUDGET) seconds."
	$(PYTEST) -m slow --deselect $(SEEDS) --budget $(BUDGET)

test-all: .venv/.installed-dev
	@echo "All tests: an hour or two on two idle cores."
	$(PYTEST) -m "" --deselect $(SEEDS)
	$(BIN)/pytest -q -n 2 -m slow $(SEEDS)

# What plans, runs and refusals say, written anew: a line "numbers changed" in the changelog says why.
golden: .venv/.installed-dev
	PYTHONPATH=tests:tests/golden $(BIN)/python tests/golden/make.py

# The same facts by another kernel of BLAS on one thread, and by NumPy without what this processor has.
golden-kernels: .venv/.installed-dev
	OPENBLAS_CORETYPE=Nehalem OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q tests/golden/test_golden.py
	NPY_DISABLE_CPU_FEATURES="$$($(BIN)/python -c 'import numpy; print(*numpy.show_config("dicts")["SIMD Extensions"]["found"])')" \
		$(BIN)/pytest -q tests/golden/test_golden.py

check: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.installed-dev
	$(BIN)/python -m benchmarks

figures: .venv/.installed-dev
	$(BIN)/python -m benchmarks docs

clean:
	rm -rf .venv out build dist site

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Agewise needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/.installed-docs: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@ .venv/.installed

.venv/.installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@ .venv/.installed .venv/.installed-docs
