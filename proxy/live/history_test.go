package live

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"ringside/proxy/table"
)

// pastOf returns a history of n moments of a table with the given number of pools and of servers
// per pool.
func pastOf(t *testing.T, n, pools, servers int) *history {
	t.Helper()
	of := &table.Table{}
	ticks := make([]*Tick, pools)
	for i := range ticks {
		of.Pools = append(of.Pools, &table.Pool{Name: fmt.Sprint("pool", i)})
		ticks[i] = &Tick{Moment: Moment{Ops: map[string]float64{}}}
		for range servers {
			ticks[i].S.Rate = append(ticks[i].S.Rate, float64(12345+i))
		}
		for op := range 30 {
			ticks[i].Ops[fmt.Sprint("command", op)] = 123456.7
		}
	}
	h := &history{}
	at := time.UnixMilli(1e12)
	h.begin(&Sample{At: at})
	for i := range n {
		at = at.Add(historyGap)
		now := &Sample{At: at, Table: of}
		if !h.due(now) {
			t.Fatalf("moment %d is not due", i)
		}
		ticks[0].T = at.UnixMilli()
		h.show(ticks, of)
		if err := h.add(ticks, now); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// TestHistory checks that fifteen minutes are kept, the rates of single servers for three of them,
// and that the size is limited however many servers there are.
func TestHistory(t *testing.T) {
	for _, test := range []struct{ moments, pools, servers, want, rates int }{
		{10, 2, 3, 10, 10}, {1000, 2, 3, 181, 37}, {1000, 1, 4000, 181, 30}, {1000, 16, 5000, 181, 1},
	} {
		h := pastOf(t, test.moments, test.pools, test.servers)
		size, rates := 0, 0
		for i := range h.list {
			if size += h.list[i].size(); h.list[i].rates != nil {
				rates++
			}
		}
		if len(h.list) != test.want || rates != test.rates || size > historyBytes {
			t.Errorf("%+v: %d moments, %d with rates, %d bytes", test, len(h.list), rates, size)
		}
		list, err := h.events("pool0")
		if err != nil || len(list) != test.want+1 {
			t.Fatalf("%+v: %d events, %v", test, len(list), err)
		}
		var event [2]json.RawMessage
		var past Past
		if err := json.Unmarshal(list[test.want-1], &event); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(event[1], &past); err != nil {
			t.Fatal(err)
		}
		if past.Moment.T != h.end.At.UnixMilli() || test.rates > 0 && (len(past.Rates) != test.servers || past.Rates[0] != 12345) {
			t.Errorf("%+v: the last moment is %s", test, list[test.want-1])
		}
	}
}

// TestHistoryAfterReload checks that a reload keeps what the whole proxy did, and drops the rates of
// servers that may be others now.
func TestHistoryAfterReload(t *testing.T) {
	h := pastOf(t, 3, 1, 2)
	h.show([]*Tick{{}}, &table.Table{Pools: []*table.Pool{{Name: "pool0"}}})
	if list, err := h.events("pool0"); err != nil || len(list) != 4 || h.list[0].rates != nil {
		t.Errorf("%d events, %v", len(list), err)
	}
	if list, err := h.events("other"); err != nil || len(list) != 3 {
		t.Errorf("%d events of a pool that is none, %v", len(list), err)
	}
}
