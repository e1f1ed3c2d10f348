# On a fresh machine with Python 3.11 or later: `make demo` or `make test`. Each sets up .venv first.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_STEPS ?= 200

.PHONY: demo test trials bench lint clean

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "oelm needs Python 3.11 or later; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/oelm prepare stories --out data/stories
	$(BIN)/oelm train --preset tiny --arm trained --data data/stories --out runs/demo/trained --set training.steps=$(DEMO_STEPS)
	$(BIN)/oelm train --preset tiny --arm frozen_head_orthogonal --data data/stories --out runs/demo/frozen_head_orthogonal --set training.steps=$(DEMO_STEPS)
	@echo
	$(BIN)/oelm compare runs/demo/trained runs/demo/frozen_head_orthogonal

test: $(READY)
	$(BIN)/python -m pytest

# Random-kill trials, long; their counts are recorded in docs/reliability.md.
trials: $(READY)
	$(BIN)/python -m pytest -m trial

# Ratios in one run, interleaved, with their spread; each prints its ratios last.
bench: $(READY)
	$(BIN)/python benchmarks/step_speed.py
	$(BIN)/python benchmarks/frozen_against_trained.py
	$(BIN)/python benchmarks/prepare_speed.py

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks

clean:
	rm -rf $(VENV) build src/*.egg-info
