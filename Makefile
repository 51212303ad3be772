# Penstock: every task a contributor needs. Plain `make` lists them.

PYTHON ?= python3
VENV := .venv
BENCH_VENV := .venv-bench
AUDIT_VENV := .venv-audit
DEMO_VENV := .venv-demo
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
BENCH_STAMP := $(BENCH_VENV)/.ready
AUDIT_STAMP := $(AUDIT_VENV)/.ready
DEMO_STAMP := $(DEMO_VENV)/.ready
# Environments of the peers of `make bench-redis`: their Redis clients do not agree on a version.
REDIS_PEERS := redis saq arq

# What to check; those not there are left out.
SOURCES := $(wildcard src tests benchmarks examples conftest.py)

DEMO_ARGS ?=
PYTEST_ARGS ?=
# Each starts servers of its own.
TEST_PROCESSES ?= 5
# Most of the torture waits for what was killed.
TORTURE_PROCESSES ?= 3
BENCH_ARGS ?=
DIST_ARGS ?=

LOCK_ARGS ?=

# Tests and benchmarks start processes by the thousand. Where the environment forbids it to keep bytecode, each
# of them would compile all that it imports; for Spark that is longer than the work.
export PYTHONDONTWRITEBYTECODE :=

# TORTURE_SEED and TORTURE_SCALE are not set here: make hands them to the torture suite through the
# environment when you name them, and leaves the choice to the suite when you do not.

COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
	--no-header --python-version 3.11

define REQUIRE_PYTHON
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "Penstock needs Python 3.11 or newer, and '$(PYTHON)' is not." >&2; \
	echo "Name another one: make setup PYTHON=python3.12" >&2; \
	exit 1; \
}
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(STAMP) ## Create .venv with every locked tool and Penstock in editable form

$(STAMP): requirements/uv.txt requirements/dev.txt pyproject.toml
	$(REQUIRE_PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: check
check: $(STAMP) ## Check format, lint, types, layers of imports, sleeping tests and the vocabulary
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.architecture.waits
	$(BIN)/python -m tests.architecture.vocabulary

.PHONY: format
format: $(STAMP) ## Rewrite the sources in the agreed format
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

# An environment of its own, a few percent of the other: whoever looks at the demo waits for nothing else.
$(DEMO_STAMP): requirements/demo.txt pyproject.toml
	$(REQUIRE_PYTHON)
	$(PYTHON) -m venv $(DEMO_VENV)
	$(DEMO_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/demo.txt
	$(DEMO_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: demo
demo: $(DEMO_STAMP) ## Watch Penstock lose a worker and no job (DEMO_ARGS=...)
	$(DEMO_VENV)/bin/penstock demo $(DEMO_ARGS)

.PHONY: demo-spark
demo-spark: $(STAMP) ## The same with its events as tables on Spark (DEMO_ARGS=...)
	$(BIN)/penstock demo --spark $(DEMO_ARGS)

.PHONY: test
test: check ## Run the checks, then every test but the torture suite (PYTEST_ARGS=...)
	$(BIN)/pytest --numprocesses $(TEST_PROCESSES) --durations 10 $(PYTEST_ARGS)

.PHONY: test-fast
test-fast: $(STAMP) ## Run the tests of the inner loop: on memory and SQLite, without servers (PYTEST_ARGS=...)
	$(BIN)/pytest --fast --numprocesses $(TEST_PROCESSES) $(PYTEST_ARGS)

.PHONY: torture
torture: $(STAMP) ## Crash, pause and cut off real workers (TORTURE_SEED=, TORTURE_SCALE=)
	$(BIN)/pytest tests/reliability -m torture --timeout 1800 -rP --numprocesses $(TORTURE_PROCESSES) $(PYTEST_ARGS)

.PHONY: mutants
mutants: $(STAMP) ## Break the stores on purpose and print which test notices each break
	$(BIN)/pytest tests/conformance/test_mutants.py -s $(PYTEST_ARGS)

$(BENCH_VENV)-%/.ready: requirements/bench-%.txt $(STAMP)
	$(PYTHON) -m venv $(@D)
	$(BIN)/uv pip install --quiet --python $(@D)/bin/python --require-hashes -r requirements/bench-$*.txt
	@touch $@

$(BENCH_STAMP): requirements/bench.txt pyproject.toml $(STAMP)
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BIN)/uv pip install --quiet --python $(BENCH_VENV)/bin/python --require-hashes -r requirements/bench.txt
	$(BIN)/uv pip install --quiet --python $(BENCH_VENV)/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: bench
bench: $(BENCH_STAMP) ## Measure the SQLite store beside a peer (BENCH_ARGS=...)
	$(BENCH_VENV)/bin/python -m benchmarks sqlite $(BENCH_ARGS)

.PHONY: bench-redis
bench-redis: $(BENCH_STAMP) $(REDIS_PEERS:%=$(BENCH_VENV)-%/.ready) ## Measure the Redis store beside its peers (BENCH_ARGS=...)
	$(BENCH_VENV)/bin/python -m benchmarks redis $(BENCH_ARGS)

.PHONY: bench-postgres
bench-postgres: $(BENCH_STAMP) $(BENCH_VENV)-postgres/.ready ## Measure the PostgreSQL store beside its peers (BENCH_ARGS=...)
	$(BENCH_VENV)/bin/python -m benchmarks postgres $(BENCH_ARGS)

.PHONY: bench-execution
bench-execution: $(BENCH_STAMP) $(BENCH_VENV)-redis/.ready ## Measure executors beside peers that use processes (BENCH_ARGS=...)
	$(BENCH_VENV)/bin/python -m benchmarks execution $(BENCH_ARGS)

.PHONY: bench-spark
bench-spark: $(STAMP) ## Measure the pipeline on Spark beside programs without it (BENCH_ARGS=...)
	$(BIN)/python -m benchmarks spark $(BENCH_ARGS)

.PHONY: bench-queues
bench-queues: $(STAMP) ## Measure one worker process over 10,000 idle queues (BENCH_ARGS=...)
	$(BIN)/python -m benchmarks queues $(BENCH_ARGS)

.PHONY: bench-events
bench-events: $(STAMP) ## Measure readers of the event log on every store (BENCH_ARGS=...)
	$(BIN)/python -m benchmarks events $(BENCH_ARGS)

.PHONY: bench-service
bench-service: $(STAMP) ## Measure the HTTP service beside the direct client (BENCH_ARGS=...)
	$(BIN)/python -m benchmarks service $(BENCH_ARGS)

.PHONY: bench-bloom
bench-bloom: $(STAMP) ## Measure the Bloom filters on and off (BENCH_ARGS=...)
	$(BIN)/python -m benchmarks bloom $(BENCH_ARGS)

.PHONY: dist
dist: $(STAMP) ## Build wheel and sdist, and run a job with each extra in an empty environment (DIST_ARGS=...)
	rm -rf dist
	$(BIN)/hatchling build --directory dist --target sdist --target wheel
	$(BIN)/python -m tests.packaging dist $(DIST_ARGS)

.PHONY: lock
lock: $(STAMP) ## Recompile the hash-locked requirements (LOCK_ARGS=--upgrade for newer versions)
	cd requirements && for name in uv dev demo audit bench bench-postgres $(REDIS_PEERS:%=bench-%); do \
		../$(COMPILE) $(LOCK_ARGS) $$name.in --output-file $$name.txt || exit 1; \
	done
	@if grep -n '://' requirements/*.txt; then echo "An address slipped into a lock." >&2; exit 1; fi

$(AUDIT_STAMP): requirements/audit.txt $(STAMP)
	$(PYTHON) -m venv $(AUDIT_VENV)
	$(BIN)/uv pip install --quiet --python $(AUDIT_VENV)/bin/python --require-hashes -r requirements/audit.txt
	@touch $@

.PHONY: audit
audit: $(AUDIT_STAMP) ## Hold the locked versions against known advisories (error 1: some found, 3: no data)
	$(BIN)/python -m tests.locks.audit $(AUDIT_VENV)/bin/pip-audit requirements

.PHONY: clean
clean: ## Remove the environments, caches and build products
	rm -rf $(VENV) $(AUDIT_VENV) $(DEMO_VENV) $(BENCH_VENV) $(BENCH_VENV)-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
