# Needs Python 3.11 or newer with venv and pip, and make; everything else goes into .venv.
# requirements.lock has the versions and hashes of all packages; `make lock` renews it.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# What the service needs at run time is in $(VENV) once RUNTIME exists, and what its development needs once STAMP does.
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
ARGS ?=
# One process with RANKCURVE_TEST_STORE: several would share its one server, and disturb each other in what a server has
# only once.
TEST_PROCESSES ?= $(if $(RANKCURVE_TEST_STORE),1,4)

# Tests and benchmarks start hundreds of processes. Without bytecode, each compiles its modules for a third of a second.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test quick histories check bench release screenshots site typescript lock clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

install: $(STAMP) ## Set up .venv with the locked packages and the command rankcurve

# --clear: a package that left the lock leaves the environment too. --no-compile: Python compiles the modules that it
# loads; compiling all of them takes a third of the installation.
$(RUNTIME): requirements.lock deploy/requirements.lock pyproject.toml clients/python/pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rankcurve needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	"$(PYTHON)" -m venv --clear $(VENV)
	$(PIP) --no-compile --require-hashes -r deploy/requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable . --editable clients/python
	@touch $(RUNTIME)

$(STAMP): $(RUNTIME)
	$(PIP) --no-compile --require-hashes -r requirements.lock
	@touch $(STAMP)

demo: $(RUNTIME) ## Import a season of 100,000 players and serve it on http://127.0.0.1:8080 (RANKCURVE_PORT: another port; ARGS=--once: stop after set-up)
	$(BIN)/python examples/season_demo.py $(ARGS)

test: $(STAMP) ## Install what the tests need, and run them all but those of `make check` (ARGS=tests/config: only those)
	tests/install_missing.sh $(BIN)/python
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --ignore tests/test_tidy.py $(ARGS)

quick: $(STAMP) ## Run the tests that need no server: units, and the store on SQLite
	$(BIN)/python -m pytest -q --numprocesses $(TEST_PROCESSES) --hypothesis-profile quick --ignore tests/test_tidy.py \
	  -m "not server and not end_to_end and not browser and not variant" $(ARGS)

histories: $(STAMP) ## Compare 10,500 random histories of boards, and as many of merged owners, with plain models (hours)
	$(BIN)/python -m pytest -q --numprocesses $(TEST_PROCESSES) --hypothesis-profile histories -o faulthandler_timeout=0 \
	  tests/storage/test_store_model.py tests/storage/histories -k "as_dicts_do or what_their_posts_make" $(ARGS)

check: $(STAMP) ## Check format, lint, types, import contracts and tidiness
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_tidy.py

bench: $(STAMP) ## Measure the speed and write docs/performance.md, in about 30 minutes (ARGS="--only positions": only that)
	$(BIN)/python -m benchmarks.performance $(ARGS)

screenshots: $(STAMP) ## Take the pictures of the dashboard that the documents show
	tests/install_missing.sh $(BIN)/python
	$(BIN)/python -m docs.take_screenshots

site: $(STAMP) ## Build the documents as a site with a search, in build/site
	$(BIN)/python docs/build_site.py

typescript: ## Build the TypeScript client in clients/typescript/dist; needs neither Python nor .venv
	tests/install_missing.sh "$(PYTHON)" typescript
	node build/clients/npm/node_modules/typescript/bin/tsc --project clients/typescript

release: $(STAMP) ## Make all files of a release, with checksums, in build/release
	tests/install_missing.sh $(BIN)/python typescript
	$(BIN)/python deploy/release.py

# Only this target needs uv, so the lock does not have it. --universal makes one lock for every platform and Python from 3.11.
lock: ## Renew requirements.lock from pyproject.toml (ARGS=--upgrade: to the newest versions)
	"$(PYTHON)" -m venv build/lock
	build/lock/bin/python -m pip --disable-pip-version-check install --quiet uv
	build/lock/bin/uv pip compile pyproject.toml --no-config --group dev --group release --group site --extra mcp --extra plots --extra redis --extra resp --extra tracing --universal --python-version 3.11 \
	  --no-emit-package rankcurve-client --generate-hashes --no-header --quiet --output-file requirements.lock $(ARGS)
	build/lock/bin/uv pip compile pyproject.toml --no-config --group image --extra tracing --universal --python-version 3.11 \
	  --no-emit-package rankcurve-client --constraint requirements.lock --generate-hashes --no-header --no-annotate --quiet --output-file deploy/requirements.lock

clean: ## Remove .venv and what the tools made; data/ stays
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
