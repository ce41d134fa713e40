// Package archtest checks the structure of the code. It contains only tests:
//
//	arch_test.go    imports between packages are those of ARCHITECTURE.md; every package and file has a comment about its purpose
//	docs_test.go    files and names in ARCHITECTURE.md, README.md, CONTRIBUTING.md and comments exist
//	errors_test.go  docs/errors.md contains every error text that clients can get
//	figures_test.go figures of size, coupling and language, for make figures
//	links_test.go   links in Markdown files have a target
//	mutants_test.go a mistake in each package, which the tests of the package must find; make full runs it
//	race_test.go    the list of packages that make test runs with the race detector
//
// The tests read the imports with `go list`, for Linux and for a system that has only
// the portable driver. They do not check the imports of test files. They also do not check
// whether a walk through the code in ARCHITECTURE.md has the order of the code. If you move
// a function, check that order yourself.
package archtest
