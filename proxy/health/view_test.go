package health

import (
	"fmt"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestLeaseAfterPhases checks that a goroutine which sees a lease also sees the phases
// that were known when it was granted. Earlier, one server's lease was published before
// the next one's phase.
func TestLeaseAfterPhases(t *testing.T) {
	var members []Server
	for i := range 5 {
		members = append(members, Server{Name: fmt.Sprint("s", i), Address: fmt.Sprint("tcp s", i)})
	}
	k := New("main", members, Settings{Strict: true}, 1)
	k.pool = poolKept
	v := NewView(len(members))
	const steps = 100_000
	done := make(chan string, 1)
	go func() {
		for lease := int64(0); lease < steps; {
			for i := range members {
				lease = v.ValidUntil(i)
				gen := int64(v.Gen())
				for j := range members {
					if n := int64(v.N(j)); n < lease || gen < lease {
						done <- fmt.Sprintf("with the lease of %d on member %d: member %d is at %d, the generation at %d", lease, i, j, n, gen)
						return
					}
				}
			}
		}
		done <- ""
	}()
	for step := int64(1); step <= steps; step++ {
		for i := range k.servers {
			k.servers[i].n, k.servers[i].lease = uint32(step), step
		}
		k.gen = uint64(step)
		k.recount()
		v.Publish(k, true)
	}
	select {
	case wrong := <-done:
		if wrong != "" {
			t.Error(wrong)
		}
	case <-time.After(testenv.Hang):
		t.Error("the reader does not come to the end")
	}
}
