// Package e2e tests the ringside binary from outside: real clients, real memcached
// servers, real signals.
//
// The package contains only tests. They build the binary once (with the race detector if
// the tests themselves have it), write a configuration file, start the binary in front of
// Debian's memcached and use it as its users do. Most tests run with the system's default
// engine driver. Tests of driver behaviour run with both drivers. In the full tier of tests
// (`make full`), most tests run with both drivers. If a reply must equal that of memcached,
// the same client program also runs against a plain memcached. A failure then shows which
// of the two is wrong.
//
// A missing program is a failure that names the package to install; nothing is skipped.
// `make deps` installs what is needed.
//
// clients_test.go lists the client libraries and what each of them cannot do; their programs are in
// testdata/clients. A headless Chromium opens the dashboard, and ringside top runs in a terminal.
//
// No test asserts on time. A wait ends when the expected event happens, and fails after a
// bound that is far above the usual time. Server timeouts are a minute, except in tests of
// what happens when a timeout expires. Such a test runs in rounds. A round in which this
// process had too little CPU time is repeated.
package e2e
