// Package wiretest holds the odd and malformed streams that are compared with
// a real memcached: by the parser's tests and by those of the whole proxy.
package wiretest

// The streams and the form they are written in.

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed testdata/streams.txt
var file string

// Stream is what one client sends on a new connection to an empty cache.
type Stream struct {
	Name string // file line and section, for messages
	Data string
}

// Streams returns the streams of testdata/streams.txt. Each line of the file
// that is not empty is one stream: Go string literals that are put together,
// each with an optional repeat count:
//
//	"get " 251*"k" "\r\n"
//
// A line that begins with # is a heading for those below.
func Streams() ([]Stream, error) {
	var all []Stream
	heading := ""
	for i, line := range strings.Split(file, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if text, ok := strings.CutPrefix(line, "#"); ok {
			heading = strings.TrimSpace(text)
			continue
		}
		data, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("streams.txt:%d: %w", i+1, err)
		}
		all = append(all, Stream{fmt.Sprintf("streams.txt:%d (%s)", i+1, heading), data})
	}
	return all, nil
}

func parse(line string) (string, error) {
	var b strings.Builder
	for line != "" {
		count := 1
		if i := strings.IndexByte(line, '"'); i > 0 {
			n, err := strconv.Atoi(strings.TrimSuffix(line[:i], "*"))
			if err != nil {
				return "", fmt.Errorf("repeat count before %q: %w", line[i:], err)
			}
			count, line = n, line[i:]
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return "", fmt.Errorf("want a quoted string at %q", line)
		}
		text, err := strconv.Unquote(quoted)
		if err != nil {
			return "", err
		}
		b.WriteString(strings.Repeat(text, count))
		line = strings.TrimSpace(line[len(quoted):])
	}
	return b.String(), nil
}
