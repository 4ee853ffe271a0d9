# The front door: every target is one line of action. `make help` lists them.
#
# Needs Python 3.10 or newer (another than `python3` with PYTHON3=…), git and make.

PYTHON3 ?= python3
LINE ?=
PYTHON ?=
TOOL := build/tool/bin/python
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z].*:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'LINE=1.26.0 names the line (default: the newest), PYTHON="3.12 3.13" the versions to test on (default: all that are found).'

.PHONY: fork
fork: apply build demo ## from a bare checkout: the tree, the wheel, and a demonstration of it

.PHONY: demo
demo: $(TOOL) ## run the same script on the base and on the fork, side by side; ARGS="--model openai:…" for a real model
	@$(TOOL) -m demo $(ARGS)

.PHONY: apply
apply: $(TOOL) ## make the tree build/LINE: the base, then one commit per patch
	@$(TOOL) -m series apply $(LINE)

.PHONY: extract
extract: $(TOOL) ## write the tree's commits back to patches/LINE
	@$(TOOL) -m series extract $(LINE)

.PHONY: verify
verify: $(TOOL) ## import and test the package after every single patch, and check the messages
	@$(TOOL) -m series verify $(LINE)

.PHONY: build
build: $(TOOL) ## build the wheel into dist/
	@$(TOOL) -m series build $(LINE)

.PHONY: test
test: $(TOOL) ## test the tool, and the built fork on every Python that is found
	@$(TOOL) -m tests $(addprefix --line=,$(LINE)) $(addprefix --python=,$(PYTHON)) $(ARGS)

.PHONY: lint
lint: $(TOOL) ## check style and formatting
	@$(TOOL) -m ruff check && $(TOOL) -m ruff format --check

.PHONY: format
format: $(TOOL) ## correct style and formatting
	@$(TOOL) -m ruff check --fix && $(TOOL) -m ruff format

.PHONY: types
types: $(TOOL) ## check the types of our code and of the files that the patches touch
	@$(TOOL) -m tests.types $(LINE)

.PHONY: lock
lock: $(TOOL) ## lock the newest releases of what the tool needs
	@$(TOOL) -m uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' requirements/tool.in --output-file requirements/tool.txt

.PHONY: clean
clean: ## delete all that was made but the trees, which may hold your work
	@rm -rf build/tool build/cache build/environments dist

# Made in place and finished by its time stamp, so that an interrupted installation is taken up again.
$(TOOL): requirements/tool.txt
	@$(PYTHON3) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("Python 3.10 or newer is needed, but `$(PYTHON3)` is " + sys.version.split()[0] + ". Name another with `make PYTHON3=...`.")'
	@echo 'Making the tool environment build/tool'
	@rm -rf build/tool && $(PYTHON3) -m venv build/tool
	@build/tool/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tool.txt || { rm -rf build/tool; exit 1; }
	@touch $(TOOL)
