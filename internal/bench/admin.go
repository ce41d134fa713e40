//go:build linux

package bench

// This file reads Ringside's admin interface: its metrics, its failures, and pages that stay open
// during a load.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// troubles returns a list of the failures that the Ringside process target has counted.
func troubles(target *child) string {
	m, err := readMetrics(context.Background(), target)
	if err != nil {
		return err.Error()
	}
	var all []string
	for series, value := range m {
		name, _, _ := strings.Cut(series, "{")
		if value > 0 && slices.Contains(troubleMetrics, name) {
			all = append(all, fmt.Sprintf("%s %g", series, value))
		}
	}
	if len(all) == 0 {
		return "it counted no failures"
	}
	slices.Sort(all)
	return "it counted " + strings.Join(all, ", ")
}

var troubleMetrics = []string{
	"ringside_client_connections_refused_total", "ringside_client_connections_closed_total", "ringside_values_refused_total",
	"ringside_server_requests_failed_total", "ringside_server_requests_timed_out_total", "ringside_server_requests_refused_total",
	"ringside_server_outages_total", "ringside_desyncs_total",
}

// Metrics has the values of a Prometheus page. The key is the name of a metric with its labels.
type Metrics map[string]float64

// Sum adds up the values of a metric. Only values count that have each of the given texts in their
// labels.
func (m Metrics) Sum(name string, labels ...string) float64 {
	total := 0.0
series:
	for series, value := range m {
		base, rest, _ := strings.Cut(series, "{")
		if base != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue series
			}
		}
		total += value
	}
	return total
}

// readMetrics reads the metrics of a Ringside instance.
func readMetrics(ctx context.Context, target *child) (Metrics, error) {
	text, err := fetch(ctx, target, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(string(text))
}

func parseMetrics(text string) (Metrics, error) {
	m := make(Metrics)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", line, err)
		}
		m[line[:at]] = value
	}
	return m, nil
}

// fetch returns the page at the given path of Ringside's admin interface.
func fetch(ctx context.Context, target *child, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", target.admin, path), nil)
	if err != nil {
		return nil, err
	}
	request.Close = true                              // close the connection after the reply, so that Ringside's metrics do not count a connection of ringbench
	request.Header.Set("Accept-Encoding", "identity") // asks for no compression, because the memory of the compressor would be measured, too
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", path, response.Status, body)
	}
	return body, err
}

// LookedAt reads the given pages of the child's admin interface until the function end is called.
// The pages are endless streams. If one of the streams ended earlier, end returns an error, because
// Ringside was then not monitored during the whole load.
func (c *child) LookedAt(ctx context.Context, paths []string) (end func() error, err error) {
	ctx, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	ended := make(chan string, len(paths))
	end = func() error {
		var early []error
		for len(ended) > 0 {
			early = append(early, fmt.Errorf("%s ended before the load did", <-ended))
		}
		stop()
		readers.Wait()
		return errors.Join(early...)
	}
	for _, path := range paths {
		ask, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://127.0.0.1:%d%s", c.admin, path), nil)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		answer, err := http.DefaultClient.Do(ask)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		readers.Add(1)
		go func() {
			defer readers.Done()
			defer answer.Body.Close()
			_, _ = io.Copy(io.Discard, answer.Body)
			ended <- path
		}()
		if answer.StatusCode != http.StatusOK {
			return nil, errors.Join(fmt.Errorf("%s: %s", path, answer.Status), end())
		}
	}
	return end, nil
}
