# Everything a developer or an operator types. Needs only Python 3.11 or newer and make: the rest is
# installed into .venv, at the versions and hashes that requirements/*.txt lock.

PYTHON ?= python3
# Schedules that `make simulate` tries.
N ?= 1000000
# Extra arguments: make test ARGS="-k stop", make serve ARGS="--port 9000".
ARGS ?=

BIN := .venv/bin
NODE := tests/e2e
WEB := web

# uv is quick; pip stands in where only pip has been told of a mirror.
install = $(BIN)/uv pip install --quiet --python $(BIN)/python $(1) || $(BIN)/pip install --quiet $(1)

# A universal lock holds for every platform. Nothing in it says where the packages come from.
compile = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --upgrade $(1)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-dev serve serve-cluster test test-all check format simulate bench bench-peers web screenshots reference docs release lock clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | while IFS='	' read -r name text; do \
		printf '  %-11s %s\n' "$$name" "$$text"; done

setup: .venv/.setup ## install the server into .venv

setup-dev: .venv/.setup-dev $(NODE)/node_modules/.setup $(WEB)/node_modules/.setup .venv/.programs ## install what tests and checks need too

serve: setup ## start the server; HOLDFAST_* variables and ARGS are passed on
	@exec $(BIN)/holdfast serve $(ARGS)

serve-cluster: .venv/.setup-cluster ## start three servers on a PostgreSQL of their own, behind one address: a demonstration
	@exec $(BIN)/python -m scripts.serve_cluster $(ARGS)

test: setup-dev ## run the tests, as CI does
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile $(ARGS)

test-all: export HOLDFAST_TEST_ALL = 1
test-all: $(NODE)/node_modules/.setup-all .venv/clients/.setup test ## run the long tests too, every generated case, and some tests at several speeds
	HOLDFAST_TEST_ALL= $(BIN)/python -m tests.support.paces

check: setup-dev ## check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@if [ -d tests/typing ]; then echo $(BIN)/pyright; PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright; fi

	cd $(WEB) && PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent check

format: setup-dev ## format, and fix what can be fixed
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	cd $(WEB) && PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent format

simulate: setup-dev ## try N schedules of the engine under faults
	$(BIN)/python -m tests.simulation --schedules $(N) --jobs "$$(getconf _NPROCESSORS_ONLN)" $(ARGS)

bench: setup-dev ## measure
	$(BIN)/python -m bench $(ARGS)

bench-peers: setup-dev ## install the peers and measure them beside us
	$(BIN)/python -m bench.beside $(ARGS)

web: setup-dev ## build the browser UI into the package
	$(BIN)/python scripts/web_types.py
	cd $(WEB) && PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent build

screenshots: setup-dev ## take the pictures of the browser UI for the documents
	$(BIN)/python scripts/screenshots.py

reference: setup ## write what the documents have from the code: settings, commands, errors, events, fields, metrics, Python
	$(BIN)/python -m scripts.docs_reference

docs: .venv/.setup-docs ## build the site of the documents into site
	$(BIN)/python -m scripts.docs_site $(ARGS)

release: setup-dev ## build wheel, sdist, components and checksums of the last commit into dist, and try them out
	$(BIN)/python -m scripts.release $(ARGS)

lock: setup-dev ## resolve every dependency again, to the newest versions
	$(call compile,--group build --output-file requirements/build.txt)
	$(call compile,pyproject.toml --extra server --output-file requirements/server.txt)
	$(call compile,pyproject.toml --extra local --constraints requirements/server.txt --output-file requirements/local.txt)
	$(call compile,pyproject.toml --extra mcp --constraints requirements/server.txt --output-file requirements/mcp.txt)
	$(call compile,pyproject.toml --extra postgres --constraints requirements/server.txt --output-file requirements/postgres.txt)
	$(call compile,pyproject.toml --extra metrics --constraints requirements/server.txt --output-file requirements/metrics.txt)
	$(call compile,pyproject.toml --extra otel --constraints requirements/server.txt --constraints requirements/mcp.txt --output-file requirements/otel.txt)
	$(call compile,pyproject.toml --extra oidc --constraints requirements/server.txt --output-file requirements/oidc.txt)
	$(call compile,pyproject.toml --extra server --extra mcp --extra postgres --extra metrics --extra otel --extra oidc --group dev --constraints requirements/server.txt --constraints requirements/mcp.txt --constraints requirements/postgres.txt --constraints requirements/metrics.txt --constraints requirements/otel.txt --constraints requirements/oidc.txt --output-file requirements/dev.txt)
	$(call compile,--group cluster --constraints requirements/dev.txt --output-file requirements/cluster.txt)
	$(call compile,--group docs --constraints requirements/dev.txt --output-file requirements/docs.txt)
	cd $(NODE) && PATH="$(CURDIR)/$(BIN):$$PATH" npm install openai@latest ws@latest @anthropic-ai/sdk@latest @ag-ui/client@latest @modelcontextprotocol/server-everything@latest @modelcontextprotocol/server-filesystem@latest ai@latest @ai-sdk/openai@latest @ai-sdk/react@latest @ai-sdk/workflow@latest react@latest react-test-renderer@latest zod@latest axe-core@latest --workspace node --save-exact --package-lock-only \
		--omit-lockfile-registry-resolved --no-audit --no-fund
	cd $(WEB) && PATH="$(CURDIR)/$(BIN):$$PATH" npm update --package-lock-only --omit-lockfile-registry-resolved \
		--no-audit --no-fund

clean: ## remove what make and the tools made
	rm -rf .venv dist site htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache $(NODE)/node_modules $(WEB)/node_modules bench/.build bench/.peers
	find src lab tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp for each step: a second `make setup` does nothing.

.venv/.tools: requirements/build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer; set PYTHON=...")'
	@echo "Making .venv ..."
	@$(PYTHON) -m venv .venv || uv venv --quiet --clear --seed --python "$(PYTHON)" .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

.venv/.setup: .venv/.tools requirements/server.txt requirements/local.txt requirements/mcp.txt requirements/postgres.txt requirements/metrics.txt requirements/otel.txt requirements/oidc.txt pyproject.toml
	@echo "Installing Holdfast and the packages that it needs, for up to a few minutes ..."
	@$(call install,--require-hashes -r requirements/server.txt)
	@$(call install,--require-hashes -r requirements/local.txt) || \
		echo "The built-in model has no build for this platform; everything else works."
	@$(call install,--require-hashes -r requirements/mcp.txt)
	@$(call install,--require-hashes -r requirements/postgres.txt)
	@$(call install,--require-hashes -r requirements/metrics.txt)
	@$(call install,--require-hashes -r requirements/otel.txt)
	@$(call install,--require-hashes -r requirements/oidc.txt)
	@$(call install,--no-deps --no-build-isolation --editable .)
	@touch $@

.venv/.setup-cluster: .venv/.setup requirements/cluster.txt
	@$(call install,--require-hashes -r requirements/cluster.txt)
	@touch $@

.venv/.setup-docs: .venv/.setup requirements/docs.txt
	@$(call install,--require-hashes -r requirements/docs.txt)
	@touch $@

.venv/.setup-dev: .venv/.setup requirements/dev.txt lab/pyproject.toml
	@echo "Installing what tests and checks need ..."
	@$(call install,--require-hashes -r requirements/dev.txt)
	@$(call install,--no-deps --no-build-isolation --editable ./lab)
	@touch $@

# A browser, two reverse proxies and Prometheus. Tests that need one that cannot be had are skipped, with the reason.
.venv/.programs: .venv/.setup-dev tests/support/programs.py
	@$(BIN)/python -m tests.support.programs
	@touch $@

$(NODE)/node_modules/.setup: .venv/.setup-dev $(NODE)/package-lock.json
	@cd $(NODE) && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --workspace node --silent --no-audit --no-fund
	@touch $@

# Published programs and clients, for the long tests only. Those that do not install are skipped.
$(NODE)/node_modules/.setup-all: $(NODE)/node_modules/.setup
	@cd $(NODE) && PATH="$(CURDIR)/$(BIN):$$PATH" npm install --no-save --silent --no-audit --no-fund || true
	@touch $@

.venv/clients/.setup: .venv/.setup-dev tests/e2e/matrix/pins.toml
	@$(BIN)/python -m tests.e2e.matrix.installs
	@touch $@

# Not `npm ci`: it insists on the lock's naming the tools of every platform, and registries lag behind for some of them.
$(WEB)/node_modules/.setup: .venv/.setup-dev $(WEB)/package-lock.json
	@cd $(WEB) && PATH="$(CURDIR)/$(BIN):$$PATH" npm install --no-save --silent --no-audit --no-fund
	@touch $@
