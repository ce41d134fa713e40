package e2e

// The roll call: which Ringsides there are, and which of them runs something else.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestRollCall(t *testing.T) {
	servers := startMemcacheds(t, 3)
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.address)
	}
	config := pageFront(addresses...) + "routes:\n  - {pool: main}\n"
	var all []*ringside
	for range 5 {
		all = append(all, startRingside(t, "auto", config))
	}
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	type roll struct {
		Me         string
		Of, Differ int
		List       []struct{ Name, Config, Other string }
	}
	ask := func(r *ringside) (is roll, health string) {
		out, _ := exec.Command(binary, "top", "--admin", r.admin, "--once", "--json", "--for", "100ms").Output()
		var now struct {
			Roll   roll
			Health struct{ Text string }
		}
		json.Unmarshal(out, &now) // what it can't ask is asked again
		return now.Roll, now.Health.Text
	}
	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+all[0].admin+"/")
	for _, r := range all {
		eventually(t, "each hears of the others", func() bool {
			is, _ := ask(r)
			return is.Of == 5 && len(is.List) == 5 && is.Differ == 0
		})
	}
	b.says(t, "#which", "1 of 5 Ringsides")

	// One of them gets another file, and a reload.
	text, err := os.ReadFile(all[3].file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(all[3].file, []byte(strings.Replace(string(text), "  - {pool: main}", "  - {pool: main}\n  - {prefix: \"new:\", pool: main, get_errors: error}", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	tool(t, binary, "reload", "--admin", all[3].admin)
	b.do(t, "document.getElementById('ringsides').scrollIntoView()")
	began := time.Now()
	b.says(t, "#roll", "another configuration")
	t.Logf("it was shown after %v", time.Since(began))
	b.says(t, "#health p", "runs other pools or routes than most")
	if n := eval[int](t, b, "document.querySelectorAll('#roll .differs').length"); n != 1 {
		t.Errorf("%d are marked", n)
	}
	b.shot(t, "ringsides")
	me, _ := ask(all[3])
	for i, r := range all {
		eventually(t, "each hears who differs", func() bool {
			is, health := ask(r)
			ok := is.Differ == 1 && strings.Contains(health, "runs other pools or routes than most")
			for _, one := range is.List {
				ok = ok && (one.Other == "configuration") == (one.Name == me.Me)
			}
			if i == 3 {
				ok = ok && strings.Contains(health, "This Ringside runs")
			}
			return ok
		})
	}
	for name, want := range map[string]float64{"ringsides": 5, "differing": 1} {
		if is := all[0].metric(t, fmt.Sprintf("ringside_roll_%s{pool=%q}", name, "main")); is != want {
			t.Errorf("ringside_roll_%s is %v, want %v", name, is, want)
		}
	}
	x := startTerminal(t, 120, 50, nil, binary, "top", "--admin", all[1].admin)
	x.shows(t, "1 of 5 Ringsides", "another configuration than most")

	// Who is gone is not listed any more, also if it had no time to say so.
	all[4].kill()
	eventually(t, "the others notice", func() bool {
		is, _ := ask(all[0])
		return is.Of == 4 && len(is.List) == 4
	})
	b.says(t, "#which", "1 of 4 Ringsides")
}
