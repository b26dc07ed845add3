# Two commands: `make serve` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help serve install dev test test-long clients check format lock proto wheels bench clean moved

BIN     := .venv/bin
UV      := $(BIN)/uv
PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11 /usr/bin/python3)
# The same order on every run, so that a red test is red again; SEED=other (or `make test-long`) shuffles.
SEED    ?= 8250
# Test processes side by side: one more than processors, four at most. WORKERS=0: none but this one.
WORKERS ?= auto

# Somebody's activated environment must not decide where packages go.
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONHOME PYTHONPATH UV_PYTHON
# uv refuses to work without a cache that it can write; a home may be read-only.
ifndef UV_CACHE_DIR
export UV_CACHE_DIR := $(shell d="$${XDG_CACHE_HOME:-$${HOME:-/dev/null}/.cache}/uv"; \
	mkdir -p "$$d" 2>/dev/null && test -w "$$d" || d="$(CURDIR)/.venv/cache"; echo "$$d")
endif

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

serve: .venv/runtime  ## install, start a node on http://127.0.0.1:8250 with its data in .fornada/, keep running
	@exec $(BIN)/fornada serve --data-dir .fornada --ready-example

install: .venv/runtime  ## the set-up part of serve; leaves .venv/bin/fornada

dev: .venv/dev  ## install, and the tools for tests and checks

test: .venv/dev  ## the tests that CI runs; ARGS="-k name" narrows them
	@$(BIN)/python -m pytest --numprocesses=$(WORKERS) --randomly-seed=$(SEED) $(ARGS)

test-long: .venv/dev  ## the same with the full counts, in a new order each time
	@FORNADA_TEST_LONG=1 $(BIN)/python -m pytest --numprocesses=$(WORKERS) $(ARGS)

clients: .venv/dev  ## run the real clients, and write down which routes each of them asks (docs/reference/clients.md)
	@rm -rf .venv/routes
	@FORNADA_TEST_ROUTES=$(CURDIR)/.venv/routes $(BIN)/python -m pytest --numprocesses=$(WORKERS) -m clients $(ARGS)
	@$(BIN)/python -m docs.generate.clients .venv/routes && $(BIN)/python -m docs.generate

check: .venv/dev  ## format, lint, types, import rules, the oldest Python of the SDK
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/vermin --quiet --no-tips --violations --target=3.9- src/fornada_sdk

format: .venv/dev  ## put the code into its form, and fix what ruff can fix
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .

# The header keeps linters and type checkers out of what a tool wrote.
PROTO = src/fornada/edge/dialects/oip/rpc
proto: .venv/dev  ## make the messages of gRPC again from their description
	@$(BIN)/python -m grpc_tools.protoc -I $(PROTO) --python_out=$(PROTO) --pyi_out=$(PROTO) inference.proto
	@for f in inference_pb2.py inference_pb2.pyi; do \
	  printf '# ruff: noqa\n# fmt: off\n# mypy: ignore-errors\n' | cat - $(PROTO)/$$f > .venv/$$f && mv .venv/$$f $(PROTO)/$$f; done

# Hashes, but no addresses: where packages come from is the business of each machine. UPGRADE=--upgrade takes newer releases.
LOCK = $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	--python-version 3.11 $(UPGRADE)
lock: .venv/made  ## resolve the dependencies again
	@mkdir -p .venv/locks && cp -p locks/*.txt .venv/locks
	@$(LOCK) --group build -o .venv/locks/build.txt
	@$(LOCK) --no-emit-package fornada-sdk pyproject.toml -c .venv/locks/build.txt -o .venv/locks/runtime.txt
	@$(LOCK) --no-emit-package fornada-sdk pyproject.toml -c .venv/locks/build.txt -c .venv/locks/runtime.txt --group build --group dev \
	  -o .venv/locks/dev.txt
	@for f in build runtime dev; do cmp -s .venv/locks/$$f.txt locks/$$f.txt || cp .venv/locks/$$f.txt locks/; done

wheels: .venv/made  ## dist/: one wheel of fornada, one of fornada-sdk
	@rm -rf dist && $(UV) build --quiet --wheel --no-build-isolation --python $(BIN)/python -o dist packaging/sdk
	@$(UV) build --quiet --wheel --no-build-isolation --python $(BIN)/python -o dist . && ls dist

bench: .venv/dev  ## side-by-side benchmarks
	@test -d bench || { echo "there are no benchmarks in this tree yet" >&2; exit 1; }
	@$(BIN)/python -m bench $(ARGS)

clean:  ## remove the environment and what tools left behind; keeps .fornada/
	@rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov
	@find . -name __pycache__ -not -path './.fornada/*' -prune -exec rm -rf {} +

# ---- the environment, in three steps, each with a stamp --------------------------------------------------------------------------

# Its scripts hold absolute paths: a clone that was moved gets a new one.
ifneq ($(file <.venv/made),$(CURDIR))
.venv/made: moved
endif
.venv/made: locks/build.txt
	@python=; for p in $(PYTHONS); do \
	  "$$p" -Ic 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || continue; \
	  python=$$p; "$$p" -Ic 'import ensurepip' 2>/dev/null && break; done; \
	[ -n "$$python" ] || { echo "Fornada needs Python 3.11, 3.12 or 3.13 and found none of them; PYTHON=/path/to/python3 names one." >&2; exit 1; }; \
	"$$python" -Ic 'import ensurepip' 2>/dev/null || { echo "$$python has no venv module: apt install python3-venv" >&2; exit 1; }; \
	echo "making .venv with $$("$$python" -V)"; "$$python" -m venv --clear .venv
	@$(BIN)/python -m pip install -qq --require-hashes -r locks/build.txt
	@printf '%s\n' "$(CURDIR)" > $@

.venv/runtime: .venv/made locks/runtime.txt pyproject.toml packaging/sdk/pyproject.toml
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/runtime.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e packaging/sdk -e .
	@touch $@

.venv/dev: .venv/runtime locks/dev.txt
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/dev.txt
	@touch $@
