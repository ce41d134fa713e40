//go:build linux

package bench

// What needs no process: sums, disturbance, scenarios, configurations. Whole
// runs are tested with the command, which is the load too.

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/bench/load"
	"ringside/internal/bench/proc"
)

func TestSpread(t *testing.T) {
	for _, row := range []struct {
		values           []float64
		median, min, max float64
		low, high        float64 // 0: no interval
	}{
		{[]float64{3}, 3, 3, 3, 0, 0},
		{[]float64{4, 1, 2}, 2, 1, 4, 0, 0},
		{[]float64{4, 1, 2, 3}, 2.5, 1, 4, 0, 0},
		{[]float64{1, 2, 3, 4, 5}, 3, 1, 5, 0, 0},
		{[]float64{6, 5, 4, 3, 2, 1}, 3.5, 1, 6, 1, 6},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 5.5, 1, 10, 2, 9},
	} {
		s := spread(slices.Clone(row.values))
		var low, high float64
		if s.Interval != nil {
			low, high = s.Interval[0], s.Interval[1]
		}
		if s.Median != row.median || s.Min != row.min || s.Max != row.max || low != row.low || high != row.high {
			t.Errorf("%v: %+v, interval %v to %v", row.values, s, low, high)
		}
	}
	// The table of order statistics for the median: n = 20 takes the 6th, 100 the 40th.
	if outside(20) != 6 || outside(100) != 40 {
		t.Errorf("n = 20: %d, n = 100: %d", outside(20), outside(100))
	}
}

func TestRatiosCompareTheRunsOfARound(t *testing.T) {
	r := &Result{Base: "nutcracker", Peers: []*Measured{
		{Peer: "ringside", Runs: []Run{{Round: 1, CPU: 5}, {Round: 3, CPU: 30}}},
		{Peer: "nutcracker", Runs: []Run{{Round: 1, CPU: 10}, {Round: 2, CPU: 1}, {Round: 3, CPU: 20}}},
		{Peer: "haproxy", Failure: "gone"},
	}}
	r.summarize()
	if got := r.Peers[0].CPU; got.Ratio.Min != 0.5 || got.Ratio.Max != 1.5 || got.Ratio.Median != 1 || got.Value.Median != 17.5 {
		t.Errorf("ringside %+v, ratio %+v", got.Value, got.Ratio)
	}
	if r.Peers[1].CPU.Ratio.Median != 1 || r.Peers[0].Rate.Ratio != nil {
		t.Errorf("to itself %v; to a base of 0 %v", r.Peers[1].CPU.Ratio, r.Peers[0].Rate.Ratio)
	}
}

func TestDisturbance(t *testing.T) {
	b := &bench{Config: Config{Disturbed: 0.1, LoadCPUs: []int{0}}, proxyCPUs: []int{1}}
	quiet := load.Result{
		Requests:  1000,
		CPU:       300 * time.Millisecond,
		Processes: []load.Process{{CPU: 500 * time.Millisecond}, {CPU: 200 * time.Millisecond}},
		Cores: []proc.Core{
			{ID: 0, Wall: time.Second, Idle: 480 * time.Millisecond},
			{ID: 1, Wall: time.Second, Idle: 470 * time.Millisecond},
			{ID: 2, Wall: time.Second}, // busy all the time, and not ours
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
	if meta.fits(&peer{name: "nutcracker"}) || !meta.fits(&peer{name: "memcached", speaksMeta: true}) {
		t.Error("quiet batches are for those who speak meta")
	}
}

func TestConfigurationsNameTheServers(t *testing.T) {
	servers := []string{"127.0.0.1:31001", "127.0.0.1:31002", "127.0.0.1:31003"}
	for name, row := range map[string]struct {
		configure func(place) ([]string, error)
		file      string
		says      []string
	}{
		"ringside":        {ringsideArgs, "ringside.yaml", []string{"listen: 127.0.0.1:31000\n", "distribution: ketama\n", "- 127.0.0.1:31001\n", "- 127.0.0.1:31003\n", "admin: {address: \"127.0.0.1:31009\", }\n", "loops: 2", "request: 30s"}},
		"nutcracker":      {nutcrackerArgs, "nutcracker.yml", []string{"listen: 127.0.0.1:31000\n", "hash: md5\n", "- 127.0.0.1:31001:1\n", "- 127.0.0.1:31003:1\n"}},
		"haproxy":         {haproxyArgs, "haproxy.cfg", []string{"bind 127.0.0.1:31000 ", "server one 127.0.0.1:31001\n", "mode tcp\n"}},
		"memcached proxy": {memcachedProxyArgs, "proxy.lua", []string{`mcp.backend("server1", "127.0.0.1", 31001)`, `mcp.backend("server3", "127.0.0.1", 31003)`}},
	} {
		dir := t.TempDir()
		args, err := row.configure(place{dir: dir, port: 31000, admin: 31009, servers: servers, loops: 2, timeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(args, " "), dir+"/"+row.file) {
			t.Errorf("%s is started with %q", name, args)
		}
		text, err := os.ReadFile(dir + "/" + row.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range row.says {
			if !strings.Contains(string(text), s) {
				t.Errorf("%s lacks %q:\n%s", row.file, s, text)
			}
		}
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

func TestBesideThoseWhoReadNothing(t *testing.T) {
	some := Run{Round: 1, Rate: 42, P99: 250e3, Requests: 845, Good: []int64{400, 300, 140}, GivenUp: 3, Seconds: 20}
	none := Run{Round: 1, P99: 20e6, Good: []int64{0, 0, 0}, GivenUp: 3, Seconds: 20}
	r := &Result{ID: "k", Base: "nutcracker", Peers: []*Measured{{Peer: "ringside", Runs: []Run{some}}, {Peer: "nutcracker", Runs: []Run{none}}}}
	r.summarize()
	var text strings.Builder
	r.markdown(&text)
	for _, want := range []string{
		"ringside, round 1: 840 good answers of 848 that were due in 20 s (by client: 400, 300, 140), 5 others; p99 250.0 ms, with the 3 that waited when it ended.",
		"nutcracker, round 1: nobody got an answer in 20 s",
		"| ringside | 0.00 | – | 42 | – |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
}

func TestCliffs(t *testing.T) {
	row := func(x, cpu, rate, p50, p99 float64) *Point {
		p := &Point{X: x, Result: Result{Peers: []*Measured{{Peer: "ringside", Runs: []Run{{CPU: cpu, Rate: rate, P50: p50, P99: p99}}}}}}
		p.summarize()
		return p
	}
	flat, growing := curve{}, curve{share: 1}
	before := row(10, 10, 1000, 50, 100)
	for name, c := range map[string]struct {
		curve curve
		row   *Point
		says  string
	}{
		"flat":                    {flat, row(100, 11, 900, 55, 150), ""},
		"cheaper":                 {flat, row(100, 2, 9000, 5, 10), ""},
		"dear":                    {flat, row(100, 17, 1000, 50, 100), "ringside CPU × 1.7"},
		"slow":                    {flat, row(100, 10, 500, 50, 100), "ringside throughput × 2.0"},
		"a long tail":             {flat, row(100, 10, 1000, 50, 600), "ringside p99 × 6.0"},
		"more work":               {growing, row(100, 90, 110, 500, 900), ""},
		"more than the work":      {growing, row(100, 160, 110, 500, 900), "ringside CPU × 16.0"},
		"work that grew not much": {growing, row(11, 18, 1000, 50, 100), "ringside CPU × 1.8"},
	} {
		if got := strings.Join(c.curve.cliffs(before, c.row), ", "); got != c.says {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
	if got := flat.cliffs(before, &Point{Result: Result{Peers: []*Measured{{Failure: "gone"}}}}); got != nil {
		t.Errorf("a failed row is a cliff: %q", got)
	}
}

func TestLaterRunsJoin(t *testing.T) {
	r := &Result{Base: "nutcracker", Peers: []*Measured{{Peer: "ringside", Runs: []Run{{Round: 1, CPU: 1}}}, {Peer: "nutcracker", Runs: []Run{{Round: 1, CPU: 2}}}}}
	r.add(&Result{Peers: []*Measured{{Peer: "ringside", Runs: []Run{{Round: 1, CPU: 9}}}, {Peer: "nutcracker", Runs: []Run{{Round: 1, CPU: 3}}}}})
	if got := r.Peers[0].CPU; got.Value.Median != 5 || got.Ratio.Min != 0.5 || got.Ratio.Max != 3 {
		t.Errorf("%+v, ratio %+v", got.Value, got.Ratio)
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
