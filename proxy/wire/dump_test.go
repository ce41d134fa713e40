package wire

// The reply to Dump, which lists the keys of a server.

import "testing"

func TestDump(t *testing.T) {
	answer := []byte("OK\r\nkey=a%20b%25%0d exp=-1 la=1795183537 cas=3 fetch=no cls=1 size=64\nkey=%C3%a4\nEND\r\n")
	var r Reply
	var keys []string
	for at := 0; ; {
		for cut := at; cut < len(answer); cut++ {
			if n, err := NextReply(Dump, Text, answer[at:cut], &r); err == nil {
				if whole, _ := NextReply(Dump, Text, answer[at:], &r); whole != n {
					t.Fatalf("%q: %d bytes when cut, %d else", answer[at:], n, whole)
				}
			} else if err != ErrShort {
				t.Fatalf("%q: %v", answer[at:cut], err)
			}
		}
		n, err := NextReply(Dump, Text, answer[at:], &r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind == Listed {
			keys = append(keys, string(UnescapeKey(nil, r.Key.Of(answer[at:]))))
		}
		if at += n; r.Last {
			break
		}
	}
	if r.Kind != End || len(keys) != 2 || keys[0] != "a b%\r" || keys[1] != "ä" {
		t.Errorf("got %q, then %v", keys, r.Kind)
	}
	for line, kind := range map[string]Kind{
		"BUSY currently processing crawler request\r\n": Busy,
		"CLIENT_ERROR lru crawler disabled\r\n":         ClientError,
		"ERROR metadump not allowed\r\n":                Error,
		"ERROR locked try again later\r\n":              Error,
	} {
		if _, err := NextReply(Dump, Text, []byte(line), &r); err != nil || r.Kind != kind || !r.Last {
			t.Errorf("%q: %v %v %v", line, r.Kind, r.Last, err)
		}
	}
	for _, line := range []string{"key= exp=-1\n", "keys=a\n", "VALUE a 0 1\r\n", "STORED\r\n"} {
		if _, err := NextReply(Dump, Text, []byte(line), &r); err != errReply {
			t.Errorf("%q: %v, want ErrReply", line, err)
		}
	}
	if _, err := NextReply(Stats, Text, []byte("key=a exp=-1\n"), &r); err != errReply {
		t.Errorf("a key where nobody asked for any: %v", err)
	}
}
