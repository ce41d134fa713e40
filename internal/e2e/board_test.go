package e2e

// This file tests the dashboard and the alerts in deploy/ with a live Prometheus.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// prometheus is a Prometheus process that scrapes Ringside instances.
type prometheus struct {
	*process
	address string
}

func startPrometheus(t *testing.T, job string, targets ...string) *prometheus {
	t.Helper()
	rules, err := filepath.Abs("../../deploy/prometheus/ringside.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	type named map[string]any
	config, err := yaml.Marshal(named{
		"global":         named{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{rules},
		"scrape_configs": []named{{"job_name": job, "static_configs": []named{{"targets": targets}}}},
	})
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err == nil {
		err = os.WriteFile(file, config, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheus{address: freeAddress(t, ownHost())}
	p.process = start(t, need(t, "prometheus"), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.address)
	return p
}

// ask decodes the reply of the API of p into data. It returns false if there is no reply
// yet.
func (p *prometheus) ask(t *testing.T, path string, data any) bool {
	t.Helper()
	client := http.Client{Timeout: patience}
	r, err := client.Get("http://" + p.address + "/api/v1/" + path)
	if err != nil {
		return false // it is still starting
	}
	defer r.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		return false
	}
	if answer.Status != "success" {
		t.Fatalf("%s: %s", path, answer.Error)
	}
	if err := json.Unmarshal(answer.Data, data); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return true
}

// TestBoardAndAlerts checks that every panel of the dashboard shows data and that every
// alert can be evaluated. Both must also report a server that is killed.
func TestBoardAndAlerts(t *testing.T) {
	t.Parallel()
	servers := startMemcacheds(t, 3)
	r := startRingside(t, drivers()[0], front(servers, "failover: {mode: rehash, eject_after: {refused: 1s, silent: 1m}}"))
	c := dial(t, r.address)
	for i := range 100 {
		c.store(fmt.Sprint("k", i), "x")
	}
	p := startPrometheus(t, "ringside", r.admin)

	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("../../deploy/grafana/ringside.json")
	if err == nil {
		err = json.Unmarshal(text, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$job", "ringside", "$instance", ".*", "$__rate_interval", "1m")
	type sample struct{ Value [2]any }
	value := func(expr string) (all []sample) {
		var is struct{ Result []sample }
		p.ask(t, "query?query="+url.QueryEscape(expr), &is)
		return is.Result
	}
	asked := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			asked++
			eventually(t, panel.Title+" shows something: "+target.Expr, func() bool { return len(value(variables.Replace(target.Expr))) > 0 })
		}
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("%s asks nothing", panel.Title)
		}
	}
	t.Logf("%d panels and rows, %d expressions", len(board.Panels), asked)

	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	eventually(t, "all alerts have been asked", func() bool {
		if !p.ask(t, "rules", &rules) || len(rules.Groups) == 0 {
			return false
		}
		for _, rule := range rules.Groups[0].Rules {
			if rule.Health == "err" {
				t.Fatalf("%s: %s", rule.Name, rule.LastError)
			}
			if rule.Health != "ok" {
				return false
			}
		}
		return len(rules.Groups[0].Rules) > 5
	})
	state := func(name string) string {
		p.ask(t, "rules", &rules)
		for _, rule := range rules.Groups[0].Rules {
			if rule.Name == name {
				return rule.State
			}
		}
		return "none"
	}
	if s := state("RingsideServerDown"); s != "inactive" {
		t.Errorf("RingsideServerDown is %s with all servers up", s)
	}
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	tool(t, binary, "server", "drain", servers[0].address, "--admin", r.admin)
	eventually(t, "RingsideServerDrained is pending", func() bool { return state("RingsideServerDrained") == "pending" })
	eventually(t, "a server is out by order", func() bool { return len(value(`ringside_failover_phase == 2`)) == 1 })
	if is := value(`max by (pool, server) (ringside_failover_phase) != 0 unless max by (pool, server) (ringside_server_override) == 1`); len(is) != 0 || state("RingsideServerOut") != "inactive" {
		t.Errorf("RingsideServerOut is %s for a server that an operator has taken out: %v", state("RingsideServerOut"), is)
	}
	tool(t, binary, "server", "restore", servers[0].address, "--admin", r.admin)
	eventually(t, "no server is out", func() bool { return len(value(`ringside_failover_phase != 0`)) == 0 })
	servers[1].Kill()
	eventually(t, "RingsideServerOut is pending", func() bool { return state("RingsideServerOut") == "pending" })
	eventually(t, "RingsideServerDown is pending", func() bool { return state("RingsideServerDown") == "pending" })
	down := "count(count by (address) (ringside_server_up == 0))"
	eventually(t, down+" is 1", func() bool { is := value(down); return len(is) == 1 && is[0].Value[1] == "1" })
}

// TestAlertRules checks that alerts about an outage fire during it, and have resolved a
// minute after it ends.
func TestAlertRules(t *testing.T) {
	tool(t, need(t, "promtool"), "test", "rules", "../../deploy/prometheus/ringside.rules.test.yml")
}
