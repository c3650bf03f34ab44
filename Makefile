# Each target makes the virtual environment it needs; PYTHON=python3.12 make … chooses another interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

# Four processes share the tests, since many wait for others that they start; each computes on one thread.
PYTEST := $(BIN)/pytest --numprocesses 4 --dist loadgroup
test test-slow test-matrix: export OMP_NUM_THREADS ?= 1
# They start hundreds of others, which should not compile the same modules again.
test test-slow test-matrix: export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-slow test-matrix lint bench docs dist clean

demo: $(VENV)/demo.stamp
	$(BIN)/smoothcert demo

test: lint
	$(PYTEST)

test-slow: $(VENV)/dev.stamp
	$(PYTEST) -m slow

# The tests as other machines run them: other kernels, more threads, and no quiet moment.
test-matrix: $(VENV)/dev.stamp
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(PYTEST)
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=2 $(PYTEST)
	busy=; trap 'kill $$busy' EXIT; for i in 1 2 3 4; do while :; do :; done & busy="$$busy $$!"; done; $(PYTEST)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/bench.stamp
	$(BIN)/python benchmarks/run_all.py

docs: $(VENV)/docs.stamp
	$(BIN)/mkdocs build --strict

dist: $(VENV)/torch.stamp
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) site dist

# torch comes first and pinned: without a pin pip would look for its newest, CUDA build.
$(VENV)/torch.stamp: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	touch $@

$(VENV)/%.stamp: $(VENV)/torch.stamp pyproject.toml
	$(PIP) --editable '.[$*]'
	touch $@
