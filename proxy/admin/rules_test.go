package admin

// The alerts in deploy/ may only use metrics that exist.

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"ringside/proxy/stats"
)

type alertFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

func TestAlerts(t *testing.T) {
	source, err := os.ReadFile("../../deploy/prometheus/ringside.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	var file alertFile
	d := yaml.NewDecoder(strings.NewReader(string(source)))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	labels := map[string]map[string]bool{"up": {"job": true, "instance": true}} // from Prometheus itself
	for _, f := range allFamilies(t) {
		labels[f.GetName()] = map[string]bool{"job": true, "instance": true}
		for _, l := range f.Metric[0].Label {
			labels[f.GetName()][l.GetName()] = true
		}
	}
	var failures []string
	for o := range stats.NumOutcomes {
		if o.Failed() {
			failures = append(failures, o.String())
		}
	}

	name := regexp.MustCompile(`\b(up|ringside_\w+)(?:\{([^}]*)\})?`)
	label := regexp.MustCompile(`(\w+)\s*(?:=~|!=|!~|=)\s*"([^"]*)"`)
	seen := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || seen[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %q: name, severity, summary or description is missing, or the name is taken", r.Alert)
			}
			seen[r.Alert] = true
			if want := "{{ $externalLabels.ringside_docs }}/runbook.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want || !strings.Contains(string(runbook), "\n## "+r.Alert+"\n") {
				t.Errorf("%s: its runbook_url is %q, want %s, and a section of that name there", r.Alert, r.Annotations["runbook_url"], want)
			}
			used := name.FindAllStringSubmatch(r.Expr, -1)
			if len(used) == 0 {
				t.Errorf("%s asks for no metric: %s", r.Alert, r.Expr)
			}
			for _, m := range used {
				if labels[m[1]] == nil {
					t.Errorf("%s asks for %s, which /metrics has not", r.Alert, m[1])
				}
				for _, l := range label.FindAllStringSubmatch(m[2], -1) {
					if !labels[m[1]][l[1]] {
						t.Errorf("%s asks for the label %s of %s", r.Alert, l[1], m[1])
					}
					if want := strings.Join(failures, "|"); l[1] == "outcome" && l[2] != want {
						t.Errorf("%s asks for the outcomes %s; the failures are %s", r.Alert, l[2], want)
					}
				}
			}
		}
	}
	if len(seen) == 0 {
		t.Error("no alerts")
	}
}
