# Every target needs only make and Python 3.11 or newer, including venv.

PYTHON ?= python3
BIN := .venv/bin
RUN := runs/python-docs

.PHONY: help demo test test-browser browser test-install recipes crash soak fuzz fuzz-quick bench gpu docs site clean

help:
	@echo "make demo    install into .venv, train a small model for about a minute, generate text with it, make a report"
	@echo "make test    install with the development tools; check format, lint and types; run the tests"
	@echo "make test-browser  the tests of pages in a Chromium, which is installed with apt where there is none"
	@echo "make test-install   install the wheel with pip, pipx and uv into empty environments; train and sample"
	@echo "make crash   run all tests of docs/reliability.md: kills, power failures, faults, damage; an hour"
	@echo "make fuzz    try 100,000 damaged inputs on each file reader; an hour or more (make fuzz-quick: 500 each, a minute)"
	@echo "make bench   install with the competitors, measure and generate docs/performance.md; a quarter of an hour"
	@echo "             (TEXT=tinyshakespeare.txt: also measure the time to a loss)"
	@echo "make recipes fit the law behind the choice of a model (TEXTS='en=PROSE.txt …': train what is missing first)"
	@echo "make gpu     check and measure everything on a CUDA GPU; half an hour (PART=correctness, speed or ablations)"
	@echo "make soak    train, kill, resume and sample for an hour (MINUTES=5 for less)"
	@echo "make docs    generate docs/cli.md from the help of the commands, and docs/config.md from the config"
	@echo "make site    build the documentation as a site, and check its links: build/site/index.html"
	@echo "make clean   delete .venv, build files and caches, but not runs/ or data/"
	@echo
	@echo "With another Python than python3:  make demo PYTHON=python3.12"

# The text is on every machine: 1.7 MB of English from the documentation inside Python's standard library. A second
# `make demo` finds the finished run, generates text and makes the report again.
demo: .venv/installed
	$(BIN)/gptcli train python-docs --max-time 45s -o $(RUN)
	$(BIN)/gptcli sample $(RUN) --prompt 'Return' --num-samples 3 --max-new-tokens 200
	$(BIN)/gptcli report $(RUN) -o $(RUN).html
	@echo "Open $(RUN).html in a browser: the run as a page."

test: .venv/installed-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

# The tests of pages are part of `make test` where there is a Chromium.
test-browser: browser
	$(BIN)/python -m pytest tests/ui/test_pages_in_browser.py

APT := $(shell [ "$$(id -u)" = 0 ] || echo sudo) apt-get
browser: .venv/installed-dev
	$(BIN)/python -m tests.ui.browser || { $(APT) update && $(APT) install -y --no-install-recommends chromium; }
	$(BIN)/python -m tests.ui.browser

test-install: .venv/installed-dev
	$(BIN)/python -m tests.install

crash: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 tests/crash -m 'campaign or not campaign'

fuzz: .venv/installed-dev
	$(BIN)/python -m tests.fuzz.campaign --inputs 100000

fuzz-quick: .venv/installed-dev
	FUZZ_EXAMPLES=500 $(BIN)/python -m pytest -n 2 tests/fuzz

# Run this on an idle machine. Each benchmark is a program that also runs on its own.
bench: .venv/installed-bench
	$(BIN)/python -m benchmarks.training
	$(if $(TEXT),$(BIN)/python -m benchmarks.to_loss "$(TEXT)")
	$(BIN)/python -m benchmarks.sampling
	$(BIN)/python -m benchmarks.tokenizing
	$(BIN)/python -m benchmarks.gpu --part speed
	$(BIN)/python -m benchmarks.cost
	$(BIN)/python -m benchmarks.pictures
	$(BIN)/python -m benchmarks.page

# Trainings that docs/recipes.jsonl has already are skipped; the whole grid takes hours.
recipes: .venv/installed-dev
	$(if $(TEXTS),$(BIN)/python -m benchmarks.recipes docs/recipes.jsonl $(TEXTS))
	$(BIN)/python -m benchmarks.law docs/recipes.jsonl

# docs/gpu.md has the same commands for a machine that has torch already.
gpu: .venv/installed-dev
	$(BIN)/python -m benchmarks.gpu $(if $(PART),--part $(PART))

MINUTES := 60
soak: .venv/installed-dev
	$(BIN)/python -m tests.crash.soak --minutes $(MINUTES)

docs: .venv/installed
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python docs/generate_config.py

# Any warning is an error: a link to nothing, a page that the front page does not list, a docstring that cannot be read.
# Every page is read anew, so that no warning is missed.
site: .venv/installed-docs
	rm -rf build/site
	$(BIN)/python -m sphinx -W --keep-going -q docs build/site
	@echo "build/site/index.html"

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find gptcli tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamp files, newer than their inputs: a second run installs nothing.
.venv/installed: .venv/created pyproject.toml constraints.txt
	$(BIN)/python -m pip install -c constraints.txt -e .
	@touch $@

.venv/installed-dev: .venv/created pyproject.toml constraints.txt
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	@touch .venv/installed $@

.venv/installed-docs: .venv/created pyproject.toml constraints.txt
	$(BIN)/python -m pip install -c constraints.txt -e '.[docs]'
	@touch .venv/installed $@

.venv/installed-bench: .venv/created pyproject.toml constraints.txt
	$(BIN)/python -m pip install -c constraints.txt -e '.[bench,plots]'
	@touch .venv/installed $@

.venv/created:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	    { echo "gptcli needs Python 3.11 or newer with venv, and '$(PYTHON)' is not. Choose another: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@
