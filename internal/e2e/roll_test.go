package e2e

// This file tests the roll call: the list of the instances of a pool, and which of them
// has another configuration or version.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"ringside/internal/testenv"
)

func TestRollCall(t *testing.T) {
	t.Parallel()
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
		out, _ := exec.Command(binary, "top", "--admin", r.admin, "--once", "--json", "--for", "400ms").Output()
		var now struct {
			Roll   roll
			Health struct{ Title, Text string }
		}
		json.Unmarshal(out, &now) // on an error, eventually polls again
		return now.Roll, now.Health.Title + ". " + now.Health.Text
	}
	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+all[0].admin+"/")
	for _, r := range all {
		eventually(t, "each hears of the others", func() bool {
			is, _ := ask(r)
			return is.Of == 5 && len(is.List) == 5 && is.Differ == 0
		})
	}
	b.says(t, "#which", "1 of 5 instances")

	// One instance is reloaded with another file.
	text, err := os.ReadFile(all[3].file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(all[3].file, []byte(strings.Replace(string(text), "  - {pool: main}", "  - {pool: main}\n  - {prefix: \"new:\", pool: main, get_errors: error}", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	tool(t, binary, "reload", "--admin", all[3].admin)
	b.do(t, "document.getElementById('ringsides').scrollIntoView()")
	b.says(t, "#roll", "another configuration")
	b.says(t, "#health h1", "runs other pools or routes than most")
	// The page draws only visible parts, and a longer text above can move this one out of sight.
	b.until(t, "(document.getElementById('ringsides').scrollIntoView(), document.querySelectorAll('#roll .differs').length == 1)")
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
				ok = ok && strings.Contains(health, "This instance runs")
			}
			return ok
		})
	}
	for name, want := range map[string]float64{"": 5, "_differing": 1} {
		eventually(t, fmt.Sprintf("ringside_peers%s is %v", name, want), func() bool {
			return all[0].metric(t, fmt.Sprintf("ringside_peers%s{pool=%q}", name, "main")) == want
		})
	}
	x := startTerminal(t, 120, 50, nil, binary, "top", "--admin", all[1].admin)
	x.shows(t, "1 of 5 instances", "another configuration than most")

	// ringside plan knows which instances have the other file.
	planned := tool(t, binary, "plan", all[3].file, "--admin", all[0].admin)
	if has, not := strings.Count(planned, " has loaded this file"), strings.Count(planned, " has not loaded this file"); has != 1 || not != 4 || !strings.Contains(planned, me.Me+" has loaded") {
		t.Errorf("ringside plan: %d instances have loaded the file, %d have not, want 1 (%s) and 4:\n%s", has, not, me.Me, planned)
	}

	// An instance that is killed disappears from the list, although it could not announce
	// its end.
	all[4].Kill()
	eventually(t, "the others notice", func() bool {
		is, _ := ask(all[0])
		return is.Of == 4 && len(is.List) == 4
	})
	b.says(t, "#which", "1 of 4 instances")
}

// TestRollCallOfCopies runs two instances that place replicas of the same pool on
// different servers. Each must report the other one, until a reload makes them equal.
func TestRollCallOfCopies(t *testing.T) {
	testenv.OnlyFull(t, "TestRollCall covers the roll call on the page")
	t.Parallel()
	servers := startMemcacheds(t, 4)
	file := func(replicas int, which ...int) string {
		var addresses []string
		for _, i := range which {
			addresses = append(addresses, servers[i].address)
		}
		return pageFront(addresses...) + fmt.Sprintf("routes:\n  - {pool: main, replicas_on: server, replicas: %d}\n", replicas)
	}
	usual := file(2, 0, 1, 2)
	zoned := strings.Replace(usual, "replicas_on: server", "replicas_on: zone", 1)
	for i := range 3 {
		zoned = strings.Replace(zoned, "name: "+serverName(i)+"}", fmt.Sprintf("name: %s, zone: z%d}", serverName(i), i), 1)
	}
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	all := []*ringside{startRingside(t, "auto", usual), startRingside(t, "portable", usual)}
	apart := func(r *ringside) bool {
		out, _ := exec.Command(binary, "top", "--admin", r.admin, "--once", "--json", "--for", "100ms").Output()
		var now struct {
			Roll struct {
				Of    int
				Apart int `json:"other_placement"`
			}
			Health struct{ Level, Title, Text string }
		}
		json.Unmarshal(out, &now) // on an error, eventually polls again
		return now.Roll.Of == 2 && now.Roll.Apart == 1 && now.Health.Level != "good" && strings.Contains(now.Health.Title, "keeps replicas on other servers than this instance") &&
			r.metric(t, `ringside_peers_placing_differently{pool="main"}`) == 1
	}
	alike := func(r *ringside) bool {
		return r.metric(t, `ringside_peers{pool="main"}`) == 2 && r.metric(t, `ringside_peers_placing_differently{pool="main"}`) == 0
	}
	both := func(what string, is func(*ringside) bool) {
		t.Helper()
		for _, r := range all {
			eventually(t, what, func() bool { return is(r) })
		}
	}
	both("both are alike", alike)
	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+all[0].admin+"/")
	b.do(t, "document.getElementById('ringsides').scrollIntoView()") // the page draws only visible parts
	variants := []struct{ what, file string }{
		{"another list", file(2, 0, 1, 3)},
		{"another choice of servers", zoned},
		{"another number of copies", file(3, 0, 1, 2)},
		{"another weight", strings.Replace(usual, "name: s1}", "name: s1, weight: 3}", 1)},
	}
	if !testenv.Full() {
		variants = variants[:2]
	}
	for _, c := range variants {
		all[1].reload(t, c.file)
		both(c.what, apart)
		b.says(t, "#health", "keeps replicas on other servers than this instance")
		b.says(t, "#roll", "replicas on other servers")
		all[1].reload(t, usual)
		both(c.what+", mended", alike)
	}
	// The instance that was not reloaded reports that both use the same servers again.
	x := startTerminal(t, 120, 50, nil, binary, "top", "--admin", all[0].admin)
	x.shows(t, "all instances keep replicas on the same servers")
}
