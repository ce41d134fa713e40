//go:build !race

package e2e

// raceDetector: these tests run without it, and so does ringside.
const raceDetector = false
