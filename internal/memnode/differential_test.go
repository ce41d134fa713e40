package memnode

// differential_test.go: the same commands to a Node and to memcached 1.6.18,
// compared byte by byte. Where package wire follows 1.6.45, a Node does too.

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/wire/wiretest"
)

// startMemcached runs a real memcached. Its background threads are off, because they reference
// items for a moment, which changes the result of arithmetic.
func startMemcached(t *testing.T) string {
	t.Helper()
	return testenv.StartMemcached(t, "-o", "no_lru_maintainer,no_lru_crawler").Address
}

func startNode(t *testing.T, o Options) *Node {
	t.Helper()
	n, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// A client sends batches of commands and reads the replies up to that of mn.
type client struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, address string) *client {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{t, c}
}

func (c *client) ask(batch string) string {
	c.t.Helper()
	c.SetDeadline(time.Now().Add(testenv.Hang))
	if _, err := c.Write([]byte(batch + "mn\r\n")); err != nil {
		c.t.Fatalf("sending %.200q: %v", batch, err)
	}
	var got []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		if rest, ok := bytes.CutSuffix(got, []byte("MN\r\n")); ok && (len(rest) == 0 || bytes.HasSuffix(rest, []byte("\r\n"))) {
			return string(rest)
		}
		if err != nil {
			c.t.Fatalf("after %.200q and %.200q: %v", batch, got, err)
		}
	}
}

// A pair sends commands to a Node and a memcached, and compares the replies.
type pair struct {
	t          *testing.T
	store      *store
	node, real *client
	asked      []string
}

func newPair(t *testing.T) *pair {
	n := startNode(t, Options{})
	return &pair{t: t, store: n.store, node: dial(t, n.Addr().String()), real: dial(t, startMemcached(t))}
}

func (p *pair) ask(batch string) string {
	p.t.Helper()
	p.asked = append(p.asked, batch)
	got, want := p.node.ask(batch), p.real.ask(testenv.For1618(batch))
	if !same(got, want) {
		last := p.asked[max(0, len(p.asked)-12):]
		p.t.Fatalf("batch %d: %.300q\nnode      %.300q\nmemcached %.300q\nbefore: %.300q", len(p.asked), batch, got, want, last)
	}
	return got
}

var (
	metaLine = regexp.MustCompile(`(?m)^(HD|VA|ME) .*$`)
	clocked  = regexp.MustCompile(` (t|l|la=|exp=|cls=)(-?\d+)`)
)

// same compares two replies. Numbers that depend on the start of a second may
// differ by a few. l and la also depend on memcached's background threads, and cls
// on its slab sizes.
func same(a, b string) bool {
	maskedA, numbersA := mask(a)
	maskedB, numbersB := mask(b)
	if maskedA != maskedB || len(numbersA) != len(numbersB) {
		return false
	}
	for i := range numbersA {
		if d := int32(numbersA[i] - numbersB[i]); d < -30 || d > 30 {
			return false
		}
	}
	return true
}

func mask(answer string) (string, []uint32) {
	var numbers []uint32
	masked := metaLine.ReplaceAllStringFunc(answer, func(line string) string {
		return clocked.ReplaceAllStringFunc(line, func(field string) string {
			m := clocked.FindStringSubmatch(field)
			if n, _ := strconv.ParseInt(m[2], 10, 64); (m[1] == "t" || m[1] == "exp=") && n != -1 {
				numbers = append(numbers, uint32(n))
			} else if n == -1 {
				return field
			}
			return " " + m[1] + "*"
		})
	})
	return masked, numbers
}

// A player creates random commands, most of them valid.
type player struct {
	*rand.Rand
	keys []string
	cas  uint64 // the last one seen
	now  int64
}

var (
	oddKeys  = []string{"", "k\x01", "k\xff\xfe", "k\x00z", "k\tz", "a  ", strings.Repeat("x", 250)}
	inBase64 = []string{"YWJj", "YQ==", "YWI=", "azE=", "YW=j", "a", "====", "Y*W!Jj", "AAECAw==", "YWJjZA==YWJj", "IGEgYg=="}
)

func (r *player) of(list ...string) string { return list[r.IntN(len(list))] }
func (r *player) one(in int) bool          { return r.IntN(in) == 0 }

func (r *player) key() string {
	switch {
	case r.one(150):
		return strings.Repeat("x", 251)
	case r.one(100):
		return r.of(oddKeys...)
	}
	return r.of(r.keys...)
}

func (r *player) exptime() string {
	if r.one(60) {
		return r.of("abc", "1x", "4294967296", "4294967295", "99999999999999999999", "+100", "\t100", "100\t", "-18446744073709551615", "2592001")
	}
	return r.of("0", "0", "0", "10000", "100000", "2592000", "-1", strconv.FormatInt(r.now+30_000, 10)) // none expires during the test
}

// number returns client flags. Like value and delta, it is valid more often than
// not.
func (r *player) number() string {
	if r.one(2) {
		return r.delta()
	}
	return r.of("18446744073709551615", "9223372036854775808", "4294967295", "4294967296")
}

func (r *player) delta() string {
	if r.one(40) {
		return r.of("abc", "-1", "18446744073709551616", "-18446744073709551615", "+3", "1 ", "\t4", "1.5", "4294967296")
	}
	return r.of("0", "1", "1", "7", "99", "100", "1000000")
}

// value never consists of space only and never contains a minus. With such values,
// arithmetic makes memcached read memory after the item. TestSameNumbers uses them
// in fresh memory.
func (r *player) value() string {
	switch r.IntN(6) {
	case 0:
		return ""
	case 1:
		return strconv.Itoa(r.IntN(1200))
	case 2:
		return r.of("999999999999", "99", "9", "10 ", " 12", "12 34", "\t5", "7\x008", "+6", "18446744073709551616")
	case 3:
		return strings.Repeat(r.of("ab", "c d", "x\r\n", "y\n"), r.IntN(60))
	}
	return r.of("abc", "hello", "0", "1")
}

func (r *player) casNumber() string {
	if r.one(40) {
		return r.of("abc", "-1", "18446744073709551616", "18446744073709551615")
	}
	return strconv.FormatUint(max(1, r.cas+1)-1-uint64(r.IntN(3)%int(r.cas+1)), 10)
}

func (r *player) noreply() string {
	switch {
	case r.one(12):
		return " noreply"
	case r.one(200):
		return " nonsense"
	}
	return ""
}

// body returns a value and its length. The length is sometimes too short.
func (r *player) body() (length, data string) {
	v := r.value()
	n := len(v)
	if n > 1 && r.one(50) {
		n -= 1 + r.IntN(n-1)
	}
	length = strconv.Itoa(n)
	if r.one(150) {
		length = r.of("-1", "abc", "2147483646", "-99999999999", "0x1")
	}
	return length, v + "\r\n"
}

func (r *player) flags(letters string) string {
	var all []string
	for _, l := range letters {
		if r.one(3) {
			all = append(all, r.flag(l))
		}
	}
	if r.one(40) {
		all = append(all, r.of("z", "S5", "E7", "b", "k", "Mxx", "M", "v", "T", "O"+strings.Repeat("o", 31), "\xc3", "q", "c", "P1", "L2"))
	}
	if r.one(300) && letters != metaGetFlags { // memcached counts an mg that it rejects for its opaque
		all = append(all, "O"+strings.Repeat("o", 32))
	}
	if r.one(200) {
		all = append(all, strings.Fields("k v f c t s h l u q O1 T0 N0 R0 C0 D1 J1 F1 MS P L")...)
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if len(all) == 0 {
		return ""
	}
	return " " + strings.Join(all, " ")
}

const metaGetFlags = "kvfctshluqONTR"

func (r *player) flag(letter rune) string {
	switch letter {
	case 'N', 'T':
		return string(letter) + r.exptime()
	case 'R':
		return "R" + r.of("0", "50", "500", "-1", "x")
	case 'F':
		return "F" + r.number()
	case 'D', 'J':
		return string(letter) + r.delta()
	case 'C':
		return "C" + r.casNumber()
	case 'M':
		return "M" + r.of("S", "E", "A", "P", "R", "I", "D", "+", "-", "s", "X")
	case 'O':
		return "O" + r.of("q7", "", "opaque", "1")
	}
	return string(letter)
}

// metaKey returns a key and, sometimes, the flag b.
func (r *player) metaKey() (key, flag string) {
	if !r.one(6) {
		return r.key(), ""
	}
	return r.of(inBase64...), " b"
}

func (r *player) command() string {
	key := r.key()
	switch r.IntN(24) {
	case 0, 1:
		keys := key
		for range r.IntN(30) * r.IntN(2) {
			keys += r.of(" ", " ", " ", "  ") + r.of(r.keys...)
		}
		read := r.of("get ", "gets ", "gets ", "bget ")
		if len(keys) > 2000 { // memcached serves such a line of a bget only if one read returns all of it
			read = "get "
		}
		return read + keys + r.of("", "", " ") + "\r\n"
	case 2:
		return r.of("gat ", "gats ") + r.exptime() + " " + key + r.of("", " "+r.of(r.keys...)) + "\r\n" // memcached touches the keys before one that is too long
	case 3, 4, 5, 6:
		length, data := r.body()
		return r.of("set", "set", "add", "replace", "append", "prepend") + " " + key + " " + r.number() + " " + r.exptime() + " " + length + r.noreply() + "\r\n" + data
	case 7:
		length, data := r.body()
		if key == "" { // otherwise its cas number would be read as the length
			key = "a"
		}
		return "cas " + key + " " + r.number() + " " + r.exptime() + " " + length + " " + r.casNumber() + r.noreply() + "\r\n" + data
	case 8:
		return "delete " + key + r.of("", "", "", " 0", " 5", " 0 noreply", " noreply 0") + r.noreply() + "\r\n"
	case 9, 10:
		return r.of("incr ", "decr ") + key + " " + r.delta() + r.noreply() + "\r\n"
	case 11:
		return "touch " + key + " " + r.exptime() + r.noreply() + "\r\n"
	case 12:
		if !r.one(4) {
			return "me " + key + r.of("", "", " b", " x") + "\r\n"
		}
		return r.odd()
	case 13, 14, 15, 16:
		key, b := r.metaKey()
		return "mg " + key + b + r.flags(metaGetFlags) + "\r\n"
	case 17, 18, 19:
		key, b := r.metaKey()
		length, data := r.body()
		return "ms " + key + " " + length + b + r.flags("kcqOFTCMI") + "\r\n" + data
	case 20, 21:
		key, b := r.metaKey()
		return "md " + key + b + r.flags("kqOCIT") + "\r\n"
	}
	key, b := r.metaKey()
	return "ma " + key + b + r.flags("kctvqONTCDJM") + "\r\n"
}

// odd returns a command that is rare, invalid or dangerous.
func (r *player) odd() string {
	if r.one(3) {
		// Reading all keys first removes what an earlier flush_all hides.
		// Otherwise a later delay would make it visible again, unless memcached's
		// crawler has removed it.
		batch := ""
		for _, key := range slices.Concat(r.keys, oddKeys) {
			batch += "mg " + key + " \r\n"
		}
		for _, key := range slices.Concat(r.keys, inBase64) {
			batch += "mg " + key + " b\r\n"
		}
		return batch + "flush_all" + r.of("", " 0", " -1", " 1000", " 2000000000", " noreply", " 0 noreply", " x", " 0 x", " x noreply", " 1 2 3") + "\r\n"
	}
	return r.of(
		"get", "get ", "gets", "gat", "gat 10", "gat x", "gat x noreply", "GET a", "Get a", "nonsense", "a", "", " ", "\r", "mg", "mg a  v", "ms", "ms a", "ms a 5x",
		"md", "ma", "me", "mx a", "version", "version x", "verbosity", "verbosity 1", "verbosity x", "verbosity 1 noreply", "verbosity noreply", "verbosity 1 2 3",
		"set", "set a", "set a 0 0", "set a 0 0 1 2 3\r\nx", "set a 0 0 noreply", "cas a 0 0 1\r\nx", "cas a 0 0 noreply", "cas a 0 0 1 x\r\nx", "incr", "incr a", "incr a 1 2 3", "incr a noreply", "touch a",
		"touch a 1 2 3", "delete", "delete a 1 2 3", "shutdown", "shutdown graceful", "stats foo", "stats sizes", "stats reset", "config get cluster", "flush_all 1 2 3",
		"set a 0 0 -1", "decr a -1", "set a -1 0 1\r\nx", "set a\x00b 0 0 1\r\nx", "set a 4294967296 0 0\r\n", "touch a x", "get a\x00b", "mg a\x00 v",
	) + "\r\n"
}

func TestSameAsMemcached(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			p := newPair(t)
			r := &player{
				Rand: rand.New(rand.NewPCG(seed, 18)),
				keys: []string{"a", "b", "k1", "num", "YWJj", "abc", strings.Repeat("y", 249)},
				now:  time.Now().Unix(),
			}
			seen := regexp.MustCompile(` c(\d+)| (\d+)\r\n`)
			for range 3000 {
				batch := r.command()
				if arithmetic(batch) && p.hugeNumber() {
					continue
				}
				for r.one(4) {
					if next := r.command(); pipelined(batch) && pipelined(next) {
						batch += next
					}
				}
				for _, m := range seen.FindAllStringSubmatch(p.ask(batch), -1) {
					if n, err := strconv.ParseUint(m[1]+m[2], 10, 64); err == nil && n < 1e6 {
						r.cas = n
					}
				}
			}
			compareCounters(t, p)
		})
	}
}

// pipelined reports whether memcached replies to a command in a pipeline as it
// does to a single one. It pads a number only if no pending reply references the
// item. A get with a key that is too long loses the replies before it.
func pipelined(batch string) bool {
	return !arithmetic(batch) && !strings.Contains(batch, strings.Repeat("x", 251))
}

func arithmetic(batch string) bool {
	return strings.Contains(batch, "incr ") || strings.Contains(batch, "decr ") || strings.Contains(batch, "ma ")
}

// hugeNumber reports whether an item has a number near or above 2^63, which
// appends can create. Arithmetic on it makes memcached search for a minus after
// the item.
func (p *pair) hugeNumber() bool {
	p.store.lock()
	defer p.store.unlock()
	for _, it := range p.store.items.Values() {
		if n, ok := numberIn(it.value); ok && n > 1<<62 {
			return true
		}
	}
	return false
}

// compareCounters compares the counters in stats after the commands. cmd_set and cmd_flush are missing, because memcached
// counts some malformed commands.
func compareCounters(t *testing.T, p *pair) {
	t.Helper()
	node, real := p.node.ask("stats\r\n"), p.real.ask("stats\r\n")
	for _, name := range []string{
		"version", "cmd_get", "cmd_touch", "cmd_meta", "get_hits", "get_misses", "delete_misses", "delete_hits",
		"incr_misses", "incr_hits", "decr_misses", "decr_hits", "cas_misses", "cas_hits", "cas_badval", "touch_hits", "touch_misses",
		"store_too_large", "total_items", "limit_maxbytes", "curr_connections",
	} {
		line := regexp.MustCompile(`(?m)^STAT ` + name + ` .*\r$`)
		if got, want := line.FindString(node), line.FindString(real); got != want || got == "" {
			t.Errorf("node %q, memcached %q", got, want)
		}
	}
}

// operators are commands for memcached's internals, which a Node does not have.
var operators = regexp.MustCompile(`^(stats |(cache_memlimit|slabs|lru|lru_crawler|extstore|watch|refresh_certs|misbehave|debugtime)\b)`)

// TestSameCorpus runs the malformed streams of the proxy, and compares each with
// its model.
func TestSameCorpus(t *testing.T) {
	streams, err := wiretest.Streams()
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := wiretest.Recorded()
	if err != nil {
		t.Fatal(err)
	}
	streams = slices.DeleteFunc(streams, func(s wiretest.Stream) bool {
		return operators.MatchString(s.Data) // a Node has no slabs, and nothing to tune
	})
	for part := range slices.Chunk(streams, (len(streams)+atOnce-1)/atOnce) {
		t.Run("from "+part[0].Name, func(t *testing.T) {
			t.Parallel()
			compareStreams(t, part, recorded)
		})
	}
}

// atOnce is how many pairs of servers run the corpus in parallel. They mostly wait
// until a memcached that does not reply has been silent for long enough.
const atOnce = 8

// TestMain lets all of them run in parallel, however few processors there are.
func TestMain(m *testing.M) {
	testing.Init()
	flag.Set("test.parallel", strconv.Itoa(atOnce))
	os.Exit(m.Run())
}

// compareStreams compares a Node with the model of each stream, one after the
// other.
func compareStreams(t *testing.T, streams []wiretest.Stream, recorded map[string]wiretest.Said) {
	const patience = testenv.Hang
	node, real := startNode(t, Options{}).Addr().String(), startMemcached(t)
	for _, s := range streams {
		hear := func(address string, want wiretest.Said) wiretest.Said {
			if answer := dial(t, address).ask("flush_all\r\n"); answer != "OK\r\n" {
				t.Fatalf("flush_all: %q", answer)
			}
			c := dial(t, address)
			defer c.Close()
			return wiretest.Hear(c.Conn.(*net.TCPConn), []string{s.Probed()}, want, patience)
		}
		var got, want wiretest.Said
		for range 3 { // a second may begin between the two
			switch s.Mark {
			case wiretest.New:
				want = recorded[s.Source]
			case wiretest.Own:
				want = s.Want
			default:
				want = hear(real, wiretest.Said{})
			}
			if got = hear(node, want); same(got.Answer, want.Answer) && got.Closed == want.Closed {
				break
			}
		}
		if !same(got.Answer, want.Answer) || got.Closed != want.Closed {
			t.Errorf("%s: %.200q\nnode %.300q, closed: %v\nwant %.300q, closed: %v", s.Name, s.Data, got.Answer, got.Closed, want.Answer, want.Closed)
		}
	}
}

// TestSameLimits compares memnode with a real memcached at the largest item and the
// longest number.
func TestSameLimits(t *testing.T) {
	p := newPair(t)
	const largest = 1<<20 - 48 - 2 - 2 - 8 // with a key of one byte and no flags
	big := strings.Repeat("1", largest+8)
	for _, flags := range []string{"0", "7"} {
		for n := largest - 5; n <= largest+1; n++ {
			for _, command := range []string{"set", "add", "replace", "append", "prepend"} {
				p.ask("set a 0 0 3\r\nold\r\n")
				p.ask(fmt.Sprintf("%s a %s 0 %d\r\n%s\r\n", command, flags, n, big[:n]))
				p.ask("mg a s f t c k\r\n")
			}
			for _, mode := range []string{"S", "E", "A"} {
				p.ask("set a 0 0 3\r\nold\r\n")
				p.ask(fmt.Sprintf("ms a %d F%s M%s q\r\n%s\r\n", n, flags, mode, big[:n]))
				p.ask("mg a s f t c k\r\n")
			}
		}
	}
	for n := 512<<10 - 64; n <= 512<<10-56; n++ { // around the size above which memcached stores an item in chunks
		p.ask(fmt.Sprintf("set a 0 0 %d\r\n%s\r\n", n, " 5"+strings.Repeat(" ", n-2)))
		p.ask("incr a 1\r\n")
		p.ask("ma a v N0 C1\r\n")
	}
	p.ask("set a 0 0 1\r\n1\r\nget a\r\nget b " + strings.Repeat("x", 251) + " a\r\nget a\r\n")
	keys := strings.Repeat(" a b", 5000) // longer than any buffer
	p.ask("get" + keys + "\r\nset a 0 0 2000000\r\n" + strings.Repeat("v", 2000000) + "\r\nget a\r\n")
}

// TestSameNumbers compares which values count as a number, each in an item that
// was never used before.
func TestSameNumbers(t *testing.T) {
	p := newPair(t)
	for i, value := range []string{
		"18446744073709551615", "18446744073709551616", "99", "10 ", " 12", "12 34", "-1", "-18446744073709551615", "\t5", "7\x008",
		"+6", "+-6", "- 6", "a-", "18446744073709551615 -", "18446744073709551615\x00-", "-0", "-9223372036854775808", "-9223372036854775809",
		"9223372036854775808", "c d", "1 -", "1-", "0x10", "1e3", "", "\v\f\r\n8", "00000000000000000000000000007",
	} {
		for j, command := range []string{
			"incr %s 1", "decr %s 1", "ma %s v c D2 C1", "ma %s MD v t c",
			"incr %s 18446744073709551615", "decr %s 9223372036854775808", "ma %s v D9223372036854775808", "ma %s M- v D18446744073709551615",
		} {
			key := fmt.Sprintf("%dof%d", j, i)
			p.ask(fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", key, len(value), value))
			p.ask(fmt.Sprintf(command, key) + "\r\nget " + key + "\r\n")
		}
	}
}

// TestSameRefill checks the states of an item that one client at a time may
// refill.
func TestSameRefill(t *testing.T) {
	p := newPair(t)
	const read = "mg k k v f c t N100 R50 h\r\n"
	for _, batch := range []string{
		read, read, "get k\r\n", "gets k\r\n", "add k 0 0 1\r\nx\r\n", "ms k 1 ME\r\nx\r\n", "incr k 1\r\n", "touch k 100\r\n", "gat 100 k\r\n", // created by N, still empty
		"append k 0 0 1\r\nx\r\n", read, "replace k 0 0 1\r\ny\r\n", read, // filled by other commands than a refill
		"delete k\r\n", read, "ms k 2 C23 c\r\nhi\r\n", "ms k 2 C18 c\r\nhi\r\n", read,
		"set k 5 100 3\r\nabc\r\n", read, "set k 5 20 3\r\nabc\r\n", read, read, read, // refreshed before the expiry
		"md k I T100\r\n", read, read, "get k\r\n", "md k I\r\n", "mg k\r\n", "mg k v\r\n", // stale
		"ms k 3 C1\r\nold\r\n", "ms k 3 C1 I c\r\nold\r\n", read, read, "me k\r\n", // a late refill
		"md k C1\r\n", "md k C1 I q\r\n", "md k q\r\n", "md k q\r\n", "mg k q v k O1\r\n", read, read,
	} {
		p.ask(batch)
	}
}
