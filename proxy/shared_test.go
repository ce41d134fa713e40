package proxy_test

// Tests of servers that other instances eject.

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/conversation"
)

// elsewhere returns the servers that other instances eject.
func elsewhere(t *testing.T, s *conversation.Harness) (text string) {
	t.Helper()
	sum, err := s.Proxy.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for _, is := range sum.Shared {
		text += fmt.Sprintf("%s %s %s;", is.Pool, is.Server, is.Other)
	}
	return text
}

func play(s *conversation.Harness, script string) {
	for line := range strings.Lines(script) {
		s.Line(strings.TrimSuffix(line, "\n"))
	}
}

// TestPoolsAreRead checks an instance without ejection. It reads the item and writes it
// only after it has seen that another instance ejects the server, so that the other one
// learns of it.
func TestPoolsAreRead(t *testing.T) {
	var logs bytes.Buffer
	s := conversation.New(t)
	s.Logs = &logs
	play(s, `pool stays servers=s1,s2,s3
pool also servers=s2
s3 greets 1.6.9`)
	s.Begin()
	s.Proxy.AskPools() // no release is known yet, so nothing is sent
	play(s, `c1 > get a1 b2 c3
s1 < get a1
s2 < get b2
s3 < get c3
s1 > END
s2 > END
s3 > END
c1 < END`)
	for round := range 3 {
		s.Proxy.AskPools()
		play(s, fmt.Sprintf(`s1 < mg __rs_pools v c
s2 < mg __rs_pools v c
s1 > EN
s2 > VA %[1]d c7\r\nrp1 e\x00=%[2]d old=1
s3 <`, len("rp1 e.=1 old=1"), round))
		if round == 0 {
			play(s, `s2 <`)
		} else {
			text := fmt.Sprintf("rp1 !also=1 !stays=1 e%%00=%d old=1", round)
			play(s, fmt.Sprintf("s2 < ms __rs_pools %d C7 T600\ns2 < %s\ns2 > HD", len(text), text))
		}
		want := "stays s2 e\x00;also s2 e\x00;"
		if round == 0 {
			want = ""
		}
		if got := elsewhere(t, s); got != want {
			t.Errorf("after round %d it reports %q, want %q", round, got, want)
		}
	}
	if n := strings.Count(logs.String(), "another instance ejects a server"); n != 1 || !strings.Contains(logs.String(), `server=s2 address=s2 pools="[stays also]" other="e\x00"`) {
		t.Errorf("%d lines:\n%s", n, logs.String())
	}
	for round := range 4 { // invalid items and errors are ignored
		s.Proxy.AskPools()
		play(s, `s1 < mg __rs_pools v c
s2 < mg __rs_pools v c
s1 > SERVER_ERROR out of memory
s2 > VA 3 c8\r\nabc`)
		if round < 3 { // the other instance has not expired yet
			play(s, `s2 < ms __rs_pools 20 C8 T600
s2 < rp1 !also=1 !stays=1
s2 > HD`)
		} else {
			play(s, `s2 <`)
		}
	}
	if got := elsewhere(t, s); got != "" {
		t.Errorf("what is gone is reported: %q", got)
	}
}

// TestPoolsAreWritten checks an instance that ejects a server. It adds its pool to the
// item, and reads it again if another instance has written in between.
func TestPoolsAreWritten(t *testing.T) {
	s := conversation.New(t)
	play(s, `pool main servers=s1,s2 failover=rehash
pool stays servers=s3`)
	s.Begin()
	play(s, `c1 > get a1
s1 < get a1
s1 > END
c1 < END`)
	s.Proxy.AskPools()
	play(s, `s1 < mg __rs_pools v c
s1 > EN
s1 < ms __rs_pools 10 ME T600
s1 < rp1 main=1
s1 > NS
s1 < mg __rs_pools v c
s1 > VA 19 c9\r\nrp1 other=4 main=zz
s1 < ms __rs_pools 20 C9 T600
s1 < rp1 main=100 other=4
s1 > EX
s1 < mg __rs_pools v c
s1 > VA 19 c11\r\nrp1 main=3 other=5 
s1 < ms __rs_pools 18 C11 T600
s1 < rp1 main=4 other=5
s1 > EX
s1 <`)
	if got := elsewhere(t, s); got != "main s1 other;" {
		t.Errorf("it reports %q", got)
	}
}
