# The first of these that you call sets up .venv with the locked versions.
#
#   make demo                    which start helps with a cart-pole? a page, after some two minutes
#   make demo-atari              meta-train on Breakout, some five minutes on two cores
#   make test                    the default tests
#   make lint                    ruff, mypy, import contracts
#   make docs                    the page of all options, and the site of the docs in site/
#   make compose                 the demo in containers, by docker compose: see docs/launch.md
#   make peers                   an environment for each peer in benchmarks/peers
#   make setup PYTHON=python3.13 have .venv of another Python: it is made again
#   make setup TORCH_INDEX=URL   take torch from another index, such as
#                                https://download.pytorch.org/whl/cu130 (CUDA 13.0) or .../whl/cpu

PYTHON ?= python3
TORCH_INDEX ?=
TORCH = torch==2.13.0
BIN = .venv/bin
INSTALLED = .venv/.installed

.PHONY: compose demo demo-atari docs force format help lint lock peers setup test test-chaos test-slow

help:
	@sed -n 's/^#   //p' Makefile

setup: $(INSTALLED)

# A .venv keeps its Python, unless PYTHON names another one.
FOUND := $(wildcard $(BIN)/pip)
ifneq ($(origin PYTHON),file)
ifneq ($(shell $(PYTHON) -V 2>&1),$(shell $(BIN)/python -V 2>&1))
FOUND :=
$(INSTALLED): force
endif
endif

# And it keeps its torch, unless TORCH_INDEX names another index than before.
ifneq ($(TORCH_INDEX),)
ifneq ($(TORCH_INDEX),$(shell cat $(INSTALLED) 2>/dev/null))
OTHER_TORCH := yes
$(INSTALLED): force
endif
endif

# torch goes in first and by its exact version, so that no other package draws in another build.
$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "leap_rl needs Python 3.11 or newer; name one: make setup PYTHON=python3.11")'
	@echo "Setting up .venv: torch first, then some 170 locked packages; a few minutes"
	$(if $(FOUND),,$(PYTHON) -m venv --clear .venv)
	@rm -f $@
	$(if $(FOUND),$(if $(OTHER_TORCH),$(BIN)/pip uninstall --quiet --yes torch))
	$(BIN)/pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	$(BIN)/pip install --quiet -r requirements.lock
	$(BIN)/pip install --quiet --no-deps -e .
	@echo "$(TORCH_INDEX)" > $@

demo: setup
	$(BIN)/leap-rl study studies/carts.yaml --quick --out runs/demo --open

demo-atari: setup
	$(BIN)/leap-rl train --config demo

TRAINERS ?= 2
COMPOSE = docker compose -f launch/docker-compose.yml

# CONFIG, RUN and OPTIONS, if they are given, are in its environment too.
compose:
	@mkdir -p runs
	@test -e launch/.token || launch/make-token launch/.token
	LEAP_RL_USER="$$(id -u):$$(id -g)" $(COMPOSE) up --build --detach --scale trainer=$(TRAINERS)
	@echo "The run's folder is runs/$(or $(RUN),demo). To follow it, and to end it:"
	@echo "  $(COMPOSE) logs --follow head"
	@echo "  $(COMPOSE) down"

# Much of the time is waiting, for Ray to start and for signals: two at once, a file's tests in order.
test: setup
	$(BIN)/pytest -q -n 2 --dist loadfile

test-chaos: setup
	$(BIN)/pytest -q -m chaos

test-slow: setup
	$(BIN)/pytest -q -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Search works over HTTP alone; all else from disk too, site/index.html.
docs: setup
	$(BIN)/python tools/configuration_page.py
	$(BIN)/python tools/architecture_page.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "Read it: $(PYTHON) -m http.server --bind 127.0.0.1 --directory site"

PEERS = benchmarks/peers
PEER_ENVIRONMENTS = $(foreach name,sb3 rllib envpool ale jax,$(PEERS)/.venv-$(name)/.installed)

peers: $(PEER_ENVIRONMENTS)

# As above: torch goes first, so that nothing draws in another build.
$(PEERS)/.venv-%/.installed: $(PEERS)/requirements-%.txt
	@echo "Setting up $(@D)"
	$(PYTHON) -m venv $(@D)
	if grep -q '^torch==' $<; then $(@D)/bin/pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH); fi
	$(@D)/bin/pip install --quiet -r $<
	@touch $@

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: setup
	@sed -n '/^#/p' requirements.lock > requirements.new
	@$(BIN)/pip freeze --all --exclude-editable | sed -e '/^pip==/d' -e 's/^\(torch==[^+]*\)+.*/\1/' -e 's/^Box2D==.*/&; platform_machine != "aarch64"/' >> requirements.new
	@mv requirements.new requirements.lock
