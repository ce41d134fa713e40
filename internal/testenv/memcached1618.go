package testenv

// For1618 rewrites a client's stream for comparison with memcached 1.6.18. In some cases package
// wire replies like 1.6.45. For these cases, For1618 replaces the request by another one, to which
// 1.6.18 sends the reply that package wire sends to the original request. Everything else in the
// stream is unchanged, so it can be compared with 1.6.18, which the tests run.

import (
	"strings"

	"ringside/proxy/wire"
)

// standIn maps a reply to a request to which 1.6.18 sends exactly that reply.
var standIn = map[string]string{
	"": "",
	"CLIENT_ERROR bad command line format\r\n":    "touch " + strings.Repeat("k", 251) + " 0\r\n",
	"CLIENT_ERROR options flags are too long\r\n": "mg k 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18\r\n",
}

// For1618 returns data rewritten for 1.6.18. Any part of data may be malformed.
func For1618(data string) string {
	var out strings.Builder
	limits := wire.Limits{Value: 1 << 30} // the server checks the size of values
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

// rewrite returns what a test sends to memcached 1.6.18 instead of the request `said`, so that
// 1.6.18 replies as a newer release does.
func rewrite(said, line string, n int, r *wire.Request) string {
	if r.Op != wire.Bad {
		return said
	}
	if r.Flags&wire.CloseAfter != 0 && r.Answer == nil {
		if n == len(line)+1 { // the line is complete
			return "xx HTTP/\r\n"
		}
		return said
	}
	instead, ok := standIn[string(r.Answer)]
	if ok && (r.Swallow > 0 || n == len(line)+1 && stores(line)) {
		return instead
	}
	return said // 1.6.18 also refuses it and discards its data block
}

// withoutNoise removes the extra words that only 1.6.45 ignores.
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
