# make demo     install and see CRATE-MAE work on data that needs no download
# make test     install what testing needs and run the suite; make test-all adds what is marked slow
# make lint     format and style by ruff, types by mypy
# make docs     the documentation as a site: open site/index.html
# make soak     an hour of kills, full disks, damaged files and hostile requests, or SECONDS=600 of them
# make pages    the tables of docs/performance.md, reliability.md, residual-form.md and results*.md, from benchmarks/
# make install  the environment alone
PYTHON ?= python3
BIN := .venv/bin
# Two processes of one thread each: most tests are too small for threads to share.
# Each begins with its own half of the files, so that what tests of a file share is made once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
SECONDS ?= 3600
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt

.PHONY: install demo test test-all soak lint docs pages clean

install: .venv/installed
demo: .venv/installed
	$(BIN)/crate-mae demo --out runs/demo
test: .venv/installed-test
	$(PYTEST) -m "not slow"
test-all: .venv/installed-test
	$(PYTEST) -o faulthandler_timeout=3000
soak: .venv/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.soak --seconds $(SECONDS) --out runs/soak
lint: .venv/installed-lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
pages: .venv/installed
	$(BIN)/python -m benchmarks.pages
clean:
	rm -rf .venv runs build dist site

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "crate-mae needs Python 3.11 or later: make PYTHON=/path/to/it")'
	$(PYTHON) -m venv .venv
.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e .
	touch $@
.venv/installed-test: .venv/installed
	$(PIP) -e '.[test]'
	touch $@
.venv/installed-lint: .venv/installed
	$(PIP) -e '.[lint]'
	touch $@
.venv/installed-docs: .venv/installed
	$(PIP) -e '.[docs]'
	touch $@
