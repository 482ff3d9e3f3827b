# The two commands are `make run` and `make test`; README.md has their equivalents for Windows.
PYTHON ?= python3
BOOTSTRAP = $(PYTHON) installers/bootstrap.py

.PHONY: run test bench setup lock clean

run: ## set up what is missing and open the window (or serve, where there is no display)
	@$(BOOTSTRAP) run $(ARGS)

test: ## set up what is missing; style, types, import directions, tests
	@$(BOOTSTRAP) test $(ARGS)

bench: ## measure, as ratios against a peer or a bound in the same run
	@$(BOOTSTRAP) bench $(ARGS)

setup: ## only set up
	@$(BOOTSTRAP) setup

lock: ## make the lock files anew
	@$(BOOTSTRAP) lock

clean: ## remove the environment; the compiled engine stays in the user's cache
	rm -rf .venv
