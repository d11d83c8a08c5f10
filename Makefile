# Two commands on a bare machine with python3 (3.11 or later) and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test check docs install clean

# torch first and by exact version: anything looser may bring a mismatched torchvision.
$(VENV)/.ready: pyproject.toml setup.py constraints.txt Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch torchvision
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

install: $(VENV)/.ready

demo: install
	$(BIN)/kedit run --backbone tiny-internvl --benchmark kibench-open --editors base,finetune,lora,ike,mend,serac,mscke,mcki --protocols single,sequential --limit 12 --out runs/demo
	$(BIN)/kedit report runs/demo

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check kedit tests
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) runs build dist *.egg-info
