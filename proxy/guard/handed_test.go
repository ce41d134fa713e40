package guard_test

// Gets whose reply one loop has, and whose task another loop runs.

import (
	"testing"

	"ringside/proxy"
	"ringside/proxy/conversation"
)

// TestHandedReply: the loop of the key does not use the server of the client's loop, which a
// reload may just be changing.
func TestHandedReply(t *testing.T) {
	s := conversation.New(t)
	for _, line := range []string{"loops 2", "pool main servers=s1 get_errors=error", "route - main guard=wait:2s"} {
		s.Line(line)
	}
	s.Begin()
	server := s.Proxy.Engines()[1].ByAddress["tcp s1"]
	post := s.Engine.Post
	s.Engine.Post = func(f func(*proxy.Engine)) {
		post(func(e *proxy.Engine) {
			was := server.Target
			server.Target.Name, server.Target.Address = "renamed", "elsewhere"
			f(e)
			server.Target = was
		})
	}
	for _, line := range []string{
		"c1/2 > get a1",
		`s1/2 < mg a1 f v c N10 k`,
		`s1/2 > VA 0 ka1 f0 c5 W\r\n`,
		"s1 < mg a1 s f c t R0",
		"s1 > HD s0 f0 c5 t9 Z",
		"c1/2 < END",
		"c2/2 > get a1",
		"s1/2 < mg a1 f v c N10 k",
		"s1/2 > SERVER_ERROR busy",
		"c2/2 < SERVER_ERROR server s1: SERVER_ERROR busy",
	} {
		s.Line(line)
	}
}
