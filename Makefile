# Every target does its own set-up, from a bare clone on: .venv, the versions of constraints.txt and
# the compiled kernels. Nothing is installed again until a file that decides it has changed.

PYTHON ?= python3
# More options for `make compare`, such as ARGS="--dataset cora --model sage".
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
BUILD_FILES := pyproject.toml setup.py constraints.txt $(wildcard cython_ext/*.pyx cython_ext/*.h)

# As variables these reach pip's isolated build environment too, which -c does not.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(PIP_CONSTRAINT)

.PHONY: compare test test-all test-long check docs sanitize bench clean
.DELETE_ON_ERROR:

compare: $(VENV)/.installed
	$(BIN)/gnnbench compare --plugins hyscale,hongtu $(ARGS)

# The tests that every change must pass, two files at a time. `make test ROOM=lowering` runs those in
# tests/lowering alone, without linters; `make test ROOM=hongtu` those in tests/systems/hongtu.
ROOM ?=
ROOMS = $(or $(wildcard tests/$(ROOM)/ tests/systems/$(ROOM)/),$(error there are no tests in \
  tests/$(ROOM) or tests/systems/$(ROOM); see `ls tests tests/systems`))
PYTEST := $(BIN)/python -m pytest --numprocesses=2 --durations=10

test: $(if $(ROOM),$(VENV)/.test-installed,check)
	$(PYTEST) --dist=loadfile -m "not long" $(if $(ROOM),$(ROOMS))

# The long tests as well, where all others pass.
test-all: test
	$(MAKE) --no-print-directory test-long

test-long: $(VENV)/.test-installed
	$(PYTEST) --dist=worksteal -m long $(if $(ROOM),$(ROOMS))

check: $(VENV)/.test-installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.mutants --list > /dev/null

# The documentation as a site, in build/site; a warning is an error. (What the variable turns off is an
# announcement of the theme's authors.)
docs: $(VENV)/.test-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Builds the kernels once more, into build/sanitize, so that they stop at any access outside an array
# and at undefined behaviour, and runs their tests (or those in TESTS) on that build. Needs GCC.
TESTS ?= $(patsubst cython_ext/%.pyx,tests/kernels/test_%.py,$(wildcard cython_ext/*.pyx))
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1

sanitize: $(VENV)/.test-installed
	CC=gcc CFLAGS="$(SANITIZE)" LDFLAGS="$(SANITIZE)" $(BIN)/python setup.py --quiet build \
	  --build-base build/sanitize --build-lib build/sanitize/lib --parallel 4
	cd build/sanitize/lib && PYTHONPATH=. PYTHONMALLOC=malloc \
	  LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=32 UBSAN_OPTIONS=print_stacktrace=1 $(abspath $(BIN))/python -c \
	  'import sys, pytest; from gnnbench.kernels import native; \
	    all(map(native.load, native.TOPICS)) or sys.exit("not every kernel was built"); \
	    sys.exit(pytest.main(sys.argv[1:]))' \
	  -p no:cacheprovider --hypothesis-profile=ci $(abspath $(TESTS))

# Runs every benchmark on the last commit, and keeps the results: results/README.md.
bench: $(VENV)/.installed
	$(BIN)/asv machine --yes
	$(BIN)/asv check
	$(BIN)/asv run --show-stderr 'HEAD^!'

clean:
	rm -rf $(VENV) build dist *.egg-info results/asv results/asv-html
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f gnnbench/kernels/*.so cython_ext/*.c
	find gnnbench plugins suites tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' || { \
	  echo "gnnbench needs Python 3.10, 3.11 or 3.12, which '$(PYTHON)' is not; name one, as in" \
	    "make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# Alone and first: pip then takes the build of torch that suits this machine best, and no other
# package's range decides which.
$(VENV)/.torch: $(VENV)/.created constraints.txt
	$(PIP) install torch
	@touch $@

$(VENV)/.installed: $(VENV)/.torch $(BUILD_FILES)
	$(PIP) install --editable .
	@touch $@

# By name, because installing the project once more would compile its kernels once more.
$(VENV)/.test-installed: $(VENV)/.installed
	$(BIN)/python -c 'import importlib.metadata as m; print(*(r.split(";")[0] for r in \
	  m.requires("gnnbench") if r.endswith("\"test\"")))' | xargs $(PIP) install
	@touch $@
