# Everything a person or a machine does with this repository. A fresh machine needs Python 3.11 or
# newer and make; `make interop`, `make differential` and what is about Spark need Java 17 (and Maven)
# too. `make` alone prints the targets.

PYTHON ?= python3
VENV ?= .venv
LOADERS_VENV ?= .venv-loaders
HEAVY_VENV ?= .venv-heavy
# The extra that `loaders-here` installs.
LOADERS ?= loaders
FLOORS_VENV ?= .venv-floors
# Older versions to try than the lower bounds: OLDER='duckdb==1.5.0 polars==1.35.1'.
OLDER ?=
ARGS ?=
PROFILE ?=
SEED ?=
# A seed alone is one history, or one simulation, to play again.
HISTORIES ?= $(if $(SEED),1,300)
ENGINE ?=
MUTANTS ?= 100
SEEDS ?= 1000
DDL_SEEDS ?= 100
CHANGES ?= 200000
TABLES ?= 12
FAULTS ?= ../shared/faults
# Each other PySpark has an environment of its own below $(SPARK_VENVS).
SPARK ?=
SPARK_VERSIONS ?= 4.1.* 4.2.* 4.3.*
SPARK_VENVS ?= $(VENV)

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SOURCES := $(wildcard lakecore spark_bridge pyspark_lakecore pytest_lakecore examples tests property_tests bench conftest.py)
PYTEST := $(BIN)/python -m pytest
# Each worker imports all that it is given: `test` leaves out folders of which no test is its own, and
# `props` takes the files that have a slow one.
WITHOUT := $(addprefix --ignore=tests/,browser loaders services spark)
SLOW = $(shell grep -rl --include='*.py' --exclude-dir=loaders 'pytest.mark.slow' tests)

.DEFAULT_GOAL := help
.PHONY: help venv extras demo test compiled fmt lint types props mutate simulate faults interop services cdc-load cdc-ddl differential bench browser loaders loaders-here heavy-tools floors floors-here spark spark-versions demo-spark bench-spark docs docs-serve docs-version release-check ci nightly clean
.DELETE_ON_ERROR:
# Tests start hundreds of interpreters, and each suite imports the tests: compile each module once.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lakecore needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; name another by: make PYTHON=python3.12")'
	@echo 'First run only, 1/2: creating a Python environment in $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@echo 'First run only, 2/2: installing lakecore with Polars, DuckDB, Arrow and the tools (a minute or two)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

EXTRAS_services := jdbc,hive,iceberg-rest,gcs,azure,hdfs,cdc-kafka,cdc-mysql,cdc-postgres
EXTRAS_interop := interop
EXTRAS_browser := browser,docs
EXTRAS_spark := interop,spark,spark-connect
EXTRAS_docs := docs
SUITES := $(addprefix $(VENV)/.installed-,services interop browser spark docs)

$(SUITES): $(VENV)/.installed-%: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,$(EXTRAS_$*)]' $(if $(SPARK),'pyspark==$(SPARK)')
	@touch $@

extras: $(INSTALLED) ## install what all suites need besides, at once
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,$(EXTRAS_services),$(EXTRAS_browser),$(EXTRAS_spark)]'
	@touch $(SUITES)

venv: $(INSTALLED) ## create .venv with lakecore and what its development needs

demo: venv ## run lakecore's main job on real data
	$(BIN)/lakecore demo $(ARGS)

test: venv ## run the tests that need no Java and no network, but for the laws and the slow ones
	$(PYTEST) tests $(WITHOUT) -n 3 --dist worksteal --hypothesis-profile=$(or $(PROFILE),quick) $(ARGS)

compiled: venv # once: else each worker of the first run does it, all at the same time
	@$(PYTEST) tests $(WITHOUT) --collect-only -q >/dev/null

fmt: venv ## format the code and sort its imports
	$(BIN)/ruff check --select I --fix --quiet .
	$(BIN)/ruff format .

lint: venv ## check style, formatting and the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: venv ## check the types, strictly
	$(BIN)/mypy $(SOURCES)

props: venv ## run the laws with many examples, and the slow tests
	$(PYTEST) property_tests $(SLOW) -n 2 --dist worksteal -m 'props or slow' --hypothesis-profile=$(or $(PROFILE),explore) $(ARGS)

simulate: venv ## play many actors and faults on one table (SEEDS=n, SEED=s to look at one)
	$(BIN)/python -m property_tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

mutate: venv ## put small faults into the engine and see which the tests catch (MUTANTS=n, SEED=s, ARGS='--only lakecore/lsm --log FILE')
	$(BIN)/python -m tests.mutation $(MUTANTS) --seed $(or $(SEED),1) $(ARGS)

faults: $(VENV)/.installed-services $(VENV)/.installed-spark ## run the scripts of a folder (FAULTS=folder), each of which shows a fault and ends with 0 once it is gone
	$(BIN)/python -m tests.scripts $(FAULTS) $(ARGS)

interop: $(VENV)/.installed-interop ## exchange tables with other implementations of Paimon (Java 17, Maven)
	$(BIN)/python -m tests.interop.setup_peers
	$(PYTEST) -m interop -n 2 tests/interop $(ARGS)

services: $(VENV)/.installed-services ## run catalogs, storage and CDC on real servers: databases, Hive, REST, GCS, Azure, HDFS, Kafka (Java 17, Maven, Go, npm)
	$(BIN)/python -m tests.interop.setup_peers
	$(BIN)/python -m tests.services.setup
	$(PYTEST) -m services -n 2 --dist loadfile tests/services $(ARGS)

cdc-load: $(VENV)/.installed-services ## mirror a MariaDB under a long random load, with kills of both sides (CHANGES=n, TABLES=n)
	LAKECORE_CDC_CHANGES=$(CHANGES) LAKECORE_CDC_TABLES=$(TABLES) $(PYTEST) -m services tests/services/test_cdc_mysql.py -k random_load $(ARGS)

cdc-ddl: $(VENV)/.installed-services ## random DDL, rows and kills on MariaDB and PostgreSQL (SEED=s, DDL_SEEDS=n)
	LAKECORE_CDC_SEED=$(or $(SEED),0) LAKECORE_CDC_SEEDS=$(DDL_SEEDS) LAKECORE_CDC_ROUNDS=4 $(PYTEST) -m services tests/services/test_cdc_ddl.py $(ARGS)

differential: $(VENV)/.installed-interop ## play random histories on lakecore and on Java (HISTORIES=n, SEED=s, ENGINE=e)
	$(BIN)/python -m tests.interop.setup_peers
	HISTORIES=$(HISTORIES) SEED=$(SEED) ENGINE=$(ENGINE) $(PYTEST) -m interop -n 2 tests/differential $(ARGS)

bench: venv ## measure each verb
	$(BIN)/python -m bench $(ARGS)

browser: $(VENV)/.installed-browser ## look at the pages that lakecore writes in a real browser (Chromium)
	$(PYTEST) -m browser tests/browser $(ARGS)

loaders: ## run dbt, dlt and the tools of the recipes over tables, in an environment of their own
	@$(MAKE) --no-print-directory VENV=$(LOADERS_VENV) loaders-here

# dbt-duckdb leaves an event loop open after a Python model.
loaders-here: $(VENV)/.installed-loaders
	$(PYTEST) -m loaders -n 2 -W ignore::pytest.PytestUnraisableExceptionWarning tests/loaders $(ARGS)

heavy-tools: ## run the recipes with Airflow and PyTorch, in an environment of their own (6 GB)
	@$(MAKE) --no-print-directory VENV=$(HEAVY_VENV) LOADERS=heavy-tools loaders-here

# Without `dev`: mypy and dbt-core want different versions of pathspec.
$(VENV)/.installed-loaders: pyproject.toml
	@$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(LOADERS)]'
	@touch $@

floors: ## run the tests with the lower bounds of pyproject.toml, in an environment of its own (OLDER='duckdb==1.5.0 polars==1.35.1', ARGS='tests/sql')
	@$(MAKE) --no-print-directory VENV=$(FLOORS_VENV) floors-here

floors-here: $(VENV)/.installed-floors
	$(if $(OLDER),$(BIN)/python -m pip install --quiet $(OLDER))
	$(PYTEST) -n 2 --dist worksteal --hypothesis-profile=$(or $(PROFILE),quick) $(or $(ARGS),tests)

# Constraints of pip: each bound of what users install; the tools of `dev` alone are the newest.
$(VENV)/.installed-floors: pyproject.toml
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import re, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; e = p["optional-dependencies"]; \
	    groups = [e[name] for name in ("s3", "cdc", "rest", "rest-server", "ui", "sketches", "testing")]; \
	    print(*(re.sub(r"\[.*\]", "", each).replace(">=", "==") for each in sum(groups, p["dependencies"])), sep="\n")' > $(VENV)/floors.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(VENV)/floors.txt --editable '.[dev]'
	@touch $@

spark: $(VENV)/.installed-spark ## write and read tables by Spark (Java 17, Maven)
	$(BIN)/python -m tests.interop.setup_peers --spark
	$(PYTEST) -m spark -n 2 --dist loadfile tests/spark $(ARGS)

spark-versions: ## run `make spark` on every supported PySpark (SPARK_VERSIONS='4.1.* 4.2.*'), each in an environment of its own
	@set -f; failed=; for version in $(SPARK_VERSIONS); do \
	    echo "PySpark $$version: environment $(SPARK_VENVS)/pyspark-$${version%.\*}"; \
	    $(MAKE) --no-print-directory spark VENV="$(SPARK_VENVS)/pyspark-$${version%.\*}" SPARK="$$version" \
	        || failed="$$failed $$version"; \
	done; [ -z "$$failed" ] || { echo "failed on PySpark$$failed"; exit 1; }

demo-spark: $(VENV)/.installed-spark ## run a pipeline of streams by Spark on real data (Java 17)
	$(BIN)/python examples/spark_pipeline.py $(ARGS)

bench-spark: $(VENV)/.installed-spark ## measure Spark jobs beside the JVM connector (Java 17, Maven)
	$(BIN)/python -m tests.interop.setup_peers --spark
	$(BIN)/python -m bench.spark $(ARGS)

docs: $(VENV)/.installed-docs ## build the documentation site into site/; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet $(ARGS)
	@echo 'The site is built: open site/index.html, or run make docs-serve'

docs-serve: $(VENV)/.installed-docs ## serve the documentation on http://127.0.0.1:8000, and build it again after each change
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve $(ARGS)

# The site keeps the pages of each minor version, and `latest` leads to the newest.
docs-version: $(VENV)/.installed-docs ## add the documentation of this version to the branch gh-pages (ARGS=--push)
	PATH="$(abspath $(BIN)):$$PATH" SITE_VERSIONS=mike NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases $(ARGS) \
	    "$$($(BIN)/python -c 'import lakecore; print(*lakecore.__version__.split(".")[:2], sep=".")')" latest
	PATH="$(abspath $(BIN)):$$PATH" mike set-default $(ARGS) latest

nightly: ## what takes hours: all laws, seeds, histories, mutants, faults and versions of Spark
	@failed=0; \
	$(MAKE) -k PROFILE=explore SEEDS=10000 HISTORIES=600 MUTANTS=200 SEED=$(SEED) \
	    test floors props simulate interop services loaders heavy-tools cdc-load cdc-ddl differential mutate spark-versions || failed=1; \
	$(MAKE) faults ARGS=--also-slow || failed=1; exit $$failed

release-check: venv ## build the packages into dist/, and try them as a new user would
	$(BIN)/python -m tests.release

ci: ## run all that a change must pass
	.ci/run

clean: ## remove what builds, checks and runs leave behind
	rm -rf $(VENV) $(LOADERS_VENV) $(HEAVY_VENV) $(FLOORS_VENV) build dist sbom site *.egg-info .mypy_cache .pytest_cache .ruff_cache docs/.ruff_cache .import_linter_cache .hypothesis .ci/logs logs
	find lakecore tests property_tests -name __pycache__ -type d -prune -exec rm -rf {} +
