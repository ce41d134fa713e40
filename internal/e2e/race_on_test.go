//go:build race

package e2e

// raceDetector reports that these tests, and so ringside, run with the race detector.
const raceDetector = true
