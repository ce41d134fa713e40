package admin

// This file serves /metrics: the counters of the proxy, and the metrics of the Go runtime and the
// process.

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// newProcess returns a registry that has the metrics of the Go runtime and of the process.
func newProcess() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// compressors are kept for later scrapes, because each has tables of some hundred KB. The fastest
// level of compression is enough, because most of the text is repeated label names.
var compressors = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err)
	}
	return z
}}

// scrapes lets scrapes that arrive at the same time share one text. So clients that scrape very often neither keep others
// away nor use much CPU time.
type scrapes struct {
	making sync.Mutex // held while a text is created
	mu     sync.Mutex
	next   *exposition // the text that will be created next; nil: no scrape waits for it
}

// exposition is the text of a scrape.
type exposition struct {
	made chan struct{} // closed when text and err are set
	text []byte        // not changed after made is closed
	err  error
}

// join returns the result of create. All calls that arrive before create begins get the same result. create runs once at a time.
func (s *scrapes) join(create func() ([]byte, error)) ([]byte, error) {
	s.mu.Lock()
	x := s.next
	if x != nil {
		s.mu.Unlock()
		<-x.made
		return x.text, x.err
	}
	x = &exposition{made: make(chan struct{}), err: errors.New("the text could not be created")}
	s.next = x
	s.mu.Unlock()
	s.making.Lock()
	defer s.making.Unlock()
	defer close(x.made) // also after a panic, which net/http logs
	s.mu.Lock()
	s.next = nil
	s.mu.Unlock()
	x.text, x.err = create()
	return x.text, x.err
}

// scrape sends all metrics, or an error if they are not complete.
func (s *Server) scrape(w http.ResponseWriter, r *http.Request) {
	text, err := s.scrapes.join(s.exposition)
	if err != nil {
		s.http.ErrorLog.Printf("no metrics: %v", err)
		http.Error(w, "no metrics: "+err.Error(), http.StatusInternalServerError)
		return
	}
	defer s.sending.begin(w)()
	w.Header().Set("Content-Type", metricsContentType)
	// Errors of writes are ignored, because they mean that the client has disconnected.
	if !takesGzip(r) {
		_, _ = w.Write(text)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(w)
	_, _ = z.Write(text)
	_ = z.Close()
}

func (s *Server) exposition() ([]byte, error) {
	families, err := s.process.Gather()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, err
		}
	}
	return AppendMetrics(b.Bytes(), s.proxy, s.options.Reload(), s.options.Sources(), s.Closed(), s.access.Load().Expires)
}

func takesGzip(r *http.Request) bool {
	for _, one := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		coding, weight, _ := strings.Cut(one, ";")
		if strings.TrimSpace(coding) == "gzip" {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ReplaceAll(weight, " ", ""), "q="), 64)
			return err != nil || q > 0
		}
	}
	return false
}
