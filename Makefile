# make study                        run the bundled study and print its results (a second run finds nothing to do)
# make study ARMS="none recite"     run some arms
# make study CONFIG=my-study.yaml   run another study
# make test                         what CI runs
# make docs                         the documentation as a site in site/, after writing what it takes from the code
# make slurm-demo                   a small study on a real Slurm of four make-believe GH200 nodes on this machine
# make clean                        remove caches and results; the store, which holds everything computed, stays

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SNAKEMAKE_CONFIG := $(if $(CONFIG),study="$(CONFIG)") $(if $(ARMS),arms="$(ARMS)") $(if $(SET),set="$(SET)")
RULES := Snakefile workflow/Snakefile rules

# One compute thread a process: two processes of one thread beat one process of two on small machines.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

.PHONY: study test lint docs slurm-demo clean

study: $(VENV)/installed
	@$(BIN)/snakemake --profile local $(if $(strip $(SNAKEMAKE_CONFIG)),--config $(SNAKEMAKE_CONFIG))
	@$(BIN)/internalize results

# Two test files at a time: most tests use one thread, and wait for processes of their own.
test: lint
	$(BIN)/pytest -n 2 --dist loadfile

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check $(RULES)
	$(BIN)/snakemake --lint

docs: $(VENV)/installed
	@$(PIP) install --editable '.[docs]'
	$(BIN)/internalize docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

slurm-demo: $(VENV)/installed
	@$(PIP) install --editable '.[cluster]'
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/slurm-demo.sh

clean:
	rm -rf results logs site .snakemake .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

# torch first: its build (CPU here, CUDA elsewhere) is the installer's choice, and what follows must not change it.
$(VENV)/installed: pyproject.toml | $(BIN)/python
	@echo "installing (some minutes the first time)"
	@$(PIP) install torch==2.13.0
	@$(PIP) install --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@$(PIP) install --editable '.[dev]'
	@touch $@
