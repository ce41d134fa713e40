package client_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringside/proxy/conversation"
	"ringside/proxy/link"
)

// TestFramesOfAnySize uses values around the size from which a request is passed on without a
// copy. A frame may be slightly below that size and its request above it. Such a request was once
// taken out of the input buffer, although it is in another one.
func TestFramesOfAnySize(t *testing.T) {
	s := conversation.New(t)
	s.Play("frames", "pool main servers=s1")
	for size := link.BigSpan - 100; size <= link.BigSpan+100; size++ {
		value := strings.Repeat("x", size)
		s.Play("frames", fmt.Sprintf(`c1 >f set #1 k=k1 x=5,60 v=%[2]s + get #2 k=k1
s1 < ms k1 %[1]d c F5 T60
s1 < %[2]s
s1 < gets k1
s1 > HD c9
s1 > VALUE k1 5 %[1]d 9\r\n%[2]s\r\nEND
c1 <f set #1 cas=9
c1 <f get #2 cas=9 x=5 v=%[2]s
`, size, value))
	}
}

// TestFrameWithoutRoom checks that batched gets are sent before a later frame is rejected for
// lack of memory. The proxy deletes the key of a set that it rejects. Once, it wrote that delete
// into the middle of the line of the batched gets.
func TestFrameWithoutRoom(t *testing.T) {
	s := conversation.New(t)
	s.Play("frames", "pool main servers=s1\nlimits memory=1000000\nc2 > get a1\ns1 < get a1\ns1 > END\nc2 < END")
	begins := slices.Concat(s.Frame("getkq #1 k=a1", false), s.Frame("getkq #2 k=b1", false), s.Frame("set #3 k=c1 x=0,0 v="+strings.Repeat("x", 2_000_000), false)[:100])
	client := s.Endpoint("c1")
	s.Wakeup(func() { s.Engine.Bytes(client.Link, begins) })
	s.Play("frames", `s1 < gets a1 b1
s1 < delete c1
s1 > VALUE b1 5 1 9\r\nB\r\nEND
s1 > DELETED
c1 <f getkq #2 cas=9 x=5 k=b1 v=B
c1 <f set #3 status=0x82 v=Out\x20of\x20memory
`)
}
