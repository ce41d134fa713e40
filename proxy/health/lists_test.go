package health

import (
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/health/resize"
)

// listed returns a world whose proxies have the list 1, with the text "list 1", and all servers have it.
func listedWorld(t *testing.T) *world {
	w := newWorld(t, scenario{proxies: 2, pool: 3})
	w.started = has(1)
	for _, p := range w.proxies {
		w.start(p)
	}
	w.run(w.now + 5*sec)
	for i := range w.nodes {
		if got, _ := w.nodes[i].value("__rs_list__:p:1"); got != "list 1" {
			t.Fatalf("server %d has %q", i, got)
		}
	}
	return w
}

// has returns a function that gives a keeper a list.
func has(list uint32) func(*Keeper) {
	return func(k *Keeper) {
		k.SetLists(resize.Lists{Mine: list, Wish: list, Warm: true}, 0)
		k.SetTexts(&Texts{Lists: map[uint32][]byte{list: fmt.Appendf(nil, "list %d", list)}, Hash: listHash})
	}
}

// listHash returns the hash of a list with the text "list HASH".
func listHash(text []byte) (hash uint32, err error) {
	_, err = fmt.Sscanf(string(text), "list %d", &hash)
	return hash, err
}

// TestListsAreRestored checks that a list is on the servers again after it was evicted or damaged, or its server has lost all
// items.
func TestListsAreRestored(t *testing.T) {
	const key = "__rs_list__:p:1"
	for name, lose := range map[string]func(n *node){
		"evicted":    func(n *node) { n.drop(key) },
		"truncated":  func(n *node) { n.put(key, "lis") },
		"oversized":  func(n *node) { n.put(key, "list 1"+strings.Repeat(" ", listLimit)) },
		"another":    func(n *node) { n.put(key, "list 3") },
		"restarted":  func(n *node) { n.restart() },
		"other text": func(n *node) { n.put(key, "list 1 in other words") },
	} {
		w := listedWorld(t)
		lose(w.nodes[1])
		wait := int64(listPings+10) * int64(w.set.Ping)
		if name == "restarted" {
			wait = 10 * int64(w.set.Ping)
		}
		w.run(w.now + wait)
		want := "list 1"
		if name == "other text" {
			want = "list 1 in other words"
		}
		if got, _ := w.nodes[1].value(key); got != want {
			t.Errorf("%s: the server has %q, want %q", name, got, want)
		}
	}
}

// TestListIsLearned starts a proxy with another list than that of its peers. It learns theirs, although servers hang or have
// no valid text. If no server has one, the search ends, and the log says it once.
func TestListIsLearned(t *testing.T) {
	const key = "__rs_list__:p:1"
	for _, test := range []struct {
		name    string
		spoil   func(n *node)
		servers int // number of servers that are spoiled
	}{
		{"whole", func(*node) {}, 0},
		{"hang", func(n *node) { n.hung = true }, 2},
		{"down", func(n *node) { n.down = true }, 2},
		{"missing on two", func(n *node) { n.drop(key) }, 2},
		{"missing", func(n *node) { n.drop(key) }, 3},
		{"forged", func(n *node) { n.put(key, "evil") }, 3},
		{"of another list", func(n *node) { n.put(key, "list 3") }, 3},
		{"oversized", func(n *node) { n.put(key, "list 1"+strings.Repeat(" ", listLimit)) }, 3},
	} {
		w := listedWorld(t)
		for _, n := range w.nodes[:test.servers] {
			test.spoil(n)
		}
		for _, p := range w.proxies[1:] {
			p.dead = true // it does not restore the list
		}
		w.proxies[0].dead = true
		late := &proxy{id: 2}
		w.proxies, w.cut = append(w.proxies, late), append(w.cut, make([]bool, len(w.nodes)))
		w.started, w.log = has(2), nil
		w.start(late)
		bound := w.now + 3*int64(w.set.Request)
		for !late.k.ListsKnown() && late.k.Learned() == nil && w.now < bound {
			w.run(w.now + ms)
		}
		learns := test.servers < 3
		if got := fmt.Sprintf("%s", late.k.Learned()); learns != (got == "[list 1]") || learns == late.k.ListsKnown() {
			t.Errorf("%s: learned %s, the lists are known: %t", test.name, got, late.k.ListsKnown())
		}
		w.run(w.now + 60*sec)
		log := strings.Join(w.log, "\n")
		if n := strings.Count(log, "list -> trouble"); strings.Contains(log, "outdated") == learns || n > test.servers || !learns && test.name != "missing" && n == 0 {
			t.Errorf("%s: %s", test.name, log)
		}
	}
}

// TestLearnedServer checks that a server which only a learned list names gets only pings until it has a view record of the pool
// that names the list.
func TestLearnedServer(t *testing.T) {
	w := listedWorld(t)
	record, _ := w.nodes[0].value("__rs_view__:p")
	stranger := w.newNode()
	stranger.put("__rs_view__:p", strings.Replace(record, "list=1", "list=2", 1))
	w.nodes[2] = stranger
	for _, p := range w.proxies {
		p.dead = true // it does not write the record
	}
	late := &proxy{id: 2}
	w.proxies, w.cut = append(w.proxies, late), append(w.cut, make([]bool, len(w.nodes)))
	w.started = func(k *Keeper) { has(1)(k); k.servers[2].unverified = true }
	others := ""
	w.asked = func(p *proxy, r Request) {
		if line := string(r.Line); r.Server == 2 && line != "mg __rs_view__:p v c\r\n" {
			others += line
		}
	}
	w.start(late)
	w.run(w.now + 60*sec)
	view := NewView(3)
	view.Publish(late.k, true)
	if got := view.SuspectWhy(2); got != unverified {
		t.Errorf("a client reads that the server is not in use: %s", got)
	}
	if !late.k.Verdict(2).Suspect || late.k.Verdict(0).Suspect || others != "" || !strings.Contains(strings.Join(w.log, "\n"), unverified) {
		t.Errorf("%+v %q", late.k.Verdict(2), others)
	}
	stranger.put("__rs_view__:p", record)
	w.run(w.now + 5*sec)
	if view.Publish(late.k, true); late.k.Verdict(2).Suspect || others == "" || view.SuspectWhy(2) == unverified {
		t.Errorf("with the record: %+v", late.k.Verdict(2))
	}
}
