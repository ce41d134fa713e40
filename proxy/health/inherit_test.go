package health

// Tests of a keeper that a reload creates under another name while a server is out.

import (
	"fmt"
	"testing"

	"ringside/proxy/health/resize"
)

// inheritor returns a keeper of three servers. The first one had the number n before a
// reload, under another name. It has then read a record, left from an earlier time, in which
// that server has the number 12 and is in.
func inheritor(n, renamed uint32) *Keeper {
	members, index := testServers("a", "b", "c")
	k := New("p", members, Settings{}, 1)
	k.Inherit(0, n, renamed, true)
	r, err := parseRecord([]byte("rs1 1 1 a=c b=6"), by(index), len(members))
	if err != nil {
		panic(err)
	}
	k.Tick(sec)
	k.read(1, r, sec, sec)
	k.read(2, r, sec, sec)
	return k
}

func TestInherit(t *testing.T) {
	for _, c := range []struct {
		n, renamed uint32
		want       uint32
	}{
		{0, 0, 12},
		{1, 0, 14},  // LEAVING: out before it serves again
		{2, 0, 14},  // OUT
		{3, 0, 14},  // RETURN: not flushed yet
		{4, 0, 14},  // WARM: other proxies may write elsewhere now
		{6, 0, 12},  // IN
		{6, 3, 14},  // IN, but its keys have other names
		{14, 0, 14}, // later than the record
		{18, 0, 12}, // IN: the number is that of the record
	} {
		if got := inheritor(c.n, c.renamed).Verdict(0).N; got != c.want {
			t.Errorf("%d, renamed %d: %d, want %d", c.n, c.renamed, got, c.want)
		}
	}
}

// TestInheritedKeysAreNew checks that the next outage has a higher number than those before
// the reload, because substitutes may still have keys with these numbers.
func TestInheritedKeysAreNew(t *testing.T) {
	k := inheritor(18, 0)
	if k.override(0, Drain, sec); k.Verdict(0).N != 19 {
		t.Errorf("its next outage has the number %d", k.Verdict(0).N)
	}
}

// TestInheritedProgress checks that a keeper adopts later records, in which the server
// rejoins.
func TestInheritedProgress(t *testing.T) {
	k := inheritor(2, 0)
	for n := uint32(15); n <= 18; n++ {
		r, _ := parseRecord(fmt.Appendf(nil, "rs1 1 1 a=%s", appendNumber(nil, uint64(n))), by(k.index), 3)
		if k.read(1, r, 2*sec, 2*sec); k.Verdict(0).N != n {
			t.Errorf("%d, want %d", k.Verdict(0).N, n)
		}
	}
	if k.servers[0].inherited {
		t.Error("it has been flushed")
	}
}

// TestOutSince checks that a keeper shows since when a server has been out if that was before the reload that created the
// keeper, until the server is in another phase.
func TestOutSince(t *testing.T) {
	members, _ := testServers("a", "b", "c")
	k := New("p", members, Settings{}, 1)
	k.Inherit(0, 2, 0, false)
	k.OutSince(0, 5*sec)
	k.Tick(60 * sec)
	k.ServerFailed(0, false, "connection refused", 61*sec)
	if v := k.Verdict(0); v.Since != 5*sec || v.InPhase != 5*sec || v.Why != "connection refused" {
		t.Errorf("the server is out since %d s (%d s), because of %q", v.Since/sec, v.InPhase/sec, v.Why)
	}
	v := NewView(3)
	v.Publish(k, true)
	if got := v.OutSince(0); got != 5*sec || v.OutSince(1) != 0 {
		t.Errorf("published: out since %d s", got/sec)
	}
	k.servers[0].n++
	if v := k.Verdict(0); v.InPhase == 5*sec {
		t.Error("another phase has begun when the server became out")
	}
}

// TestResumeOpposed checks what a keeper knows after a reload about the wishes of other proxies.
func TestResumeOpposed(t *testing.T) {
	for _, c := range []struct {
		opposed bool
		wish    uint32
		want    bool
	}{{false, 2, false}, {true, 2, true}, {false, 3, true}} {
		before, old := NewView(3), inheritor(12, 0)
		old.SetLists(resize.Lists{Mine: 1, Wish: 2}, 0)
		old.resize.Opposed = c.opposed
		before.Publish(old, true)
		k := inheritor(12, 0)
		k.SetLists(resize.Lists{Mine: 1, Wish: c.wish}, 0)
		if k.Resume(before); k.resize.Opposed != c.want {
			t.Errorf("%+v: %t", c, k.resize.Opposed)
		}
	}
}
