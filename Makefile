# `make help` lists everything.
SHELL  := /bin/bash
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
FILE   ?=
export FILE
SEEDS  ?= 1000
FIRST  ?= 0
HOURS  ?= 8
CANCELLATIONS ?= 1000
ROUNDS ?= 1000
RECORDS ?= 1000000
SEED   ?= 1
WORKERS ?= 3
TESTS ?= not interop

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

# --- set-up ---

.PHONY: python
python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Python 3.11 or newer is needed: install python3, or say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) -V): say make PYTHON=/path/to/python3.11" >&2; exit 1; }

.PHONY: java
java:
	@command -v java >/dev/null && java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || { \
	  echo "A JDK 17 or newer is needed (ZooKeeper and Spark run on it): install e.g. openjdk-17-jre-headless" >&2; exit 1; }

.PHONY: jdk
jdk: java
	@command -v javac >/dev/null && command -v mvn >/dev/null || { \
	  echo "A whole JDK and Maven are needed, for Apache BookKeeper: install e.g. openjdk-17-jdk-headless and maven" >&2; \
	  exit 1; }

$(VENV)/.base: pyproject.toml | python
	@echo "setting up $(VENV): some seconds, 60 MB" >&2
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e .
	@touch $@

# Compiled, as tests start hundreds of processes, which Python may be told not to keep byte code of.
$(VENV)/.ready: $(VENV)/.base
	@echo "adding what the tests need, Spark among it: a minute, 1 GB" >&2
	$(BIN)/pip install --quiet -e '.[test]'
	@$(BIN)/python -m compileall -q src
	@touch $@

$(VENV)/.quick: $(VENV)/.ready tests/support/java_classes.py tests/support/compiled_spark.py | java
	@echo "keeping what each of Spark's processes loads when it starts: half a minute, 200 MB" >&2
	@$(BIN)/python -m tests.support.compiled_spark
	@$(BIN)/python -m tests.support.java_classes $(VENV)/.spark.jsa >&2
	@touch $@

.PHONY: setup
setup: $(VENV)/.ready ## virtual environment in .venv with the package and its extras

# --- the main job ---

.PHONY: demo
demo: $(VENV)/.base ## ingest real data (FILE=...), kill a bookie and the writer, lose nothing
	$(BIN)/bookkeeper demo $${FILE:+"$$FILE"}

.PHONY: demo-heal
demo-heal: $(VENV)/.base ## kill a bookie for good, wipe another, and watch the cluster heal itself (FILE=...)
	$(BIN)/bookkeeper demo-heal $${FILE:+"$$FILE"}

$(VENV)/.spark: $(VENV)/.base
	$(BIN)/pip install --quiet -e '.[spark]'
	@touch $@

.PHONY: demo-spark
demo-spark: java $(VENV)/.spark ## ingest real data, read it with Spark while a bookie is killed, export, scrub, chart (JDK 17+)
	$(BIN)/bookkeeper spark demo $${FILE:+"$$FILE"}

.PHONY: demo-pipeline
demo-pipeline: java $(VENV)/.spark ## files to Parquet through two streams, with a worker, a bookie and the driver killed on the way (FILE=...; JDK 17+)
	$(BIN)/bookkeeper spark demo-pipeline $${FILE:+"$$FILE"}

.PHONY: try-out
try-out: DIR = /tmp/bookkeeper-try-out
try-out: java $(VENV)/.spark ## bookies, a Spark master and two workers on this machine, until Ctrl-C; kept in DIR (JDK 17+)
	$(BIN)/bookkeeper localbookie 3 --dir $(DIR) --spark 2

# --- tests ---

.PHONY: test
test: java setup lint $(VENV)/.quick ## everything that must be green (needs a JDK 17+; half an hour to an hour on two cores)
	$(BIN)/pytest -m '$(TESTS)' -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 50

.PHONY: test-fast
test-fast: setup ## unit tests only, no JDK needed
	$(BIN)/pytest tests/unit tests/test_architecture.py tests/test_links.py tests/test_docs_site.py -m 'not slow and not zookeeper'

.PHONY: test-interop
test-interop: jdk setup ## against Apache BookKeeper 4.17.3 itself (needs a JDK 17+ and Maven; ten minutes)
	$(BIN)/pytest tests/interop -m interop -n $(WORKERS) --dist loadfile

.PHONY: test-interop-history
test-interop-history: jdk setup ## random history of Java's and our clients and bookies (ROUNDS=1000 SEED=1)
	$(BIN)/pytest tests/interop/test_history.py -m interop --rounds $(ROUNDS) --seed $(SEED)

.PHONY: compatibility
compatibility: jdk setup ## test-interop against 4.17.3 and 4.18.0, a history of ROUNDS=1000; writes docs/compatibility.md
	for version in 4.17.3 4.18.0; do \
	  PEER_VERSION=$$version $(BIN)/pytest tests/interop -m interop --rounds $(ROUNDS) --seed $(SEED) --record || exit; \
	done

.PHONY: ci
ci: TESTS = interop or not interop
ci: jdk $(VENV)/.docs test ## what continuous integration runs, tests of the site included

.PHONY: simulate
simulate: setup ## the cluster in the simulated world under faults (SEEDS=1000 FIRST=0; SEED=n replays one with a trace)
ifeq ($(origin SEED),command line)
	$(BIN)/python -m bookkeeper.simulation --seed $(SEED)
else
	$(BIN)/python -m bookkeeper.simulation --seeds $(SEEDS) --first $(FIRST)
endif

.PHONY: simulate-streams
simulate-streams: setup ## one stream under faults, publishers, writers and a reader in the simulated world (SEEDS=1000 FIRST=0; SEED=n)
ifeq ($(origin SEED),command line)
	$(BIN)/python -m tests.simulation.stream_campaign --seed $(SEED)
else
	$(BIN)/python -m tests.simulation.stream_campaign --seeds $(SEEDS) --first $(FIRST)
endif

.PHONY: simulate-sinks
simulate-sinks: setup ## what Spark's sink does, with drivers and executors that die, in the simulated world (SEEDS=1000 FIRST=0; SEED=n)
ifeq ($(origin SEED),command line)
	$(BIN)/python -m tests.simulation.stream_campaign --story sinks --seed $(SEED)
else
	$(BIN)/python -m tests.simulation.stream_campaign --story sinks --seeds $(SEEDS) --first $(FIRST)
endif

.PHONY: kills
kills: ROUNDS = 50
kills: setup ## kill -9 of a bookie, all bookies, the writer, a reader in turn (ROUNDS=50)
	KILL_ROUNDS=$(ROUNDS) $(BIN)/pytest tests/integration/test_kills.py --timeout 7200

.PHONY: stream-kills
stream-kills: ROUNDS = 20
stream-kills: setup ## kill -9 of a stream's writer, its reader and bookies in turn (ROUNDS=20 RECORDS=1000000)
	$(BIN)/python -m tests.integration.stream_kills --rounds $(ROUNDS) --records $(RECORDS)

.PHONY: spark-kills
spark-kills: ROUNDS = 50
spark-kills: java setup ## kill -9 of a driver with two streaming queries, of its workers, of bookies, of a ZooKeeper in turn (ROUNDS=50; SQLITE=1: without one)
	$(BIN)/python -m tests.spark.kills --rounds $(ROUNDS) $(if $(SQLITE),,--zookeeper)

.PHONY: cancellations
cancellations: setup ## operations cancelled at drawn awaits in the simulated cluster (CANCELLATIONS=1000, FIRST=0)
	$(BIN)/python -m bookkeeper.simulation --cancellations $(CANCELLATIONS) --first $(FIRST)

.PHONY: soak
soak: FIRST = 100000
soak: setup ## seeds that nobody has tried before, for HOURS=8, from FIRST=100000 on
	$(BIN)/python -m bookkeeper.simulation --hours $(HOURS) --first $(FIRST)

.PHONY: mutations
mutations: setup ## deliberate mistakes in the code, and the seed that catches each (an hour)
	$(BIN)/python -m tests.simulation.hardened_mutations

.PHONY: model
model: setup ## model-check the protocol, with the searches of many minutes and gigabytes
	$(BIN)/python -m tests.model --big

.PHONY: test-spark
test-spark: java setup ## Spark: the long list of kills, and its speed next to files (needs a JDK 17+; about 20 minutes)
	SPARK_FULL=1 $(BIN)/pytest tests/spark --timeout 3600
	$(BIN)/python -m bench.spark

.PHONY: lint
lint: setup ## ruff and mypy --strict
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

.PHONY: format
format: setup ## let ruff rewrite the sources
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

$(VENV)/.docs: $(VENV)/.base
	$(BIN)/pip install --quiet -e '.[docs]'
	@touch $@

.PHONY: docs
docs: $(VENV)/.docs ## write the pages that come from program and tests (commands, settings, codes); build the site in build/site
	$(BIN)/python -m bookkeeper.cli.reference docs
	$(BIN)/python -m tests.support.references docs/spec/codes.md
	$(MAKE) --no-print-directory site

.PHONY: site
site: $(VENV)/.docs ## build the site in build/site; a broken link, a page without a place or a missing name fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "build/site/index.html"

# --- measuring ---

.PHONY: bench-heal
bench-heal: jdk setup ## how soon a cluster is whole after it lost a bookie, beside Apache BookKeeper's autorecovery (QUICK=1: two minutes)
	$(BIN)/python -m bench.heal $${QUICK:+--quick}

.PHONY: bench
bench: setup ## microseconds per stage of the data path
	$(BIN)/python -m bench

.PHONY: bench-compare
PAIRS ?= 3
MEASURED ?= 10
WARM ?= 30
bench-compare: jdk setup ## Apache BookKeeper beside this one: ratios as JSON, chart, table (hours; PAIRS=3, MEASURED=10 seconds after WARM=30; needs Maven)
	$(BIN)/python -m bench.compare --pairs $(PAIRS) --seconds $(MEASURED) --warm $(WARM) --json compare.json --svg compare.svg --table compare.md

.PHONY: bench-quick
bench-quick: jdk setup ## the rows that matter beside Apache BookKeeper, and what changed since the last run (below ten minutes; needs Maven)
	$(BIN)/python -m bench.compare --quick --json compare.json

.PHONY: hostile
SECONDS_EACH ?= 120
CONNECTIONS ?= 200
hostile: setup ## hostile connections of ten kinds beside a good client (SECONDS_EACH=120 CONNECTIONS=200; 40 minutes)
	$(BIN)/python -m bench.hostile --seconds $(SECONDS_EACH) --connections $(CONNECTIONS) --json hostile.json

$(VENV)/.kafka: $(VENV)/.base
	$(BIN)/pip install --quiet 'confluent-kafka>=2.6' 'aiokafka>=0.12'
	@touch $@

.PHONY: bench-kafka
bench-kafka: jdk setup $(VENV)/.kafka ## streams beside Apache Kafka, its appends synced and not (five minutes a round; needs Maven)
	$(BIN)/python -m bench.kafka --json kafka.json --svg kafka.svg --table kafka.md

.PHONY: bench-spark
bench-spark: jdk setup $(VENV)/.kafka ## streams as Spark's source and sink beside Spark's Kafka connector, Parquet and JSON (below ten minutes; ROUNDS=3 for more; needs Maven)
ifeq ($(origin ROUNDS),command line)
	$(BIN)/python -m bench.connector --rounds $(ROUNDS) --json connector.json --svg connector.svg --table connector.md
else
	$(BIN)/python -m bench.connector --quick --json connector.json --svg connector.svg --table connector.md
endif

.PHONY: bench-spark-volume
GB ?= 10
bench-spark-volume: java setup ## gigabytes in and out through a stream by Spark: rows, sums and order equal (GB=10, for which it takes 30 GB of disk)
	$(BIN)/python -m bench.connector.volume --gb $(GB)

.PHONY: clean
clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
