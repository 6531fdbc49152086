# Everything a newcomer types. `make lab` and `make test` need nothing but a clone and the packages they ask for.
PYTHON ?= python3
BIN := .venv/bin
PLAY := ANSIBLE_STDOUT_CALLBACK=attested.kubernetes.stages $(BIN)/ansible-playbook

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

check: .venv/ready ## lint, unit tests and sanity: two minutes
	@$(BIN)/python tests/run.py check

test: .venv/ready ## everything that needs no night
	@tests/support/prerequisites test && $(BIN)/python tests/run.py test

nightly: .venv/ready ## test, and what takes long
	@tests/support/prerequisites test && $(BIN)/python tests/run.py nightly

.venv/ready: pyproject.toml galaxy.yml
	@PYTHON=$(PYTHON) tests/support/prerequisites check
	@$(PYTHON) -m venv .venv && $(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]' && touch $@

.PHONY: help check test nightly
