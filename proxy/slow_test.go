package proxy_test

// Tests of the contents of the slow log.

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/proxy/conversation"
)

func TestSlowLog(t *testing.T) {
	var logs bytes.Buffer
	s := conversation.New(t)
	s.Logs, s.Table.LogSlow = &logs, 100*time.Millisecond
	s.Play("slow", `pool main servers=s1,s2
pool img servers=s1
pool kept servers=k1,k2
route img: img strip
route kept: kept copies=2
route - main
c1 > get kept:k1
k1 runs 7
k2 runs 8
k1 < get kept:k1
wait 130ms
k1 > END
c1 < END
c1 > get fast1
s1 < get fast1
s1 > END
c1 < END
c1 > get late1
s1 < get late1
wait 150ms
s1 > END
c1 < END
c1 > get a1 b1 c2
s1 < get a1 b1
s2 < get c2
wait 110ms
s1 > END
wait 10ms
s2 > END
c1 < END
c1 > set img:x1 0 0 1\r\nX
s1 < set x1 0 0 1\r\nX
wait 200ms
s1 > STORED
c1 < STORED
c1 > get first1
c2 > get behind1
s1 < get first1
s1 < get behind1
wait 90ms
s1 > END
c1 < END
wait 80ms
s1 > END
c2 < END
c1 > get v1
s1 < get v1
s1 > VALUE v1 0 10\r\n01234\
wait 300ms
s1 > 56789\r\nEND
c1 < VALUE v1 0 10\r\n0123456789
c1 < END
c1 > get gone2
s2 < get gone2
wait 250ms
s2 dies
c1 < END
s2 hangs
c3 > get dialled2
wait 3s
c3 < END
c1 > mg bGF0/TE= b v
s1 < mg bGF0/TE= b v
wait 101ms
s1 > EN
c1 < EN
`)
	// Of many slow commands the first ten are logged, and then fewer and fewer.
	for range 40 {
		s.Play("slow", "c9 > get m1\ns1 < get m1\nwait 100ms\ns1 > END\nc9 < END\n")
	}
	var got []string
	for line := range strings.Lines(logs.String()) {
		if _, said, ok := strings.Cut(strings.TrimSpace(line), ` msg="slow command" `); ok {
			got = append(got, said)
		}
	}
	want := []string{
		`command=get key=kept:k1 keys=1 server=k1 client=c1 ms=130 phase=several slow_in_10s=1`,
		`command=get key=late1 keys=1 server=s1 client=c1 ms=150 phase=answer slow_in_10s=2`,
		`command=get key=a1 keys=2 server=s1 client=c1 ms=110 phase=answer slow_in_10s=3`,
		`command=get key=c2 keys=1 server=s2 client=c1 ms=120 phase=answer slow_in_10s=4`,
		`command=set key=img:x1 keys=1 server=s1 client=c1 ms=200 phase=answer slow_in_10s=5`,
		`command=get key=behind1 keys=1 server=s1 client=c2 ms=170 phase=queue slow_in_10s=6`,
		`command=get key=v1 keys=1 server=s1 client=c1 ms=300 phase=value slow_in_10s=7`,
		`command=get key=gone2 keys=1 server=s2 client=c1 ms=250 phase=answer slow_in_10s=8 error="server s2: connection closed by the server"`,
		`command=get key=dialled2 keys=1 server=s2 client=c3 ms=1200 phase=connect slow_in_10s=9 error="server s2 is down: no connection within the connect timeout"`,
		`command=mg key=lat\xfd1 keys=1 server=s1 client=c1 ms=101 phase=answer slow_in_10s=10`,
		`command=get key=m1 keys=1 server=s1 client=c9 ms=100 phase=answer slow_in_10s=16`,
		`command=get key=m1 keys=1 server=s1 client=c9 ms=100 phase=answer slow_in_10s=32`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
