// Package wiretest provides unusual and malformed client streams, and the replies
// of memcached to them. The tests of the parser and of the whole proxy compare
// their replies with those of a real memcached.
package wiretest

// This file contains the streams of requests, and the syntax of the file streams.txt.

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed testdata/streams.txt
var file string

// Stream is what one client sends on a new connection to an empty memcached.
type Stream struct {
	Name   string // name of the stream for messages: file, line number and heading
	Source string // the stream's line in streams.txt, without its Mark and its expected reply
	Data   string
	Mark   Mark
	Want   Said // the expected reaction; it is only set if Mark is Own
}

// Mark says with which memcached release a stream is compared. Most streams have the same
// reply from both releases, 1.6.18 and 1.6.45.
type Mark string

// These are the marks that a stream can have in streams.txt.
const (
	Both Mark = ""    // memcached 1.6.18 and 1.6.45 send the same reply, and so does Ringside
	Old  Mark = "old" // Ringside replies like memcached 1.6.18, which the tests run; 1.6.45 replies differently
	New  Mark = "new" // Ringside replies like memcached 1.6.45, with recorded replies; 1.6.18 replies differently
	Own  Mark = "own" // Ringside replies unlike both memcached releases, for a reason in the comment of package wire; the expected reply follows => in streams.txt
)

// Streams returns the streams of testdata/streams.txt. Each nonempty line of the file is
// one stream. It has an optional Mark, followed by Go string literals, which are
// concatenated. Each literal may have a repeat count:
//
//	new "set " 251*"k" " 0 0 1\r\nx\r\n"
//
// A line that begins with # is a heading for the lines after it.
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
		s := Stream{Name: fmt.Sprintf("streams.txt:%d (%s)", i+1, heading), Source: line}
		for _, mark := range []Mark{Old, New, Own} {
			if rest, ok := strings.CutPrefix(line, string(mark)+" "); ok {
				s.Mark, s.Source = mark, rest
			}
		}
		var err error
		if s.Mark == Own {
			if s.Source, s.Want, err = parseSaid(s.Source); err != nil {
				return nil, fmt.Errorf("streams.txt:%d: %w", i+1, err)
			}
		}
		if s.Data, err = parse(s.Source); err != nil {
			return nil, fmt.Errorf("streams.txt:%d: %w", i+1, err)
		}
		all = append(all, s)
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
