package tags_test

import (
	"ringside/proxy/conversation"
)

import "testing"

// TestTagsOtherLists checks an invalidation while other instances have another list of
// servers, so it may not reach all of theirs. In relaxed mode it is acknowledged and
// counted. In strict mode it gets an error, and is counted too.
func TestTagsOtherLists(t *testing.T) {
	const (
		asked    = "s1 < ms [bucket x] 0\\r\\n\\r\\nmd [tag x]\ns2 < ms [bucket x] 0\\r\\n\\r\\nmd [tag x]\n"
		answered = "s1 > HD\\r\\nHD\ns2 > HD\\r\\nHD\n"
		once     = "c1 > delete tag:x\n" + asked + answered
	)
	for _, c := range []struct {
		name, pool, answer string
		bad                uint64
	}{
		{"relaxed", "", "DELETED", 0},
		{"strict", " strict=true", "SERVER_ERROR tag x: pool main: instances have different lists of servers, so it may not have reached all of them; the other servers have invalidated it: repeat until DELETED", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := conversation.New(t)
			s.Play(c.name, "pool main servers=s1,s2 failover=rehash"+c.pool+"\nroute a: main tags=suffix\ns1 leased\ns2 leased\n"+once+"c1 < DELETED\n")
			if n := s.Proxy.Invalidations(); n.Foreign != 0 || n.Bad != 0 {
				t.Fatalf("with one list: %d foreign, %d bad", n.Foreign, n.Bad)
			}
			s.Play(c.name, "s1 foreign\n"+once+"c1 < "+c.answer+"\n")
			if n := s.Proxy.Invalidations(); n.Foreign != 1 || n.Bad != c.bad || n.Taken.Count() != 2 {
				t.Fatalf("with two lists: %d foreign, %d bad, of %d", n.Foreign, n.Bad, n.Taken.Count())
			}
		})
	}
}
