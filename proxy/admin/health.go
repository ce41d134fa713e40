package admin

// Liveness and readiness.

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

// patience is how long a loop may take to answer. In a healthy loop the longest wakeup takes
// milliseconds.
const patience = time.Second

// heart checks whether the loops are running.
type heart struct {
	p *proxy.Proxy

	mu    sync.Mutex
	asked *question
}

// question is one check of every loop. All callers share it until all loops have answered, so
// that a loop that hangs has at most one check queued.
type question struct {
	done    chan struct{}
	missing atomic.Int32
	loops   int
}

// beat returns nil when every loop has answered.
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

// say replies 200 with good, or 503 with the error.
func say(w http.ResponseWriter, good string, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		good = "not " + good + ": " + err.Error()
	}
	io.WriteString(w, good+"\n")
}
