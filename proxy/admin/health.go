package admin

// This file checks whether the instance is alive and ready.

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ringside/proxy"
)

// patience is the longest time that a loop may take to answer a check. The longest wakeup of a
// healthy loop takes milliseconds.
const patience = time.Second

// heart checks whether all loops of the proxy answer.
type heart struct {
	p *proxy.Proxy

	mu    sync.Mutex
	asked *question
}

// question is one check of every loop. If a check is still without an answer of some loop, new
// callers wait for the same check. So a loop that hangs has at most one check in its queue.
type question struct {
	done    chan struct{}
	missing atomic.Int32
	loops   int
}

// beat checks every loop. It returns nil when all loops have answered, and an error if one does not
// answer in time.
func (h *heart) beat() error {
	q := h.ask()
	if q == nil {
		return errors.New("no loop runs yet")
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-q.done:
		return nil
	case <-late.C:
		return fmt.Errorf("%d of %d loops did not answer within %v", q.missing.Load(), q.loops, patience)
	}
}

func (h *heart) ask() *question {
	h.mu.Lock()
	defer h.mu.Unlock()
	if q := h.asked; q != nil && q.missing.Load() > 0 {
		return q
	}
	engines := h.p.Engines()
	if len(engines) == 0 {
		return nil
	}
	q := &question{done: make(chan struct{}), loops: len(engines)}
	q.missing.Store(int32(len(engines)))
	h.asked = q
	for _, e := range engines {
		e.Post(func(*proxy.Engine) {
			if q.missing.Add(-1) == 0 {
				close(q.done)
			}
		})
	}
	return q
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	say(w, "ok", s.heart.beat())
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	err := s.heart.beat()
	if err == nil && s.options.Ready != nil {
		err = s.options.Ready()
	}
	say(w, "ready", err)
}

// say replies with status 200 and the text good, or with status 503 and the error.
func say(w http.ResponseWriter, good string, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		good = "not " + good + ": " + err.Error()
	}
	io.WriteString(w, good+"\n")
}
