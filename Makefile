# Targets for developers. There are four tiers of tests: `make check` while you change code,
# `make test` as in CI, `make full` before an issue is closed, and `make soak` before a release.

GO ?= go
FUZZTIME ?= 10s

.PHONY: build deb release previous rename docs check test full deps format lint vet unit race modules full-unit full-race full-tls full-modules coverage figures fuzz bench where bench-tables soak bench-engine cost bench-placement clean

# The version that `ringside version` prints: the tag and the commit, and "-dirty" if there are
# uncommitted changes.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
build:
	$(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/ringside

# Builds a Debian package in bin/. dpkg compares DEBVERSION.
DEBVERSION ?= $(shell git describe --tags --match 'v*' 2>/dev/null | sed 's/^v//' | grep . || git log -1 --date=format:%Y%m%d%H%M%S --format=0~%cd.%h 2>/dev/null || echo 0~unknown)
DEBARCH ?= $(shell $(GO) env GOARCH)
MAKERELEASE = $(GO) -C deploy/release build -trimpath -o ../../bin/makerelease . && bin/makerelease
deb:
	$(MAKERELEASE) -only deb -version '$(VERSION)' -number '$(DEBVERSION)' -arch $(DEBARCH) -to bin

# Builds all files of a release in bin/release: make release VERSION=v1.2.3
release:
	rm -rf bin/release
	$(MAKERELEASE) -version '$(VERSION)' -to bin/release

# Runs the previous release and this one together in front of one pool: mixed instances while servers
# fail, and a rolling upgrade and back by take-over. make full runs it too. PREVIOUS is a tag or commit;
# without it, the last tag, or, without tags, the parent commit. Run it before each release.
PREVIOUS ?=
previous:
	RINGSIDE_FULL=1 PREVIOUS='$(PREVIOUS)' $(GO) test ./internal/e2e -run '^TestPrevious' -count=1 -v

# Changes the module path, so that other modules can import the packages: make rename MODULE=example.org/you/ringside
THIS = $(shell $(GO) list -m)
rename:
	$(GO) -C deploy/release build -trimpath -o ../../bin/rename ./rename
	bin/rename '$(MODULE)'

# Draws docs/ringside.svg, and renders README.md and docs/ as a site with a search into bin/docs. A link
# that leads nowhere is an error.
docs:
	$(GO) -C deploy/site run . -from ../.. -to ../../bin/docs

# Checks the format, vet, the structure, the conversations, the unit tests, and the first seeds
# of the simulation. It needs only Go and takes seconds. UNCHECKED and -skip exclude packages and
# tests that start servers, clients or the built binary. UNCHECKED also excludes packages with few
# tests that link the whole engine, because linking takes longer than their tests. ./proxy plays the
# conversations of all packages.
# For speed, test binaries have no debug information (-w), go test runs vet in parallel with the
# linker, and the compiler collects garbage less often (GOGC).
UNCHECKED = cmd/.* internal/(bench.*|cli|instance|demo|drill|e2e|inspect|memnode|top|tracefile|twin|remote) \
	proxy/(admin|client|replication|counters|failover|guard|link|live|loop|near|routing|tags|task|upstream|watch) recipes.*
empty =
CHECKED = $$($(GO) list ./... | grep -vE '^$(THIS)/($(subst $(empty) $(empty),|,$(strip $(UNCHECKED))))$$')
check: format
	GOGC=400 $(GO) test -short -vet=all -p 4 -ldflags=-w -skip 'Memcached$$|^TestNutcracker|^FuzzOrder$$|^TestImageIsBuilt|^Test(Burst|MemoryOfAnotherLoop|Pieces|TurnsBound)$$' $(CHECKED)

# The tests that CI runs. Each step has its own timeout. The summary at the end has the duration
# of each step, and the slowest tests.
test:
	@MAKE='$(MAKE)' GO='$(GO)' .ci/steps deps format lint unit race modules

# Runs everything: all seeds, both drivers, all client languages, the race detector on every
# package, fuzzing, mutants, and the instruction counts of the engine.
full:
	@RINGSIDE_FULL=1 MAKE='$(MAKE)' GO='$(GO)' .ci/steps deps format lint vet full-unit full-race full-tls coverage modules full-modules fuzz cost

# Installs the servers and clients that tests use.
deps:
	.ci/deps

format:
	@wrong=$$(gofmt -l .); \
	if [ -n "$$wrong" ]; then echo "gofmt would change:"; echo "$$wrong"; exit 1; fi

# Runs the checks of go vet and of staticcheck in one program, which needs a third of the CPU time of
# both. With GOGC=400 it needs an eighth less.
lint:
	GOGC=400 $(GO) run ./.ci/lint ./... ./.ci/lint

vet:
	GOGC=400 $(GO) vet ./... ./.ci/lint

# RACE lists the packages in which a data race is possible. A test in internal/archtest checks it.
# LONG lists the packages whose tests run longest. go test starts packages in the order of its
# arguments, so these start first. Their tests mostly wait, so other packages run at the same time (-p).
# SINGLE matches long tests of these packages that run in one goroutine, such as simulations and
# models, or that use one connection to one server. A data race is not possible there, so they run
# without the race detector, with which they need five to ten times the CPU time.
RACE = $(shell cat .ci/race-packages)
LONG = ./internal/e2e ./internal/fleet ./recipes/examples/seeds ./cmd/ringside ./proxy/loop ./internal/instance ./internal/drill ./internal/inspect
SINGLE = ^Test(Ablations|AnnouncedValues|Burst|ClientsTasks|EntriesAreBounded|Errors|ErrorsOfBytes|FingerprintTellsPlacementsApart|HalfSentValues|LargeBinarySets|LargePlainReads|LargeReads|LargeRepliesBound|LargeRequestsWait|LargeSetsOfTasks|LastOrder|ManyListeners|ManyPools|ManyPoolsMove|ManyServersGone|ManyServersReturn|MemoryOfAnotherLoop|MemoryOfValues|MetaFlags|MixedLoadBound|Mutants|NearKeepsHotKeys|NearRefills|NoPlaceholderIsTakenForAValue|NoreplyIsNotLarge|NutcrackerPlacement|OneFlush|OneOfManyDisagrees|OneServerDecidesAtATime|OtherSettingsSuspend|Overfull|PagesShowRightFiles|Pieces|PresetsHonourTheirOptions|PresetsKeepTheContract|Refill|RefillInterrupted|Remedies|Rule|SameAsMemcached|SameCorpus|SameLimits|SchemaRefuses|SchemaTakesWhatParseTakes|Simulation|SimulationOfLateness|Sizes|SlowLines|SlowSenderAlone|SlowSenders|SlowSendersWithReplies|Split|StreamsBound|TableAfterTable|Tables|TurnsBound|UsualModeOfClients|Vectors|WakeupsBound|WithoutAClauseAPlaceholderIsTakenForAValue|WithoutEarlyWarmTwoServersDecide)$$
SINGLES = ./config ./internal/memnode ./proxy ./proxy/replication ./proxy/failover ./proxy/guard ./proxy/health ./proxy/near
unit:
	.ci/gotest unit -vet=off -p 3 -timeout 20m $(filter-out $(RACE),$(LONG)) $$($(GO) list ./... | grep -vxF "$$(sed 's,^\.,$(THIS),' .ci/race-packages)")
	.ci/gotest single -vet=off -timeout 20m -run '$(SINGLE)' $(SINGLES)

race:
	.ci/gotest race -vet=off -race -p 4 -timeout 20m -skip '$(SINGLE)' $(filter $(RACE),$(LONG)) $(RACE)

# Prints the share of statements of the engine and of placement that their tests and the
# simulation execute.
COVERED = ./proxy/...,./replicate/...,./ring/...
coverage:
	mkdir -p bin
	$(GO) test -vet=off -timeout 60m -coverpkg=$(COVERED) -coverprofile=bin/coverage.out ./proxy/... ./replicate/... ./ring/... ./internal/fleet >/dev/null
	$(GO) tool cover -func bin/coverage.out | tail -n 1

# Prints the numbers of packages, exported names, writes to fields of other packages, and lines, and
# measures how plain the prose is. No figure fails a test. A commit that raises one explains it.
figures:
	$(GO) test ./internal/archtest -run '^TestFigures$$' -count=1 -v -args -figures

# Tests the separate modules.
modules:
	$(GO) -C deploy/kubernetes test ./...

# Builds a release twice, compares and checks its files; renames the module in a copy; renders the Helm
# chart; renders the pages as a site; compares discovery with Grafana's dskit.
full-modules:
	$(GO) -C deploy/release test -timeout 60m ./...
	$(GO) -C deploy/helm test -timeout 60m ./...
	$(GO) -C deploy/site test -timeout 60m ./...
	$(GO) -C internal/discover/compat test -timeout 60m ./...

# Runs all seeds of the simulations. They run in one goroutine, so the race detector is not needed.
full-unit:
	.ci/gotest unit -vet=off -timeout 60m ./internal/fleet ./replicate
	.ci/gotest single -vet=off -timeout 60m -run '$(SINGLE)' $(SINGLES)

full-race:
	.ci/gotest race -vet=off -race -timeout 60m -skip '$(SINGLE)' $$($(GO) list ./... | grep -vx -e $(THIS)/internal/fleet -e $(THIS)/replicate)

# Runs the end-to-end tests of failover, replicas, guards, near caches and clients of all protocols again, with
# memcacheds that speak TLS and need a login. NOTTLS matches those that read what a memcached receives, put
# another program in its place, use unix sockets, or have TLS of their own.
TLSTESTS = ^Test(BackToFailFast|Clients|Conformance|Copies|Counters|FailFast|Failover|Guard|Histories|Late|Near|Numbers|RecordedAnswers|Reload|RollCall|Server|Sessions|TagsHistory|TokensAreGood)
NOTTLS = ^Test(FailoverWithoutMeta|LateDeletesOnCopies.*|LateSetsOnCopies.*|ReloadsOfAllFeatures|ServerThatLies|ServersOfEveryKind|ServersWith.*)$$
full-tls:
	RINGSIDE_E2E_TLS=1 .ci/gotest tls -vet=off -timeout 60m -run '$(TLSTESTS)' -skip '$(NOTTLS)' ./internal/e2e

# Runs every fuzz target of every package for FUZZTIME. FuzzTwin and FuzzFrames compare Ringside
# with memcached, in text and in binary frames. They are slower and run for another 30 s.
fuzz:
	.ci/fuzz $(FUZZTIME)
	.ci/fuzz 30s '^Fuzz(Twin|Frames)$$'

# Measures CPU per request, requests per second and latencies as ratios to nutcracker, and the total
# cost as a ratio to that of direct clients. To compare with another build in the same rounds, use
# BENCHFLAGS='-also before=PATH'.
RINGBENCH = $(GO) run ./cmd/ringbench
bench: build
	$(RINGBENCH) run $(BENCHFLAGS)

# Measures where CPU time is spent: kernel, system calls, wakeups, bytes per call. It needs perf and
# some three minutes.
where: build
	$(RINGBENCH) run -calls -rounds 1 -tries 1 $(BENCHFLAGS)

# Measures all tables of BENCHMARKS.md and docs/benchmarks, and writes them into the pages, between
# their <!-- --> marks. This needs some two hours on an idle machine. MEMCACHED2 is the path of a
# memcached of another release; without it, the tables of that release are not changed.
TABLEROUNDS ?= 10
MEMCACHED2 ?=
PAGES = -pages BENCHMARKS.md,docs/benchmarks/README.md
bench-tables: build
	$(RINGBENCH) run -rounds $(TABLEROUNDS) -tries 2 -limit 3h $(PAGES)
	[ -z '$(MEMCACHED2)' ] || $(RINGBENCH) run -memcached '$(MEMCACHED2)' -rounds $(TABLEROUNDS) -tries 2 -limit 3h $(PAGES) -name run2
	$(RINGBENCH) run -calls -rounds 1 -tries 2 -pages docs/benchmarks/README.md -name where
	$(RINGBENCH) outages -pages docs/benchmarks/README.md

# Runs, one after the other:
# - mixed load while servers die and return; it fails if the memory of Ringside grows
# - the simulation with many more seeds than in the tests
# - every sequence of outcomes of the replication rules
# - 200 clients that read one page
# - attacks on replicas, until SOAKCOPIES deletes, appends and faults have happened
# - random streams to Ringside and to memcached, which must reply the same
SOAKTIME ?= 10m
SOAKSEEDS ?= 1000
SOAKCOPIES ?= -deletes 100000 -appends 100000 -faults 200
soak: build
	$(RINGBENCH) soak -time $(SOAKTIME) $(BENCHFLAGS)
	RINGSIDE_SEEDS=$(SOAKSEEDS) $(GO) test ./internal/fleet -run '^Test(Failover|Guard|Pipelines)$$' -timeout 0 -v
	RINGSIDE_SEEDS=$(SOAKSEEDS) $(GO) test ./replicate -timeout 0
	$(GO) test ./internal/e2e -run '^TestGuardOfClients$$' -timeout 0 -v -args -herd 200
	$(GO) test ./internal/e2e -run '^TestAttacksOnCopies$$' -timeout 0 -v -args $(SOAKCOPIES)
	.ci/fuzz $(SOAKTIME) '^FuzzTwin$$'

# Counts the instructions of the engine alone, under valgrind. To compare two commits, use
# BENCHFLAGS='-json old.json' on the first and BENCHFLAGS='-against old.json' on the second.
bench-engine:
	$(RINGBENCH) instructions $(BENCHFLAGS)

# Compares the instruction counts of the most common requests, of a hit on a guarded route, and of a
# get and a set on two replicas with the recorded counts in KEPT (amd64 only). An increase of 5 %
# fails. To record an intended increase, use BENCHFLAGS='-json $(KEPT) -limit 1', and explain its gain
# in the commit.
KEPT = internal/bench/instructions/engine.json
COSTS = ^BenchmarkEngine$$/^(get|joined|set|mg|guarded|copies_get)$$/^50x16$$|^BenchmarkEngine$$/^(multiget20|copies_set)$$/^50x1$$
cost:
	[ "$$(uname -m)" != x86_64 ] || $(RINGBENCH) instructions -bench '$(COSTS)' -repeat 1 -against $(KEPT) $(BENCHFLAGS)

# Measures the nanoseconds to place a key, for each preset and for libraries of existing clients.
bench-placement:
	$(GO) test ./config -run '^$$' -bench '^BenchmarkPlacement$$' -benchtime 50ms

clean:
	rm -rf bin
