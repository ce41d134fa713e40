//go:build linux

package bench

import "testing"

func TestMetrics(t *testing.T) {
	m, err := parseMetrics("# HELP a b c\na_total{x=\"1\",y=\"two words\"} 3\na_total{x=\"2\"} 4e1\na_total_more 9\n")
	if err != nil || m.Sum("a_total") != 43 || m.Sum("a_total", `x="1"`) != 3 || m.Sum("none") != 0 {
		t.Errorf("%v, error %v", m, err)
	}
	if _, err := parseMetrics("a x\n"); err == nil {
		t.Error("a value without a number is taken")
	}
}
