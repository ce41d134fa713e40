package config

import (
	"sync"
	"testing"
)

// TestPlacementsAtTheSameTime builds two placements of each distribution in two goroutines. The race detector must find nothing:
// a reload and an answer of a source of servers can build placements at the same time.
func TestPlacementsAtTheSameTime(t *testing.T) {
	servers := []PlacementServer{{Host: "10.0.0.1", Port: 11211}, {Host: "10.0.0.2", Port: 11211}}
	for i := range presets {
		p := presets[i]
		var ended sync.WaitGroup
		for range 2 {
			ended.Go(func() {
				if _, err := BuildPlacement(p.Name, servers, needed(p)); err != nil {
					t.Error(err)
				}
			})
		}
		ended.Wait()
	}
}
