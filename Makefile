# Every target works in a fresh clone: it creates the virtual environment that it needs, .venvs/NAME.
# PYTHON chooses the interpreter. ARGS is passed on: make test ARGS="-k producer"

PYTHON ?= python3
ARGS ?=
# Tests mostly wait, so more processes than processors pay.
JOBS ?= 5
# Programs that tests start would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

# Relative paths and modules only, because the path of the checkout may contain spaces.
RUN := .venvs/run/bin/python
TEST := .venvs/test/bin/python
LINT := .venvs/lint/bin/python
SETTINGS := setup.cfg setup.py nsqclient/_native.c
# The parts of "make test": each test file belongs to one of them.
PARTS := core servers tools frameworks manual faults spark integration
PART_core := $(wildcard tests/test_*.py) tests/cluster tests/connection tests/consumer tests/http tests/partitioned \
	tests/producer tests/protocol tests/runtime
PART_servers := tests/devserver tests/admin tests/support
PART_tools := tests/cli tests/testing
PART_frameworks := tests/worker tests/contrib tests/metrics
PART_manual := tests/manual
PART_faults := tests/faults tests/chaos tests/fuzz tests/mutants
PART_spark := tests/spark
PART_integration := tests/integration
PYTEST := $(TEST) -m pytest -n $(JOBS) --dist worksteal
# A JVM keeps sockets and threads in its process, so tests with Spark run in a process of their own.
NO_JVM := not spark and not long and not external
JVM := $(TEST) -m pytest -n 0 -o testpaths=tests/spark
# What "make hard NAME=..." runs; spark-chaos also takes COUNT= messages, KILLS=, SEED= and STORE=file, minio or azurite.
HARD_chaos := $(TEST) -m tests.chaos cluster
HARD_worker-chaos := $(TEST) -m tests.chaos worker
HARD_jobs-chaos := $(TEST) -m tests.chaos jobs
HARD_outbox-chaos := $(TEST) -m tests.chaos outbox
HARD_spark-chaos := $(if $(filter minio,$(STORE)),$(PYTHON) tools/build_minio.py && )SPARK_CHAOS=1 $(TEST) -m pytest -s -m spark_chaos tests/spark/chaos
HARD_spark-recipes := $(TEST) tools/spark_recipes.py
HARD_faults := NSQ_FAULTS=full $(PYTEST) tests/faults
HARD_fuzz := $(TEST) -m tests.fuzz
HARD_mutants := $(TEST) -m tests.mutants
HARD_soak := $(TEST) -m tests.faults.soak
HARD_strangers := $(TEST) tools/strangers.py

.PHONY: help setup servers demo pipeline pipeline-cluster test test-python test-jvm test-long test-external floors hard \
	$(PARTS:%=test-%) style types imports security audit docs examples package release bench coverage clean
.NOTPARALLEL:

help:
	@sed -n 's/^\([a-z -]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 32
	@echo "make test-PART                  one part of the tests: $(PARTS)"

.venvs/%/installed: EXTRA = [$*]
.venvs/run/installed: EXTRA =
.venvs/pipeline/installed: EXTRA = [spark,spark-storage]
# Created again if the settings change, so that nothing of earlier requirements stays.
.venvs/%/installed: $(SETTINGS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.11 ...")'
	@echo "installing nsqclient in the virtual environment $(@D)"
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --editable ".$(EXTRA)"
	@touch $@

setup: $(patsubst %,.venvs/%/installed,test lint docs) servers ## install what tests, linters and docs need
servers:
	@$(PYTHON) tools/build_nsq.py
demo: .venvs/run/installed ## publish, discover, consume and count messages (INPUT=, NSQD=)
	@$(RUN) examples/demo.py $(ARGS)
pipeline pipeline-cluster: .venvs/pipeline/installed ## a topic into Parquet with Spark (INPUT=, NSQD=, LOOKUPD=, STORAGE=)
	@.venvs/pipeline/bin/python examples/spark/$(subst -,_,$@).py $(ARGS)

test: .venvs/test/installed servers ## all tests, on the embedded servers and on the real ones (JOBS=)
	@$(TEST) tools/side_by_side.py .cache/test-jvm.log $(PYTEST) -m "$(NO_JVM)" $(ARGS) \
		--beside $(JVM) -m "spark and not long" $(ARGS)
	@NSQCLIENT_NATIVE=0 $(PYTEST) -m "$(NO_JVM)" $(PART_core) $(ARGS) || test $$? -eq 5
$(PARTS:%=test-%): test-%: .venvs/test/installed servers
	@$(PYTEST) -m "$(NO_JVM)" $(PART_$*) $(ARGS)
test-python: .venvs/test/installed servers ## the core part without the C extension; "make test" includes it
	@NSQCLIENT_NATIVE=0 $(PYTEST) -m "$(NO_JVM)" $(PART_core) $(ARGS) || test $$? -eq 5
test-jvm: .venvs/test/installed servers ## the tests that start a JVM; "make test" includes them
	@$(JVM) -m "spark and not long" $(ARGS)
test-long: .venvs/test/installed servers ## tests that take long or kill processes
	@$(PYTEST) -m "long and not spark" $(ARGS) || test $$? -eq 5
	@$(JVM) -m "long and spark" $(ARGS) || test $$? -eq 5
test-external: .venvs/test/installed servers ## the admin page in Chromium and axe-core, alert rules in Prometheus, MinIO, Azurite
	@tools/fetch.sh
	@$(TEST) -m pytest -n 3 --dist worksteal -m "external and not long" $(ARGS)
floors: servers ## the tests of HTTP and compression with the oldest versions that setup.cfg admits
	@$(PYTHON) tools/floors.py $(ARGS)
hard: .venvs/test/installed servers ## minutes or hours: NAME=chaos, faults, fuzz, mutants, ... (docs/topics/testing.rst)
	@$(if $(HARD_$(NAME)),,echo "NAME is one of: $(sort $(patsubst HARD_%,%,$(filter HARD_%,$(.VARIABLES))))"; exit 2)
	@$(HARD_$(NAME)) $(ARGS)

style: .venvs/lint/installed ## flake8
	@$(LINT) -m flake8 nsqclient tests tools examples benchmarks docs $(ARGS)
types: .venvs/lint/installed ## mypy
	@$(LINT) -m mypy $(ARGS)
imports: .venvs/lint/installed ## the import contracts in .importlinter
	@$(LINT) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' $(ARGS)
security: .venvs/lint/installed ## bandit
	@$(LINT) -m bandit --quiet --configfile .bandit.yaml --recursive nsqclient $(ARGS)
audit: .venvs/lint/installed .venvs/test/installed ## pip-audit
	@PIPAPI_PYTHON_LOCATION=$(TEST) $(LINT) tools/audit.py
docs: .venvs/docs/installed ## build docs/_build/html; warnings are errors
	@rm -rf docs/_build/html
	@.venvs/docs/bin/python -m sphinx -W --keep-going -q -b html docs docs/_build/html $(ARGS)
	@.venvs/docs/bin/python tools/check_links.py docs/_build/html
examples: .venvs/examples/installed ## run every example
	@for example in examples/*.py examples/*/run.py; do \
		echo "== $$example"; .venvs/examples/bin/python "$$example" || exit 1; done
package release: .venvs/package/installed ## build and check sdist and wheel; release: on every Python found
	@.venvs/package/bin/python tools/package.py $(if $(filter release,$@),--release) $(ARGS)
bench: .venvs/run/installed servers ## compare with go-nsq, pynsq and gnsq (needs Go)
	@$(RUN) benchmarks/bench.py $(ARGS)
coverage: .venvs/coverage/installed servers ## all tests with branch coverage
	@.venvs/coverage/bin/python -m coverage run -m pytest $(ARGS)
	@.venvs/coverage/bin/python -m coverage report
clean: ## remove everything that make has created
	@rm -rf .venvs .tox .cache .mypy_cache .pytest_cache .hypothesis .import_linter_cache \
		.coverage htmlcov build dist docs/_build *.egg-info nsqclient/*.so
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
