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
// The clients are php-memcached, php-memcache, pymemcache, pylibmc,
// python-memcache, Cache::Memcached, Cache::Memcached::Fast, spymemcached,
// gomemcache and the npm package memcached. What one of them cannot do stands
// in its entry in clients_test.go. Debian's ruby-dalli (3.0.6) speaks only the
// binary protocol, which Ringside does not serve, so it is not among them.
//
// No test asserts on time: waits end when the thing waited for happens, and
// fail after a bound that is far beyond it.
package e2e
