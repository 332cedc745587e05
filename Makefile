# The variables can be given on the command line: make run CAPTURES=/data/captures TARGET=/data/mirror
SAMPLE   := tests/captures/o03_basic_split_bytes/capture
CAPTURES  = $(SAMPLE)
TARGET    = build/mirror
CONFIG    =
SHOW      = 5
PYTHON    = python3
TESTS     = tests
JOBS      = 2
SHARE     = 10
VOLUME    = 100000
HARMS     = 150
MUTANTS   = 1000000
FUZZ      = messages framings copies dumps records
SECONDS   = 600
SECTIONS  =
MINUTES   = 60
SEED      =
LEG       =
ENVIRONMENTS = tests/environments
PURE      =

VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
CLASSES := $(VENV)/spark-classes.jsa
# Else each process of the tests compiles what it imports, pytest's workers all tests.
test test-rest: export PYTHONDONTWRITEBYTECODE =
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=60 --durations-min=10

.DEFAULT_GOAL := help
.PHONY: help setup kernels run test test-rest test-all test-long harm mutants fuzz soak lint format wheel test-wheel reproducible audit-dependencies test-environments coverage pictures bench clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with all that is needed, at locked versions

$(READY): pyproject.toml conf/requirements.lock conf/jars.lock conf/environment.py
	@command -v $(PYTHON) >/dev/null || { \
		echo "error: Python 3.10 or newer is needed; install it with: sudo apt-get install python3 python3-venv" >&2; \
		exit 1; }
	@$(PYTHON) conf/environment.py $(VENV)
	@touch $@

$(CLASSES): $(READY) # what Spark loads, laid out once: each JVM of the tests starts in half the time
	@PYTHONPATH=lib:tests $(BIN)/python -m support.class_archive $@

kernels: $(READY) ## Compile the kernels again where their sources have changed
	@$(BIN)/python -m walreplay.kernel_build

run: $(READY) ## Apply captures and show the tables: CAPTURES=... TARGET=... CONFIG=... (the sample, if none are given)
ifeq ($(origin TARGET),file) # build/mirror is this Makefile's own; a target that was given is never deleted
	@rm -rf $(TARGET)
endif
	@$(BIN)/walreplay apply --captures '$(CAPTURES)' --target '$(TARGET)' $(if $(CONFIG),--config '$(CONFIG)')
	@$(BIN)/python conf/look.py '$(TARGET)' $(SHOW)

test: $(CLASSES) kernels ## Run the tests that every change has to pass, JOBS files at a time; TESTS=tests/unit for some
	@$(PYTEST) -m 'not full' --hypothesis-profile=quick $(TESTS)

test-rest: $(CLASSES) kernels ## Run the properties with ten times the examples, and SHARE=10 of 100 further cases on Spark and PostgreSQL, others each time
	@WALREPLAY_SHARE=$(SHARE) $(PYTEST) -m '(full or property) and not long' $(TESTS)

test-all: test test-rest ## Run both: what a change has to pass before it is taken

test-long: $(CLASSES) kernels ## Try many simulated captures (VOLUME=1000 for so many), more of a real server, every kill point
	@$(BIN)/python -m pytest -m long tests
	@WALREPLAY_LONG=$(VOLUME) $(BIN)/python -m pytest tests/property/test_simulator.py tests/integration/test_live_streams.py \
		tests/integration/test_exactly_once.py tests/integration/test_complaints.py tests/integration/test_schema_changes.py \
		tests/integration/test_names.py tests/integration/test_selection.py tests/integration/test_all_outputs.py tests/integration/test_rebuild.py

harm: kernels ## Measure what becomes of harmed captures: flipped bits, cuts, ranges doubled and missing (HARMS of each kind)
	@$(BIN)/python tests/benchmark/harm.py --each $(HARMS)

mutants: kernels ## Harm captures in any way, MUTANTS times: only errors of our own, no long work, no two readings
	@$(BIN)/python tests/benchmark/mutants.py $(MUTANTS)

ATHERIS := build/atheris
$(ATHERIS): | $(READY) # no dependency of `make setup`: it is large, and not there for each Python and system
	@$(BIN)/python -m pip install --quiet --target $@ atheris==3.0.0

fuzz: $(ATHERIS) kernels ## Fuzz each reader of bytes for SECONDS, guided by coverage; FUZZ="messages dumps": those
	@for name in $(FUZZ); do \
		PYTHONPATH=lib:$(ATHERIS) $(BIN)/python tests/fuzz/run.py $$name -max_total_time=$(SECONDS) -print_final_stats=1 || exit 1; \
	done

soak: $(CLASSES) kernels ## Run all at random work and kill it for MINUTES=60; SEED=... repeats, LEG=... are a leg's minutes
	@PYTHONPATH=lib:tests $(BIN)/python -m soak $(MINUTES) '$(SEED)' '$(LEG)'

lint: $(READY) ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY) ## Put the code in order
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

wheel: kernels ## Build the wheel for this machine into dist/ and look into it; PURE=1: for any, without compiled kernels
	@$(BIN)/python conf/wheel.py $(if $(PURE),--pure)

test-wheel: $(READY) ## Install the wheel of `make wheel` into an environment of its own, without the sources, and run it
	@$(BIN)/python -m pytest tests/wheel/check_wheel.py

reproducible: $(READY) ## Build wheel and sdist of the last commit twice, in two folders, and compare them byte for byte
	@$(BIN)/python conf/reproducible.py

audit-dependencies: $(READY) ## Ask pypi.org for advisories of the locked versions; needs the internet, and is no part of the tests
	@$(BIN)/python -m pip_audit --strict --progress-spinner=off --disable-pip --no-deps -r conf/requirements.lock || { \
		echo "error: a locked version has an advisory, or the advisories could not be had: the lines above say which" >&2; \
		exit 1; }

test-environments: $(CLASSES) wheel ## Run each way of running with what pip installs: a cluster, Spark Connect, catalogs, versions; ENVIRONMENTS=... for some
	@$(BIN)/python -m pytest -n 0 -p no:randomly --capture=no -q $(ENVIRONMENTS)

coverage: kernels ## Measure which lines and branches the unit and property tests reach; TESTS=... for others
	@mkdir -p build
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --cov --cov-report= --cov-report=json:build/coverage.json $(if $(filter file,$(origin TESTS)),tests/unit tests/property,$(TESTS))
	@$(BIN)/python conf/coverage.py build/coverage.json

pictures: $(READY) ## Draw the pictures of pages in docs/pictures again; needs Chromium
	@PYTHONPATH=lib:tests $(BIN)/python -m support.sample_reports docs/pictures

bench: kernels ## Measure how fast it is: SECTIONS="decode apply script stores tables fold archive backfill outputs verify record start", all if none is named
	@$(BIN)/python tests/benchmark/bench.py $(SECTIONS)

clean: ## Remove all that make has made
	@rm -rf $(VENV) build dist lib/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
