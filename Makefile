# Everything here works on a machine with nothing but Python 3.11 or newer (with venv) and make.

PYTHON ?= python3
BIN := .venv/bin
RUN := runs/demo

.PHONY: help demo test crash soak fuzz fuzz-quick bench docs clean

help:
	@echo "make demo    install into .venv, train a small model for about a minute, and sample from it"
	@echo "make test    install with the development tools; check format, lint and types; run the tests"
	@echo "make crash   everything that docs/reliability.md counts: kills, power failures, faults, damage; ten minutes or more"
	@echo "make fuzz    100,000 damaged inputs for each reader of files; an hour or more (make fuzz-quick: 500 each, a minute)"
	@echo "make bench   install with the competitors, measure everything that docs/performance.md tells, and write it again;"
	@echo "             with TEXT=tinyshakespeare.txt also how soon a training reaches a loss; a quarter of an hour"
	@echo "make soak    an hour of training, killing, resuming and sampling; MINUTES=5 for less"
	@echo "make docs    write docs/cli.md again from the commands' help"
	@echo "make clean   delete .venv, build products and caches; never runs/ or data/"
	@echo
	@echo "Another Python than python3:  make demo PYTHON=python3.12"

# Real text that every machine has: five packages of the standard library, 1.3 MB. A second `make demo` finds the
# finished run and samples from it again.
demo: .venv/installed
	@library="$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" && set -x && \
	$(BIN)/gptcli train "$$library/asyncio" "$$library/email" "$$library/http" "$$library/json" "$$library/logging" \
	    --include '*.py' --preset nano --max-steps 1000 -o $(RUN)
	$(BIN)/gptcli sample $(RUN) --prompt 'def ' --max-new-tokens 400

test: .venv/installed-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

crash: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 tests/crash -m 'campaign or not campaign'

fuzz: .venv/installed-dev
	$(BIN)/python -m tests.fuzz.campaign --inputs 100000

fuzz-quick: .venv/installed-dev
	FUZZ_EXAMPLES=500 $(BIN)/python -m pytest -n 2 tests/fuzz

# On a machine that does nothing else. Each question is a program of its own, which can be run alone.
bench: .venv/installed-bench
	$(BIN)/python -m benchmarks.training
	$(if $(TEXT),$(BIN)/python -m benchmarks.to_loss "$(TEXT)")
	$(BIN)/python -m benchmarks.sampling
	$(BIN)/python -m benchmarks.tokenizing
	$(BIN)/python -m benchmarks.gpu
	$(BIN)/python -m benchmarks.cost
	$(BIN)/python -m benchmarks.page

MINUTES := 60
soak: .venv/installed-dev
	$(BIN)/python -m tests.crash.soak --minutes $(MINUTES)

docs: .venv/installed
	$(BIN)/python docs/generate_cli.py

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find gptcli tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are newer than what they were installed from, so that a second run installs nothing.
.venv/installed: .venv/created pyproject.toml constraints.txt
	$(BIN)/python -m pip install -c constraints.txt -e .
	@touch $@

.venv/installed-dev: .venv/created pyproject.toml constraints.txt
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	@touch .venv/installed $@

.venv/installed-bench: .venv/created pyproject.toml constraints.txt
	$(BIN)/python -m pip install -c constraints.txt -e '.[bench,plots]'
	@touch .venv/installed $@

.venv/created:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	    { echo "gptcli needs Python 3.11 or newer with venv, which '$(PYTHON)' is not; name another: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@
