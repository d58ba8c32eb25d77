# Two commands on a fresh machine with python3 (3.11 or newer), git and make:
#   make lab     opens the workbook in JupyterLab
#   make test    passes every check
# Everything is installed in .venv here; nothing else on the machine is touched.

PYTHON ?= python3
VENV   ?= .venv
PIP    ?= $(VENV)/bin/python -m pip --disable-pip-version-check
DIR    ?= rlhf-workbook
OUT    ?= runs/$(if $(filter twins,$(MAKECMDGOALS)),twins,workbook)
SITE   ?= _docs
README ?= README.md
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
EXTRAS := $(VENV)/docs $(VENV)/browser
# The models here are tiny: one thread per process is fastest; three processes fill two cores, since each waits now and then.
TESTING := PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 RLHF_NB_STRICT=1

KEEP    = new=$$(mktemp -d) && $(TESTING) sh -c "rlhf-nb run $(NB) --out $$new && rm $$new/report.html && \
	    cp -r $$new/. nbs/ && nbdev-clean" && rm -r $$new

.DEFAULT_GOAL := help
.PHONY: help setup lab run twins check test test-all test-chapters test-package browser chapter chapters export readme docs build clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1#/' | awk -F'#' '{printf "%-22s%s\n", $$1, $$2}'

setup: $(READY) ## install everything in .venv (the others do this by themselves)

$(READY): settings.ini setup.py pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version): make PYTHON=python3.12 ..."; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "$(PYTHON) -m venv failed: on Debian and Ubuntu, apt install python3-venv"; exit 1; }
	$(PIP) install --quiet $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $@

$(EXTRAS): $(READY)
	$(PIP) install --quiet $(PIP_ARGS) -c constraints.txt \
	  $$(sed -n 's/^$(@F)_requirements = //p' settings.ini)
	@touch $@

$(VENV)/widgets7: $(READY) # the version of Colab, which stands in nobody's way there
	$(PIP) install --quiet $(PIP_ARGS) --no-deps --upgrade --target $@ \
	  ipywidgets==7.7.1 ipython_genutils==0.2.0
	@touch $@

lab: $(READY) ## open your copy of the workbook, with exercises, in JupyterLab (DIR=rlhf-workbook; DIR=nbs edits the source)
	$(BIN)/rlhf-nb lab --exercises $(DIR)

run: $(READY) ## run every chapter without a browser, write a report (OUT=runs/workbook)
	$(BIN)/rlhf-nb run --out $(OUT)

TWINS   = --model $(MODEL) --prefs $(PREFS)
twins: $(READY) ## the folds of 01, 04, 05, 07, 10, 13 on a real model, an evening of CPU (MODEL=smollm2 PREFS=pairs.jsonl OUT=runs/twins)
	@test -f "$(PREFS)" && test -n "$(MODEL)" || { echo "name a folder and a file: make twins MODEL=smollm2 PREFS=pairs.jsonl"; exit 1; }
	test -f $(MODEL)/config.json || $(BIN)/rlhf-nb fetch smollm2 $(MODEL)
	$(BIN)/python benchmarks/bench_smollm2.py $(TWINS) --part reward fitted --out $(OUT)/fitted --json $(OUT)/smollm2.json
	$(BIN)/python benchmarks/bench_smollm2_road.py $(TWINS) --part tried --out $(OUT)/road --home $(OUT)/smollm2_road.jsonl
	$(BIN)/python benchmarks/bench_smollm2_road.py $(TWINS) --out $(OUT)/road --home $(OUT)/smollm2_road.jsonl
	$(BIN)/python benchmarks/bench_smollm2_road.py $(TWINS) --methods DPO --lr 4e-4 --out $(OUT)/road --home $(OUT)/smollm2_road.jsonl
	$(BIN)/python benchmarks/bench_twins.py $(TWINS) --out $(OUT)/road --json $(OUT)/twins.json

check: $(READY) export ## for authors: run one notebook and the tests that a change in it needs (NB=ppo)
	@test -n "$(NB)" || { echo "name a notebook: make check NB=ppo"; exit 1; }
	$(TESTING) python scripts/run_notebooks.py $(NB) --tests

test: test-chapters test-package ## pass every check that 20 minutes hold

test-all: $(VENV)/widgets7 ## and the long ones: slow cells, the whole site by day, by night and on a phone, all of Lab, ...
	$(TESTING) python scripts/run_notebooks.py --slow
	$(TESTING) python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --all

test-chapters: $(READY) ## run every chapter, but for cells that train once more (#| slow)
	$(TESTING) python scripts/run_notebooks.py

test-package: $(READY) $(VENV)/widgets7 ## run tests/ (export unchanged, wheel, layers, command line, each module)
	$(TESTING) python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

browser: $(VENV)/docs $(VENV)/browser ## install what the tests in a real browser need (chromium: apt install chromium)
	@command -v $${CHROMIUM:-chromium} || echo "no chromium here: those tests are skipped"

chapter: $(READY) export ## for authors: run one notebook, keep its fresh outputs in nbs/ (NB=grpo)
	@test -n "$(NB)" || { echo "name a notebook: make chapter NB=grpo"; exit 1; }
	$(KEEP)

chapters: $(READY) export ## for authors: run all chapters, keep their fresh outputs in nbs/
	$(KEEP)

export: $(READY) ## for authors: nbs/ -> rlhf_nb/, and the picture of its floors
	$(TESTING) python scripts/export.py
	$(BIN)/python scripts/draw_floors.py

readme: $(READY) ## for authors: nbs/index.ipynb -> README.md
	$(BIN)/python scripts/make_readme.py $(README)

docs: $(VENV)/docs ## the documentation site, without network or Quarto (SITE=_docs)
	$(TESTING) python docs/make_site.py --out $(SITE)

build: $(READY) ## sdist and wheel in dist/
	rm -rf build dist
	$(BIN)/python -m build --no-isolation

clean: ## remove what builds and tests left (.venv, runs/ and your workbook stay)
	rm -rf build dist _docs _proc *.egg-info .pytest_cache nbs/.last_checked
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -not -path './$(VENV)/*' -prune -exec rm -rf {} +
