# What a developer does here. `make test` is what CI runs; the rest is shorter.

GO ?= go
FUZZTIME ?= 10s

.PHONY: build test deps format vet staticcheck unit fuzz bench clean

build:
	$(GO) build -o bin/ ./cmd/ringside

# Each step is bounded: the slowest part, the race tests, by its own timeout.
test: deps format vet staticcheck unit fuzz

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

unit:
	$(GO) test -race -timeout 15m ./...

# Every fuzz target of every package, FUZZTIME each.
fuzz:
	.ci/fuzz $(FUZZTIME)

# CPU per request and memory against nutcracker, as ratios.
bench: build
	$(GO) run ./cmd/ringbench run -ringside bin/ringside $(BENCHFLAGS)

clean:
	rm -rf bin
