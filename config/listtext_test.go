package config

import (
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/table"
)

// listPool returns the pool main with these lines in a file.
func listPool(t testing.TB, lines string) (*Pool, *table.Pool) {
	t.Helper()
	f, err := Parse("test", []byte("listen: 127.0.0.1:1\npools:\n  main:\n    resize: {mode: warm}\n    failover: {mode: rehash}\n"+lines))
	if err != nil {
		t.Fatal(err)
	}
	built, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f.pool("main"), built.Pools[0]
}

// TestListText checks that a pool with another list reads the list of each pool: it places all keys as that pool does.
func TestListText(t *testing.T) {
	reader, _ := listPool(t, "    distribution: ketama-points\n    servers: [10.9.9.9, 10.9.9.8]\n")
	for _, lines := range []string{
		"    distribution: ketama-points\n    points: 120\n    servers: [10.0.0.1, {address: '10.0.0.2:11212', name: b, weight: 3, zone: z, host: h}]\n",
		"    distribution: jump\n    hash_tag: '{}'\n    servers: [unix:/run/a.sock, '[::1]:11211', example.org]\n",
		"    distribution: ketama\n    servers: [10.0.0.1, 10.0.0.2, 10.0.0.3]\n",
		"    distribution: rendezvous-pymemcache\n    servers: [10.0.0.1, 10.0.0.2]\n",
	} {
		_, p := listPool(t, lines)
		got, err := reader.readList(p.Text)
		if err != nil {
			t.Errorf("%s: %v", p.Text, err)
			continue
		}
		if got.Print() != p.List().Print() || (got.Without == nil) != (p.Without == nil) {
			t.Errorf("%s: another list: %+v", p.Text, got)
		}
		for i := range 100 {
			key := fmt.Appendf(nil, "{%d}key%d", i%7, i)
			_, _, a := got.Place.Locate(key)
			_, _, b := p.Place.Locate(key)
			if got.Servers[a].Address != p.Servers[b].Address || got.Servers[a].Name != p.Servers[b].Name {
				t.Fatalf("%s: key %s is on %d and %d", p.Text, key, a, b)
			}
		}
	}
	if _, p := listPool(t, "    servers: [10.0.0.1, {address: 10.0.0.2, zone: z}]\n    distribution: ketama\n"); strings.Contains(string(p.Text), "zone") {
		t.Errorf("the text has more than the list: %s", p.Text)
	}
}

// TestListTextRefused checks that a text which no instance can have written is refused, with a reason.
func TestListTextRefused(t *testing.T) {
	p, _ := listPool(t, "    distribution: ketama-points\n    servers: [10.9.9.9, 10.9.9.8]\n")
	one := `{"network":"tcp","address":"10.0.0.1:11211","weight":1}`
	list := func(distribution, options string, servers ...string) string {
		return fmt.Sprintf(`{"distribution":%q,"options":{%s},"servers":[%s]}`, distribution, options, strings.Join(servers, ","))
	}
	if _, err := p.readList([]byte(list("ketama-points", "", one))); err != nil {
		t.Fatal(err)
	}
	var many []string
	for i := range mostLearned + 1 {
		many = append(many, fmt.Sprintf(`{"network":"tcp","address":"h%d:11211","weight":1}`, i))
	}
	for _, c := range []struct{ text, want string }{
		{"", "can't be read"},
		{"null", "no distribution"},
		{list("ketama-points", "", one)[:60], "can't be read"},
		{list("ketama-points", "", one) + "x", "more text"},
		{list("ketama-points", "", many...), "at most 1000"},
		{list("ketama-points", "", one, one), "listed twice"},
		{list("ketama-points", "", `{"network":"tcp","address":"10.0.0.1:11211","weight":1,"name":"a b"}`), "spaces"},
		{list("ketama-points", "", `{"network":"tcp","address":"10.0.0.1","weight":1}`), "not host:port"},
		{list("ketama-points", "", `{"network":"tcp","address":":11211","weight":1}`), "not host:port"},
		{list("ketama-points", "", `{"network":"tcp","address":"a:99999","weight":1}`), "not host:port"},
		{list("ketama-points", "", `{"network":"udp","address":"a:1","weight":1}`), "not host:port"},
		{list("ketama-points", "", `{"network":"unix","address":"run","weight":1}`), "begins with /"},
		{list("ketama-points", "", `{"network":"tcp","address":"a:1","weight":0}`), "weight 0"},
		{list("ketama-points", "", `{"network":"tcp","address":"a:1","weight":1000000}`), "at most"},
		{list("ketama-points", "", `{"network":"tcp","address":"a:1","weight":1,"tls":true}`), "can't be read"},
		{list("ketama-points", `"Points":-3`, one), "points"},
		{list("no-such", "", one), "no distribution"},
	} {
		if _, err := p.readList([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: %v, want %q", c.text, err, c.want)
		}
	}
}

// FuzzListText reads any text as a list. A list that is accepted must be usable.
func FuzzListText(f *testing.F) {
	p, built := listPool(f, "    distribution: ketama-points\n    servers: [10.0.0.1, {address: 10.0.0.2, name: b, weight: 2}]\n")
	f.Add(built.Text)
	f.Fuzz(func(t *testing.T, text []byte) {
		if l, err := p.readList(text); err == nil {
			if _, _, i := l.Place.Locate([]byte("key")); i >= len(l.Servers) || len(l.Servers) == 0 {
				t.Errorf("%d of %d servers", i, len(l.Servers))
			}
		}
	})
}
