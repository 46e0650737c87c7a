# Every target works in a fresh clone: it makes the virtual environment that it needs, .venvs/NAME.
# PYTHON chooses the interpreter, ARGS is handed on: make test ARGS="-k producer"

PYTHON ?= python3
ARGS ?=
# Tests mostly wait, so more processes than processors pay.
JOBS ?= 5
# Programs that tests start would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

# Relative paths only, and modules instead of scripts: the path of the checkout may hold spaces.
# An environment for each purpose, .venvs/NAME: nothing in it but nsqclient with the extra NAME.
RUN := .venvs/run/bin/python
TEST := .venvs/test/bin/python
FREE_THREADED := .venvs/free-threaded/bin/python
LINT := .venvs/lint/bin/python
DOCS := .venvs/docs/bin/python
EXAMPLES := .venvs/examples/bin/python
PACKAGE := .venvs/package/bin/python
PIPELINE := .venvs/pipeline/bin/python
COVERAGE := .venvs/coverage/bin/python
SETTINGS := setup.cfg setup.py

# The parts of "make test": each file of tests is in one of them.
PARTS := core servers tools frameworks manual faults spark spark-storage integration integration-tools
PART_core := $(wildcard tests/test_*.py) tests/connection tests/consumer tests/http tests/partitioned \
	tests/producer tests/protocol tests/runtime
PART_servers := tests/devserver tests/admin tests/support
PART_tools := tests/cli tests/testing
PART_frameworks := tests/worker tests/contrib tests/metrics
PART_manual := tests/manual
PART_faults := tests/faults tests/chaos tests/fuzz tests/mutants
PART_spark-storage := tests/spark/shards tests/spark/storage tests/spark/test_reader.py
PART_spark := $(filter-out $(PART_spark-storage),$(wildcard tests/spark/test_*.py) tests/spark/chaos \
	tests/spark/ingest tests/spark/jvm tests/spark/pipelines tests/spark/recipes)
PART_integration-tools := $(wildcard tests/integration/test_tools_*.py tests/integration/test_admin_*.py) \
	tests/integration/test_doctor.py tests/integration/test_drain.py
PART_integration := $(filter-out $(PART_integration-tools),$(wildcard tests/integration/test_*.py))
# Tests that use Spark have a process of their own, since its JVM keeps sockets and threads there.
NO_JVM := not spark and not long and not external
JVM := spark and not long

.PHONY: $(PARTS:%=test-%)
.PHONY: help setup release demo test test-jvm test-long unit integration style types imports docs check-site examples package bench coverage servers \
	fetch floors strangers faults fuzz mutants chaos worker-chaos jobs-chaos outbox-chaos spark-chaos spark-recipes \
	pipeline pipeline-cluster test-free-threaded soak security audit test-external \
	clean
.NOTPARALLEL:

help:
	@echo "make setup        install what tests, linters and docs need; build nsqd where Go is"
	@echo "make demo         publish, discover, consume and count messages (INPUT=, NSQD=)"
	@echo "make pipeline     a text file through NSQ and Spark into Parquet, a query, a picture (INPUT=,"
	@echo "                  NSQD= or LOOKUPD=; needs Java 17)"
	@echo "make pipeline-cluster  the same on a standalone cluster: owners as tasks, shared storage (INPUT=, STORAGE=)"
	@echo "make test         all tests, on the embedded server and on the real nsqd (JOBS=, ARGS=)"
	@echo "make test-PART    a part of them, about a minute: $(PARTS)"
	@echo "make test-jvm     the part that runs Spark; make test runs it beside the others"
	@echo "make test-long    what takes too long for make test, or kills processes at random moments"
	@echo "make test-free-threaded  the tests of the client, ten times, without the interpreter lock (PYTHON=, RUNS=)"
	@echo "make unit         all tests but the integration suite and those that use Spark"
	@echo "make integration  the tests on both kinds of server"
	@echo "make floors       the tests of HTTP and compression on the oldest versions that setup.cfg admits"
	@echo "make strangers    other clients' own test suites on the real and the embedded servers (ARGS=gnsq; needs the network)"
	@echo "make faults       every fault of the network, at every byte (20 minutes)"
	@echo "make fuzz         mutated input for both protocol cores, every other parser, the admin page"
	@echo "make mutants      promises broken one by one: a test must notice each (5 minutes)"
	@echo "make soak         half an hour at half of the maximum rate, connections dropped"
	@echo "make security     bandit"
	@echo "make test-external  the admin page in Chromium and under axe-core, alert rules in Prometheus"
	@echo "make fetch        what some of these need: Prometheus (Debian), axe-core (npm)"
	@echo "make audit        pip-audit, or the words NOT RUN"
	@echo "make spark-chaos  Spark jobs under kills, stalls, full disks: half an hour (COUNT=, KILLS=, STORE=minio, ARGS=)"
	@echo "make spark-recipes  the recipes that need packages or jars of their own (ARGS=connect, delta, iceberg, old)"
	@echo "make chaos        ten minutes of faults, and what was lost (QUICK=1: 60 s; SEED=, RUNS=, KILL=1)"
	@echo "make worker-chaos ten minutes of faults and kills for nsqclient worker (QUICK=1: 60 s; SEED=)"
	@echo "make jobs-chaos   100 faults of nsqd and of jobs that drain, give up or replay (FAULTS=, SEED=, ARGS=--only=drain)"
	@echo "make outbox-chaos 90 kills of relays, nsqd and PostgreSQL under the outbox (KILLS= of each, SEED=)"
	@echo "make style        flake8"
	@echo "make types        mypy"
	@echo "make imports      the import contract"
	@echo "make docs         build the documentation; warnings are errors"
	@echo "make check-site   the same, and look at each page in Chromium: as on a phone, light and dark"
	@echo "make examples     run every example"
	@echo "make package      build sdist and wheel, check them, install the wheel with each extra"
	@echo "make release      the same on every Python found, with Spark too; prints the command that uploads"
	@echo "make bench        compare with go-nsq, pynsq and gnsq, held against goals (needs Go)"
	@echo "make coverage     run all tests and report branch coverage"
	@echo "make clean        remove everything that was made here"

.venvs/%/installed: EXTRA = [$*]
.venvs/run/installed: EXTRA =
.venvs/pipeline/installed: EXTRA = [spark,spark-storage]

# Made anew when the settings change: nothing of former requirements stays.
.venvs/%/installed: $(SETTINGS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.11 ...")'
	@echo "installing nsqclient in the virtual environment $(@D)"
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --editable ".$(EXTRA)"
	@touch $@

servers:
	@$(PYTHON) tools/build_nsq.py

demo: .venvs/run/installed
	@$(RUN) examples/demo.py $(ARGS)

pipeline: .venvs/pipeline/installed
	@$(PIPELINE) examples/spark/pipeline.py $(ARGS)

pipeline-cluster: .venvs/pipeline/installed
	@$(PIPELINE) examples/spark/pipeline_cluster.py $(ARGS)

setup: .venvs/test/installed .venvs/lint/installed .venvs/docs/installed servers

# Two runs side by side; what the one with Spark prints comes at the end.
test: .venvs/test/installed servers
	@$(TEST) tools/side_by_side.py .cache/test-jvm.log \
		$(TEST) -m pytest -n $(JOBS) --dist worksteal -m "$(NO_JVM)" $(ARGS) \
		--beside $(TEST) -m pytest -n 0 -o testpaths=tests/spark -m "$(JVM)" $(ARGS)

test-jvm: .venvs/test/installed servers
	@$(TEST) -m pytest -n 0 -m "$(JVM)" tests/spark $(ARGS)

test-long: .venvs/test/installed servers
	@$(TEST) -m pytest -n $(JOBS) --dist worksteal -m "long and not spark" $(ARGS); rest=$$?; \
	$(TEST) -m pytest -n 0 -o testpaths=tests/spark -m "long and spark" $(ARGS); jvm=$$?; \
	test $$rest -eq 0 -o $$rest -eq 5 && test $$jvm -eq 0 -o $$jvm -eq 5

# PYTHON= must be a free-threaded build.
test-free-threaded: .venvs/free-threaded/installed servers
	@export PYTHON_GIL=0; for run in $$(seq $(or $(RUNS),10)); do \
		$(FREE_THREADED) -c 'import sys; sys.exit(getattr(sys, "_is_gil_enabled", int)() is not False and "not a free-threaded Python: make clean, and PYTHON=python3.14t")' && \
		$(FREE_THREADED) -m pytest -n $(JOBS) --dist worksteal -m "$(NO_JVM)" $(PART_core) $(ARGS) || exit; done

$(PARTS:%=test-%): test-%: .venvs/test/installed servers
	@$(TEST) -m pytest -n $(JOBS) --dist worksteal -m "$(NO_JVM)" $(PART_$*) $(ARGS)

unit: .venvs/test/installed
	@$(TEST) -m pytest -n $(JOBS) --dist worksteal --ignore tests/integration -m "$(NO_JVM)" $(ARGS)

integration: .venvs/test/installed servers
	@$(TEST) -m pytest -n $(JOBS) -m "not long and not external" tests/integration $(ARGS)

# In .venvs/floors: nothing newer than the lower bounds may be in it.
floors: servers
	@$(PYTHON) tools/floors.py $(ARGS)

# Fetched by pip, Go and npm into .cache/strangers; NSQ's own ports must be free.
strangers: .venvs/run/installed servers
	@$(RUN) tools/strangers.py $(ARGS)

faults: .venvs/test/installed servers
	@NSQ_FAULTS=full $(TEST) -m pytest -n $(JOBS) tests/faults $(ARGS)

fuzz: .venvs/test/installed
	@$(TEST) -m tests.fuzz $(ARGS)

# COUNT= messages, KILLS= of the driver, SEED= of their moments; ARGS="-k disk" chooses one.
# STORE=minio: MinIO, which is built first, in place of moto and a folder.
spark-chaos: .venvs/test/installed servers
	@test "$(STORE)" != minio || $(PYTHON) tools/build_minio.py
	@SPARK_CHAOS=1 STORE="$(STORE)" COUNT="$(or $(COUNT),200000)" KILLS="$(or $(KILLS),20)" SEED="$(or $(SEED),1)" \
		$(TEST) -m pytest -s -m spark_chaos tests/spark/chaos $(ARGS)

# An environment for each version of PySpark, .venvs/spark-*, and jars that Maven fetches.
spark-recipes:
	@$(PYTHON) tools/spark_recipes.py $(ARGS)

# Each breaks one promise in a copy of the library; ARGS="-k fin" chooses by name.
mutants: .venvs/test/installed
	@$(TEST) -m tests.mutants $(ARGS)

# QUICK=1 for 60 seconds of faults, SEED= to repeat a run, RUNS= for several, KILL=1 to kill nsqds.
chaos: .venvs/test/installed servers
	@$(TEST) -m tests.chaos cluster $(if $(QUICK),--seconds 60) $(if $(SEED),--seed $(SEED)) \
		$(if $(RUNS),--runs $(RUNS)) $(if $(KILL),--kill) $(ARGS)

# A worker of two processes and three topics; its children and its supervisor are killed.
worker-chaos: .venvs/test/installed servers
	@$(TEST) -m tests.chaos worker $(if $(QUICK),--seconds 60) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Drains into a file, messages given up into a directory or a topic, and replays of both.
jobs-chaos: .venvs/test/installed servers
	@$(TEST) -m tests.chaos jobs $(if $(FAULTS),--faults $(FAULTS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Relays, nsqd and PostgreSQL are killed while threads commit and roll back.
outbox-chaos: .venvs/test/installed servers
	@$(TEST) -m tests.chaos outbox $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: .venvs/test/installed servers
	@$(TEST) -m tests.faults.soak $(ARGS)

security: .venvs/lint/installed
	@$(LINT) -m bandit --quiet --configfile .bandit.yaml --recursive nsqclient $(ARGS)

# What is not there is skipped.
test-external: .venvs/test/installed servers fetch
	@$(TEST) -m pytest -n 3 --dist worksteal -m "external and not long" $(ARGS)

# Programs of "make test-external": Debian's Prometheus, which is unpacked and not installed, and axe-core.
fetch:
	@mkdir -p .cache/prometheus
	@cd .cache/prometheus && { test -x promtool || { { apt-get -q download prometheus || \
		{ apt-get -q update && apt-get -q download prometheus; }; } && \
		dpkg -x prometheus_*.deb . && mv usr/bin/prom* . && rm -rf etc lib usr var *.deb; }; } >/dev/null 2>&1 && \
		echo "prometheus and promtool are in .cache/prometheus" || echo "NOT FETCHED: Prometheus (needs apt-get)"
	@npm install --prefix .cache/axe --silent --no-audit --no-fund axe-core@4 >/dev/null 2>&1 && \
		echo "axe-core is in .cache/axe" || echo "NOT FETCHED: axe-core (needs npm)"

# What the tests have, which is all that the library can use.
audit: .venvs/lint/installed .venvs/test/installed
	@PIPAPI_PYTHON_LOCATION=$(TEST) $(LINT) tools/audit.py

style: .venvs/lint/installed
	@$(LINT) -m flake8 nsqclient tests tools examples benchmarks docs $(ARGS)

types: .venvs/lint/installed
	@$(LINT) -m mypy $(ARGS)

imports: .venvs/lint/installed
	@$(LINT) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' $(ARGS)

docs: .venvs/docs/installed
	@rm -rf docs/_build/html
	@$(DOCS) -m sphinx -W --keep-going -q -b html docs docs/_build/html $(ARGS)
	@$(DOCS) tools/check_links.py docs/_build/html
	@echo "documentation is in docs/_build/html/index.html"

# In Chromium: as on a phone and on a desk, light and dark.
check-site: docs .venvs/test/installed
	@$(TEST) tools/check_site.py docs/_build/html docs/_build/pictures

# An example takes no arguments, brings its own server, and ends by itself.
examples: .venvs/examples/installed
	@for example in examples/*.py examples/*/run.py; do \
		echo "== $$example"; $(EXAMPLES) "$$example" || exit 1; \
	done

package: .venvs/package/installed
	@$(PACKAGE) tools/package.py $(ARGS)

release: .venvs/package/installed
	@$(PACKAGE) tools/package.py --release $(ARGS)

bench: .venvs/run/installed servers
	@$(RUN) benchmarks/bench.py $(ARGS)

coverage: .venvs/coverage/installed servers
	@$(COVERAGE) -m coverage run -m pytest $(ARGS)
	@$(COVERAGE) -m coverage report

clean:
	@rm -rf .venvs .tox .cache .mypy_cache .pytest_cache .hypothesis .import_linter_cache \
		.coverage htmlcov build dist docs/_build *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
