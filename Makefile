# Everything runs in .venv, which the targets make by themselves. Give PYTHON=/path/to/python3 to choose the interpreter.

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
# The tests start hundreds of processes; one that may not keep what it compiled compiles it anew each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(DEV_READY) ## make .venv with all that running, testing and checking need

$(RUN_READY): requirements/setup.txt requirements/uv.txt requirements/run.txt pyproject.toml tools/setup
	@tools/setup run
	@touch $@

$(DEV_READY): requirements/setup.txt requirements/uv.txt requirements/dev.txt pyproject.toml tools/setup tools/browser
	@tools/setup dev
	@tools/browser
	@touch $(RUN_READY) $@

.PHONY: check
check: $(DEV_READY) ## format, lint, types, imports and the house's own tests
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -q tests/house

.PHONY: fast
fast: $(DEV_READY) ## the tests that need no I/O: unit and property
	$(PYTEST) -q $(wildcard tests/unit tests/property)

.PHONY: test
test: $(DEV_READY) ## all tests but chaos
	@tools/postfix
	@tools/strace
	@$(PYTEST) -q -n 3 --dist loadscope --no-loadscope-reorder $(ALL_BUT_CHAOS) || tools/again $$? $(ALL_BUT_CHAOS)

.PHONY: chaos
chaos: $(DEV_READY) ## the long tests: real processes killed and paused
	@tools/strace
	$(PYTEST) -q tests/chaos

.PHONY: browser
browser: $(DEV_READY) ## the console in Chromium
	$(PYTEST) -q tests/console

.PHONY: pictures
pictures: $(DEV_READY) ## pictures of every page of the console, in build/pictures; those of the README anew
	cd tests && ../$(BIN)/python -m support.look pictures --readme

.PHONY: docs
docs: $(DEV_READY) ## make the generated pages of docs/reference anew
	$(BIN)/python tools/ledger.py --write
	$(BIN)/python tools/reference --write

.PHONY: demo
demo: $(RUN_READY) ## central, two sites and a mail catcher in this terminal
	@$(BIN)/fieldpost demo

.PHONY: bench
bench: $(DEV_READY) ## measure throughput and latency on this machine
	$(BIN)/python -m bench

.PHONY: upgrade
upgrade: $(RUN_READY) ## pin the newest versions in requirements/
	@tools/upgrade

.PHONY: clean
clean: ## remove .venv, caches and the demo's data
	rm -rf .venv fieldpost-demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
