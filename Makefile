# The few commands that people need. Everything else is CMake: `cmake --list-presets`.
# Each target installs the Debian packages it needs (tools/deps.sh; nothing happens when none is missing).
# Nothing is downloaded besides those packages.

PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

.DEFAULT_GOAL := build
.PHONY: help deps build run test test-long bench format install clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

deps: ## install missing packages, for building and for testing
	@tools/deps.sh test

build: ## optimised programs in build/release/bin/
	@tools/deps.sh build
	@$(MAKE) --no-print-directory build/release/build.ninja
	@cmake --build --preset release --parallel $(JOBS) --target programs

run: ## replay a request trace through the cache, bytes moved and verified
	@tools/deps.sh build
	@$(MAKE) --no-print-directory build/release/build.ninja
	@cmake --build --preset release --parallel $(JOBS) --target tiercel
	@echo "== build/release/bin/tiercel is ready; replaying a generated request trace"
	@tools/run.sh

test: ## everything that must pass before a commit; one summary in the last lines
	@tools/deps.sh test
	@$(MAKE) --no-print-directory build/dev/build.ninja
	@cmake --build --preset dev --parallel $(JOBS)
	@python3 tools/run_tests.py --build build/dev --jobs $(JOBS)

test-long: ## the same and what takes longer: clang-tidy on every file, more seeds, fuzzing
	@tools/deps.sh test
	@$(MAKE) --no-print-directory build/dev/build.ninja
	@cmake --build --preset dev --parallel $(JOBS)
	@python3 tools/run_tests.py --build build/dev --jobs $(JOBS) --long

bench: build ## measure each part against what this machine allows; `make bench BENCH="hash get"` runs some
	@build/release/bin/tiercel bench $(BENCH)

format: ## rewrite the sources in the one format
	@tools/deps.sh test
	@tools/check_format.sh --fix

install: build ## programs, library and headers into PREFIX (default /usr/local)
	@cmake --build --preset release --parallel $(JOBS) --target tiercel_shared tiercel_static
	@cmake --install build/release --prefix "$(PREFIX)"

# Configures a preset, again when the presets change; every other change CMake notices by itself.
build/%/build.ninja: CMakePresets.json
	cmake --preset $* --log-level=WARNING
	@touch $@

clean: ## remove everything that was built
	@rm -rf build
