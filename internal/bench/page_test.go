//go:build linux

package bench

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestFillPage(t *testing.T) {
	result := &Result{ID: "p", Name: "visits", Base: "nutcracker"}
	for name, run := range map[string]Run{
		"ringside": {CPU: 10, Servers: 5}, "nutcracker": {CPU: 20, Servers: 5}, Direct: {Servers: 30},
		"ringside" + OverSocket: {CPU: 4, Servers: 5}, "nutcracker" + OverSocket: {CPU: 5, Servers: 5},
	} {
		run.Round, run.Rate, run.P50, run.P99 = 1, 100, 10, 20
		result.Peers = append(result.Peers, &Measured{Peer: name, Runs: []Run{run}})
	}
	result.Summarize()
	r := &Report{Command: "ringbench run -rounds=1", Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Scenarios: []*Result{result},
		Machine: Machine{Kernel: "6.1", CPU: "A CPU", CPUs: 2}, Settings: Settings{Server: "memcached 1.6.18"}}
	read := func(name string) (*Report, error) {
		switch name {
		case "run":
			return r, nil
		case "broken":
			return nil, errors.New("what is this?")
		}
		return nil, nil
	}
	page := "# Page\n<!-- run: machine -->\nold\n<!-- end -->\ntext\n<!-- run: first -->\n<!-- end -->\n<!-- curves: curves -->\nkept\n<!-- end -->\n<!-- run: tails -->\n<!-- end -->\n<!-- run: scenarios -->\n<!-- end -->\n"
	filled, left, err := FillPage(page, read)
	if err != nil || len(left) != 2 || left[0] != "curves: curves" || left[1] != "run: tails" {
		t.Fatalf("%v, left %q", err, left)
	}
	for _, want := range []string{
		"# Page\n<!-- run: machine -->\n\n`ringbench run -rounds=1`, 2026-01-02, A CPU, 2 CPUs, Linux 6.1, memcached 1.6.18 behind",
		"<!-- end -->\ntext\n<!-- run: first -->\n\n| scenario |",
		"\nkept\n<!-- end -->",
		"| p, visits | 0.50 (0.50–0.50) | 1.00 (1.00–1.00) | 1.00 (1.00–1.00) | 1.00 (1.00–1.00) | 0.50 (0.50–0.50) | 0.83 (0.83–0.83) |",
		"| p, visits, unix socket | 0.80 (0.80–0.80) | 1.00 (1.00–1.00) | 1.00 (1.00–1.00) | 1.00 (1.00–1.00) | 0.30 (0.30–0.30) | 0.33 (0.33–0.33) |",
	} {
		if !strings.Contains(filled, want) {
			t.Errorf("the page lacks %q:\n%s", want, filled)
		}
	}
	if again, _, err := FillPage(filled, read); again != filled || err != nil {
		t.Errorf("filled twice it differs: %v\n%s", err, again)
	}
	for _, wrong := range []string{"no place", "<!-- run: weather -->\n<!-- end -->", "<!-- broken: first -->\n<!-- end -->"} {
		if _, _, err := FillPage(wrong, read); err == nil {
			t.Errorf("%q is filled", wrong)
		}
	}
}
