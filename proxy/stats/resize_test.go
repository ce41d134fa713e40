package stats

import (
	"strings"
	"testing"

	"ringside/proxy/health/resize"
)

// TestResizeWork checks the text by which instances exchange the progress of a change of servers.
func TestResizeWork(t *testing.T) {
	w := ResizeWork{By: "web-1/7", Server: "b", At: 2, Of: 3, Done: 12, Rejected: 1, Left: 5, Listed: true, Rate: 4.5, Why: "w"}
	if got := ParseResizeWork(w.JSON()); got != w {
		t.Errorf("%+v became %+v", w, got)
	}
	for _, text := range []string{"", "1", "{", `{"rate": -1}`, `{"rate": 1e300}`, `{"done": -1}`, `{"by": "` + strings.Repeat("x", mostResizeWork) + `"}`} {
		if got := ParseResizeWork([]byte(text)); got != (ResizeWork{}) {
			t.Errorf("%.40q became %+v", text, got)
		}
	}
}

// TestOwnListWaits checks that an instance that uses other servers than its peers counts as one whose change can't go
// on, so that the alert fires.
func TestOwnListWaits(t *testing.T) {
	waits := func(own bool) any {
		s := &ResizeSnapshot{Status: resize.Status{State: resize.State{N: 12, List: 3}, Lists: resize.Lists{Mine: 1, Wish: 1, Warm: true, Own: own}}}
		for _, f := range s.Figures() {
			if f.Metric == resizeWaiting {
				return f.Value
			}
		}
		return nil
	}
	if own, not := waits(true), waits(false); own != true || not != false {
		t.Errorf("%v and %v", own, not)
	}
}
