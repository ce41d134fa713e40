//go:build linux

package bench

// Tests without processes: sums, disturbance, scenarios, configurations. The tests of the command
// cover whole runs.

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/bench/load"
)

func TestDisturbance(t *testing.T) {
	b := &bench{Config: Config{Disturbed: 0.1, LoadCPUs: []int{0}}, proxyCPUs: []int{1}}
	quiet := load.Result{
		Requests:  1000,
		CPU:       300 * time.Millisecond,
		Processes: []load.Process{{CPU: 500 * time.Millisecond}, {CPU: 200 * time.Millisecond}},
		Cores: []load.Core{
			{ID: 0, Wall: time.Second, Idle: 480 * time.Millisecond},
			{ID: 1, Wall: time.Second, Idle: 470 * time.Millisecond},
			{ID: 2, Wall: time.Second}, // busy all the time, but not used by the run
		},
	}
	if run := b.figures(quiet); run.Disturbed || run.CPU != 500 || run.CoreBusy != 530 {
		t.Errorf("a quiet run: %+v", run)
	}
	for name, disturb := range map[string]func(*load.Result){
		"other work":    func(r *load.Result) { r.Cores[0].Idle = 100 * time.Millisecond },
		"stolen time":   func(r *load.Result) { r.Cores[1].Steal = 150 * time.Millisecond },
		"a late clock":  func(r *load.Result) { r.Late = 30000 },
		"on the proxy":  func(r *load.Result) { r.Cores[1].Idle = 100 * time.Millisecond },
		"a little both": func(r *load.Result) { r.Cores[0].Idle, r.Cores[1].Idle = 300*time.Millisecond, 400*time.Millisecond },
	} {
		r := quiet
		r.Cores = slices.Clone(quiet.Cores)
		disturb(&r)
		if run := b.figures(r); !run.Disturbed {
			t.Errorf("%s does not count: %+v", name, run)
		}
	}
}

func TestScenarios(t *testing.T) {
	picked, err := pickScenarios("ia")
	if err != nil || len(picked) != 2 || picked[0].ID != "a" || picked[1].ID != "i" {
		t.Errorf("i and a: %v, %v", picked, err)
	}
	if _, err := pickScenarios("az"); err == nil {
		t.Error("there is no z")
	}
	if none, err := pickScenarios(""); err != nil || len(none) != 0 {
		t.Errorf("none: %v, %v", none, err)
	}
	meta := picked[1]
	if meta.fits(&Peer{Name: "nutcracker"}) || !meta.fits(&Peer{Name: "memcached", SpeaksMeta: true}) {
		t.Error("quiet batches are for those who speak meta")
	}
}

func TestCurvesRise(t *testing.T) {
	var down curve
	all := curves(func(loops int) []int { return make([]int, min(loops, 2)) })
	for _, c := range all {
		if c.id == "down" {
			down = c
		}
		if len(c.points) < 2 || !slices.IsSortedFunc(c.points, func(a, b point) int { return int(a.x - b.x) }) {
			t.Errorf("%s: %d points, or not in order", c.id, len(c.points))
		}
		if c.id == "loops" && !strings.Contains(c.note, "4 on 2") {
			t.Errorf("the loops' note does not say their CPUs: %s", c.note)
		}
	}
	if down.id == "" || down.points[5].x != 100 {
		t.Errorf("no curve of servers that are down: %+v", down)
	}
}

func TestCheckLost(t *testing.T) {
	for name, c := range map[string]struct {
		lost load.Lost
		ok   bool
	}{
		"its share":     {load.Lost{KeysHit: 70, KeysMissed: 30, Errors: 5, Misses: 99}, true},
		"not all read":  {load.Lost{KeysHit: 60, KeysMissed: 25}, true},
		"more missed":   {load.Lost{KeysHit: 60, KeysMissed: 31}, false},
		"more hit":      {load.Lost{KeysHit: 71, KeysMissed: 20}, false},
		"now and again": {load.Lost{KeysHit: 60, KeysMissed: 20, KeysBoth: 1}, false},
	} {
		if err := checkLost(load.Result{Lost: c.lost}, 100, 30); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkLost(load.Result{Lost: load.Lost{Errors: 1, KeysHit: 100}}, 100, 0); err == nil {
		t.Error("an error with all servers up is taken")
	}
}
