# Every step of the project. Each installs what it lacks (.ci/tools) and takes no time over what is there. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test build test-native test-browser test-js simulate bench lint size clean

CARGO_BIN := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin
export PATH := $(CARGO_BIN):$(PATH)

# Desktops set BROWSER to the program that opens links: only `make … BROWSER=…` counts here.
ifneq ($(origin BROWSER),command line)
BROWSER :=
endif

WASM32 := wasm32-unknown-unknown
TARGET := $(or $(CARGO_TARGET_DIR),target)
WASM := pkg/wasm/pocket_broker_bg.wasm
DIST := pkg/dist/index.js

# Folders are among the sources because a deleted file changes nothing else.
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find src -name '*.rs' -o -type d)
TS_SOURCES := $(wildcard pkg/package.json pkg/package-lock.json pkg/tsconfig*.json) $(shell find pkg/src -name '*.ts*' -o -type d)

# What rustc's wasm32-unknown-unknown and wasm-bindgen use by themselves, in every browser since 2022; wasm-opt is to add no more.
WASM_FEATURES := mutable-globals sign-ext nontrapping-float-to-int bulk-memory multivalue reference-types
WASM_OPT := -O1 $(WASM_FEATURES:%=--enable-%) --strip-debug --strip-producers --strip-target-features

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## build and serve the demo pages (PORT=8080; PORT=0 picks a free one; ONCE=1 checks the first in headless Chromium and exits)
	@.ci/tools npm-js $(if $(ONCE),chromium)
	@PORT="$(PORT)" ONCE="$(ONCE)" node tests/js/support/demo.mjs

test: ## everything that must pass, with a count at the end
	@.ci/test

build: $(DIST) ## the wasm and the npm package, in pkg/

# The package says itself where its wasm is (pkg/src/load.ts): a second place in the glue would make bundlers copy the file twice.
$(WASM): $(RUST_SOURCES)
	@.ci/tools wasm-target wasm-bindgen npm-pkg
	cargo build --lib --profile npm --target $(WASM32)
	wasm-bindgen --target web --no-typescript --omit-default-module-path --remove-name-section --remove-producers-section --out-dir $(TARGET)/bindgen \
		$(TARGET)/$(WASM32)/npm/pocket_broker.wasm
	mkdir -p pkg/wasm
	cp $(TARGET)/bindgen/pocket_broker.js pkg/wasm/
	pkg/node_modules/.bin/wasm-opt $(WASM_OPT) $(TARGET)/bindgen/pocket_broker_bg.wasm -o $@

$(DIST): $(WASM) $(TS_SOURCES)
	@.ci/tools npm-pkg
	rm -rf pkg/dist
	npm --prefix pkg run --silent build:ts
	touch $@

test-native: ## the rules and the conformance suite without a browser, and the doctests
	@.ci/tools rust
	cargo test --no-fail-fast

simulate: ## the simulation of several tabs, and that of several brokers, for a night (SEEDS=20000, FROM=1; one seed: SEED=17, which tells every call)
	@.ci/tools rust
	CARGO_PROFILE_TEST_OPT_LEVEL=1 SEEDS="$(or $(SEEDS),20000)" cargo test --test simulation -- seeds brokers_hear --nocapture

# By hand, with nothing to set: `wasm-pack test --headless --chrome` or `--firefox` (`.ci/tools wasm-pack` installs it).
test-browser: ## the conformance suite in BROWSER=chromium|firefox|webkit (CONTEXT=window and FILTER=text narrow it down)
	$(if $(filter-out chromium firefox webkit,$(BROWSER)),$(error BROWSER is chromium, firefox or webkit))
	@.ci/tools node wasm-target wasm-bindgen $(or $(BROWSER),chromium)
	node .ci/browser.mjs $(or $(BROWSER),chromium) $(CONTEXT)

test-js: build ## the packed package in Chromium, Firefox and WebKit, or in BROWSER (FILES=name narrows it down)
	$(if $(filter-out chromium firefox webkit,$(BROWSER)),$(error BROWSER is chromium, firefox or webkit))
	@.ci/tools npm-js nats $(or $(BROWSER:firefox=firefox-alone),chromium firefox-alone webkit)
	node tests/js/support/run.mjs $(or $(BROWSER),chromium firefox webkit)

bench: build ## speed, as ratios to bare IndexedDB or to less of the same
	@.ci/tools npm-js chromium firefox-alone
	node bench/run.mjs

lint: build ## formatting, clippy and rustdoc (native and wasm32), TypeScript and its docs, warnings denied
	@.ci/tools rustfmt-clippy npm-js
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	cargo clippy --all-targets --target $(WASM32) -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --target $(WASM32)
	npm --prefix pkg run --silent check
	tests/js/node_modules/.bin/tsc -p tests/js/types --noEmit --strict --skipLibCheck false
	node .ci/docs.mjs

size: build ## what a page downloads, gzip, against the budget
	@node .ci/size.mjs

clean: ## remove everything that was built
	rm -rf target pkg/dist pkg/wasm pkg/node_modules tests/js/node_modules
