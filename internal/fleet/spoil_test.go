package fleet

// Rules of the guard that can be disabled at the servers.

import (
	"bytes"
	"regexp"

	"ringside/internal/memnode"
)

// spoiler names a rule of the guard that the servers disable; "": none.
type spoiler string

const (
	noStubs     spoiler = "N"        // mg creates no stubs
	shownStubs  spoiler = "stubs"    // clients see stubs as empty values
	blindSets   spoiler = "C"        // sets are not bound to a miss
	goneIsFree  spoiler = "NF"       // a set that finds no item is stored
	lateSets    spoiler = "C I"      // a late set is stored as stale
	blindFills  spoiler = "fill C"   // a value is copied although it may have been deleted since
	copiedStubs spoiler = "copies"   // repairs see stubs as empty values
	blindAppend spoiler = "append C" // a value is appended to although it may have been deleted since
)

var (
	vivifies = regexp.MustCompile(` N\d+`)
	recaches = regexp.MustCompile(` R\d+`)
	fills    = regexp.MustCompile(` C\d+ F\d+ T\d+ O`)
	fetches  = []byte(" v f t s c")
	bound    = regexp.MustCompile(` C(\d+)`)
)

// spoil returns the request as the server receives it.
func (s spoiler) spoil(request []byte) []byte {
	line, body, _ := bytes.Cut(request, []byte("\r\n"))
	with := func(line []byte) []byte { return append(append(append([]byte(nil), line...), "\r\n"...), body...) }
	switch command := string(line[:min(3, len(line))]); {
	case command == "mg " && s == noStubs:
		return with(recaches.ReplaceAll(vivifies.ReplaceAll(line, nil), nil))
	case command == "ms " && s == lateSets:
		return with(bound.ReplaceAll(line, []byte(" C$1 I")))
	case command == "ms " && s == blindFills && fills.Match(line):
		return with(bound.ReplaceAll(line, nil))
	case command == "ms " && (s == blindAppend && bytes.Contains(line, []byte(" MA")) || s == blindSets):
		return with(bound.ReplaceAll(line, nil))
	}
	return request
}

// after returns the reply as the proxy's engine receives it.
func (s spoiler) after(server *memnode.Line, request, answer []byte) []byte {
	switch {
	case s == goneIsFree && bytes.HasPrefix(request, []byte("ms ")) && bytes.HasPrefix(answer, []byte("NF")):
		return server.Do(blindSets.spoil(request))
	case s == copiedStubs && !bytes.Contains(request, fetches):
	case (s == shownStubs || s == copiedStubs) && bytes.HasPrefix(answer, []byte("VA 0 ")):
		for _, mark := range []string{" W", " Z", " X"} {
			answer = bytes.Replace(answer, []byte(mark), nil, 1)
		}
	}
	return answer
}
