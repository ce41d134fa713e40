package live

import (
	"strings"
	"testing"
	"time"

	"ringside/proxy/health/resize"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

func TestResizeSentences(t *testing.T) {
	old, both := resize.Lists{Mine: 1, Wish: 1, Warm: true}, resize.Lists{Mine: 1, Wish: 2, Warm: true}
	at := func(s resize.Stage) resize.State { return resize.State{N: 12 + uint32(s), List: 1, Next: 2} }
	stable := resize.State{N: 12, List: 1}
	work := stats.ResizeWork{By: "web-2/17", Server: "b", At: 2, Of: 3, Done: 41200, Left: 9980, Listed: true, Rate: 4990}
	var flush stats.ResizeWork
	flush.Of, flush.Why = 2, "b: it has answered flush_all with \"ERROR\""
	for _, test := range []struct {
		name string
		is   stats.ResizeSnapshot
		want string // level and text; empty: no change is due
	}{
		{"none", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: old}}, ""},
		{"not known yet", stats.ResizeSnapshot{Status: resize.Status{Lists: both}}, ""},
		{"waits", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Since: 25 * time.Second},
			"good: The servers change (new: d; removed: c) when all instances have the new configuration, so far for 25 s."},
		{"waits for a server", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Since: 25 * time.Second, Waits: "server a is OUT"},
			"warn: The servers change (new: d; removed: c) when all instances have the new configuration, so far for 25 s. It must wait: server a is OUT."},
		{"flushes", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: resize.Lists{Mine: 1, Wish: 2}}, Work: flush},
			"warn: The servers change (new: d; removed: c). The servers that gain keys are flushed first. It must wait: " + flush.Why + "."},
		{"removes old keys", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Ours: true, Work: stats.ResizeWork{Server: "d", At: 1, Of: 1}},
			"good: The servers change (new: d; removed: c). The servers that gain keys are listed first, and keys that will move there are removed. 0 keys removed so far; d is being listed (1 of 1 servers). This instance does it."},
		{"pauses", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Pause), Lists: both}},
			"good: Keys are about to move (new: d; removed: c). Writes of these keys wait until all instances know it."},
		{"moves", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: both}, Work: work},
			"good: Keys move to other servers (new: d; removed: c). 41,200 keys moved so far, 4,990/s; 9,980 left on b, about 2 s (2 of 3 servers). Instance web-2/17 does it."},
		{"nothing is known", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: both}},
			"good: Keys move to other servers (new: d; removed: c)."},
		{"a server that the pool does not have", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: both}, Work: stats.ResizeWork{By: "a\x1b", Server: "evil", Rejected: 3}},
			"good: Keys move to other servers (new: d; removed: c). 3 were rejected by their new server and are lost. Instance a\\x1b does it."},
		{"moves, but a server is out", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: both}, Ours: true, Work: stats.ResizeWork{Why: "server b is not in use"}},
			"warn: Keys move to other servers (new: d; removed: c). This instance does it. It must wait: server b is not in use."},
		{"looks again", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Settle), Lists: both}},
			"good: Keys have moved to other servers (new: d; removed: c). The old servers are listed once more."},
		{"ends", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Cool), Lists: both}},
			"good: Keys have moved to other servers (new: d; removed: c). The change ends within seconds."},
		{"clears", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Clear), Lists: resize.Lists{Mine: 1, Wish: 2}}},
			"good: Keys move to other servers (new: d; removed: c). For a moment, they miss, and their writes wait."},
		{"has another list", stats.ResizeSnapshot{Status: resize.Status{State: resize.State{N: 12, List: 7}, Lists: old}},
			"bad: The instances use another server list, which this instance does not have. It serves no keys of the pool until all instances have the same configuration."},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := poolOf(table.Rehash)
			p.Next = &table.List{Servers: append(p.Servers[:2:2], table.Target{Name: "d", Network: "tcp", Address: "d:1"})}
			got, h := "", Health{Level: Good}
			if is := ResizeOf(&stats.Snapshot{Resizes: map[string]*stats.ResizeSnapshot{"main": &test.is}}, p); is != nil {
				got = is.Level + ": " + is.Text
				is.show(&h)
				if h.Level != is.Level || strings.Contains(is.Sentence(), "\n") {
					t.Errorf("the pool is %q, and the change %q", h.Level, is.Level)
				}
			}
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}
