// Package archtest holds the plan of the house: which package may import
// which, and that every package and file says what it is for.
//
// It holds only tests. They read the imports with `go list`, for Linux and for
// a system that has only the portable driver.
package archtest
