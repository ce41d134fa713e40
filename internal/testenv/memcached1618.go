package testenv

// This file rewrites a client's stream for a comparison with memcached 1.6.18, which the tests
// run. In some cases package wire replies like memcached 1.6.45. In these cases, For1618 replaces
// the request by another one, to which 1.6.18 sends the reply that package wire sends to the
// original request. All other requests stay unchanged.

import (
	"strings"

	"ringside/proxy/wire"
)

// standIn maps a reply to a request. memcached 1.6.18 sends exactly that reply to that request.
var standIn = map[string]string{
	"": "",
	"CLIENT_ERROR bad command line format\r\n":    "touch " + strings.Repeat("k", 251) + " 0\r\n",
	"CLIENT_ERROR options flags are too long\r\n": "mg k 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18\r\n",
}

// For1618 returns the stream data with some requests replaced, so that memcached 1.6.18 replies
// to it as package wire replies to data. Any part of data may be malformed.
func For1618(data string) string {
	var out strings.Builder
	limits := wire.Limits{Value: 1 << 30} // a large limit, because the server itself checks the size of values
	var r wire.Request
	for data != "" {
		line, rest, whole := strings.Cut(data, "\n")
		if whole {
			line = withoutNoise(line)
			data = line + "\n" + rest
		}
		n, err := limits.Next([]byte(data), &r)
		if err != nil {
			break
		}
		said := data[:min(int64(len(data)), int64(n)+r.Swallow)]
		data = data[len(said):]
		out.WriteString(rewrite(said, line, n, &r))
	}
	return out.String() + data
}

// rewrite returns what is sent to memcached 1.6.18 in place of the request `said`, so that 1.6.18
// replies as a newer release does. line is the first line of said, and n is the size of said as
// package wire parses it. r is the parsed request.
func rewrite(said, line string, n int, r *wire.Request) string {
	if r.Op != wire.Bad {
		return said
	}
	if r.Flags&wire.CloseAfter != 0 && r.Answer == nil {
		if n == len(line)+1 { // the request is one complete line
			return "xx HTTP/\r\n"
		}
		return said
	}
	instead, ok := standIn[string(r.Answer)]
	if ok && (r.Swallow > 0 || n == len(line)+1 && stores(line)) {
		return instead
	}
	return said // unchanged, because 1.6.18 also refuses the request and discards its data block
}

// withoutNoise removes extra words at the end of a storage command. memcached 1.6.45 ignores such
// words, and 1.6.18 does not.
func withoutNoise(line string) string {
	text, _, _ := strings.Cut(line, "\x00")
	words := strings.FieldsFunc(strings.TrimSuffix(text, "\r"), func(c rune) bool { return c == ' ' })
	want := 5
	if len(words) > 0 && words[0] == "cas" {
		want = 6
	}
	if len(words) <= want+1 || words[0] == "ms" || !stores(line) {
		return line
	}
	short := strings.Join(words[:want], " ")
	if words[len(words)-1] == "noreply" {
		short += " noreply"
	}
	return short + "\r"
}

func stores(line string) bool {
	word, _, _ := strings.Cut(strings.TrimLeft(line, " "), " ")
	switch word {
	case "set", "add", "replace", "append", "prepend", "cas", "ms":
		return true
	}
	return false
}
