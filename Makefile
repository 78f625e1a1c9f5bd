# Everything runs in .venv, which the targets create. PYTHON=/path/to/python3 chooses the interpreter.

SHELL := /bin/bash
.DEFAULT_GOAL := help

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
RUN_READY := .venv/.ready-run
DEV_READY := .venv/.ready-dev
ALL_BUT_CHAOS := --ignore=tests/chaos tests
CODE := src tests tools $(wildcard bench examples)

export PYTHON
export UV_PYTHON_DOWNLOADS := never
# The tests start hundreds of processes; without cached bytecode each one compiles everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list these targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(DEV_READY) ## create .venv for running, testing and checking; install system packages for tests

$(RUN_READY): requirements/setup.txt requirements/uv.txt requirements/central.txt pyproject.toml tools/setup
	@tools/setup central
	@touch $@

$(DEV_READY): $(wildcard requirements/*.txt) pyproject.toml tools/setup tools/wheels tools/browser tools/postfix tools/mariadb tools/pgbouncer tools/tinyproxy tools/kannel tools/zgw tools/strace
	@tools/setup dev
	@tools/wheels
	@tools/browser
	@tools/postfix
	@tools/mariadb
	@tools/pgbouncer
	@tools/tinyproxy
	@tools/kannel
	@tools/zgw
	@tools/strace
	@touch $(RUN_READY) $@

.PHONY: check
check: $(DEV_READY) ## formatting, lint, types, import contracts and tests/house
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -q tests/house

.PHONY: fast
fast: $(DEV_READY) ## run unit and property tests (no I/O, seconds)
	$(PYTEST) -q $(wildcard tests/unit tests/property)

.PHONY: test
test: $(DEV_READY) ## run all tests except chaos
	@$(PYTEST) -q -n 3 --dist loadscope --no-loadscope-reorder $(ALL_BUT_CHAOS)

.PHONY: chaos
chaos: $(DEV_READY) ## run the long tests that kill and pause processes; PART=3 runs one part
	CHAOS_PART=$(PART) $(PYTEST) -q tests/chaos

.PHONY: mutants
mutants: $(DEV_READY) ## break the code on purpose, place by place, and check that tests notice (up to 40 minutes)
	$(BIN)/python tools/mutants

.PHONY: browser
browser: $(DEV_READY) ## run the console tests in Chromium
	$(PYTEST) -q tests/console

.PHONY: pictures
pictures: $(DEV_READY) ## take screenshots of every console page (build/pictures, README)
	cd tests && ../$(BIN)/python -m support.pictures pictures --readme

.PHONY: docs
docs: $(DEV_READY) ## regenerate docs/reference and docs/contributing
	$(BIN)/python tools/ledger.py --write
	$(BIN)/python tools/reference --write

.PHONY: demo
demo: $(RUN_READY) ## run central, two sites and an inbox for mails, chats and SMS
	@$(BIN)/fieldpost demo

.PHONY: uptime
uptime: $(RUN_READY) ## run the example application: an uptime monitor with central, mail and webhooks
	@PYTHONPATH=examples $(BIN)/python -m uptime.demo

.PHONY: bench
bench: $(DEV_READY) ## measure throughput and latency on this machine
	$(BIN)/python -m bench

.PHONY: upgrade
upgrade: $(RUN_READY) ## pin the newest versions of dependencies in requirements/
	@tools/upgrade

.PHONY: clean
clean: ## remove .venv, caches and demo data
	rm -rf .venv fieldpost-demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
