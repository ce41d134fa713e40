package live

import (
	"fmt"
	"testing"

	"ringside/proxy/table"
)

func TestBriefNames(t *testing.T) {
	pool := func(names ...string) *table.Pool {
		p := &table.Pool{Name: names[0]}
		for _, name := range names {
			p.Servers = append(p.Servers, table.Target{Name: name})
		}
		return p
	}
	is := briefNames([]*table.Pool{
		pool("cache-fra1-rack-01.prod.example.com:11211", "cache-fra1-rack-02.prod.example.com:11211"),
		pool("session-a.prod.example.com", "session-b.test.example.com"),
		pool("127.100.100.11:11211", "127.100.100.12:11211", "127.100.200.12:11211"), pool("a.local", "b.local"), pool("alone-in-its-pool.example.com"),
	})
	if got, want := fmt.Sprint(is), "map[cache-fra1-rack-01.prod.example.com:11211:cache-fra1-rack-01 cache-fra1-rack-02.prod.example.com:11211:cache-fra1-rack-02 "+
		"session-a.prod.example.com:session-a.prod session-b.test.example.com:session-b.test]"; got != want {
		t.Errorf("the short names are %s, want %s", got, want)
	}
	if got, want := Briefly(is).Replace("session-a.prod.example.com and a"), "session-a.prod and a"; got != want {
		t.Errorf("the text is %q", got)
	}
}

func TestFit(t *testing.T) {
	for _, test := range []struct {
		names []string
		want  string
	}{
		{[]string{"session-fra1-rack-02", "session-fra1-rack-01"}, "…ra1-rack-02"},
		{[]string{"127.0.0.1:11212", "127.0.0.1:11211"}, "…0.0.1:11212"},
		{[]string{"alpha-cache-server", "beta-cache-server"}, "alpha-cache…"},
		{[]string{"cache-number-1-of-the-house", "cache-number-2-of-the-house"}, "…e-number-1…"},
		{[]string{"a-very-long-name"}, "a-very-long…"}, {[]string{"short", "shirt"}, "short"},
	} {
		if got := Fit(test.names[0], test.names, 12); got != test.want {
			t.Errorf("%v: %q, want %q", test.names, got, test.want)
		}
	}
}
