//go:build race

package e2e

// raceDetector: these tests run with it, so ringside should too.
const raceDetector = true
