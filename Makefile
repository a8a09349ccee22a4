# Needs Python 3.11 or newer, pip and make. Each target creates the virtual
# environment that it needs, once.

PYTHON ?= python3
VENV ?= .venv
CONFIG ?= configs/stdlib_bpe.py
WORKDIR ?= runs/stdlib_bpe
TRAIN_FLAGS ?=
# Three workers for two cores, as some tests wait. A file's tests stay together,
# for what they share; tests/conftest.py puts the long files first.
PYTEST_FLAGS ?= -n 3 --dist loadfile --no-loadscope-reorder
QUICK ?= tests/config tests/tasks tests/data
PIP_FLAGS ?=
PYTHON_OTHER ?= python3.12
VENV_OTHER ?= .venv-other

export PIP_DISABLE_PIP_VERSION_CHECK := 1

# CUDA 13 needs driver 580 and a GPU of compute capability 7.5 (Turing);
# nvidia-smi prints "580.65.06, 9.0" for each GPU, or a message if it fails.
detect_accelerator = \
  if gpus=$$(nvidia-smi --query-gpu=driver_version,compute_cap \
                        --format=csv,noheader 2>/dev/null); then \
    printf '%s\n' "$$gpus" | awk -F', *' ' \
      /^[0-9]+[.]/ { gpus++; if ($$1 + 0 < 580 || $$2 + 0 < 7.5) old++ } \
      END { print !gpus ? "cpu" : old ? "cuda12" : "cuda13" }'; \
  elif nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then echo cuda12; \
  else echo cpu; fi

# help and clean need neither Python nor a GPU.
ifneq ($(filter-out help clean,$(or $(MAKECMDGOALS),help)),)
  python_version := $(shell $(PYTHON) -c \
    'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
  ifeq ($(ACCELERATOR),)
    ACCELERATOR := $(shell $(detect_accelerator))
  else ifeq ($(ACCELERATOR),cpu)
    # The user asked for the CPU: use it even if a CUDA plugin is installed.
    export JAX_PLATFORMS := cpu
  endif
  ifeq ($(filter cpu cuda12 cuda13,$(ACCELERATOR)),)
    $(error ACCELERATOR is '$(ACCELERATOR)': set it to cpu, cuda12 or cuda13)
  endif
endif

python := $(VENV)/bin/python
extra := $(filter cuda%,$(ACCELERATOR))
other_cuda := $(if $(extra),$(filter-out $(extra),cuda12 cuda13))
comma := ,

# A stamp means: installed, for this Python and this accelerator.
created := $(VENV)/.created-$(python_version)
run_stamp := $(VENV)/.installed-$(python_version)-$(ACCELERATOR)-run
test_stamp := $(VENV)/.installed-$(python_version)-$(ACCELERATOR)-test
docs_stamp := $(VENV)/.installed-$(python_version)-$(ACCELERATOR)-docs
peers_stamp := $(VENV)/.installed-$(python_version)-$(ACCELERATOR)-peers
release_stamp := $(VENV)/.installed-$(python_version)-$(ACCELERATOR)-release
llama_stamp := $(VENV)/.installed-$(python_version)-$(ACCELERATOR)-llama
beam_stamp := $(VENV)-beam/.installed-$(python_version)-$(ACCELERATOR)
# What Apache Beam needs in older versions than those of constraints.txt.
beam_older := numpy|pillow|protobuf|pyarrow|python-dateutil

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help train test test-quick test-peers test-llama test-beam test-other \
  test-isa test-clang test-neon lint format docs docs-check env wheels release-check \
  sanitize clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{ printf "make %-10s %s\n", $$1, $$2 }' \
	  $(firstword $(MAKEFILE_LIST))
	@echo
	@echo 'Variables (make train PYTHON=python3.12 ACCELERATOR=cpu):'
	@echo '  PYTHON        interpreter, 3.11 or newer      [$(PYTHON)]'
	@echo '  ACCELERATOR   cpu, cuda12 or cuda13           [from nvidia-smi]'
	@echo '  VENV          the virtual environment         [$(VENV)]'
	@echo '  CONFIG        what make train runs            [$(CONFIG)]'
	@echo '  WORKDIR       where make train writes         [$(WORKDIR)]'
	@echo '  TRAIN_FLAGS   more flags for the launcher     [$(TRAIN_FLAGS)]'
	@echo '  PYTEST_FLAGS  more flags for pytest           [$(PYTEST_FLAGS)]'
	@echo '  PIP_FLAGS     more flags for pip install      [$(PIP_FLAGS)]'
	@echo '  PYTHON_OTHER  interpreter of make test-other  [$(PYTHON_OTHER)]'
	@echo '  VENV_OTHER    its virtual environment         [$(VENV_OTHER)]'

train: $(run_stamp) ## Train CONFIG into WORKDIR; run it again to resume
	$(python) -m launch.train --config=$(CONFIG) --workdir=$(WORKDIR) \
	  $(TRAIN_FLAGS)

test: $(test_stamp) ## Run the tests
	$(python) -m pytest -m 'not peers and not beam' $(PYTEST_FLAGS)

test-quick: $(test_stamp) ## Run those that take seconds, while you edit
	$(python) -m pytest -m 'not peers and not beam and not slow' \
	  $(PYTEST_FLAGS) $(QUICK)

# In the same environment, which grows by PyTorch and transformers.
test-peers: $(peers_stamp) ## Compare with PyTorch and transformers (gigabytes)
	$(python) -c 'import bert_score, datasets, fastapi, fla, lm_eval, torch, transformers, wandb'
	$(python) -m pytest -m peers $(PYTEST_FLAGS)

# llama.cpp, compiled.
test-llama: $(llama_stamp) ## Compare GGUF files with llama.cpp (minutes once)
	$(python) -m pytest -m peers $(PYTEST_FLAGS) tests/interop/gguf

test-beam: $(beam_stamp) ## Prepare data by Apache Beam (300 MB more)
	$(VENV)-beam/bin/python -m pytest -m beam tests/data/preparation

test-other: ## Run the tests on PYTHON_OTHER, in its own environment
	$(MAKE) test PYTHON=$(PYTHON_OTHER) VENV=$(VENV_OTHER)

# Float32 sums differ between processors: a bound that holds on one may fail on
# another. A failure doesn't stop the remaining sets.
test-isa: $(test_stamp) ## Run the tests under each available instruction set
	@failed=; for pair in SSE4_2:sse4_2 AVX2:avx2 AVX512:avx512f; do \
	  isa=$${pair%%:*}; \
	  if grep -qw "$${pair##*:}" /proc/cpuinfo; then \
	    echo "Instructions up to $$isa"; \
	    XLA_FLAGS="$$XLA_FLAGS --xla_cpu_max_isa=$$isa" \
	      $(python) -m pytest -m 'not peers and not beam' $(PYTEST_FLAGS) \
	      || failed="$$failed $$isa"; \
	  else echo "Skipped $$isa: this processor lacks it"; fi; \
	done; \
	if [ -n "$$failed" ]; then echo "Failed under$$failed" >&2; exit 1; fi

# Another compiler and its C++ library, as in wheels and on macOS.
test-clang: $(release_stamp) ## Test the C++ kernels compiled by Zig's Clang
	export CXX='$(abspath $(python)) -m ziglang c++' \
	    RNN_JAX_NATIVE_FLAGS='-Wall -Wextra -Werror' && \
	  $(python) -c 'import sys; from rnn_jax.native import library; \
	    sys.exit(library.lacking() or 0)' && \
	  $(python) -m pytest -m 'not peers' $(PYTEST_FLAGS) tests/native tests/ops

# Zig's Clang compiles for them; QEMU is not from PyPI.
test-neon: $(release_stamp) ## Test the C++ kernels' forms for Arm, under QEMU
	$(python) -m pytest -rs tests/native/test_vectors.py

lint: $(test_stamp) ## Check style, types and quoted numbers, without changes
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy
	$(python) -m benchmarks.report --check

format: $(test_stamp) ## Format the code and fix what lint can fix
	$(python) -m ruff check --fix .
	$(python) -m ruff format .

# In one process: the order of reading decides how images of one name are
# numbered, and which of two objects of one name a type leads to.
docs: $(docs_stamp) ## Build the documentation site, in build/site
	$(python) -m sphinx -q -W --keep-going -c docs/site docs build/site

# Another hash seed: the order of a set must not show.
docs-check: docs ## Build the site again elsewhere, and compare both
	PYTHONHASHSEED=1 $(python) -m sphinx -q -W --keep-going -c docs/site docs \
	  build/site-again
	$(python) docs/site/compare.py build/site build/site-again

env: $(test_stamp) ## Create the environment only

wheels: $(release_stamp) ## Build wheels with C++ libraries, in dist/
	$(python) -m rnn_jax.native.wheel dist

release-check: $(release_stamp) ## Make the distributions; check a release
	$(python) -m tests.release dist

# The sanitizer's runtime must be the first library that the process loads.
sanitize: $(test_stamp) ## Run the C++ kernels under ASan and UBSan
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) \
	  $$($(CXX) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	  UBSAN_OPTIONS=print_stacktrace=1 JAX_PLATFORMS=cpu CXX=$(CXX) \
	  RNN_JAX_NATIVE_FLAGS="-g -fsanitize=address,undefined \
	    -fno-sanitize-recover=undefined" \
	  $(python) -m tests.native.sanitize

clean: ## Remove the environment and all caches; keep runs/
	@if [ -f "$(VENV)/pyvenv.cfg" ]; then rm -rf "$(VENV)"; fi
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -path ./runs -prune -o -name __pycache__ -type d -prune \
	  -exec rm -rf {} +

$(run_stamp): $(created) pyproject.toml constraints.txt
	$(call install,$(extra))
	@touch $@

# The test environment includes the run environment.
$(test_stamp): $(created) pyproject.toml constraints.txt
	$(call install,$(if $(extra),$(extra)$(comma))test)
	@touch $(run_stamp) $@

$(peers_stamp): $(test_stamp)
	$(call install,$(if $(extra),$(extra)$(comma))test$(comma)peers$(comma)bertscore$(comma)hf$(comma)lm-eval$(comma)wandb)
	@touch $@

$(llama_stamp): $(peers_stamp)
	$(call install,$(if $(extra),$(extra)$(comma))llama)
	@touch $@

$(docs_stamp): $(test_stamp)
	$(call install,$(if $(extra),$(extra)$(comma))test$(comma)docs)
	@touch $@

$(release_stamp): $(test_stamp)
	$(call install,$(if $(extra),$(extra)$(comma))test$(comma)release)
	@touch $@

# An environment of its own, which finds all other packages in VENV.
$(beam_stamp): $(test_stamp)
	$(PYTHON) -m venv --clear $(VENV)-beam
	@site='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	  $(python) -c "$$site" \
	    > "$$($(VENV)-beam/bin/python -c "$$site")/tested.pth"
	grep -vE '^($(beam_older))==' constraints.txt > $(VENV)-beam/constraints.txt
	$(VENV)-beam/bin/python -m pip install $(PIP_FLAGS) \
	  --constraint $(VENV)-beam/constraints.txt --editable '.[beam]'
	@touch $@

define install
@echo "Installing rnn_jax for $(ACCELERATOR) into $(VENV)" \
  "(minutes the first time, hundreds of megabytes)"
@if ls $(VENV)/.installed-*-$(or $(other_cuda),none)-* >/dev/null 2>&1; then \
  echo "$(VENV) was created for $(other_cuda), and $(extra) needs its own" \
    "environment: run 'make clean' first, or set VENV to another folder." >&2; \
  exit 1; fi
$(python) -m pip install $(PIP_FLAGS) --constraint constraints.txt \
  --editable '.$(if $(1),[$(1)])'
@echo "Compiling the C++ library, if there is a compiler"
@$(python) -m rnn_jax.native || true
endef

# Recreates an unfinished environment and one of another Python. Some systems
# package ensurepip separately: the installed pip then installs pip.
$(created):
	@if [ -z "$(python_version)" ]; then \
	  echo "'$(PYTHON)' doesn't run Python: install Python 3.11 or newer, or" \
	    "name it: make PYTHON=/path/to/python3" >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "'$(PYTHON)' is Python $(python_version), and rnn_jax needs 3.11" \
	    "or newer. If you have one, name it: make PYTHON=python3.12" >&2; \
	  exit 1; }
	@if [ -d "$(VENV)" ] && [ -n "$$(ls -A "$(VENV)")" ] \
	    && [ ! -f "$(VENV)/pyvenv.cfg" ]; then \
	  echo "VENV=$(VENV) is a folder with files that isn't a virtual" \
	    "environment: name another folder" >&2; exit 1; fi
	@echo "Creating a virtual environment with Python $(python_version) in $(VENV)"
	@if $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  $(PYTHON) -m venv --clear "$(VENV)"; \
	elif $(PYTHON) -c 'import pip, venv' 2>/dev/null; then \
	  $(PYTHON) -m venv --clear --without-pip "$(VENV)" && \
	  $(PYTHON) -m pip --python "$(python)" install --quiet pip; \
	else \
	  echo "'$(PYTHON)' can't create a virtual environment: it lacks the module" \
	    "venv, or both ensurepip and pip. On Debian and Ubuntu:" \
	    "apt-get install python3-venv python3-pip" >&2; exit 1; fi
	@touch $@
