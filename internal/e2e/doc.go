// Package e2e drives the ringside binary from outside: real clients, real
// memcached servers, real signals.
//
// It holds only tests. They build the binary once (with the race detector when
// the tests themselves have it), write a configuration file, start the binary
// in front of Debian's memcached and talk to it as its users do. Every test
// that has a Ringside runs once for each engine driver. Where an answer must
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
// fail after a bound that is far beyond it.
package e2e
