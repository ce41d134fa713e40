package admin

// What the page, ringside top and scripts read: a stream, and single answers.

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	runtimemetrics "runtime/metrics"
	"time"

	"ringside/proxy/live"
	"ringside/proxy/table"
)

const (
	streamLife  = 15 * time.Second // of a write: a watcher that takes nothing for so long is let go
	streamQuiet = 15 * time.Second // then a comment is sent, so that both sides know the other is there
	mostWindow  = time.Minute      // of /api/now
)

// api adds what is behind the page to mux.
func (s *Server) api(mux *http.ServeMux) {
	for path, do := range map[string]func(http.ResponseWriter, *http.Request, *table.Pool) error{
		"/api/stream": s.getStream,
		"/api/now":    s.getNow,
		"/api/ring":   s.getRing,
		"/api/route":  s.getRoute,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			err := s.mayLook(r)
			var pool *table.Pool
			if err == nil {
				pool, err = s.poolOf(r)
			}
			if err == nil {
				err = do(w, r, pool)
			}
			if err != nil {
				tell(w, 0, nil, err)
			}
		})
	}
}

// poolOf is the pool that r is about: the first, unless it says which.
func (s *Server) poolOf(r *http.Request) (*table.Pool, error) {
	name, pools := r.URL.Query().Get("pool"), s.heart.p.Table().Pools
	for _, p := range pools {
		if name == "" || p.Name == name {
			return p, nil
		}
	}
	return nil, refuse(http.StatusNotFound, "no pool %.100q", name)
}

// hello is what a watcher is told first. Token lets a page change something: a page
// of another origin can't read it.
type hello struct {
	Version  string   `json:"version"`
	Listen   []string `json:"listen"`
	Loops    int      `json:"loops"`
	PID      int      `json:"pid"`
	Started  int64    `json:"started"` // Unix milliseconds
	Interval int64    `json:"interval_ms"`
	Control  bool     `json:"control"`
	Faults   bool     `json:"faults"`
	Token    string   `json:"token,omitempty"`
}

func (s *Server) getStream(w http.ResponseWriter, r *http.Request, pool *table.Pool) error {
	if err := onlyQuery(r, "pool"); err != nil {
		return err
	}
	p := s.heart.p
	watcher, err := s.sampler.Watch(p.Table(), pool)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "%w", err)
	}
	defer watcher.Close()
	h := hello{Version: s.version, Listen: []string{}, Loops: len(p.Engines()), PID: p.PID, Started: p.Started.UnixMilli(),
		Interval: live.Every.Milliseconds(), Faults: s.mayFault() == nil}
	for _, l := range p.Table().Listeners {
		at := l.Address
		if l.Network == "unix" {
			at = "unix:" + at
		}
		h.Listen = append(h.Listen, at)
	}
	if s.mayControl(r) == nil {
		h.Control, h.Token = true, s.token
	}
	first, _ := json.Marshal(h) // of such values nothing can fail
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out := http.NewResponseController(w)
	out.SetReadDeadline(time.Time{}) // else the end of the request's own would end the stream
	send := func(b []byte) error {
		out.SetWriteDeadline(time.Now().Add(streamLife))
		if _, err := w.Write(b); err != nil {
			return err
		}
		return out.Flush()
	}
	quiet := time.NewTimer(streamQuiet)
	defer quiet.Stop()
	b := live.AppendEvent([]byte("retry: 2000\n"), "hello", first)
	for {
		if send(b) != nil {
			return nil
		}
		quiet.Reset(streamQuiet)
		select {
		case _, more := <-watcher.Ready:
			if !more {
				return nil
			}
			b = watcher.Take(b[:0])
		case <-quiet.C:
			b = append(b[:0], ":\n\n"...)
		case <-r.Context().Done():
			return nil
		}
	}
}

func (s *Server) getNow(w http.ResponseWriter, r *http.Request, pool *table.Pool) error {
	if err := onlyQuery(r, "pool", "for"); err != nil {
		return err
	}
	window := 2 * time.Second
	if text := r.URL.Query().Get("for"); text != "" {
		var err error
		if window, err = time.ParseDuration(text); err != nil || window < 100*time.Millisecond || window > mostWindow {
			return refuse(http.StatusBadRequest, "for=%.100q: want a time from 100ms to 1m", text)
		}
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(window + streamLife))
	now, err := s.sampler.Now(r.Context(), pool, window)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "%w", err)
	}
	tell(w, http.StatusOK, now, nil)
	return nil
}

func (s *Server) getRing(w http.ResponseWriter, r *http.Request, pool *table.Pool) error {
	if err := onlyQuery(r, "pool", "gen"); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Write(live.RingBytes(pool))
	return nil
}

// getRoute says where a key goes on the first listener whose route leads it to the
// pool that was named; on the first of all, unless there is one.
func (s *Server) getRoute(w http.ResponseWriter, r *http.Request, pool *table.Pool) error {
	if err := onlyQuery(r, "pool", "key", "key64"); err != nil {
		return err
	}
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
	t := s.heart.p.Table()
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

// usage is what the process has used so far: processor time, and bytes of memory
// that the runtime holds.
func usage() (time.Duration, uint64) {
	held := []runtimemetrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	runtimemetrics.Read(held)
	return cpuUsed(), held[0].Value.Uint64() - held[1].Value.Uint64()
}
