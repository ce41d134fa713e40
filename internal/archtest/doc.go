// Package archtest checks the structure of the code. It has only tests:
//
//	arch_test.go    which package may import which, as ARCHITECTURE.md says it; every package and file says what it is for
//	docs_test.go    what ARCHITECTURE.md, README.md, CONTRIBUTING.md and comments name is there
//	errors_test.go  docs/errors.md has every error text that clients can get
//	figures_test.go figures of size, coupling and language, for make figures
//	links_test.go   links in papers lead somewhere
//	mutants_test.go a mistake for each package that its own tests must find; make full runs them
//	race_test.go    which packages make test runs with the race detector
//
// They read the imports with `go list`, for Linux and for a system that has only the
// portable driver. The imports of test files are not looked at, nor is whether a walk in
// ARCHITECTURE.md is in the order of the code: who moves a function reads it again.
package archtest
