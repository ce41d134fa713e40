//go:build linux

package bench

// This file reads the metrics of Ringside's admin interface.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// troubles returns a list of the failures that the Ringside process target has counted.
func troubles(target *process) string {
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
	slices.Sort(all)
	return fmt.Sprintf("it counted %d failures: %s", len(all), strings.Join(all, ", "))
}

var troubleMetrics = []string{
	"ringside_client_connections_refused_total", "ringside_client_connections_closed_total", "ringside_values_refused_total",
	"ringside_server_requests_failed_total", "ringside_server_requests_timed_out_total", "ringside_server_requests_refused_total",
	"ringside_server_outages_total", "ringside_desyncs_total",
}

// metrics has the values of a Prometheus page. The key is the name of a metric with its labels.
type metrics map[string]float64

// sum adds up the values of a metric. Only values count that have each of the given texts in their
// labels.
func (m metrics) sum(name string, labels ...string) (total float64) {
	for series, value := range m {
		base, rest, _ := strings.Cut(series, "{")
		if base == name && !slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(rest, label) }) {
			total += value
		}
	}
	return total
}

// readMetrics reads the metrics of a Ringside instance.
func readMetrics(ctx context.Context, target *process) (metrics, error) {
	text, err := fetch(ctx, target, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(text)
}

func parseMetrics(text string) (metrics, error) {
	m := make(metrics)
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
func fetch(ctx context.Context, target *process, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", target.admin, path), nil)
	if err != nil {
		return "", err
	}
	request.Close = true                              // close the connection after the reply, so that Ringside's metrics do not count a connection of ringbench
	request.Header.Set("Accept-Encoding", "identity") // asks for no compression, because the memory of the compressor would be measured, too
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", path, response.Status, body)
	}
	return string(body), err
}
