package link_test

import (
	"strings"
	"testing"

	"ringside/proxy/link"
)

// TestDraft checks that the bytes of a draft are in the queue, in their order, whether its last chunk has
// room for them or not, and whether the draft becomes longer than announced.
func TestDraft(t *testing.T) {
	var io link.IO
	var q link.Queue
	want := ""
	for i, announced := range []int{10, 10, 10, 1000, 10, 2000, 0} {
		line := strings.Repeat(string(rune('a'+i)), []int{10, 10, 1100, 900, 3000, 2000, 1}[i])
		io.Add(&q, append(io.Draft(&q, announced), line...))
		want += line
	}
	if got := string(q.Last(nil, q.Size)); got != want || q.Size != len(want) {
		t.Errorf("the queue has %d bytes, %d of them are right; want %d", q.Size, len(got), len(want))
	}
}
