package proxy

import (
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/link"
)

// TestFramesOfAnySize: a frame whose value is just too small to be handed over makes a
// request that is not. It was taken out of the input, where it is not.
func TestFramesOfAnySize(t *testing.T) {
	s := newStage(t)
	s.play("frames", "pool main servers=s1")
	for size := link.BigSpan - 100; size <= link.BigSpan+100; size++ {
		value := strings.Repeat("x", size)
		s.play("frames", fmt.Sprintf(`c1 >f set #1 k=k1 x=5,60 v=%[2]s + get #2 k=k1
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
