package admin

// The cost of a scrape with many servers.

import (
	"fmt"
	"io"
	"net/http/httptest"
	"testing"

	"ringside/proxy/table"
)

// BenchmarkScrape scrapes a proxy of two loops with 200 servers. MB is the size of the reply.
func BenchmarkScrape(b *testing.B) {
	p := pool("main")
	p.Failover.Mode = table.Rehash // so that the pool has all metrics
	p.Servers = nil
	for i := range 200 {
		p.Servers = append(p.Servers, table.Target{Name: fmt.Sprintf("cache%03d", i), Network: "tcp", Address: fmt.Sprintf("10.1.%d.%d:11211", i/100, i%100), Weight: 1})
	}
	p.Place = place(200)
	made := newProxy(p)
	for range 2 {
		newLoop(made)
	}
	h := New(made, Options{}).Handler()
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			b.ReportAllocs()
			var size int64
			for b.Loop() {
				w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)
				r.Header.Set("Accept-Encoding", encoding)
				h.ServeHTTP(w, r)
				if w.Code != 200 {
					b.Fatal(w.Code, w.Body)
				}
				size, _ = io.Copy(io.Discard, w.Body)
			}
			b.ReportMetric(float64(size)/1e6, "MB")
		})
	}
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			if _, err := made.Snapshot(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
