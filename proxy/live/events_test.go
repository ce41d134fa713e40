package live

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"ringside/proxy/event"
)

// logged returns the events of the log records that write creates.
func logged(t *testing.T, write func(*slog.Logger)) (list []Description) {
	t.Helper()
	events := &Events{}
	write(slog.New(events.Tee(slog.DiscardHandler)))
	for _, b := range events.Last() {
		var is struct{ Told Description }
		if err := json.Unmarshal(b, &is); err != nil {
			t.Fatal(err)
		}
		list = append(list, is.Told)
	}
	return list
}

// TestSlowCommandsPushNothingOut checks that an outage is still in the events after a
// night of slow commands.
func TestSlowCommandsPushNothingOut(t *testing.T) {
	list := logged(t, func(log *slog.Logger) {
		log.Warn("server state changed", event.ServerPhase.Attr(), "pool", "main", "server", "b", "from", "LEAVING", "to", "OUT", "why", "all instances know that it leaves")
		for i := range 3 * mostEvents {
			log.Info("slow command", event.SlowCommand.Attr(), "command", "get", "key", fmt.Sprint(i), "keys", 1, "ms", 120, "phase", "answer")
		}
	})
	if len(list) != mostEvents || list[0].Text != "b is out: its keys are on other servers now" || list[1].Text != "get of 513 took 120 ms" {
		t.Errorf("%d events, the first %+v, %+v", len(list), list[0], list[1])
	}
}

func TestTold(t *testing.T) {
	for _, test := range []struct {
		reports event.Event
		attrs   []any
		want    Description
	}{
		{event.ServerPhase, []any{"server", "b", "from", "up", "to", "suspect", "why", "server b (10.0.0.1:11211) is down: connection refused"},
			Description{Tone: Bad, Kind: "suspect", Text: "b refuses connections", More: "connection refused", Mark: true}},
		{event.ServerPhase, []any{"server", "b\x1b[2J\u202e", "from", "up", "to", "suspect", "why", "no answer"},
			Description{Tone: Bad, Kind: "suspect", Text: `b\x1b[2J\xe2\x80\xae does not answer`, More: "no answer", Mark: true}},
		{event.ServerPhase, []any{"server", "b", "from", "LEAVING", "to", "OUT", "why", "all instances know that it leaves"},
			Description{Tone: Bad, Kind: "out", Text: "b is out: its keys are on other servers now", More: "all instances know that it leaves", Mark: true}},
		{event.ServerPhase, []any{"server", "b", "from", "LEAVING", "to", "OUT", "why", "all instances know that it leaves", "mode", "fail_fast"},
			Description{Tone: Bad, Kind: "out", Text: "b is out: its keys fail until it is back", More: "all instances know that it leaves", Mark: true}},
		{event.ServerPhase, []any{"server", "b", "from", "LEAVING", "to", "OUT", "why", "all instances know that it leaves", "new", true},
			Description{Tone: Bad, Kind: "out", Text: "b, which is new and has no keys yet, is out", More: "all instances know that it leaves", Mark: true}},
		{event.ServerPhase, []any{"server", "b", "from", "up", "to", "suspect", "why", "no answer", "mode", "fail_fast"},
			Description{Tone: Bad, Kind: "suspect", Text: "b does not answer", More: "no answer", Mark: true}},
		{event.PoolState, []any{"pool", "main", "from", "other-servers", "to", "kept", "why", "all have the same list", "mode", "fail_fast"},
			Description{Tone: Good, Kind: Up, Text: "Pool main: its servers can change again", More: "all have the same list"}},
		{event.ServerPhase, []any{"server", "b", "from", "no order", "to", "ordered drain", "why", "by order"}, Description{}},
		{event.PoolState, []any{"pool", "main", "from", "closed", "to", "fail-open", "why", "2 of 3 servers are suspect"},
			Description{Tone: Bad, Kind: "suspect", Text: "Pool main: no server is ejected now", More: "2 of 3 servers are suspect"}},
		{event.PoolState, []any{"pool", "main", "from", "fail-open", "to", "closed", "why", ""},
			Description{Tone: Good, Kind: Up, Text: "Pool main: servers that fail are ejected again"}},
		{event.PoolState, []any{"pool", "main", "from", "other-servers", "to", "kept", "why", "all have the same list"},
			Description{Tone: Good, Kind: Up, Text: "Pool main: servers that fail are ejected, as usual", More: "all have the same list"}},
		{event.PoolState, []any{"pool", "main", "from", "fail-open", "to", "gone", "why", "no server of the pool answers"},
			Description{Tone: Bad, Kind: "suspect", Text: "Pool main: unreachable", More: "no server of the pool answers"}},
		{event.PoolState, []any{"pool", "main", "from", "gone", "to", "back", "why", "a server of the pool answers"},
			Description{Tone: Good, Kind: Up, Text: "Pool main: reachable again", More: "a server of the pool answers"}},
		{event.Drained, []any{"pool", "main", "server", "b", "order", "drain"},
			Description{Tone: Warn, Kind: Drained, Text: "Operator drained b"}},
		{event.TakenDown, []any{"pool", "main", "server", "b", "order", "down"},
			Description{Tone: Warn, Kind: Drained, Text: "Operator took b down"}},
		{event.Restored, []any{"pool", "main", "server", "b", "order", "restore"},
			Description{Tone: Good, Kind: Up, Text: "Operator restored b"}},
		{event.ConnectionLost, []any{"server", "b", "requests", 1, "why", "connection reset by peer"},
			Description{Tone: Bad, Kind: Down, Text: "b closed a connection with 1 request in flight", More: "connection reset by peer"}},
		{event.KeysLeft, []any{"pool", "main", "keys", 31, "old_servers_out", "a b", "seconds", 0},
			Description{Tone: Warn, Kind: "out", Text: "Pool main: 31 keys moved to other servers, but not from servers that are out", More: "a b: values there are lost"}},
		{event.TagInvalidated, []any{"tag", "user7", "servers", 3, "count", 12},
			Description{Tone: Good, Kind: Up, Text: "Tag user7 is invalidated", More: "12 invalidations since the last one that was logged", Minor: true}},
		{event.ServerDown, []any{"server", "b", "why", "connection refused"},
			Description{Tone: Bad, Kind: Down, Text: "b is down", More: "connection refused", Mark: true, Only: "fail_fast"}},
		{event.SlowCommand, []any{"command", "get", "key", "home:top", "keys", 3, "server", "b (10.0.0.1:11211)", "ms", 250, "phase", "queue", "error", "timeout"},
			Description{Tone: Warn, Kind: "warm", Text: "get of 3 keys took 250 ms", More: "b (10.0.0.1:11211), waited for earlier requests to the server, timeout", Minor: true}},
		{event.ConfigRejected, []any{"file", "/etc/r.yaml", "error", "/etc/r.yaml:3: no"},
			Description{Tone: Bad, Kind: Down, Text: "The new configuration was rejected; the old one stays", More: "r.yaml:3: no", Mark: true}},
		{event.ConfigAdopted, []any{"file", "/etc/r.yaml", "generation", 2},
			Description{Tone: Good, Kind: Up, Text: "Configuration 2 is in force", More: "r.yaml", Mark: true}},
		{event.EjectedElsewhere, []any{"server", "b", "address", "10.0.0.1:11211", "pools", []string{"main"}, "other", "o\x00", "why", "it is so"},
			Description{Tone: Bad, Kind: "suspect", Text: `Another instance ejects b in its pool o\x00`, More: "it is so"}},
		{event.EjectedNowhere, []any{"server", "b", "other", "o"},
			Description{Tone: Good, Kind: Up, Text: "No other instance ejects b in its pool o any more"}},
		{event.KeptElsewhere, []any{"server", "b", "other", "o", "why", "it is so"},
			Description{Tone: Bad, Kind: "suspect", Text: "Another instance has b in its pool o and does not eject it", More: "it is so"}},
		{event.KeptNowhere, []any{"server", "b", "other", "o"},
			Description{Tone: Good, Kind: Up, Text: "No other instance has b in its pool o any more"}},
		{event.Hidden, []any{"address", "127.0.0.1:11211"}, Description{}},
		{event.Other, []any{"what", "pool main: keys move"}, Description{Tone: Good, Kind: "warm", Text: "something new", More: "pool main: keys move"}},
		{event.Other, []any{"why", "it is so"}, Description{Tone: Good, Kind: "warm", Text: "something new", More: "it is so"}},
	} {
		if got := logged(t, func(log *slog.Logger) { log.Info("something new", append(test.attrs, test.reports.Attr())...) }); got[0] != test.want {
			t.Errorf("%d %v:\n got %+v\nwant %+v", test.reports, test.attrs, got[0], test.want)
		}
	}
}
