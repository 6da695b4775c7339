# Two commands on a fresh machine with Python 3.11 and its venv: `make demo` and `make test`.

PYTHON ?= python3
JOBS ?= 3
PYTEST_ARGS ?=
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt --editable
# Stamps: what is installed belongs to these files' contents and is not installed again until they change.
FROM := pyproject.toml constraints.txt $(BIN)/python
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help demo up down test browser-test servers proof mutants lint format types house-test docs-test bench constraints clean clean-all
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## install, then the offline tour: mock endpoint with faults, a kill, a resume, the proof
	@$(BIN)/batchrun demo

up: $(INSTALLED_DEV) servers ## Redis, Postgres and WORKERS=2 workers as plain processes here; prints how to use them
	@$(BIN)/python -m deploy.local up --workers $(WORKERS)

down: ## end them: the workers finish what is in flight, and the data stay
	@$(PYTHON) -m deploy.local down

test: $(INSTALLED_DEV) servers ## install what the tests need, then run the whole suite
	@$(BIN)/pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

browser-test: $(INSTALLED_DEV) ## open reports in headless Chromium: quiet, offline, readable, judged by axe
	@$(INSTALL) '.[browser]'
	@command -v chromium >/dev/null || { echo "not found: chromium. On Debian: apt-get install chromium"; exit 1; }
	@$(BIN)/pytest tests/bench/test_report_in_a_browser.py

proof: $(INSTALLED_DEV) servers ## kill processes at every crash point, and judge by the endpoint's log (long; SEED=N)
	@$(BIN)/python -m tests.proof.matrix --items 24 --later-deaths 12 --lanes 7 $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.proof.chains $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.proof.disk $(if $(SEED),--seed $(SEED))

# The tests start private Redis and Postgres servers themselves; here only the programs are made sure of.
servers:
	@missing=$$($(PYTHON) tests/services.py); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing $$missing with apt-get (about a minute) ..."; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -qq </dev/null && apt-get install -y -qq --no-install-recommends $$missing </dev/null >/dev/null && exit 0; \
	fi; \
	echo "not found: $$missing. Tests that need them are skipped here and fail where CI=true."; \
	echo "to run them: sudo apt-get install $$missing   (or your system's packages of Redis and PostgreSQL)"

mutants: $(INSTALLED_DEV) servers ## take the promise's rules away one at a time: the tests must miss each (minutes)
	@$(BIN)/python -m tests.proof.mutants

lint: $(INSTALLED_DEV) ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(INSTALLED_DEV) ## ruff: mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(INSTALLED_DEV) ## mypy, strict
	@$(BIN)/mypy --strict batchrun

house-test: $(INSTALLED_DEV) ## imports go downhill, every third-party package has its owner rooms
	@$(BIN)/pytest tests/test_house.py

docs-test: $(INSTALLED_DEV) ## every command block and link of the documentation holds
	@$(BIN)/pytest tests/docs

bench: $(INSTALLED_DEV) servers ## measure what docs/performance.md tells (long; PARTS="limit order", RUNS=1, WRITE=1)
	@$(BIN)/python -m benchmarks.bench $(PARTS) $(if $(RUNS),--runs $(RUNS)) $(if $(WRITE),--write)

constraints: ## take the newest versions that pyproject.toml allows into constraints.txt
	@echo "installing the newest versions into a fresh environment (about 30 s) ..."
	@rm -rf build/constraints && $(PYTHON) -m venv build/constraints
	@build/constraints/bin/python -m pip install --quiet --quiet --disable-pip-version-check '.[postgres,dev,browser]'
	@{ sed -n '/^#/p; /^[^#].*;/p' constraints.txt; build/constraints/bin/python -m pip freeze --exclude batchrun-llm; } > build/constraints.txt
	@mv build/constraints.txt constraints.txt && rm -rf build/constraints

clean: ## remove builds and caches (never a ledger or an output)
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find batchrun migrations tests -name __pycache__ -type d -prune -exec rm -rf {} +

clean-all: clean ## the same and .venv
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"batchrun needs Python 3.11 or newer, $(PYTHON) is {sys.version.split()[0]}; try: make PYTHON=python3.11 ...")'
	@echo "making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "python3 has no venv here; on Debian: apt-get install python3-venv"; exit 1; }

$(INSTALLED): $(FROM)
	@echo "installing into $(VENV) (about 20 s) ..."
	@$(INSTALL) .
	@touch $@

$(INSTALLED_DEV): $(FROM)
	@echo "installing into $(VENV), with what the tests need (about 30 s) ..."
	@$(INSTALL) '.[postgres,dev]'
	@touch $(INSTALLED) $@
