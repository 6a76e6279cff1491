# make demo    the whole loop on the embedded example, with a report at the end (ARGS="--quick --seed 1" to change it)
# make test    style, types and tests; the browser tests get a Chromium if they can (ENGINE=plain for the reference engine)
# make bench   Tutelage beside its peers, in environments of their own (JOB=sft for some, ARGS="--data pairs.jsonl")
# make clean   remove the environment and the caches, never the runs
#
# Each makes its own environment, demo and test in .venv. PYTHON chooses the interpreter (3.11 or newer), PIP_ARGS go to
# pip, an index of CPU-only wheels for example, which avoids the large CUDA ones.

PYTHON ?= python3
PIP_ARGS ?=
ARGS ?=
PYTEST_ARGS ?=
JOB ?=
ENGINE ?= auto

VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.PHONY: demo test environment browser bench clean

demo: environment
	$(BIN)/tutelage demo $(ARGS)

test: export OMP_NUM_THREADS = 1
test: export TOKENIZERS_PARALLELISM = false
test: export HF_HUB_OFFLINE = 1
test: export TUTELAGE_ENGINE = $(ENGINE)
test: environment browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 $(PYTEST_ARGS)

environment: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tutelage needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1): set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e ".[dev]"
	@touch $@

browser: environment
	@$(BIN)/python tests/browser/chromium.py

bench: .bench/ours/.ready .bench/peers/.ready .bench/peers-ppo/.ready
	.bench/ours/bin/python -m bench $(JOB) $(ARGS)

# What users install: transformers imports some of the developers' tools where it finds them.
.bench/ours/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .bench/ours
	.bench/ours/bin/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e .
	@touch $@

.bench/%/.ready: bench/%.txt
	$(PYTHON) -m venv .bench/$*
	.bench/$*/bin/python -m pip install --quiet $(PIP_ARGS) -r $<
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find tutelage tests -name __pycache__ -type d -prune -exec rm -rf {} +
