package health

import (
	"strings"
	"testing"

	"ringside/proxy/health/divert"
)

func TestPut(t *testing.T) {
	for want, got := range map[string][]byte{
		"ms k 2 ME\r\nab\r\n":                   MetaPut("k", []byte("ab"), 0, 0),
		"ms k 0 ME T30\r\n\r\n":                 MetaPut("k", nil, 0, 30),
		"ms k 1 C7 T600\r\na\r\n":               MetaPut("k", []byte("a"), 7, 600),
		"ms k 1 C18446744073709551615\r\na\r\n": MetaPut("k", []byte("a"), 1<<64-1, 0),
	} {
		if string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for answer, want := range map[string]int{
		"VA 1\r\n7\r\n":       7,
		"VA 3 c9\r\n7  \r\n":  7, // memcached pads a counter that became shorter with spaces
		"EN\r\n":              0,
		"VA 2\r\n7\r\n":       -1,
		"VA 1\r\nx\r\n":       -1,
		"VA 1 cx\r\n7\r\n":    -1,
		"HD\r\n":              -1,
		"SERVER_ERROR no\r\n": -1,
		"":                    -1,
	} {
		n, ok := metaCount([]byte(answer))
		if is := int(n); ok != (want >= 0) || ok && is != want {
			t.Errorf("%q: %d %t", answer, n, ok)
		}
	}
}

func TestThreads(t *testing.T) {
	for answer, want := range map[string]int{
		"STAT num_threads 7\r\nSTAT num_threads_per_udp 1\r\nEND\r\n": 7,
		"STAT num_threads 100000\r\nEND\r\n":                          mostThreads,
		"STAT num_threads 0\r\nEND\r\n":                               usualThreads,
		"ERROR\r\n":                                                   usualThreads,
		"END\r\n":                                                     usualThreads,
		"":                                                            usualThreads,
	} {
		if got := parseThreads([]byte(answer)); got != want {
			t.Errorf("%q: %d", answer, got)
		}
	}
}

func TestKeysFit(t *testing.T) {
	servers := []string{strings.Repeat("n", 300), "a b", strings.Repeat("n", 299)}
	for _, pool := range []string{"p", "a pool\r\n", strings.Repeat("p", 300)} {
		k := makeRecordKeys(pool)
		k.name(servers)
		for _, key := range append([]string{k.View, k.Live, k.Flush + ":4294967295"}, k.Suspects...) {
			if len(key) > 250 || !strings.HasPrefix(key, divert.Reserved) || strings.ContainsAny(key, " \r\n") {
				t.Errorf("key %q", key)
			}
		}
		if k.Suspects[0] == k.Suspects[2] {
			t.Error("two servers share a counter")
		}
	}
	if k := makeRecordKeys("p"); k.View != "__rs_view__:p" {
		t.Errorf("the record is at %s", k.View)
	}
}

func TestParseMemory(t *testing.T) {
	for answer, want := range map[string]memory{
		"STAT maxbytes 1\r\nSTAT memory_file /dev/shm/m\r\nEND\r\n": memoryKept,
		"STAT memory_file (null)\r\nEND\r\n":                        memoryLost,
		"END\r\n":                                                   memoryLost,
		"ERROR\r\n":                                                 memoryLost,
	} {
		if got := parseMemory([]byte(answer)); got != want {
			t.Errorf("%q: %d, want %d", answer, got, want)
		}
	}
}
