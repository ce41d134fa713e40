package admin

// This file limits the large replies that wait for their clients.

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
	"time"
)

// sending has the large replies that are complete, and are being sent. A client that reads slowly
// keeps its reply in memory. So if there are too many, the oldest one is ended: its client gets an
// incomplete reply, and its connection is closed. So slow clients cannot keep others away.
type sending struct {
	mu   sync.Mutex
	open []*http.ResponseController // the oldest one first
}

// begin records that a reply is sent on w from now on. The caller calls the returned function when
// the reply is sent.
func (s *sending) begin(w http.ResponseWriter) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := http.NewResponseController(w)
	if s.open = append(s.open, c); len(s.open) > maxSending {
		_ = s.open[0].SetWriteDeadline(time.Unix(1, 0)) // an error means that the connection is closed already
		s.open = slices.Delete(s.open, 0, 1)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = slices.DeleteFunc(s.open, func(o *http.ResponseController) bool { return o == c })
	}
}

// collected is a ResponseWriter that collects the body of a reply.
type collected struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (c *collected) Write(b []byte) (int, error) { return c.body.Write(b) }
func (c *collected) Unwrap() http.ResponseWriter { return c.ResponseWriter }
