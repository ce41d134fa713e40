package health

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// formerItem returns the key of the item with the former lists in the world w.
func (w *world) formerItem() string { return w.proxies[0].k.formers.item }

// TestFormers checks that former lists are on all servers while keys move, that a process which is started then reads
// them before it serves, and that they are removed when all keys have moved.
func TestFormers(t *testing.T) {
	texts := [][]byte{[]byte("list 3"), []byte("list 1"), []byte("list 2")}
	for name, c := range map[string]struct {
		change func(n *node, key string)
		want   bool
	}{
		"":        {func(*node, string) {}, true},
		"evicted": {func(n *node, key string) { n.drop(key) }, false},
		"damaged": {func(n *node, key string) { n.put(key, "1\nlist 3\nlist 1\nlis") }, false},
		"hostile": {func(n *node, key string) { n.put(key, "1"+strings.Repeat("\nlist 1", 6)) }, false},
		"older":   {func(n *node, key string) { n.put(key, "1\nlist 3\nlist 3") }, true},
	} {
		w := newWorld(t, scenario{proxies: 2, pool: 3})
		w.started = func(k *Keeper) { k.SetTexts(&Texts{Hash: listHash}) }
		for _, p := range w.proxies {
			w.start(p)
		}
		w.run(w.now + 5*sec)
		mover, key := w.proxies[0], w.formerItem()
		w.input(mover, func() {
			mover.k.barrier.Begin(1, mover.k.hash, w.now)
			mover.k.barrier.N = 4
			mover.k.barrier.Begin(2, mover.k.hash, w.now)
			mover.k.setFormers(texts, w.now)
		})
		w.run(w.now + sec)
		for i, n := range w.nodes {
			if got, _ := n.value(key); got != "5\nlist 3\nlist 1\nlist 2" {
				t.Fatalf("server %d has %q", i, got)
			}
			if name != "older" || i == 0 {
				c.change(n, key)
			}
		}
		w.started = func(k *Keeper) {
			k.SetTexts(&Texts{Hash: listHash})
			k.SeekFormers()
		}
		late := w.proxies[1]
		w.start(late)
		if late.k.ListsKnown() {
			t.Errorf("%s: it serves before it has asked for former lists", name)
		}
		w.run(w.now + 2*sec)
		want := texts[1:]
		if !c.want {
			want = nil
		}
		if got := late.k.formers.learned; !slices.EqualFunc(got, want, bytes.Equal) || !late.k.ListsKnown() {
			t.Errorf("%s: it has learned %q, known: %v", name, got, late.k.ListsKnown())
		}
		if late.k.barrier.N != 5 {
			t.Errorf("%s: its handover number is %d", name, late.k.barrier.N)
		}
		w.run(w.now + (listPings+10)*int64(w.set.Ping))
		if got, _ := w.nodes[1].value(key); got != "8\nlist 3\nlist 1\nlist 2" { // all keys are served by the new list now
			t.Errorf("%s: later, a server has %q", name, got)
		}
		w.input(mover, func() { mover.k.setFormers(nil, w.now) })
		w.run(w.now + (listPings+10)*int64(w.set.Ping))
		if got, _ := w.nodes[1].value(key); got != "8\nlist 3" {
			t.Errorf("%s: when all keys have moved, a server has %q", name, got)
		}
		w.run(w.now + endPings*int64(w.set.Ping))
		for i, n := range w.nodes {
			if got, _ := n.value(key); got != "" {
				t.Errorf("%s: server %d still has %q", name, i, got)
			}
		}
	}
}

// putOtherRecords stores the view record of a process with another list than p on all servers, with the given handover number.
func putOtherRecords(w *world, p *proxy, number uint32) record {
	r := p.k.known(record{})
	r.hash, r.stage = r.hash+1, number
	for _, n := range w.nodes {
		n.put(ViewKey("p"), string(p.k.format(r)))
	}
	return r
}

// TestFormersWithStage checks that a process which is started while keys move for a second time publishes no former lists before it has
// the stage of its peers. The view records still have an earlier handover number, of another list.
func TestFormersWithStage(t *testing.T) {
	w := newWorld(t, scenario{proxies: 1, pool: 5})
	late := w.proxies[0]
	putOtherRecords(w, late, 5)
	for _, n := range w.nodes {
		n.put(w.formerItem(), "9\nlist 3\nlist 1\nlist 2")
	}
	w.started = func(k *Keeper) {
		k.SetTexts(&Texts{Hash: listHash})
		k.SeekFormers()
	}
	v := NewView(len(w.nodes))
	v.Handover.Arrange(1, 0, false)
	w.start(late)
	for end := w.now + 5*sec; w.now < end && v.Formers() == nil; w.run(w.now + ms/20) {
		v.Tell(late.k, w.now)
		v.Publish(late.k, late.k.ListsKnown())
		if s := v.Handover.Status(); v.Formers() != nil && s.N != 9 {
			t.Errorf("it publishes former lists with the handover number %d", s.N)
		}
	}
	if v.Formers() == nil {
		t.Error("it publishes no former lists")
	}
}

// TestFormersOfAnother checks that a process which is started with a further list joins its peers while they move keys, if the item
// for their list, which the view records name, has a higher number than that for its own list, and is valid.
func TestFormersOfAnother(t *testing.T) {
	for _, c := range []struct {
		name, item, own string
		joins           bool
	}{
		{"joins", "5\nlist 3\nlist 1\nlist 2", "", true},
		{"its own list is of an earlier handover", "5\nlist 3\nlist 2", "4\nlist 1\nlist 2", true},
		{"its own list is of a later handover", "5\nlist 3\nlist 2", "9\nlist 1\nlist 3", false},
		{"another list", "5\nlist 2\nlist 1", "", false},
		{"all keys have moved", "8\nlist 3", "", true},
		{"nothing", "", "", false},
	} {
		w := newWorld(t, scenario{proxies: 1, pool: 5})
		late := w.proxies[0]
		r := putOtherRecords(w, late, 6)
		for _, n := range w.nodes {
			if c.item != "" {
				n.put(late.k.formerKey(uint32(r.hash)), c.item)
			}
			if c.own != "" {
				n.put(w.formerItem(), c.own)
			}
		}
		w.started = func(k *Keeper) {
			k.SetTexts(&Texts{Hash: listHash, Members: func(text []byte) (uint64, error) {
				if string(text) == "list 3" {
					return r.hash, nil
				}
				return r.hash + 1, nil
			}})
			k.SeekFormers()
		}
		w.start(late)
		w.run(w.now + 5*sec)
		if joins := string(late.k.Joins()) == "list 3"; joins != c.joins || late.k.ListsKnown() == joins {
			t.Errorf("%s: it joins with %q, and knows its lists: %v", c.name, late.k.Joins(), late.k.ListsKnown())
		}
	}
}

// TestFormersOfNobody checks that a process serves soon if no server has former lists, and if some servers do not answer.
func TestFormersOfNobody(t *testing.T) {
	for dead := range 3 {
		w := newWorld(t, scenario{proxies: 1, pool: 3})
		w.started = func(k *Keeper) { k.SeekFormers() }
		for i := range dead {
			w.cutAll(i, true)
		}
		w.start(w.proxies[0])
		w.run(w.now + 5*sec)
		if !w.proxies[0].k.ListsKnown() {
			t.Errorf("it does not serve, and %d servers do not answer", dead)
		}
	}
}
