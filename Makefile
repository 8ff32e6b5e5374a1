SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := .venv/bin
RUN := .venv/.installed-run
DEV := .venv/.installed-dev
ARGS ?=

.PHONY: attacks help setup demo up test check format lint type bench chaos schemas acl lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(DEV) ## Make .venv with everything pinned, for running and developing

demo: $(RUN) ## Run a scripted agent session on a local Redis: every tool, a denial, a plan, taint
	@$(BIN)/toolreef demo $(ARGS)

up: $(RUN) ## Run a local Redis, workers and the dashboard in the foreground
	@$(BIN)/toolreef up $(ARGS)

test: $(DEV) ## Run the tests; pass options with ARGS="-k name -x"
	@$(BIN)/python -m pytest $(ARGS)

check: format lint type test ## Everything that CI runs: format, lint, layers, types, tests

format: $(DEV)
	@$(BIN)/ruff format --check .

lint: $(DEV) ## Lint the code, the import layers, the shell scripts and the Dockerfile
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-logo
	@if [ -x $(BIN)/shellcheck ]; then $(BIN)/shellcheck .ci/run deploy/*.sh deploy/redis/*.sh; fi
	@if [ -x $(BIN)/hadolint ]; then $(BIN)/hadolint deploy/Dockerfile; fi

type: $(DEV) ## Check the types
	@$(BIN)/mypy

bench: $(DEV) ## Measure the figures of docs/benchmarks.md again
	@$(BIN)/python -m bench $(ARGS)

chaos: $(DEV) ## Kill workers and cut connections under load, then count what was lost or run twice
	@$(BIN)/python -m tests.chaos --seed $(or $(SEED),1) --duration $(or $(DURATION),60) $(ARGS)

attacks: $(DEV) ## Attack every sandbox that this host offers, and write what came of it into docs/sandbox.md
	@$(BIN)/python -m tests.attacks.table

schemas: $(DEV) ## Write the contract for other languages into build/schemas
	@$(BIN)/python -m contracts.schemas build/schemas

acl: $(DEV) ## Generate deploy/redis/users.acl from contracts/keys.py
	@$(BIN)/python -m contracts.acl > deploy/redis/users.acl.new && mv deploy/redis/users.acl.new deploy/redis/users.acl

lock: ## Pin every dependency again, with hashes, for all supported Pythons and machines
	@deploy/lock.sh

clean: ## Remove what the targets made; never the state of a running server
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info

$(RUN): requirements.txt pyproject.toml deploy/setup.sh
	@deploy/setup.sh requirements.txt
	@touch $@

$(DEV): requirements-dev.txt requirements.txt pyproject.toml deploy/setup.sh
	@deploy/setup.sh requirements-dev.txt
	@touch $@ $(RUN)
