# swarmlab: `make run` and `make test` are all a newcomer needs; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

EXP ?= failover
MODEL ?= tiny_llama
ARGS ?=
SUPPORTED := import sys, ensurepip, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))
# The first interpreter that the lock supports; `make PYTHON=/path/to/python3.12 venv` overrides the search.
PYTHON ?= $(shell for candidate in python3.11 python3 python3.12; do \
	"$$candidate" -c '$(SUPPORTED)' >/dev/null 2>&1 && echo "$$candidate" && break; done)
# `PYTHON=3.12` means python3.12 where an interpreter is wanted, and Python 3.12 for `make wheels`.
VERSION := $(filter 3.11 3.12,$(PYTHON))
ifneq ($(VERSION),)
override PYTHON := python$(VERSION)
endif
PLATFORM ?= manylinux_2_28_x86_64

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
LOCK := requirements/lock.txt
PETALS := requirements/petals.txt
STAMP := $(VENV)/.installed
SOURCES := src tests

.PHONY: help venv run models doctor test test-fast lint format figures notebooks notebooks-html lock clean wheels

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

venv: $(STAMP) ## install the locked environment into .venv (once; again when a requirement changes)

# pip installs torch because only pip reads the machine's pip configuration, which may name a CPU build;
# uv then takes that torch as it is and installs the rest in a fraction of pip's time.
# petals is copied, not linked to uv's cache, so that an edit in .venv cannot reach the next installation.
# Without .pyc files `import petals` would cost 22 s instead of 8 s in every process of a swarm.
$(STAMP): $(LOCK) $(PETALS) requirements/base.in requirements/dev.in pyproject.toml
	@"$(PYTHON)" -c '$(SUPPORTED)' 2>/dev/null || { echo "make: swarmlab needs Python 3.11 or 3.12 with its venv module" \
		"(Debian: apt-get install python3.11-venv); or name one: make PYTHON=/path/to/python3.11 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv torch -c $(LOCK)
	$(BIN)/uv pip install --quiet --python $(PY) --compile-bytecode -r $(LOCK)
	$(BIN)/uv pip install --quiet --python $(PY) --compile-bytecode --no-deps --link-mode copy \
		-r $(PETALS)
	$(BIN)/uv pip install --quiet --python $(PY) --no-deps --no-build-isolation -e .
	@touch $@

run: $(STAMP) ## run an experiment: EXP=failover MODEL=tiny_llama|smollm2|DIR ARGS='more hydra overrides'
	$(PY) -m swarmlab.run +exp=$(EXP) model=$(MODEL) $(ARGS)

models: $(STAMP) ## fetch and convert the real model (MODEL=smollm2)
	$(PY) -m swarmlab.bridge.models $(ARGS)

doctor: $(STAMP) ## check this machine, one line per check
	$(PY) -m swarmlab.doctor

test: lint ## everything that CI runs: linters, types, import contract, all tests with real swarms (not the slow ones)
	$(PY) -m pytest -m "not slow" $(ARGS) || { code=$$?; [ $$code -eq 1 ] || exit $$code; \
		echo "make: what failed is run once more, alone: swarms share this machine with others" >&2; \
		$(PY) -m pytest -m "not slow" --last-failed --last-failed-no-failures none $(ARGS); }

test-fast: $(STAMP) ## the tests that start no swarm
	$(PY) -m pytest -m "not swarm and not slow" $(ARGS)

lint: $(STAMP) ## ruff, pyright and the import contract
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

figures: $(STAMP) ## rebuild the figures and tables from stored results, without a swarm
	$(PY) -m swarmlab.figures $(ARGS)

notebooks: $(STAMP) ## execute every notebook
	$(PY) -m pytest --nbmake notebooks

notebooks-html: $(STAMP) ## execute every notebook and write it as a page to build/notebooks
	$(BIN)/jupyter nbconvert --execute --to html --output-dir build/notebooks notebooks/*.ipynb

wheels: $(STAMP) ## gather the locked packages for a machine without a network: PYTHON=3.12 PLATFORM=... ARGS=--runs-only
	$(PY) -m swarmlab.health.wheels --python $(or $(VERSION),3.12) --platform $(PLATFORM) $(ARGS)

# The lock names torch without a local version and leaves out the CUDA packages that the default Linux build
# depends on: whichever build of torch pip chooses on a machine brings its own.
lock: $(STAMP) ## resolve base.in and dev.in again (ARGS=--upgrade for newer versions)
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version 3.11 $(ARGS) \
		requirements/base.in requirements/dev.in --output-file $(LOCK)
	sed -i -E -e '/^(nvidia|cuda|triton)/d' -e 's/^(torch==[^+]+)\+.*/\1/' \
		-e "1i # Made by 'make lock' from base.in and dev.in; do not edit." $(LOCK)

clean: ## remove caches and build leftovers (keeps .venv, models and results)
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache outputs multirun
	find src tests -name __pycache__ -prune -exec rm -rf {} +
