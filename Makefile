# `make` lists the targets. Nothing is installed outside .venv, except as root on Debian: python3-venv where it is
# missing, and by `make test` what .ci/services names.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo $$p && break; done)
BIN = .venv/bin
# Tests start hundreds of processes: without cached bytecode each of them compiles the product first.
unexport PYTHONDONTWRITEBYTECODE
LOCK = UV_SYSTEM_CERTS=true $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --all-extras pyproject.toml

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile
.venv/runtime: requirements.lock pyproject.toml
	@.ci/venv "$(PYTHON)" requirements.lock && touch $@
.venv/dev: requirements-dev.lock pyproject.toml
	@.ci/venv "$(PYTHON)" requirements-dev.lock && touch $@ .venv/runtime
demo: .venv/runtime ## tell the story in a minute: write, facets, search, rewrite, reindex
	@$(BIN)/facetline demo
demo-kafka: .venv/runtime ## the same story through a real Kafka
	@address=`deploy/kafka/start --data .demo-kafka` && FACETLINE_KAFKA__BOOTSTRAP_SERVERS=$$address \
	$(BIN)/facetline demo --kafka; code=$$?; deploy/kafka/stop --data .demo-kafka; rm -rf .demo-kafka; exit $$code
test: .venv/dev check ## run everything against the real services, installing them as root on Debian
	@.ci/services
	@$(BIN)/pytest -q -n 4 --dist worksteal
cover: .venv/dev ## the same tests, with the coverage of lines and branches (slower)
	@.ci/services
	@$(BIN)/pytest -q -n 4 --dist worksteal --cov
check: .venv/dev ## lint, format, types, import rule
	@$(BIN)/ruff check && $(BIN)/ruff format --check && $(BIN)/mypy && $(BIN)/lint-imports
unit: .venv/dev ## the tests that need no service
	@$(BIN)/pytest -q -n 2 tests/unit tests/property
containers: .venv/dev ## what needs Docker, installing it as root on Debian: contract tests, image, compose file
	@.ci/services
	@.ci/containers
soak: .venv/dev ## simulation and fault tests with fresh seeds for MINUTES=n (10)
	@.ci/services
	@$(BIN)/python tests/soak.py $(or $(MINUTES),10)
mutants: .venv/dev ## break each promise on purpose, and see a test go red (many minutes; ONLY=name for one)
	@$(BIN)/python tests/mutation/run.py $(ONLY)
bench: .venv/dev ## the figures, a JSON object a line; ONLY=name for one, ONLY=banking77 for that data set
	@$(BIN)/python tests/benchmarks/run.py $(ONLY)
screenshot: .venv/dev ## make the README's pictures of the page anew, with Chromium
	@.ci/services
	@$(BIN)/python docs/screenshot.py
kafka: ## start a Kafka node for development
	@address=`deploy/kafka/start` && echo "export FACETLINE_KAFKA__BOOTSTRAP_SERVERS=$$address"
kafka-stop: ## stop it
	@deploy/kafka/stop
fmt: .venv/dev ## format, and mend what can be mended
	@$(BIN)/ruff check --fix --quiet; $(BIN)/ruff format
lock: .venv/dev ## compile the locks anew, keeping what still fits
	@$(LOCK) --group install -o requirements.lock && $(LOCK) --group dev -c requirements.lock -o requirements-dev.lock
.PHONY: help demo demo-kafka test cover check unit containers soak mutants bench screenshot kafka kafka-stop fmt lock
