# The few commands that people need. Everything else is CMake: `cmake --list-presets`.
# Each target installs the Debian packages it needs (tools/deps.sh; nothing happens when none is missing).
# `build`, `run` and `test` also make llama.cpp's library, once a machine, outside this tree (tools/llama.sh); without it:
# TIERCEL_WITH_LLAMA=OFF make ... Nothing is downloaded besides those packages and that source.

PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# CMake would do the same by itself, but without the progress.
LLAMA = [ "$$TIERCEL_WITH_LLAMA" = OFF ] || JOBS=$(JOBS) tools/llama.sh >/dev/null || \
  { echo "make: without llama.cpp: TIERCEL_WITH_LLAMA=OFF make $@" >&2; exit 1; }
# A real model of 98 MB; where it cannot be had, what needs it is skipped, and says so.
MODEL = [ "$$TIERCEL_WITH_LLAMA" = OFF ] || tools/llama_model.sh >/dev/null || \
  echo "make: going on without the real model" >&2

.DEFAULT_GOAL := build
.PHONY: help deps build run test test-long bench format install model clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

deps: ## install missing packages, for building and for testing
	@tools/deps.sh test

build: ## optimised programs in build/release/bin/
	@tools/deps.sh build
	@$(LLAMA)
	@$(MAKE) --no-print-directory build/release/build.ninja
	@cmake --build --preset release --parallel $(JOBS) --target programs

run: ## a chat of a real model that survives its process, then request traces through the cache
	@tools/deps.sh build
	@$(LLAMA)
	@$(MODEL)
	@$(MAKE) --no-print-directory build/release/build.ninja
	@cmake --build --preset release --parallel $(JOBS) --target tiercel
	@echo "== build/release/bin/tiercel is ready"
	@tools/run.sh

test: ## everything that must pass before a commit; one summary in the last lines
	@tools/deps.sh test
	@$(LLAMA)
	@$(MODEL)
	@$(MAKE) --no-print-directory build/dev/build.ninja
	@cmake --build --preset dev --parallel $(JOBS)
	@python3 tools/run_tests.py --build build/dev --jobs $(JOBS)

test-long: ## the same and what takes longer: clang-tidy on every file, more seeds, fuzzing
	@tools/deps.sh test
	@$(LLAMA)
	@$(MODEL)
	@$(MAKE) --no-print-directory build/dev/build.ninja
	@cmake --build --preset dev --parallel $(JOBS)
	@python3 tools/run_tests.py --build build/dev --jobs $(JOBS) --long

bench: build ## measure each part against what this machine allows; `make bench BENCH="hash get"` runs some
	@build/release/bin/tiercel bench $(BENCH)

model: ## fetch a small language model (SmolLM2-135M, 98 MB) for `tiercel llama` and the tests; outside this tree
	@tools/deps.sh build
	@tools/llama_model.sh

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
