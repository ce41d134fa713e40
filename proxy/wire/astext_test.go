package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestClassicAsMemcached sends many random meta requests to one memcached as meta,
// and to another as text. The meta reply made from the text reply must equal the
// reply of the first server byte for byte. Both servers must store the same values
// afterwards.
func TestClassicAsMemcached(t *testing.T) {
	modern := &server{t: t, conn: dial(t, startMemcached(t))}
	classic := &server{t: t, conn: dial(t, startMemcached(t))}
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(words string) string { f := strings.Fields(words); return f[random.IntN(len(f))] }
	flags := map[string]string{
		"mg": "v v f s c k q T0 T100 O1 P Lx u",
		"ms": "F5 F0 T0 T100 T-1 ME MR MA MP MS C1 C2 C3 k q Oab P E4 c",
		"md": "k q O1 P C1",
		"ma": "D2 D7 MI MD M+ v v k q O1 N0 J500000 C1",
	}
	as := map[Op]int{}
	refused := 0
	for i := range 10_000 {
		word := pick("mg mg mg ms ms md ma ma")
		key := pick("a b c d eA== eQ==")
		line := []string{word, key}
		body := pick("x 500000 500000 hello") // a decr must not shorten the number: whether memcached then pads it depends on its other threads
		if word == "ms" {
			line = append(line, fmt.Sprint(len(body)))
		}
		seen := map[byte]bool{}
		if strings.HasSuffix(key, "==") {
			seen['b'] = true
			seen['k'] = word == "mg" || word == "ma" // memcached may have forgotten that the item's key was base64
			line = append(line, "b")
		}
		for range random.IntN(5) {
			if f := pick(flags[word]); !seen[f[0]] {
				seen[f[0]] = true
				line = append(line, f)
			}
		}
		request := []byte(strings.Join(line, " ") + "\r\n")
		if word == "ms" {
			request = append(request, body+"\r\n"...)
		}
		var r Request
		if n, err := testLimits.Next(request, &r); err != nil || n != len(request) || r.Op == Bad {
			continue
		}
		plain := AppendPlain(nil, request, &r, nil) // without q
		testLimits.Next(plain, &r)
		text, ok := AppendAsText([]byte("."), plain, &r, Release{1, 6, 0}.Features())
		want, _ := modern.ask(r.Op, Meta, plain)
		if !ok {
			refused++
			if same, _ := classic.ask(r.Op, Meta, plain); !bytes.Equal(same, want) {
				t.Fatalf("request %d: %q: the servers differ: %q and %q", i, plain, want, same)
			}
			continue
		}
		text = text[1:]
		var plainText Request
		if n, err := testLimits.Next(text, &plainText); err != nil || n != len(text) || plainText.Dialect != Text || plainText.Drop.Len() > 0 {
			t.Fatalf("%q as text: %q, %v", plain, text, err)
		}
		as[plainText.Op]++
		answer, _ := classic.ask(plainText.Op, Text, text)
		if got := AppendAsMeta(nil, plain, &r, plainText.Op, answer); !bytes.Equal(got, want) {
			t.Fatalf("request %d: %q as %q\n    got %q from %q\n   want %q", i, plain, text, got, answer, want)
		}
	}
	for _, op := range []Op{Get, Gets, Gat, Gats, Touch, Set, Add, Replace, Append, Prepend, Cas, Incr, Decr, Delete} {
		if as[op] < 20 {
			t.Errorf("%v was sent %d times: %v", op, as[op], as)
		}
	}
	t.Logf("as text: %v; not: %d", as, refused)
}

// TestClassicFeatures: a request is not translated to a text command that the
// server's release lacks.
func TestClassicFeatures(t *testing.T) {
	for in, want := range map[string]string{
		"mg a T1\r\n":              "1.4.8",
		"mg a T1 v\r\n":            "1.5.3",
		"mg a v\r\n":               "1.4.0",
		"mg a t\r\n":               "",
		"me a\r\n":                 "",
		"mn\r\n":                   "",
		"ms a 1 F00\r\nx\r\n":      "1.4.0",
		"ms a 1 F+1\r\nx\r\n":      "",
		"ms a 1 F-1\r\nx\r\n":      "",
		"ms a 1 T1x\r\nx\r\n":      "",
		"ms YSAx 1 b\r\nx\r\n":     "",
		"ms YQpi 1 b\r\nx\r\n":     "",
		"ms YQBi 1 b\r\nx\r\n":     "",
		"ms YQliCQ== 1 b\r\nx\r\n": "1.4.0", // tabs do not separate words
		"mg a T9999999999\r\n":     "",
		"ma a O" + strings.Repeat("o", 32) + "\r\n": "",
	} {
		var r Request
		n, err := (&Limits{}).Next([]byte(in), &r)
		if r.Op == Bad {
			continue
		}
		if err != nil || n != len(in) {
			t.Fatalf("%q: %d, %v", in, n, err)
		}
		got := ""
		for _, v := range []Release{{1, 5, 3}, {1, 4, 8}, {1, 4, 0}} {
			if _, ok := AppendAsText(nil, []byte(in), &r, v.Features()); ok {
				got = v.String()
			}
		}
		if got != want {
			t.Errorf("%q has text from %q on, want %q", in, got, want)
		}
	}
}
