package wire

// The plain form of each request that the parser accepts is one request, too.

import (
	"strings"
	"testing"
)

func TestPlainFormOfLongLines(t *testing.T) {
	var l Limits
	for _, head := range []string{"ms k 0 L", "set k1 0 0 0", "mg k L", "md k L", "ma k L", "incr k 0", "touch k 0", "get k "} {
		for size := shortLine - 3; size <= shortLine+1; size++ {
			for _, end := range []string{"\n", "\r\n"} {
				line := head + strings.Repeat("0", size-len(head))
				if strings.HasPrefix(head, "set") {
					line = "set k1 " + strings.Repeat("0", size-len("set k1  0 0")) + " 0 0"
				}
				if head == "get k " {
					line = head + strings.Repeat("k ", (size-len(head))/2) + strings.Repeat(" ", size%2)
				}
				line += end
				b := []byte(line + "\r\n")
				var r, again Request
				if n, err := l.Next(b, &r); err != nil || r.Op == Bad || n < len(line) {
					continue
				}
				plain := AppendPlain(nil, b, &r, nil)
				if !l.One(plain, &again) {
					t.Errorf("%.12s… of %d bytes with %q is accepted, and its plain form of %d bytes is not", line, size, end, len(plain))
				}
			}
		}
	}
}
