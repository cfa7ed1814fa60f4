# Every target sets up .venv by itself the first time.
PYTHON ?= python3
BIN := .venv/bin
SEEDS := tests/federation/test_faults.py::test_many_more_seeds

.PHONY: run explore pictures docs test test-all check bench figures clean

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

explore: .venv/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[explore]"
	$(BIN)/agewise explore

# Three at a time on two cores: tests of real federations wait most of their time.
test: .venv/.installed-dev
	$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder

test-all: .venv/.installed-dev
	$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m "" --deselect $(SEEDS)
	$(BIN)/pytest -q -n 2 -m slow $(SEEDS)

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
