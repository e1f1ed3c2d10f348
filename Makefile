# On a fresh machine with Python 3.11 or later: `make demo` or `make test`. Each sets up .venv first.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
# What the demo needs, and what tests and benchmarks need besides.
FOR_DEMO := $(VENV)/.ready-for-demo
READY := $(VENV)/.ready

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test quick quick-tests trials machines mutants oracle laws bench findings lint clean

$(FOR_DEMO): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "oelm needs Python 3.11 or later; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[report,fonts,board]'
	@touch $@

$(READY): $(FOR_DEMO)
	$(INSTALL) -e '.[dev]'
	@touch $@

demo: $(FOR_DEMO)
	$(BIN)/oelm demo

# Three at a time for each core: many tests wait for processes, servers and clusters.
TESTS_AT_ONCE = $$(( 3 * $$(getconf _NPROCESSORS_ONLN) ))

test: $(READY)
	$(BIN)/python -m pytest -n $(TESTS_AT_ONCE) --dist loadfile --no-loadscope-reorder

# Before every commit: lint, types and the tests that take no time (tests/conftest.py), within 90 seconds on two cores.
quick: $(READY)
	@$(MAKE) --no-print-directory -j2 lint quick-tests

quick-tests: $(READY)
	$(BIN)/python -m pytest --quick -q -rf -n auto --dist loadfile

# Random-kill trials, long; their counts are recorded in docs/reliability.md.
trials: $(READY)
	$(BIN)/python -m pytest -m trial

# The tests as other machines would run them: another processor, number of threads, locale, home, user and path.
machines: $(READY)
	$(BIN)/python tests/other_machines.py

# Planted faults, each of which some test must find.
mutants: $(READY)
	$(BIN)/python tests/mutants.py

# The code here against that of a base commit, bit for bit; TENTH=1 for a tenth of it, BASE=COMMIT for another base.
oracle: $(READY)
	$(BIN)/python tests/oracle $(if $(TENTH),--tenth) $(if $(BASE),--base $(BASE))

# Which test holds each law that the tests held before the removals: tests/laws.md.
laws: $(READY)
	$(BIN)/python tests/laws.py

# Ratios in one run, interleaved, with their spread; each prints its ratios last.
bench: $(READY)
	$(BIN)/python benchmarks/step_speed.py
	$(BIN)/python benchmarks/loss_traffic.py
	$(BIN)/python benchmarks/against_commit.py
	$(BIN)/python benchmarks/frozen_against_trained.py
	$(BIN)/python benchmarks/treatments.py
	$(BIN)/python benchmarks/probes.py
	$(BIN)/python benchmarks/prepare_speed.py
	$(BIN)/python benchmarks/report_speed.py
	$(BIN)/python benchmarks/long_metrics.py
	$(BIN)/python benchmarks/live_table.py
	$(BIN)/python benchmarks/two_slots.py
	$(BIN)/python benchmarks/warm_starts.py
	$(BIN)/python benchmarks/controller_overhead.py
	$(BIN)/python benchmarks/cost_of_an_answer.py
	$(BIN)/python benchmarks/board.py
	@echo 'besides, with prepared sentences: $(BIN)/python benchmarks/fine_tuning_speed.py data/xnli-en'

# Stored runs of a finding become its archive, its report follows from that: docs/findings/README.md.
findings: $(FOR_DEMO)
	@set -e; for folder in docs/findings/*/; do \
	  study=$$(basename "$$folder"); runs="$${folder}runs"; \
	  if [ -d "$$runs" ]; then \
	    $(BIN)/oelm archive "$$study" --runs "$$runs" --to "$$runs.zip"; \
	    files=$$(find "$$runs" -type f ! -path "$$runs/archive.json" | wc -l); \
	    kept=$$($(BIN)/python -m zipfile -l "$$runs.zip" | tail -n +2 | grep -vc '^archive.json '); \
	    [ "$$files" -eq "$$kept" ] || { echo "$$runs: has files that are not in the archive; it stays"; exit 1; }; \
	    rm -r "$$runs"; \
	  fi; \
	  $(BIN)/oelm report "$$study" --runs "$$runs" --out "$${folder}report"; \
	done

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build src/*.egg-info
