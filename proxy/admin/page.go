package admin

// This file serves the dashboard and its API. The dashboard, ringside top and scripts use the API:
// a stream of events, and single replies.

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"ringside/proxy/live"
	"ringside/proxy/table"
	"ringside/proxy/watch"
)

// pagePolicy allows the dashboard only to load its own files and to connect to its own instance. If
// a key contained a script, the browser would not run it. No other page can show the dashboard in a
// frame.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

func (s *Server) page(mux *http.ServeMux) {
	s.api(mux)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if s.mayVisit(r) != nil {
			s.index(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", pagePolicy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.ServeContent(w, r, "", s.proxy.Started, strings.NewReader(pageText))
	})
	for path, part := range pageParts {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", part.contentType)
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
			http.ServeContent(w, r, "", s.proxy.Started, strings.NewReader(part.text))
		})
	}
}

const (
	streamLife  = 15 * time.Second // timeout of a write to a stream: a client that reads nothing for this time is disconnected
	streamQuiet = 15 * time.Second // after this time without an event a comment is sent, so that both sides detect a broken connection
	mostWindow  = time.Minute      // longest time that a request for /api/now may count
	mostTrace   = time.Hour        // longest duration of a trace by /api/trace
)

// api adds the dashboard's API to mux.
func (s *Server) api(mux *http.ServeMux) {
	for _, one := range []struct {
		path  string
		do    func(http.ResponseWriter, *http.Request, *table.Pool) error
		known []string // names of the parameters that the path accepts
		worst bool     // if the request names no pool, the pool in the worst state is used, not the first one
	}{
		{"/api/stream", s.getStream, []string{"pool"}, true},
		{"/api/trace", s.getTrace, []string{"pattern", "for"}, false},
		{"/api/now", s.getNow, []string{"pool", "for"}, true},
		{"/api/ring", s.getRing, []string{"pool", "gen"}, false},
		{"/api/route", s.getRoute, []string{"pool", "key", "key64"}, false},
	} {
		mux.HandleFunc("GET "+one.path, func(w http.ResponseWriter, r *http.Request) {
			err := s.mayLook(r)
			var pool *table.Pool
			if err == nil {
				pool, err = s.pool(r.URL.Query().Get("pool"), one.worst)
			}
			if err == nil {
				err = onlyQuery(r, one.known...)
			}
			if err == nil {
				err = one.do(w, r, pool)
			}
			if err != nil {
				tell(w, 0, nil, err)
			}
		})
	}
}

// pool returns the pool with the given name. If name is empty, it returns the pool in the worst
// state if worst is set, or else the first pool.
func (s *Server) pool(name string, worst bool) (*table.Pool, error) {
	if name == "" && worst && len(s.proxy.Table().Pools) > 1 {
		if _, is, err := s.sampler.Servers(); err == nil { // after an error a loop hangs, and the first pool is used
			for _, p := range s.proxy.Table().Pools {
				if p.Name == is.Worst {
					return p, nil
				}
			}
		}
	}
	for _, p := range s.proxy.Table().Pools {
		if name == "" || p.Name == name {
			return p, nil
		}
	}
	return nil, s.noPool(name)
}

// hello is the first event of a stream. The dashboard needs the field Token to change something. A
// page of another site cannot read this event.
type hello struct {
	Version  string   `json:"version"`
	Listen   []string `json:"listen"`
	Loops    int      `json:"loops"`
	PID      int      `json:"pid"`
	Started  int64    `json:"started"` // time of the start of the process, in milliseconds since 1970
	Interval int64    `json:"interval_ms"`
	Control  bool     `json:"control"`
	Faults   bool     `json:"faults"`
	Token    string   `json:"token,omitempty"`

	Words *live.Words `json:"words"`
}

func (s *Server) getStream(w http.ResponseWriter, r *http.Request, pool *table.Pool) error {
	p := s.proxy
	watcher, err := s.sampler.Watch(p.Table(), pool)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "%w", err)
	}
	defer watcher.Close()
	h := hello{Version: s.version, Listen: []string{}, Loops: len(p.Engines()), PID: p.PID, Started: p.Started.UnixMilli(),
		Interval: live.Every.Milliseconds(), Faults: s.mayFault() == nil, Words: &live.Vocabulary}
	for _, l := range p.Table().Listeners {
		h.Listen = append(h.Listen, live.ListenerAddress(l.Network, l.Address))
	}
	if s.mayControl(r) == nil {
		h.Control, h.Token = true, s.token
	}
	first, _ := json.Marshal(h) // Marshal cannot fail, because all fields are plain values
	s.sendEvents(r.Context(), w, r, live.AppendEvent([]byte("retry: 2000\n"), "hello", first), watcher.Ready, watcher.Take)
	return nil
}

// getTrace streams the requests on traced keys. It ends when the client disconnects or the time of
// the trace is over.
func (s *Server) getTrace(w http.ResponseWriter, r *http.Request, _ *table.Pool) error {
	patterns := watch.Patterns(r.URL.Query()["pattern"])
	if err := watch.Check(patterns); err != nil {
		return refuse(http.StatusBadRequest, "%w", err)
	}
	f, err := s.options.Tracer.Follow(patterns)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "%w", err)
	}
	defer f.Close()
	life, err := timeOf(r, 10*time.Minute, time.Second, mostTrace)
	if err != nil {
		return err
	}
	ctx, end := context.WithTimeout(r.Context(), life)
	defer end()
	defer context.AfterFunc(s.leaving, end)()
	s.sendEvents(ctx, w, r, []byte(":\n\n"), f.Ready, func(dst []byte) []byte {
		b, _ := json.Marshal(f.Take()) // Marshal cannot fail for this type
		return live.AppendEvent(dst, "trace", b)
	})
	return nil
}

// timeOf returns the duration in the parameter `for` of r, or `usual` if r has none. It is an error
// if the duration is not between least and most.
func timeOf(r *http.Request, usual, least, most time.Duration) (time.Duration, error) {
	text := r.URL.Query().Get("for")
	if text == "" {
		return usual, nil
	}
	is, err := time.ParseDuration(text)
	if err != nil || is < least || is > most {
		return 0, refuse(http.StatusBadRequest, "for=%.100q: want a time from %v to %v", text, least, most)
	}
	return is, nil
}

// sendEvents sends the bytes `first`. Each time the channel ready receives, it sends what the
// function take appends. It returns when ready is closed, ctx ends, the client does not read, or a reload
// has taken away the access of r.
func (s *Server) sendEvents(ctx context.Context, w http.ResponseWriter, r *http.Request, first []byte, ready <-chan struct{}, take func(dst []byte) []byte) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out := http.NewResponseController(w)
	out.SetReadDeadline(time.Time{}) // no read timeout, because it would end the stream
	send := func(b []byte) error {
		out.SetWriteDeadline(time.Now().Add(streamLife))
		if _, err := w.Write(b); err != nil {
			return err
		}
		return out.Flush()
	}
	quiet := time.NewTimer(streamQuiet)
	defer quiet.Stop()
	for b := first; ; {
		if s.stillAllowed(r, s.mayLook) != nil || send(b) != nil {
			return
		}
		quiet.Reset(streamQuiet)
		select {
		case _, more := <-ready:
			if !more {
				return
			}
			b = take(b[:0])
		case <-quiet.C:
			b = append(b[:0], ":\n\n"...)
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) getNow(w http.ResponseWriter, r *http.Request, pool *table.Pool) error {
	window, err := timeOf(r, 2*time.Second, 100*time.Millisecond, mostWindow)
	if err != nil {
		return err
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(window + streamLife))
	now, err := s.sampler.Now(r.Context(), pool, window)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "%w", err)
	}
	if err := s.stillAllowed(r, s.mayLook); err != nil {
		return err
	}
	tell(w, http.StatusOK, now, nil)
	return nil
}

func (s *Server) getRing(w http.ResponseWriter, r *http.Request, pool *table.Pool) error {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Write(live.RingBytes(pool))
	return nil
}

// getRoute sends the route of a key. It uses the first listener on which the key belongs to the
// given pool. If there is no such listener, it uses the first listener.
func (s *Server) getRoute(w http.ResponseWriter, r *http.Request, pool *table.Pool) error {
	q := r.URL.Query()
	key := []byte(q.Get("key"))
	if q.Has("key64") {
		var err error
		if key, err = base64.StdEncoding.DecodeString(q.Get("key64")); err != nil {
			return refuse(http.StatusBadRequest, "key64 is not base64: %w", err)
		}
	}
	if len(key) == 0 {
		return refuse(http.StatusBadRequest, "which key? say key=, or key64= in base64")
	}
	t := s.proxy.Table()
	var is *live.Routed
	for i := range t.Listeners {
		on := live.RouteOf(&t.Listeners[i], &t.Limits, key)
		if is == nil || on.Pool == pool.Name && is.Pool != pool.Name {
			is = on
		}
	}
	tell(w, http.StatusOK, is, nil)
	return nil
}
