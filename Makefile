# Every target works in a fresh clone: it makes the virtual environment it needs in .venv.
# PYTHON chooses the interpreter, ARGS is handed on: make test ARGS="-k producer"

PYTHON ?= python3
ARGS ?=
# Tests that use Spark have a process of their own, since its JVM keeps sockets and threads there;
# pytest's status 5 says that ARGS chose none.
# Tests mostly wait, so a few more processes than processors pay.
JOBS ?= 3

# Relative paths only, and modules instead of scripts: the path of the checkout may hold spaces.
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check --quiet
SETTINGS := setup.cfg setup.py

.PHONY: help demo test unit integration style types imports docs examples package bench coverage servers \
	floors faults fuzz mutants chaos spark-chaos pipeline soak security audit \
	clean
.NOTPARALLEL:

help:
	@echo "make demo         see messages travel: publish, discover, consume, count (INPUT=, NSQD=)"
	@echo "make pipeline     a text file through NSQ and Spark into Parquet, a query, a picture (INPUT=,"
	@echo "                  NSQD= or LOOKUPD=; needs Java 17)"
	@echo "make test         all tests, on the embedded server and on the real nsqd"
	@echo "make unit         all tests but the integration suite and those that use Spark"
	@echo "make integration  the tests on both kinds of server"
	@echo "make floors       the tests of HTTP and compression on the oldest versions that setup.cfg admits"
	@echo "make faults       every fault of the network, at every byte (20 minutes)"
	@echo "make fuzz         mutated input for both protocol cores, every other parser, the admin page"
	@echo "make mutants      promises broken one by one: a test must notice each (5 minutes)"
	@echo "make soak         half an hour at half of the maximum rate, connections dropped"
	@echo "make security     bandit"
	@echo "make audit        pip-audit, or the words NOT RUN"
	@echo "make spark-chaos  Spark jobs under kills, stalls, full disks: half an hour (COUNT=, KILLS=, ARGS=)"
	@echo "make chaos        ten minutes of trouble, and what was lost (QUICK=1: 60 s; SEED=, RUNS=, KILL=1)"
	@echo "make style        flake8"
	@echo "make types        mypy"
	@echo "make imports      the import contract"
	@echo "make docs         build the documentation; warnings are errors"
	@echo "make examples     run every example"
	@echo "make package      build sdist and wheel, check them, install the wheel with each extra"
	@echo "make bench        compare with go-nsq, pynsq and gnsq, held against goals (needs Go)"
	@echo "make coverage     run all tests and report branch coverage"
	@echo "make clean        remove everything that was made here"

$(RUN):
	@echo "making a virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV)

# One stamp for each set of requirements: an install is repeated when the settings change.
$(VENV)/installed: $(SETTINGS) | $(RUN)
	@echo "installing nsqclient"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/installed-%: $(SETTINGS) | $(RUN)
	@echo "installing nsqclient with what '$*' needs"
	@$(PIP) install --editable ".[$*]"
	@touch $@

servers:
	@$(PYTHON) tools/build_nsq.py

demo: $(VENV)/installed
	@$(RUN) examples/demo.py $(ARGS)

pipeline: $(VENV)/installed-spark
	@$(RUN) examples/spark/pipeline.py $(ARGS)

test: $(VENV)/installed-test servers
	@$(RUN) -m pytest -n $(JOBS) -m "not spark" $(ARGS); rest=$$?; \
	$(RUN) -m pytest -n 0 -m spark $(ARGS); jvm=$$?; \
	test $$rest -eq 0 -o $$rest -eq 5 && test $$jvm -eq 0 -o $$jvm -eq 5

unit: $(VENV)/installed-test
	@$(RUN) -m pytest --ignore tests/integration -m "not spark" $(ARGS)

integration: $(VENV)/installed-test servers
	@$(RUN) -m pytest -n $(JOBS) tests/integration $(ARGS)

# An environment of its own, .venv-floors: nothing newer than the lower bounds may be in it.
floors: servers | $(RUN)
	@$(RUN) tools/floors.py $(ARGS)

faults: $(VENV)/installed-test servers
	@NSQ_FAULTS=full $(RUN) -m pytest -n $(JOBS) tests/faults $(ARGS)

fuzz: $(VENV)/installed-test
	@$(RUN) -m tests.fuzz $(ARGS)
	@$(RUN) -m tests.fuzz.parsers --count 1000000
	@$(RUN) -m tests.fuzz.admin --count 20000

# COUNT= messages, KILLS= of the driver, SEED= of their moments; ARGS="-k disk" chooses one.
spark-chaos: $(VENV)/installed-test servers
	@SPARK_CHAOS=1 COUNT="$(or $(COUNT),200000)" KILLS="$(or $(KILLS),20)" SEED="$(or $(SEED),1)" \
		$(RUN) -m pytest -s -m spark_chaos tests/spark/chaos $(ARGS)

# Each breaks one promise in a copy of the library; ARGS="-k fin" chooses by name.
mutants: $(VENV)/installed-test
	@$(RUN) -m tests.mutants $(ARGS)

# QUICK=1 for 60 seconds of trouble, SEED= to repeat a run, RUNS= for several, KILL=1 to kill nsqds.
chaos: $(VENV)/installed-test servers
	@$(RUN) -m tests.chaos $(if $(QUICK),--seconds 60) $(if $(SEED),--seed $(SEED)) \
		$(if $(RUNS),--runs $(RUNS)) $(if $(KILL),--kill) $(ARGS)

soak: $(VENV)/installed-test servers
	@$(RUN) -m tests.faults.soak $(ARGS)

security: $(VENV)/installed-lint
	@$(RUN) -m bandit --quiet --configfile .bandit.yaml --recursive nsqclient $(ARGS)

audit: $(VENV)/installed-lint
	@$(RUN) tools/audit.py

style: $(VENV)/installed-lint
	@$(RUN) -m flake8 nsqclient tests tools examples benchmarks docs $(ARGS)

types: $(VENV)/installed-lint
	@$(RUN) -m mypy $(ARGS)

imports: $(VENV)/installed-lint
	@$(RUN) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' $(ARGS)

docs: $(VENV)/installed-docs
	@rm -rf docs/_build/html
	@$(RUN) -m sphinx -W --keep-going -q -b html docs docs/_build/html $(ARGS)
	@$(RUN) tools/check_links.py docs/_build/html
	@echo "documentation is in docs/_build/html/index.html"

# An example takes no arguments, brings its own server, and ends by itself.
examples: $(VENV)/installed-examples
	@for example in examples/*.py examples/*/run.py; do \
		echo "== $$example"; $(RUN) "$$example" || exit 1; \
	done

package: $(VENV)/installed-package
	@$(RUN) tools/package.py $(ARGS)

bench: $(VENV)/installed servers
	@$(RUN) benchmarks/bench.py $(ARGS)

coverage: $(VENV)/installed-coverage servers
	@$(RUN) -m coverage run -m pytest $(ARGS)
	@$(RUN) -m coverage report

clean:
	@rm -rf $(VENV) .venv-floors .tox .cache .mypy_cache .pytest_cache .hypothesis .import_linter_cache \
		.coverage htmlcov build dist docs/_build *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
