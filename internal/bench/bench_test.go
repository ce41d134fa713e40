//go:build linux

package bench

// Tests without processes: disturbance, scenarios, configurations, the readers of counters. The
// tests of the command cover whole runs.

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/bench/load"
)

func TestDisturbance(t *testing.T) {
	b := &bench{Config: Config{Disturbed: 0.1, LoadCPUs: []int{0}, ProxyCPUs: []int{1}}}
	quiet := load.Result{
		Requests:  1000,
		CPU:       300 * time.Millisecond,
		Processes: []load.Process{{CPU: 500 * time.Millisecond}, {CPU: 100 * time.Millisecond, Sleeps: 20}, {CPU: 100 * time.Millisecond, Sleeps: 30}},
		Cores: []load.Core{
			{ID: 0, Wall: time.Second, Idle: 480 * time.Millisecond},
			{ID: 1, Wall: time.Second, Idle: 470 * time.Millisecond},
			{ID: 2, Wall: time.Second}, // busy all the time, but not used by the run
		},
	}
	if x := b.figures(quiet); x.disturbed || x.cpu != 500 || x.servers != 200 || x.total() != 700 || x.serverSleeps < 0.0499 || x.serverSleeps > 0.0501 {
		t.Errorf("a quiet run: %+v", x)
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
		if x := b.figures(r); !x.disturbed {
			t.Errorf("%s does not count: %+v", name, x)
		}
	}
}

func TestScenarios(t *testing.T) {
	picked, err := pickScenarios("ha", 5000)
	if err != nil || len(picked) != 2 || picked[0].work.Rate != 5000 || !strings.HasSuffix(picked[0].name, "paced at 5000 a second") || picked[1].work.Rate != 0 {
		t.Errorf("h at another rate, and a: %+v, %v", picked, err)
	}
	if usual, err := pickScenarios("h", 0); err != nil || usual[0].work.Rate != 40000 {
		t.Errorf("h: %+v, %v", usual, err)
	}
	if _, err := pickScenarios("az", 0); err == nil {
		t.Error("there is no z")
	}
}

func TestConfigurationsNameTheServers(t *testing.T) {
	servers := []*process{{port: 31001}, {port: 31002}, {port: 31003}}
	for _, row := range []struct {
		name      string
		configure func(place) ([]string, error)
		file      string
		at        place
		says      []string
	}{
		{"ringside", ringsideArgs("engine: {loops: 2}"), "ringside.yaml", place{patient: true, replicas: true},
			[]string{"listen: 127.0.0.1:31000\n", "distribution: ketama\n", "servers: [127.0.0.1:31001, 127.0.0.1:31002, 127.0.0.1:31003]\n", `address: "127.0.0.1:31009"`, "request: 30s", "replicas: 2", "engine: {loops: 2}\n"}},
		{"nutcracker", nutcrackerArgs, "nutcracker.yml", place{patient: true, socket: "/x/y"},
			[]string{"listen: 127.0.0.1:31000\n", "listen: /x/y\n", "hash: md5\n", "- 127.0.0.1:31001:1\n", "- 127.0.0.1:31003:1\n", "timeout: 30000\n", "auto_eject_hosts: false\n"}},
		{"nutcracker that ejects", nutcrackerArgs, "nutcracker.yml", place{}, []string{"timeout: 400\n", "auto_eject_hosts: true\n  server_failure_limit: 3\n"}},
	} {
		row.at.dir, row.at.port, row.at.admin, row.at.servers = t.TempDir(), 31000, 31009, servers
		args, err := row.configure(row.at)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(args, " "), row.at.dir+"/"+row.file) {
			t.Errorf("%s is started with %q", row.name, args)
		}
		text, err := os.ReadFile(row.at.dir + "/" + row.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range row.says {
			if !strings.Contains(string(text), s) {
				t.Errorf("%s lacks %q:\n%s", row.name, s, text)
			}
		}
	}
}

func TestMetrics(t *testing.T) {
	m, err := parseMetrics("# HELP a b c\na_total{x=\"1\",y=\"two words\"} 3\na_total{x=\"2\"} 4e1\na_total_more 9\n")
	if err != nil || m.sum("a_total") != 43 || m.sum("a_total", `x="1"`) != 3 || m.sum("none") != 0 {
		t.Errorf("%v, error %v", m, err)
	}
	if _, err := parseMetrics("a x\n"); err == nil {
		t.Error("a value without a number is taken")
	}
}

func TestParsePerf(t *testing.T) {
	c, err := parsePerf("# started\n\n4000;;raw_syscalls:sys_enter;1;100.00;;\n1500;;syscalls:sys_enter_read;1;100.00;;\n1;;syscalls:sys_enter_close;1;100.00;;\n2000;;syscalls:sys_enter_writev;1;100.00;;\n", 2000)
	if err != nil || c.total != 2 || strings.Join(c.names, ", ") != "writev 1.000, read 0.750, others 0.250" {
		t.Errorf("%+v, error %v", c, err)
	}
	for _, wrong := range []string{"<not counted>;;syscalls:sys_enter_read;0;0.00;;\n", "# started\n"} {
		if _, err := parsePerf(wrong, 1); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
