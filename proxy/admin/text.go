package admin

// This file writes a scrape as text in version 0.0.4 of Prometheus' format, which all releases of
// Prometheus read. A pool of 200 servers has nine thousand samples. Each sample is written once,
// directly into the lines of its metric. An object for each sample, with its labels, would cost
// five times as much.

import (
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"ringside/proxy/stats"
)

// metricsContentType is the content type of the text that AppendMetrics appends.
const metricsContentType = "text/plain; version=0.0.4; charset=utf-8"

// output collects the metrics of one scrape.
type output struct {
	samples [][]byte // lines of each metric, by index of the metric
	head    []byte   // buffer for the beginning that all buckets of a histogram have in common
	wrong   error    // error about the first invalid label; nil: none. An error fails the scrape
}

func newOutput() *output { return &output{samples: make([][]byte, len(stats.Metrics()))} }

func (out *output) set(m *stats.Metric, v float64, labels ...string) {
	b := out.series(out.samples[m.At], m, "", labels)
	out.samples[m.At] = append(strconv.AppendFloat(append(b, ' '), v, 'g', -1, 64), '\n')
}

func (out *output) count(m *stats.Metric, n uint64, labels ...string) {
	out.samples[m.At] = out.number(out.samples[m.At], m, "", n, labels)
}

func (out *output) number(b []byte, m *stats.Metric, suffix string, n uint64, labels []string) []byte {
	b = append(out.series(b, m, suffix, labels), ' ')
	return append(strconv.AppendUint(b, n, 10), '\n')
}

// series appends the name of a metric and its labels, which are sorted by name.
func (out *output) series(b []byte, m *stats.Metric, suffix string, labels []string) []byte {
	b = append(append(b, m.Name...), suffix...)
	between := byte('{')
	for _, i := range m.Sorted {
		b = append(append(append(b, between), m.Labels[i]...), '=', '"')
		b = append(out.label(b, labels[i]), '"')
		between = ','
	}
	if between == ',' {
		b = append(b, '}')
	}
	return b
}

func (out *output) label(b []byte, value string) []byte {
	if !utf8.ValidString(value) && out.wrong == nil {
		out.wrong = fmt.Errorf("the label %q is not UTF-8", value)
	}
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, c)
		}
	}
	return b
}

// Indexes of the histogram buckets that Prometheus gets. The engine has four buckets per doubling
// of the time, from 1 µs on. Prometheus gets one bucket per doubling, from 16 µs to 8.6 s. It also
// gets one between 262 and 524 ms, where timeouts usually are. These are 21 buckets and +Inf.
const (
	firstBucket = 16
	lastBucket  = 92
	bucketStep  = 4
	timeouts    = 74 // the bucket with the upper bound 403 ms
)

// bounds has the upper bounds of the engine's histogram buckets as text, in seconds. The text is
// empty for a bucket that Prometheus does not get.
var bounds = func() (text [len(stats.Histogram{}.Buckets)]string) {
	for i := range text {
		if i >= firstBucket && i <= lastBucket && (i-firstBucket)%bucketStep == 0 || i == timeouts {
			text[i] = strconv.FormatFloat(float64(stats.Bound(i))/1e9, 'g', -1, 64)
		}
	}
	return text
}()

// histogram writes the histogram h. It omits m.Ends buckets at the beginning and at the end.
func (out *output) histogram(m *stats.Metric, h *stats.Histogram, labels ...string) {
	head := out.series(out.head[:0], m, "_bucket", labels)
	if len(labels) == 0 {
		head = append(head, '{')
	} else {
		head[len(head)-1] = ','
	}
	head = append(head, `le="`...)
	b := out.samples[m.At]
	bucket := func(bound string, count uint64) {
		b = append(append(append(b, head...), bound...), '"', '}', ' ')
		b = append(strconv.AppendUint(b, count, 10), '\n')
	}
	var count uint64
	for i, n := range h.Buckets {
		count += n
		if bounds[i] != "" && i >= firstBucket+m.Ends*bucketStep && i <= lastBucket-m.Ends*bucketStep {
			bucket(bounds[i], count)
		}
	}
	bucket("+Inf", count)
	b = append(out.series(b, m, "_sum", labels), ' ')
	b = append(strconv.AppendFloat(b, float64(h.Sum)/1e9, 'g', -1, 64), '\n')
	out.samples[m.At], out.head = out.number(b, m, "_count", count, labels), head
}

// appendTo appends to dst all metrics that have at least one sample.
func (out *output) appendTo(dst []byte) []byte {
	size := 0
	for at, m := range stats.Metrics() {
		size += len(out.samples[at]) + 2*len(m.Name) + len(m.Help) + len("# HELP  \n# TYPE  histogram\n")
	}
	dst = slices.Grow(dst, size)
	for at, m := range stats.Metrics() {
		if lines := out.samples[at]; len(lines) > 0 {
			dst = fmt.Appendf(dst, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, m.Kind)
			dst = append(dst, lines...)
		}
	}
	return dst
}
