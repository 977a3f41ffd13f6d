# oclgrid: `make quickstart` runs the main job from nothing, `make test` checks everything.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?= dev
INSTALLED := $(VENV)/.installed

.PHONY: help install quickstart test test-cluster check types bench bench-compare chaos clean

help:
	@echo "make quickstart   install into .venv, run the quickstart sweep, show its table"
	@echo "make test         install into .venv, run every check and test"
	@echo "make test-cluster start a cluster with ray up, on hosts of namespaces (root on Debian)"
	@echo "make check        only the linter and the type checker"
	@echo "make bench        measure speed as ratios, into benchmarks/latest.json"
	@echo "make bench-compare OLD=a.json NEW=b.json  what has become faster or slower between two results"
	@echo "make chaos N=20   kill workers, nodes, drivers, servers, ... under a sweep, N times"
	@echo "make clean        remove .venv and what the checks left (keeps oclgrid-store)"

install: $(INSTALLED)

# uv installs the same packages several times faster than pip; where it cannot, pip does.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "oclgrid needs Python 3.11 or newer, $(PYTHON) is older; try make PYTHON=python3.11" >&2; exit 2; }
	@echo "Installing into $(VENV): PyTorch, Ray, MLflow and what they need, about 6 GB."
	@echo "This takes a minute with uv and a fast network, several with pip. Only the first time."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv || \
	  echo "uv cannot be installed here; going on with pip"
	@{ [ -x $(BIN)/uv ] && $(BIN)/uv pip install --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[$(EXTRAS)]'; } || \
	  { echo "installing with pip"; $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'; }
	@touch $(INSTALLED)
	@echo "Installed."

quickstart: $(INSTALLED)
	@$(BIN)/oclgrid run quickstart
	@echo "All of it on one page: $(BIN)/oclgrid report quickstart; in the MLflow UI: $(BIN)/oclgrid ui quickstart"

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory types

# Type checkers cannot see through an editable install, so they get a plain copy.
types: $(INSTALLED)
	@rm -rf build/types && mkdir -p build/types
	@for room in platform search_spaces trainables; do mkdir -p build/types/oclgrid && cp -r $$room build/types/oclgrid/; done
	MYPYPATH=build/types $(BIN)/mypy -p oclgrid

test: check
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not cluster"

test-cluster: $(INSTALLED)
	$(BIN)/python -m pytest -s -m cluster tests/cluster

# Single ones by name: make bench NAMES="step views"
bench: $(INSTALLED)
	$(BIN)/python -m benchmarks $(NAMES)

# make bench-compare OLD=before.json NEW=benchmarks/latest.json
NEW ?= benchmarks/latest.json
bench-compare: $(INSTALLED)
	$(BIN)/python -m benchmarks.compare $(OLD) $(NEW)

N ?= 20
chaos: $(INSTALLED)
	$(BIN)/python -m tests.chaos $(N)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
