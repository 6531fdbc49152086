# Everything a newcomer types. `make lab` and `make test` need nothing but a clone and the packages that they ask for.
PYTHON ?= python3
LAB := $(HOME)/.local/state/attested-lab
export PATH := $(CURDIR)/.venv/bin:$(PATH)
unexport PYTHONPATH ANSIBLE_COLLECTIONS_PATH
export ANSIBLE_STDOUT_CALLBACK = attested.kubernetes.stages
export ANSIBLE_INVENTORY_UNPARSED_WARNING = False
export ANSIBLE_LOCALHOST_WARNING = False
need = tests/support/prerequisites
play = echo && echo '$$ ansible-playbook attested.kubernetes.$(1)' && ansible-playbook attested.kubernetes.$(1)

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

lab: .venv/lab ## an attested cluster on this machine, and machines that it refuses
	@$(need) lab && $(call play,lab_machines) && cd $(LAB)/site && $(call play,lab) && $(call play,init) && $(call play,node) && $(call play,lab_tour)

lab-shell: ## a shell in the lab's network
	@exec $(LAB)/shell

lab-down: .venv/lab ## removes the lab and puts back what it changed
	@$(call play,lab_down)

check: .venv/ready ## lint, unit tests and sanity: two minutes
	@python tests/run.py check

test: .venv/ready ## everything that needs no night
	@$(need) test && python tests/run.py test

nightly: .venv/ready ## test, and what takes long
	@$(need) test && python tests/run.py nightly

bench: .venv/ready ## what the parts cost, each beside a baseline of the same run
	@$(need) test && python tests/bench/run.py

pip = pip install --quiet --disable-pip-version-check -e

.venv/lab: pyproject.toml galaxy.yml
	@PYTHON=$(PYTHON) $(need) check && $(PYTHON) -m venv .venv && $(pip) . && touch $@

.venv/ready: .venv/lab
	@$(pip) '.[dev]' && touch $@

.PHONY: help lab lab-shell lab-down check test nightly bench
