# Every target works with Go, make and bash alone; what else a target needs it says when it is missing.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# The toolchain is part of the threat model, so it is pinned here and not left to the machine.
export GOTOOLCHAIN := go1.27.3
export CGO_ENABLED := 0

TOOL := go tool -modfile=tools.mod

# A tree that is no clone, or a clone without tags, still builds: it is then a version of nobody's making.
VERSION = $(shell test -e .git && git describe --tags --match 'v*' --dirty 2>/dev/null || echo dev)
COMMIT  = $(shell test -e .git && git describe --always --exclude '*' --abbrev=12 --dirty 2>/dev/null || echo unknown)
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

PKGS        ?= ./...
TESTFLAGS   ?= -timeout=15m
CRASH_SEEDS ?= 200
CYCLES      ?= 1000
INPROCESS   ?= 1000000
OVERWIRE    ?= 100000
FUZZTIME    ?= 10s
BENCH       ?= .
BENCHFLAGS  ?= -count=1
LOADFLAGS   ?=

.PHONY: help package systemd build run demo test race crash fault attack fuzz bench load load-test lint vuln sdk alerts check fmt fmt-check vet golden clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/historyd, one static binary
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/historyd ./cmd/historyd

package: ## build the Debian package into bin/, for ARCH (this machine's)
	@bash scripts/package.sh '$(VERSION)' '$(COMMIT)'

systemd: package ## test the units, and the package in a system that is booted and thrown away, or say why not
	@bash scripts/systemd.sh

run: build ## build, then serve from the scratch directory .run/data and print a curl line to try
	@install -d -m 700 .run .run/data
	exec bin/historyd serve --data-dir .run/data --bootstrap-operator local

demo: build ## show the whole job on sample conversations
	bash scripts/demo.sh

test: ## run every test once, with the race detector where there is a C compiler
	@bash scripts/test.sh auto $(TESTFLAGS) $(PKGS)

race: ## run every test anew with the race detector, or say why not
	@bash scripts/test.sh race -count=1 $(TESTFLAGS) $(PKGS)

crash: ## run the crash tests of the store with CRASH_SEEDS random seeds (200)
	go test -run Crash -count=1 -timeout=60m ./internal/store/... -crash.seeds=$(CRASH_SEEDS)

fault: ## break what the built daemon stands on, everywhere, and kill it CYCLES times under load (1000)
	go test -count=1 ./test/fault/disk
	go test -count=1 -v -timeout=300m ./test/fault -fault.long -fault.cycles=$(CYCLES)

attack: ## do to the built daemon what its enemies would: INPROCESS and OVERWIRE hostile requests (1000000, 100000), and all the rest
	go test -count=1 -v -timeout=300m ./test/attack -attack.long -attack.inprocess=$(INPROCESS) -attack.wire=$(OVERWIRE)

fuzz: ## fuzz each target of PKGS (all) for FUZZTIME (10s); KEEP=40 keeps as many of the inputs that reached something new
	@bash scripts/fuzz.sh $(FUZZTIME) $(PKGS)

bench: ## run the benchmarks into .cache/bench.txt and compare with the run before
	@mkdir -p .cache
	@if [ -s .cache/bench.txt ]; then mv .cache/bench.txt .cache/bench.old.txt; fi
	go test -run '^$$' -bench '$(BENCH)' -benchmem $(BENCHFLAGS) -timeout=60m $(PKGS) | tee .cache/bench.txt
	@if [ -s .cache/bench.old.txt ]; then $(TOOL) benchstat .cache/bench.old.txt .cache/bench.txt; fi

load: build ## measure appends and replays beside Redis, PostgreSQL and SQLite, those that are here; LOADFLAGS are for test/load
	@bash scripts/load.sh run $(LOADFLAGS)

load-test: ## run the tests of what make load measures with, or say why not
	@bash scripts/load.sh test

lint: ## staticcheck, and the import table and house rules of arch_test.go
	$(TOOL) staticcheck ./...
	go test .

vuln: ## look for known vulnerabilities that the code reaches, without a network but the module proxy
	@bash scripts/vuln.sh

sdk: ## let the clients that the providers publish read and write replays, or say why not
	@bash scripts/sdk.sh

alerts: ## check and test rules, alerts and dashboard, against what a daemon exposes, or say why not
	@bash scripts/alerts.sh

check: export HISTORYD_TEST_BOOT := no
check: fmt-check vet lint vuln test load-test sdk alerts systemd ## all that CI holds: fmt-check, vet, lint, vuln, test, load-test, sdk, alerts, systemd

fmt: ## format the Go files
	@"$$(go env GOROOT)/bin/gofmt" -s -w .

fmt-check: ## fail if a Go file is not formatted
	@bad=$$("$$(go env GOROOT)/bin/gofmt" -s -l .); \
	if [ -n "$$bad" ]; then echo "not formatted (make fmt does it):"; echo "$$bad"; exit 1; fi

vet: ## go vet
	go vet ./...

golden: ## rewrite the golden files; review the diff like code
	@pkgs=$$({ grep -rlE --include='*_test.go' 'flag\.Bool(Var)?\(.*"update"' . || true; } \
		| xargs -r -n1 dirname | sort -u); \
	if [ -z "$$pkgs" ]; then echo "no golden files"; else go test -count=1 $$pkgs -update; fi

clean: ## remove what was built, measured and run: bin, .cache, .run
	rm -rf bin .cache .run
