package routing_test

// Tests of which routes let a plain get read one replica without a task.

import (
	"reflect"
	"testing"
	"time"

	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/watch/missreason"
	"ringside/replicate"
)

type learned struct{}

func (learned) Guarded(string) *stats.GuardStats  { return nil }
func (learned) Tagged(string) *stats.TagStats     { return nil }
func (learned) Misses(string) *missreason.Account { return nil }

// TestDirect combines each two features of a route with replicas. A get may read a replica
// directly only if neither of them needs to see it, or to ask several replicas.
func TestDirect(t *testing.T) {
	yes, later := true, time.Second
	strict := planned("s", "x1", "x2")
	strict.Failover.Strict = true
	features := []struct {
		name, field string // field is that of table.Route
		set         func(r *table.Route)
		direct      bool
	}{
		{"nothing", "Class", func(*table.Route) {}, true},
		{"prefix", "Prefix", func(r *table.Route) { r.Prefix = "p/" }, true},
		{"match", "Match", func(r *table.Route) { r.Match = "*:x" }, true},
		{"strict pool", "Pool", func(r *table.Route) { r.Pool = strict }, false},
		{"strip", "Strip", func(r *table.Route) { r.Prefix, r.Strip = "p/", true }, true},
		{"spread", "Copies", func(r *table.Route) { r.Copies.Read = max(r.Copies.Read, replicate.Spread) }, true},
		{"fastest", "Copies", func(r *table.Route) { r.Copies.Read = replicate.Fastest }, false},
		{"also", "Also", func(r *table.Route) { r.Also = append(r.Also, planned("b", "y1", "y2")) }, true},
		{"also strict", "Also", func(r *table.Route) { r.Also = append(r.Also, strict) }, false},
		{"prefer", "Prefer", func(r *table.Route) { r.Prefer = r.Pool }, true},
		{"zone", "Zone", func(r *table.Route) { r.Zone = "x" }, true},
		{"autocreate", "Autocreate", func(r *table.Route) { r.Autocreate = &table.Autocreate{} }, true},
		{"buffer", "Buffer", func(r *table.Route) { r.Buffer = &table.Buffer{Every: later} }, false},
		{"get_errors", "GetErrors", func(r *table.Route) { r.GetErrors = &yes }, true},
		{"total", "Total", func(r *table.Route) { r.Total = &later }, true},
		{"guard", "Guard", func(r *table.Route) { r.Guard = &table.GuardSettings{} }, false},
		{"tags", "Tags", func(r *table.Route) { r.Tags = &table.TagSettings{} }, false},
		{"near", "Near", func(r *table.Route) { r.Near = &table.NearSettings{} }, true}, // asked before
	}
	missing := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[table.Route]()) {
		missing[f.Name] = true
	}
	for _, a := range features {
		delete(missing, a.field)
		for _, b := range features {
			r := table.Route{Pool: planned("a", "x1", "x2"), Copies: replicate.Policy{Copies: 2}}
			a.set(&r)
			b.set(&r)
			bound := map[*table.Pool]*routing.BoundPool{r.Pool: {Pool: r.Pool}}
			for _, p := range r.Also {
				bound[p] = &routing.BoundPool{Pool: p}
			}
			var l routing.Listener
			l.Bind([]table.Route{r}, bound, learned{}, "tag:")
			if got := l.Routes[len(l.Routes)-1].Features&routing.Direct != 0; got != (a.direct && b.direct) {
				t.Errorf("%s, %s: direct: %v", a.name, b.name, got)
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("fields of table.Route without a feature here: %v", missing)
	}
}
