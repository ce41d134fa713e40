package live

import (
	"strings"
	"testing"

	"ringside/proxy/health"
	"ringside/proxy/health/roll"
	"ringside/proxy/stats"
)

// TestRollOfTwo checks the text about another configuration: of two instances, neither has that of most.
func TestRollOfTwo(t *testing.T) {
	a, b, c := roll.Instance{ID: 1, Name: "a", Config: 1}, roll.Instance{ID: 2, Name: "b", Config: 2}, roll.Instance{ID: 3, Name: "c", Config: 1}
	for _, test := range []struct {
		others []roll.Instance
		text   string
		row    string
	}{
		{[]roll.Instance{b}, "This is one of 2 instances. b runs other pools or routes than this instance.", "another configuration than this instance"},
		{[]roll.Instance{b, c}, "This is one of 3 instances. b runs other pools or routes than most.", "another configuration than most"},
	} {
		sum := &stats.Snapshot{Rolls: []stats.Roll{{Pool: "main", Roll: health.Roll{Self: a, Others: test.others, All: 1 + len(test.others), Where: true}}}}
		if is := RollOf(sum, "main"); !strings.HasSuffix(is.Text, test.text) || is.List[1].Text != test.row {
			t.Errorf("%q, %q", is.Text, is.List[1].Text)
		}
	}
}
