# Everything runs in .venv, which the targets make themselves: they need Python 3.11 or newer, git and make.
#
#   make run      make test      make help

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# PYTHON=/path/to/python chooses the interpreter; otherwise the first of these that is new enough and can make a venv.
PYTHON ?=
CANDIDATES := python3.11 python3.12 python3.13 python3 python
CAN_SERVE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

# Test processes at once; they share cores with the children that the tests start.
WORKERS ?= 2
# More arguments for pytest, such as ARGS="-k guard".
ARGS ?=
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
# What the type checker reads, where it exists.
TYPED := $(wildcard src examples tests bench tools)

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: setup ## Run the release agent, untouched and killed, and show what the log and the world say.
	@$(BIN)/python examples/release_agent/run.py

.PHONY: test
test: setup strace lint ## Lint, then run all tests.
	@$(PYTEST) --report .build/test $(ARGS)

.PHONY: nightly
nightly: setup strace lint ## As test, with the numbers of a night and a report; in portions with ARGS="-k power".
	@$(PYTEST) --nightly --report .build/nightly $(ARGS)

.PHONY: soak
soak: setup ## Mixed load, a worker killed every 2 s, a verdict (ARGS="--minutes 30").
	@$(BIN)/python -m tests.soak $(ARGS)

.PHONY: lint
lint: setup ## Style, format, types and import contracts.
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check . || true; exit 1; }
	@$(BIN)/mypy $(TYPED)
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports --no-logo

.PHONY: bench
bench: setup ## Measure, with the machine's floor beside every figure.
	@$(BIN)/poimen bench $(ARGS)

.PHONY: peers
peers: setup strace ## Measure other runtimes, each in its own venv, and write their page (ARGS=--timings: costs alone).
	@$(BIN)/python -m bench.peers $(ARGS)

.PHONY: docs
docs: setup ## Write the pages that are made from the code and from the peers' results.
	@$(BIN)/python -m tools.errors_page
	@$(BIN)/python -m tools.python_page
	@$(BIN)/python -m bench.peers --page
	@$(BIN)/python -m bench.page

.PHONY: setup
setup: $(INSTALLED) ## Make .venv and install what is locked (the other targets do it themselves).

$(INSTALLED): requirements.lock pyproject.toml
	@if ! $(BIN)/python -c '$(CAN_SERVE)' 2>/dev/null; then \
		for python in $(or $(PYTHON),$(CANDIDATES)); do \
			if "$$python" -c '$(CAN_SERVE)' 2>/dev/null; then \
				echo "making $(VENV) with $$("$$python" --version) ($$python)"; \
				"$$python" -m venv --clear $(VENV); \
				break; \
			fi; \
		done; \
	fi
	@if ! $(BIN)/python -c '$(CAN_SERVE)' 2>/dev/null; then \
		echo "poimen needs Python 3.11 or newer with the venv module; tried: $(or $(PYTHON),$(CANDIDATES))" >&2; \
		echo "install one (on Debian and Ubuntu: sudo apt-get install -y python3 python3-venv)," >&2; \
		echo "or name it: make setup PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi
	@echo "installing what requirements.lock names"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The sync counts and the injected faults are seen from outside the process: without strace nothing would be proved.
.PHONY: strace
strace:
	@if ! command -v strace >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing strace"; \
			apt-get update -qq >/dev/null || true; \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq strace >/dev/null; \
		else \
			echo "the tests need strace: sudo apt-get install -y strace" >&2; \
			exit 1; \
		fi; \
	fi

# On the oldest Python, so that one lock serves all; with no settings of this machine, so that it names no host and no path.
.PHONY: lock
lock: setup ## Pin the dependencies anew within their ranges (all to the newest: ARGS=--upgrade).
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "the lock is made on Python 3.11: rm -r $(VENV); make lock PYTHON=python3.11")'
	@env -u PIP_FIND_LINKS PIP_CONFIG_FILE=/dev/null CUSTOM_COMPILE_COMMAND="make lock" \
		$(BIN)/pip-compile --quiet --no-config --extra dev --generate-hashes --allow-unsafe --strip-extras \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--output-file requirements.lock $(ARGS) pyproject.toml

.PHONY: clean
clean: ## Remove what the targets made, the virtual environment included; never a database.
	@rm -rf $(VENV) .build build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
