package instance

import (
	"testing"

	"ringside/proxy/failover"
	"ringside/proxy/health"
	"ringside/proxy/table"
)

// TestNotReadyWithoutLeases checks that an instance is not ready while it serves no key of a pool with strict
// consistency, but not for longer than certainWait.
func TestNotReadyWithoutLeases(t *testing.T) {
	strict, relaxed := &table.Pool{Name: "strict"}, &table.Pool{Name: "relaxed"}
	strict.Failover.Strict = true
	v := health.NewView(2)
	all := map[*table.Pool]*failover.Agent{strict: {View: v}, relaxed: {View: health.NewView(2)}}
	if err := uncertain(all, certainWait-1); err == nil || err.Error() != "it is not certain yet which servers of strict are in use" {
		t.Errorf("without a lease: %v", err)
	}
	if err := uncertain(all, certainWait); err != nil {
		t.Errorf("without a lease for long: %v", err)
	}
	v.Set(1, 0, false, 0, 5)
	if err := uncertain(all, 0); err != nil {
		t.Errorf("with a lease: %v", err)
	}
}
