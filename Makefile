# What a developer runs. Tests come in tiers: `make check` while changing code, `make test` is
# what CI runs, `make full` runs everything and is due before an issue is closed, `make soak`
# before a release.

GO ?= go
FUZZTIME ?= 10s

.PHONY: build deb check test full deps format vet staticcheck unit race modules full-unit full-race coverage figures fuzz bench bench-tables bench-page curves where wakeups soak bench-engine cost bench-placement clean

# What ringside version says: the tag and the commit, "-dirty" with changes.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
build:
	$(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/ringside

# A Debian package of what is built, in bin/. DEBVERSION is what dpkg compares.
DEBVERSION ?= $(shell git describe --tags --match 'v*' 2>/dev/null | sed 's/^v//' | grep . || git log -1 --date=format:%Y%m%d%H%M%S --format=0~%cd.%h 2>/dev/null || echo 0~unknown)
DEBARCH ?= $(shell $(GO) env GOARCH)
deb: build
	bin/ringside completion bash > bin/ringside.bash
	$(GO) -C deploy/deb build -trimpath -o ../../bin/makedeb .
	bin/makedeb -version '$(DEBVERSION)' -arch $(DEBARCH) -to bin

# Seconds, and only Go is needed: the format, vet, the structure, the conversations, the unit
# tests, and the first seeds of the simulation. Left out are packages and tests that start
# servers, clients or the built binary, and packages whose test binary holds the whole engine
# and tests little of it: to link it takes longer than its tests. ./proxy plays the conversations
# of all packages. Test binaries without the debugger's tables link faster, and go test runs all
# of vet beside its links. The compiler is faster when it collects its garbage less often.
UNCHECKED = cmd/.* internal/(bench.*|cli|instance|demo|drill|e2e|inspect|memnode|top|tracefile|twin|remote) \
	proxy/(admin|client|copies|counters|failover|guard|link|live|loop|near|routing|tags|task|upstream|watch) recipes.*
empty =
CHECKED = $$($(GO) list ./... | grep -vE '^ringside/($(subst $(empty) $(empty),|,$(strip $(UNCHECKED))))$$')
check: format
	GOGC=400 $(GO) test -short -vet=all -p 4 -ldflags=-w -skip 'Memcached$$|^TestNutcracker|^FuzzOrder$$|^TestImageIsBuilt|^Test(Burst|MemoryOfAnotherLoop|Pieces|TurnsBound)$$' $(CHECKED)

# What CI runs. Each step is bounded by a timeout of its own; the end lists how long each took,
# and the slowest tests.
test:
	@MAKE='$(MAKE)' GO='$(GO)' .ci/steps deps format vet staticcheck unit race modules

# Everything: all seeds, both drivers, all client languages, the race detector on every package,
# searching fuzzers, mutants, and the engine's instructions.
full:
	@RINGSIDE_FULL=1 MAKE='$(MAKE)' GO='$(GO)' .ci/steps deps format vet staticcheck full-unit full-race coverage modules fuzz cost

# The real servers and clients that tests talk to.
deps:
	.ci/deps

format:
	@wrong=$$(gofmt -l .); \
	if [ -n "$$wrong" ]; then echo "gofmt would change:"; echo "$$wrong"; exit 1; fi

vet:
	$(GO) vet ./...

staticcheck:
	$(GO) tool staticcheck ./...

# RACE are the packages in which a data race is possible; a test of internal/archtest keeps the list.
# SINGLE are those of their tests that are long and run in one goroutine, where the race detector
# has nothing to find: the simulations, models, and tests of tables. They run without it.
RACE = $(shell cat .ci/race-packages)
SINGLE = ^Test(Ablations|Burst|MemoryOfAnotherLoop|Mutants|NearRefills|NoPlaceholderIsTakenForAValue|Overfull|PresetsKeepTheContract|Refill|RefillInterrupted|Rule|Simulation|SimulationOfLateness|Sizes|Tables|TurnsBound)$$
SINGLES = ./config ./proxy ./proxy/replication ./proxy/failover ./proxy/guard ./proxy/health ./proxy/near
unit:
	.ci/gotest unit -vet=off -timeout 20m $$($(GO) list ./... | grep -vxF "$$(sed 's,^\.,ringside,' .ci/race-packages)")
	.ci/gotest single -vet=off -timeout 20m -run '$(SINGLE)' $(SINGLES)

race:
	.ci/gotest race -vet=off -race -timeout 20m -skip '$(SINGLE)' $(RACE)

# Statements of the engine and of placement that the tests of these packages and of the simulation reach.
COVERED = ./proxy/...,./replicate/...,./ring/...
coverage:
	mkdir -p bin
	$(GO) test -vet=off -timeout 60m -coverpkg=$(COVERED) -coverprofile=bin/coverage.out ./proxy/... ./replicate/... ./ring/... ./internal/fleet >/dev/null
	$(GO) tool cover -func bin/coverage.out | tail -n 1

# Packages, exported names, writes to fields of other packages, lines, and how plain the prose is.
# Nothing fails by them; a commit that raises one says why.
figures:
	$(GO) test ./internal/archtest -run '^TestFigures$$' -count=1 -v -args -figures

# Modules of their own.
modules:
	$(GO) -C deploy/kubernetes test ./...

# The simulations run in one goroutine, and have time for all seeds without the race detector.
full-unit:
	.ci/gotest unit -vet=off -timeout 60m ./internal/fleet ./replicate
	.ci/gotest single -vet=off -timeout 60m -run '$(SINGLE)' $(SINGLES)

full-race:
	.ci/gotest race -vet=off -race -timeout 60m -skip '$(SINGLE)' $$($(GO) list ./... | grep -vx -e ringside/internal/fleet -e ringside/replicate)

# Every fuzz target of every package, FUZZTIME each; the one that holds Ringside
# against a memcached, and that which does it in frames, are slower and have thrice the time.
fuzz:
	.ci/fuzz $(FUZZTIME)
	.ci/fuzz 30s '^Fuzz(Twin|Frames)$$'

# CPU per request and memory against nutcracker, as ratios.
bench: build
	$(GO) run ./cmd/ringbench run -ringside bin/ringside $(BENCHFLAGS)

# The tables of BENCHMARKS.md and docs/benchmarks: each command saves its report, and bench-page puts them
# where the pages have a place for them. Some two hours on a machine with nothing else to
# do; MEMCACHED2 names a memcached of another release, without which its tables stay as
# they are. A part alone: make bench-tables TABLES='tails', with names of the list.
TABLES ?= run run2 more seen tails outages where curves page
TABLEROUNDS ?= 10
TABLEFLAGS ?= -haproxy none
MEMCACHED2 ?=
REPORTS = bin/tables
BENCH = $(GO) run ./cmd/ringbench
bench-tables: build
	mkdir -p $(REPORTS)
	for t in $(TABLES); do $(MAKE) --no-print-directory bench-$$t || exit 1; done

.PHONY: bench-run bench-run2 bench-more bench-seen bench-tails bench-outages bench-where bench-curves
bench-run:
	$(BENCH) run -ringside bin/ringside -scenarios abcdefghjp -rounds $(TABLEROUNDS) -tries 2 -limit 3h -json $(REPORTS)/run.json $(TABLEFLAGS)
bench-run2:
	[ -z '$(MEMCACHED2)' ] || $(BENCH) run -ringside bin/ringside -memcached '$(MEMCACHED2)' -scenarios abcdefghjp -rounds $(TABLEROUNDS) -tries 2 -memory=false -limit 3h -json $(REPORTS)/run2.json $(TABLEFLAGS)
bench-more:
	$(BENCH) run -ringside bin/ringside -scenarios ilmnoqrs -rounds $(TABLEROUNDS) -tries 2 -memory=false -limit 2h -json $(REPORTS)/more.json $(TABLEFLAGS)
bench-seen:
	$(BENCH) run -ringside bin/ringside -scenarios tu -rounds $(TABLEROUNDS) -tries 2 -memory=false -limit 1h -json $(REPORTS)/seen.json $(TABLEFLAGS)
bench-tails:
	$(BENCH) tails -ringside bin/ringside -rounds $(TABLEROUNDS) -json $(REPORTS)/tails.json
bench-outages:
	$(BENCH) outages -ringside bin/ringside -json $(REPORTS)/outages.json
bench-where:
	$(BENCH) where -ringside bin/ringside -scenarios abcdefghijp -json $(REPORTS)/where.json
bench-curves:
	$(BENCH) curves -ringside bin/ringside -json $(REPORTS)/curves.json
bench-page:
	$(BENCH) page -page BENCHMARKS.md -from $(REPORTS)
	$(BENCH) page -page docs/benchmarks/README.md -from $(REPORTS)

# Cost as it grows: servers, connections, keys, values, outages. Some four minutes.
curves: build
	$(GO) run ./cmd/ringbench curves -ringside bin/ringside $(BENCHFLAGS)

# What a wakeup costs here, which is what most of the others' figures are made of.
wakeups:
	$(GO) run ./cmd/ringbench wakeups

# Where time goes: kernel, system calls, profiles in bin/profiles. Some two minutes.
where: build
	$(GO) run ./cmd/ringbench where -ringside bin/ringside -profiles bin/profiles $(BENCHFLAGS)

# Mixed load while servers die and come back; fails when Ringside grows. Then the
# simulation with many more seeds than the tests have, every vector of outcomes of
# the rules for copies, 200 clients that read one page, attacks on copies until so
# many deletes and appends are answered and so many faults made, and random streams
# to a Ringside and a memcached.
SOAKTIME ?= 10m
SOAKSEEDS ?= 1000
SOAKCOPIES ?= -deletes 100000 -appends 100000 -faults 200
soak: build
	$(GO) run ./cmd/ringbench soak -ringside bin/ringside -time $(SOAKTIME) $(BENCHFLAGS)
	RINGSIDE_SEEDS=$(SOAKSEEDS) $(GO) test ./internal/fleet -run '^Test(Failover|Guard)$$' -timeout 0 -v
	RINGSIDE_SEEDS=$(SOAKSEEDS) $(GO) test ./replicate -timeout 0
	$(GO) test ./internal/e2e -run '^TestGuardOfClients$$' -timeout 0 -v -args -herd 200
	$(GO) test ./internal/e2e -run '^TestAttacksOnCopies$$' -timeout 0 -v -args $(SOAKCOPIES)
	.ci/fuzz $(SOAKTIME) '^FuzzTwin$$'

# Instructions of the engine alone, under valgrind: BENCHFLAGS='-json old.json' on
# one commit and BENCHFLAGS='-against old.json' on another shows a rise.
bench-engine:
	$(GO) run ./cmd/ringbench instructions $(BENCHFLAGS)

# Instructions of the commonest requests beside those that are kept here, of amd64: a rise of 5 % fails. One that is
# meant is kept by BENCHFLAGS='-json $(KEPT) -limit 1', and its commit says what it buys.
KEPT = internal/bench/instructions/engine.json
cost:
	[ "$$(uname -m)" != x86_64 ] || $(GO) run ./cmd/ringbench instructions -bench '^BenchmarkEngine$$/^(get|joined|set|mg)$$/50x16|^BenchmarkEngine$$/^multiget20$$' -repeat 1 -against $(KEPT) $(BENCHFLAGS)

# Nanoseconds to place a key, by preset, beside the clients' own libraries.
bench-placement:
	$(GO) test ./config -run '^$$' -bench '^BenchmarkPlacement$$' -benchtime 50ms

clean:
	rm -rf bin
