# Everything is installed into .venv in this folder; nothing is needed beforehand but Python 3.11 or later with venv, and make.
# The set-up runs again only when pyproject.toml has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev

# Without their dependencies: they would replace PyTorch by a build for CUDA, and tests need their Python part only.
MODEL_LIBRARIES := torchvision timm

# Many tests wait for processes: more of them at once than there are cores.
WORKERS ?= 4

TRACE ?= gen:gavel?jobs=1000&rate=1.6&seed=7
CLUSTER ?= 8x8:V100
POLICY ?= fifo,fifo-backfill,sjf,srtf,las
REPORT ?= out/report.html

.PHONY: help run simulate test check bench clean distclean

help:
	@echo "make run        run the service on this machine with a dozen small training jobs, and a page to watch them"
	@echo "make simulate   simulate 1,000 jobs under five policies; report in $(REPORT)"
	@echo "make test       run all tests"
	@echo "make check      lint, format, types, layers"
	@echo "make bench      measure speed"
	@echo "make clean      remove what was made; make distclean removes $(VENV) too"

run: $(INSTALLED)
	$(BIN)/gpuwise up --demo $(ARGS)

simulate: $(INSTALLED)
	@mkdir -p $(dir $(REPORT))
	$(BIN)/gpuwise simulate "$(TRACE)" --cluster "$(CLUSTER)" --policy "$(POLICY)" --report "$(REPORT)" -o table

test: $(INSTALLED_DEV)
	@tests/packages.sh
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED_DEV)
	@set -e; for script in $(sort $(wildcard benchmarks/[!_]*.py)); do echo "== $$script"; $(BIN)/python $$script $(ARGS); done

clean:
	rm -rf out dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)

$(INSTALLED): pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[plot]"
	@touch $@

$(INSTALLED_DEV): pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	$(BIN)/python -m pip install --quiet --no-deps $(MODEL_LIBRARIES)
	@touch $(INSTALLED) $@
