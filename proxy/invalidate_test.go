package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/conversation"
)

// TestInvalidateTags invalidates many tags through the control API, again and again. Few requests wait for a server at the same time, and
// the log has few lines.
func TestInvalidateTags(t *testing.T) {
	s := conversation.New(t)
	var log bytes.Buffer
	s.Logs, s.ShowOpaques = &log, true
	s.Line("pool main servers=s1")
	s.Line("route - main tags=suffix")
	most, deleted := 0, map[string]bool{}
	s.Endpoints["s1"] = &conversation.Endpoint{Name: "s1", Serve: func(requests []byte) (reply []byte) {
		n := 0
		for line := range strings.Lines(string(requests)) {
			switch f := strings.Fields(line); {
			case line == "version\r\n":
				reply = append(reply, "VERSION 1.6.18\r\n"...)
			case line == "stats settings\r\n":
				reply = append(reply, "END\r\n"...)
			case len(f) > 1:
				if f[0] == "md" {
					deleted[f[1]] = true
				}
				reply = append(reply, "HD"...)
				if own := f[len(f)-1]; own[0] == 'O' {
					reply = append(append(reply, ' '), own...)
				}
				reply = append(reply, "\r\n"...)
				n++
			}
		}
		most = max(most, n)
		return reply
	}}
	s.Begin()
	var names []string
	for i := range 600 {
		names = append(names, fmt.Sprint("t", i))
	}
	for range 20 {
		answers, err := s.Proxy.InvalidateTags(names, "")
		if err != nil || len(answers) != 1 || answers[0].Why != "" {
			t.Fatal(answers, err)
		}
	}
	if len(deleted) != len(names) || most > 256 {
		t.Errorf("%d tags are deleted, %d requests at once", len(deleted), most)
	}
	if n := strings.Count(log.String(), "operator invalidated tags"); n != 1 {
		t.Errorf("%d lines in the log, want 1", n)
	}
}
