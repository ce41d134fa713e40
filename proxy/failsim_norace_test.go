//go:build !race

package proxy

// Seeds of each case, where they cost little.

const usualSeeds = 20
