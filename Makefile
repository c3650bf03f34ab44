# Each target makes the virtual environment it needs; PYTHON=python3.12 make … chooses another interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: demo test test-slow lint bench docs clean

demo: $(VENV)/demo.stamp
	$(BIN)/smoothcert demo

test: lint
	$(BIN)/pytest

test-slow: $(VENV)/dev.stamp
	$(BIN)/pytest -m slow

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/bench.stamp
	for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

docs: $(VENV)/docs.stamp
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site

# torch comes first and pinned: without a pin pip would look for its newest, CUDA build.
$(VENV)/torch.stamp: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	touch $@

$(VENV)/%.stamp: $(VENV)/torch.stamp pyproject.toml
	$(PIP) --editable '.[$*]'
	touch $@
