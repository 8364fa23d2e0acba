# The two commands of the README are `make demo` and `make test`; `make help` lists the rest.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# How long the demonstration runs; 0: until Ctrl-C.
SECONDS ?= 0
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help
help: ## This list
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.PHONY: rust
rust:
	@scripts/check-rust.sh

.PHONY: setup
setup: rust ## Install what the tests need (Debian; asks for nothing, skips what is there)
	@scripts/setup-debian.sh test

.PHONY: build
build: rust ## Build the `verbena` binary and the examples (release)
	@scripts/setup-debian.sh build
	cargo build --release --locked --bin verbena --bin shop --bin shoppers

# Where its programs are, if they are built already.
PROGRAMS ?=
.PHONY: demo
demo: $(if $(PROGRAMS),,build) ## Show the main job; SECONDS=20 ends by itself
	@PROGRAMS="$(PROGRAMS)" scripts/demo.sh "$(SECONDS)"

# mediawiki or wordpress, as Debian packages them; SECONDS=0 is a minute.
SITE ?= mediawiki
PROXIES ?= 3
.PHONY: demo-site
demo-site: $(if $(PROGRAMS),,build) ## MediaWiki (SITE=wordpress) behind Apache proxies, PHP-FPM and MariaDB, every answer checked
	@scripts/setup-debian.sh site
	$(if $(PROGRAMS),,cargo build --release --locked -p verbena-capi)
	@PROGRAMS="$(PROGRAMS)" scripts/demo-site.sh "$(SITE)" "$(if $(filter-out 0,$(SECONDS)),$(SECONDS),60)" "$(PROXIES)"

.PHONY: check
check: setup ## While you think: format, lints, unit tests, dialogues, 20 seeds
	@scripts/test.sh check

.PHONY: test
test: setup ## Everything that must be green: format, lints, licences, tests
	@scripts/test.sh

.PHONY: test-long
test-long: setup ## The long runs, in parts of less than an hour each (docs/internals/TESTING.md)
	@scripts/test-long.sh

.PHONY: test-verbs
test-verbs: setup ## What needs RDMA devices, on emulated machines that have them
	@scripts/test-verbs.sh

.PHONY: package
package: rust ## Make a release in target/packages: archive, Debian, Python, Node, C
	@scripts/setup-debian.sh package
	@scripts/package.sh

# One target, or all; SECONDS for each of them.
TARGET ?=
.PHONY: fuzz
fuzz: rust ## Fuzz the parsers, ten minutes each; TARGET=tcp_frame SECONDS=60 is one of them, shorter
	@scripts/fuzz.sh "$(TARGET)" "$(if $(filter-out 0,$(SECONDS)),$(SECONDS),600)"

.PHONY: fmt
fmt: rust ## Format the code
	cargo fmt --all
