# Needs Python 3.11 or newer and make (also the make 3.81 of macOS); everything else goes into .venv.

SHELL = /bin/sh
PORT ?= 8090

# A question without an example is for the assistant that answers any; without one the ticket desk has its own.
ifndef EXAMPLE
EXAMPLE := $(if $(value Q),mini,ticket)
endif

# What the user wrote reaches the programs through the environment, as written: `$`, quotes and brackets are text.
override EXAMPLE := $(value EXAMPLE)
override Q := $(value Q)
override QUICK := $(value QUICK)
override PORT := $(value PORT)
export EXAMPLE Q QUICK PORT

# Where `make kill` keeps its stores: only as said to make itself, for the STORE of the environment is for real work.
ifeq ($(origin STORE),command line)
export KILL_STORE := $(value STORE)
endif

PY = .venv/bin/python
PIP_INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check --use-pep517

.PHONY: help run serve test kill load check format bench lock clean

help:
	@echo 'make run [EXAMPLE=ticket] [Q="..."]   run an example and trace its steps (a stand-in model answers unless MODEL is set);'
	@echo '                                    with a question alone, EXAMPLE=mini'
	@echo 'make serve [EXAMPLE=ticket] [PORT=8090]  serve an example over HTTP on this machine, with demonstration keys'
	@echo 'make test                           run the tests'
	@echo 'make kill [KILLS=1000]              kill the program again and again and audit it (SEED=..., SECONDS=...;'
	@echo '                                    STORE=postgresql starts a server, STORE=postgresql://... takes one)'
	@echo 'make load [RUNS=200] [PARKED=1000]   load a real server over HTTP and audit its journal'
	@echo 'make check                          lint, formatting and types'
	@echo 'make format                         format the code and mend what the linter can'
	@echo 'make bench [QUICK=1]                measure against other agent libraries'
	@echo 'make lock                           resolve the dependencies again and rewrite both lock files'
	@echo 'make clean                          remove .venv, caches and build products'

run: .venv/.installed
	@if [ ! -f "examples/$$EXAMPLE.py" ] && [ ! -f "examples/$$EXAMPLE/__main__.py" ]; then \
	  echo "There is no example \"$$EXAMPLE\"; there are:" \
	    `ls examples | sed -n -e '/^_/d' -e 's/\.py$$//' -e '/\./!p'` >&2; exit 2; fi; \
	set -- --trace; \
	case "$$Q" in '') ;; -*) set -- "$$@" -- "$$Q" ;; *) set -- "$$@" "$$Q" ;; esac; \
	exec $(PY) -m "examples.$$EXAMPLE" "$$@"

serve: .venv/.installed
	@if [ ! -f "examples/$$EXAMPLE/http.py" ]; then \
	  echo "The example \"$$EXAMPLE\" has no server; there is one in:" \
	    `ls examples/*/http.py | sed -e 's/^examples.//' -e 's/.http.py$$//'` >&2; exit 2; fi; \
	exec $(PY) -m glassloop serve "examples/$$EXAMPLE:app" --demo --port "$$PORT"

test: .venv/.installed-test
	@$(PY) -m pytest

kill: .venv/.installed-test
	@LOCK_SECONDS=30 STOP_SECONDS=20 $(PY) -m pytest tests/kill --deselect tests/kill/test_kill.py
	@$(PY) tests/kill --kills $(or $(KILLS),1000) $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS)) --store "$${KILL_STORE:-sqlite}"

load: .venv/.installed-test
	@$(PY) tests/load $(if $(PARKED),--parked $(PARKED),--runs $(or $(RUNS),200))

check: .venv/.installed-test
	@echo 'ruff check'; $(PY) -m ruff check .
	@echo 'ruff format --check'; $(PY) -m ruff format --check .
	@echo 'pyright (strict)'; PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PY) -m pyright

format: .venv/.installed-test
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: .venv/.installed
	@$(PY) -m bench

lock:
	@PYTHON="$(PYTHON)" sh .ci/venv
	@$(PY) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "The lock files are made with Python 3.11, the oldest that is supported: make clean, then make lock PYTHON=python3.11.")'
	@echo 'Resolving the dependencies ...'
	@$(PY) -m venv --clear build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	@for target in "requirements-test.lock --extra=test" "requirements.lock --extra=server --extra=rag --constraint=requirements-test.lock"; do \
	  CUSTOM_COMPILE_COMMAND='make lock' build/lock/bin/python -m piptools compile --quiet --upgrade --strip-extras --no-annotate \
	    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	    --output-file $$target pyproject.toml || exit 1; \
	  lock=$${target%% *}; grep -v '^glassloop @' $$lock >build/lock.txt; cat build/lock.txt >$$lock; \
	done
	@rm -rf build/lock build/lock.txt
	@echo 'Wrote requirements.lock and requirements-test.lock.'

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.installed: pyproject.toml requirements.lock
	@PYTHON="$(PYTHON)" sh .ci/venv
	@echo "Installing `grep -c == requirements.lock` packages into .venv (a minute at most, once) ..."
	@$(PIP_INSTALL) -r requirements.lock
	@$(PIP_INSTALL) --no-deps -e .
	@touch $@

.venv/.installed-test: .venv/.installed requirements-test.lock
	@echo "Installing `grep -c == requirements-test.lock` packages for the tests into .venv (a minute or two, once) ..."
	@$(PIP_INSTALL) -r requirements-test.lock
	@touch $@
