package live

// This file formats numbers with units. It also makes text safe for terminals.

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Count formats a number with commas between groups of three digits.
func Count(v float64) string {
	if v > 0 && v < 10 && v != float64(int(v)) {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Percent formats a fraction as a percentage.
func Percent(f float64) string {
	if f > .9995 {
		return "100 %"
	}
	return strconv.FormatFloat(100*f, 'f', 1, 64) + " %"
}

// Micros formats a duration given in microseconds.
func Micros(us float64) string {
	switch {
	case us < 1000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 10_000:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case us < 1e6:
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
	return fmt.Sprintf("%.1f s", us/1e6)
}

// Bytes formats a size that is given in bytes.
func Bytes(b float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for b >= 1000 && i < len(units)-1 {
		b /= 1024
		i++
	}
	if i == 0 || b >= 100 {
		return fmt.Sprintf("%.0f %s", b, units[i])
	}
	return fmt.Sprintf("%.1f %s", b, units[i])
}

// Ago formats the time for which something has lasted.
func Ago(d time.Duration) string {
	switch s := int(max(d, 0).Round(time.Second) / time.Second); {
	case s < 90:
		return fmt.Sprintf("%d s", s)
	case s < 5400:
		return fmt.Sprintf("%d min", (s+30)/60)
	case s < 172800:
		return fmt.Sprintf("%d h", (s+1800)/3600)
	default:
		return fmt.Sprintf("%d d", (s+43200)/86400)
	}
}

// mostNamed is the maximum number of servers that a sentence names.
const mostNamed = 3

// enumerate returns a text with the first names of the list, and how many more there are.
func enumerate(list []string) string {
	if more := len(list) - mostNamed; more > 0 {
		list = append(list[:mostNamed:mostNamed], fmt.Sprintf("%d more", more))
	}
	if last := len(list) - 1; last > 0 {
		return strings.Join(list[:last], ", ") + " and " + list[last]
	}
	return strings.Join(list, "")
}

// Clean makes text safe for a terminal. Characters that are not printable become \xNN.
func Clean(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == unicode.ReplacementChar && text[i] >= 0x80 && !strings.HasPrefix(text[i:], string(unicode.ReplacementChar)):
			fmt.Fprintf(&b, "\\x%02x", text[i])
		case r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.M, r) && !unicode.IsSpace(r):
			b.WriteRune(r)
		default:
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, "\\x%02x", c)
			}
		}
	}
	return b.String()
}
