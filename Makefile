# The front door: every target is one line of action. `make help` lists them.
#
# Needs Python 3.11 or newer with `venv` (another than `python3` with PYTHON3=…), git and make.

PYTHON3 ?= python3
LINE ?=
PATCH ?=
ONTO ?=
REV ?=
STEP ?= 1
PYTHON ?=
TOOL := build/tool/bin/python
READY := build/tool/.ready
MORE := build/envs/more/bin/python
MORE_READY := build/envs/more/.ready
LINES := $(patsubst patches/%/line.toml,%,$(wildcard patches/*/line.toml))
.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z].*:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'LINE=2.68.0 names the line (default: the newest; of status, wheels, test and endurance: all), PYTHON="3.12 3.13" the versions to test on (default: the newest that is found; of matrix: all).'

.PHONY: fork
fork: apply build environments demo ## from a bare checkout: the tree, the wheel, and a demonstration of it

.PHONY: demo
demo: $(READY) ## run the same script on the base and on the fork, side by side; ARGS="--model openai:…" for a real model
	@$(TOOL) -m demo $(LINE) $(ARGS)

.PHONY: example
example: $(READY) ## run an example of the cookbook, NAME=…, or list them; ARGS=--base on the base, ARGS="--model openai:…" with a real model
	@$(TOOL) -m examples $(NAME) $(addprefix --line=,$(LINE)) $(ARGS)

.PHONY: tutorial
tutorial: $(READY) ## serve step STEP=1 to 6 of the tutorial on port 8000; ARGS="--port 8001" on another
	@$(TOOL) -m examples tutorial $(STEP) $(ARGS)

.PHONY: environments
environments: $(READY) ## make build/envs/base-LINE and build/envs/fork-LINE, which hold the base and the built fork
	@$(TOOL) -m series.environments $(LINE)

.PHONY: apply
apply: $(READY) ## make the tree build/LINE: the base, then one commit per patch
	@$(TOOL) -m series apply $(LINE)

.PHONY: extract
extract: $(READY) ## write the tree's commits back to patches/LINE
	@$(TOOL) -m series extract $(LINE)

.PHONY: verify
verify: $(READY) ## check the messages, and import and test the package after every patch, or PATCH=topic/slug alone; ARGS=--together tests less
	@$(TOOL) -m series verify $(LINE) $(if $(PATCH),"$(PATCH)") $(ARGS)

.PHONY: build
build: $(READY) ## build the wheel into dist/
	@$(TOOL) -m series build $(LINE)

.PHONY: wheels
wheels: $(READY) ## build the wheels of all lines into dist/
	@for line in $(or $(WHEELS),$(LINE),$(LINES)); do $(TOOL) -m series build $$line || exit; done

.PHONY: release
release: $(READY) ## build the wheels of all lines twice, and write them with digests, bills of materials and a text to dist/release
	@$(TOOL) -m series release

.PHONY: rebase
rebase: $(READY) ## start a new line from LINE for the release ONTO=…; after a conflict ARGS=--continue or --abort
	@$(TOOL) -m series rebase $(LINE) $(addprefix --onto=,$(ONTO)) $(ARGS)

.PHONY: carry
carry: $(READY) ## bring the fixups in the tree of LINE to that of the other line, or ARGS="--to LINE"
	@$(TOOL) -m series carry $(LINE) $(ARGS)

.PHONY: review
review: $(READY) ## show what changed in the series since the revision REV=… of this repository (default: HEAD)
	@$(TOOL) -m series review $(LINE) $(REV) $(ARGS)

.PHONY: overview
overview: $(READY) ## write what each patch needs, its size, what upstream has said, and what to send first, to docs/patches.md
	@$(TOOL) -m series overview

.PHONY: status
status: $(READY) ## say whether each patch still applies to the newest upstream release
	@$(TOOL) -m series status $(LINE) $(ARGS)

.PHONY: branch
branch: $(READY) ## put the patch PATCH=topic/slug on a branch of CLONE, your clone of upstream; ONTO=origin/main where it begins
	@$(TOOL) -m series branch "$(PATCH)" $(LINE) $(if $(CLONE),--clone "$(CLONE)") $(if $(ONTO),--onto "$(ONTO)") $(ARGS)

.PHONY: matrix
matrix: $(READY) ## run upstream's own tests on base and fork, side by side; CLONE=… with your clone of upstream; ARGS="--install all" for a part
	@$(TOOL) -m series matrix $(LINE) $(addprefix --python=,$(PYTHON)) $(if $(CLONE),--tests "$(CLONE)") $(ARGS)

.PHONY: locks
locks: $(READY) ## lock what `make matrix` installs, to the time of the line's release
	@$(TOOL) -m series locks $(LINE)

# Before anything is built.
.PHONY: asked
asked: $(READY)
	@$(TOOL) -m tests --refuse $(addprefix --line=,$(LINE)) $(addprefix --python=,$(PYTHON))

.PHONY: test
# The demonstration and the docs are tested on the newest line, whichever is named.
test: WHEELS := $(LINES)
test: asked wheels ## test the tool, and the built forks of all lines on the newest Python that is found; ARGS=--every on all
	@$(TOOL) -m tests $(addprefix --line=,$(LINE)) $(addprefix --python=,$(PYTHON)) $(ARGS)

.PHONY: nightly
nightly: wheels $(MORE_READY) ## test all that there is: also slow tests, examples, load and faults, pinning, the projects in `downstream/`
	@CI=true $(TOOL) -m tests --ends --nightly $(ARGS)

.PHONY: bench
bench: build $(MORE_READY) ## measure what the fork costs beside its base, and write it to docs/performance.md; ARGS="--only tools" for a part
	@$(MORE) -m benchmarks $(LINE) $(ARGS)

.PHONY: endurance
endurance: wheels ## have the built forks of all lines endure load and faults at length, and write what was found to docs/endurance.md
	@$(TOOL) -m tests.endurance $(addprefix --line=,$(LINE)) $(ARGS)

.PHONY: pinning
pinning: wheels $(MORE_READY) ## pin the built forks of all lines as users do, with pip, uv, hatch, Poetry and pip-compile
	@$(TOOL) -m pytest -n auto --dist worksteal tests/pinning $(ARGS)

.PHONY: downstream
downstream: wheels ## test the projects in `downstream/` on the built forks of all lines, or the one that NAME=… names
	@$(TOOL) -m downstream $(addprefix --line=,$(LINE)) $(addprefix --name=,$(NAME)) $(ARGS)

.PHONY: downstream-suites
downstream-suites: wheels ## run the test suites of others on base and fork, and write what came of it to docs/downstream/suites.md
	@$(TOOL) -m tests.suites $(addprefix --line=,$(LINE)) $(addprefix --name=,$(NAME)) $(ARGS)

.PHONY: lint
lint: $(READY) ## check style and formatting
	@$(TOOL) -m ruff check && $(TOOL) -m ruff format --check

.PHONY: format
format: $(READY) ## correct style and formatting
	@$(TOOL) -m ruff check --fix && $(TOOL) -m ruff format

.PHONY: types
types: build ## check the types of our code and of the files that the patches touch
	@$(TOOL) -m tests.check_types $(LINE)

# Not with `--quiet`, which lets a strict build pass whatever it finds.
.PHONY: docs
docs: $(MORE_READY) ## build the docs into build/site; each link must lead somewhere
	@$(TOOL) -m docs.prepare && NO_MKDOCS_2_WARNING=1 $(MORE) -m mkdocs build --strict

.PHONY: pages
pages: $(MORE_READY) wheels ## write again what the README and the docs show of other files, of the patches and of what programs print
	@$(TOOL) -m docs.prepare && $(MORE) -m docs.pages && $(TOOL) -m docs.outputs

.PHONY: screenshots
screenshots: $(READY) ## take the pictures of the examples' pages again, with Chromium, into docs/images
	@$(TOOL) -m examples docs.screenshots

.PHONY: docs-serve
docs-serve: $(MORE_READY) ## show the docs on this machine, and build them again whenever they change
	@$(TOOL) -m docs.prepare && NO_MKDOCS_2_WARNING=1 $(MORE) -m mkdocs serve

.PHONY: lock
LOCK = $(TOOL) -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'
lock: $(READY) ## lock the newest releases of what the tool, the docs, the benchmarks, the tests of pinning and builds of the fork need
	@$(LOCK) requirements/tool.in --output-file requirements/tool.txt
	@for line in $(LINES); do $(TOOL) -c 'import sys, tomllib; print(*tomllib.load(open(sys.argv[1], "rb"))["build-system"]["requires"], sep="\n")' pydantic_ai_slim/$$line/pyproject.toml | $(LOCK) - --output-file requirements/build-$$line.txt || exit; done
	@$(LOCK) requirements/tool.in requirements/more.in --constraint requirements/tool.txt $$(sed -n 's/^\([a-z][^=]*\)==.*/--no-emit-package \1/p' requirements/tool.txt) --output-file requirements/more.txt

.PHONY: sizes
sizes: ## print how many lines git holds, for each folder and in all
	@git grep -Ic '' | awk -F: '{split($$1, path, "/"); lines[path[1]] += $$NF; lines["all"] += $$NF} END {for (each in lines) printf "%7d %s\n", lines[each], each}' | sort -rn

.PHONY: clean
clean: ## delete what was made, but for the release, the trees, the texts of pull requests and the results of the matrix
	@$(PYTHON3) -c 'from pathlib import Path; from series.folders import sweep; sweep(Path())'
	@rm -rf build/tool build/cache build/docs build/envs build/site build/.locks
	@test ! -d dist || find dist -mindepth 1 -maxdepth 1 ! -name release -exec rm -rf {} +

$(READY): requirements/tool.txt
	@$(PYTHON3) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, but `$(PYTHON3)` is " + sys.version.split()[0] + ". Name another with `make PYTHON3=...`.")'
	@$(PYTHON3) -m series.install

$(MORE_READY): requirements/more.txt $(READY)
	@$(TOOL) -m series.environments --more
