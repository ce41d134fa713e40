// Package e2e drives the ringside binary from outside: real clients, real
// memcached servers, real signals.
//
// It holds only tests. They build the binary once (with the race detector when
// the tests themselves have it), write a configuration file, start the binary
// in front of Debian's memcached and talk to it as its users do. Tests run with
// the system's default engine driver. Those of what a driver does run with both,
// and in the full tier most do. Where an answer must
// equal memcached's, the same program first runs against a plain memcached, so
// that a failure says which of the two is wrong.
//
// A missing program is a failure that names the package to install; nothing is
// skipped. `make deps` installs what is needed.
//
// The clients and what each of them cannot do stand in clients_test.go, their programs
// in testdata/clients. A browser (headless Chromium) looks at the page, and a terminal of
// its own at ringside top.
//
// No test asserts on time: waits end when the thing waited for happens, and
// fail after a bound that is far beyond it. Timeouts of servers are a minute
// unless a test covers what happens when they pass. Such a test runs in rounds,
// and a round that fails while this process was starved of CPU is repeated.
package e2e
