package e2e

// This file runs many clients on many keys with replicas while servers die and hang.
// Every reply is checked against the model.

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"ringside/internal/testenv"
)

var seedFlag = flag.Uint64("seed", 0, "the seed of tests with random faults; 0: another each time")

// seeded returns a random source. A failing test prints its seed.
func seeded(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() || testing.Verbose() {
			t.Logf("go test -run '^%s$' -args -seed %d", t.Name(), seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

const (
	liveKeys   = 24  // number of keys in use at a time
	keyHistory = 150 // operations on one key before a new key replaces it
	clientsAt  = 16  // number of clients
	thinkTime  = 30 * time.Millisecond
)

// uses lists the operations on a key of each kind. An operation that is listed more often
// is more likely. Half of them are sent as meta commands: see metaOf.
var uses = map[byte][]string{
	'r': strings.Fields("get get get gat set set set add replace cas delete"),                    // a register
	'v': strings.Fields("get get get gat set set cas touch add replace"),                         // a value that is never deleted
	'd': strings.Fields("get get get get set set add replace delete delete delete"),              // a key that is often deleted and added
	'l': strings.Fields("get get get get add add add add delete delete"),                         // a lock; only its holder deletes it
	'n': strings.Fields("get get get get incr incr incr incr incr add"),                          // a number that only grows
	'c': strings.Fields("get get get gat incr incr incr decr decr decr touch add"),               // a counter that grows and shrinks
	'a': strings.Fields("get get get gat append append append append prepend prepend touch add"), // a log
}

// track is one key and the history of operations on it.
type track struct {
	key     string
	kind    byte        // key of uses
	writing sync.Mutex  // held during a write if this kind allows one writer at a time
	held    atomic.Bool // the lock was acquired, or may have been, and is to be deleted
	left    atomic.Int32

	mu       sync.Mutex
	history  []porcupine.Operation
	tries    int             // number of operations; makes written values unique
	doubtful map[string]bool // values of writes that got an error
}

// clientele is a set of clients that read and write shared keys through fronts, the
// instances under test.
type clientele struct {
	fronts []*ringside
	mix
	settings func(weights ...int) string // returns the configuration of the fronts
	weights  []int                       // current weights of the servers

	start time.Time
	stop  chan struct{}
	once  sync.Once // guards the closing of stop
	work  sync.WaitGroup

	mu       sync.Mutex
	live     []*track
	all      []*track
	lately   [][2]int64 // intervals just after a hanging server resumed
	harms    []string   // faults injected so far, for messages
	unmended []*track   // keys that still had one replica, or three, when the servers were all in again
	trouble  error

	acknowledged, refused, leftOut, takenBack, early atomic.Int64
	done                                             map[string]*atomic.Int64 // acknowledged operations, by command
}

// mix says which keys the clients use and how.
type mix struct {
	prefix string        // prefix of all keys
	kinds  string        // kinds of keys, used in turn
	alone  string        // kinds of keys that have one writer at a time
	think  time.Duration // longest pause between two operations of a client
}

func startClientele(t testing.TB, fronts []*ringside, m mix, seed uint64) *clientele {
	h := &clientele{fronts: fronts, mix: m, start: time.Now(), stop: make(chan struct{}), done: map[string]*atomic.Int64{}}
	for _, list := range uses {
		for _, op := range list {
			h.done[op] = new(atomic.Int64)
		}
	}
	t.Cleanup(h.halt)
	for i := range liveKeys {
		h.live = append(h.live, h.fresh(i))
	}
	for i := range clientsAt {
		h.work.Go(func() {
			if err := h.client(i, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
				h.mu.Lock()
				h.trouble = errors.Join(h.trouble, fmt.Errorf("client %d: %w", i, err))
				h.mu.Unlock()
			}
		})
	}
	return h
}

// fresh returns a new key for slot i of live.
func (h *clientele) fresh(i int) *track {
	k := &track{kind: h.kinds[i%len(h.kinds)], doubtful: map[string]bool{}}
	k.key = fmt.Sprintf("%s%c:%d", h.prefix, k.kind, len(h.all))
	k.left.Store(keyHistory)
	h.all = append(h.all, k)
	return k
}

// pick returns a key for one operation. Keys with a low index are picked more often.
func (h *clientele) pick(random *rand.Rand) *track {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := min(random.IntN(liveKeys), random.IntN(liveKeys))
	for h.live[i].left.Add(-1) < 0 {
		h.live[i] = h.fresh(i)
	}
	return h.live[i]
}

// wire is a client's connection to one front.
type wire struct {
	net.Conn
	r *bufio.Reader
}

// ask sends one request and returns the fields of the reply line. If the reply has a
// value, it is the last field.
func (c *wire) ask(request string) ([]string, error) {
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return nil, err
	}
	line, err := c.r.ReadString('\n')
	f := strings.Fields(line)
	if err != nil || len(f) == 0 {
		return nil, fmt.Errorf("%s: got %q: %w", request, line, errors.Join(err))
	}
	if f[0] == "VALUE" || f[0] == "VA" {
		var value string
		end := "END\r\n"
		value, err = c.r.ReadString('\n')
		if err == nil && f[0] == "VALUE" {
			end, err = c.r.ReadString('\n')
		}
		if err != nil || end != "END\r\n" {
			return nil, fmt.Errorf("%s: a value %q that ends with %q: %w", request, value, end, errors.Join(err))
		}
		f = append(f, strings.TrimSpace(value))
	}
	return f, nil
}

func (h *clientele) client(id int, random *rand.Rand) error {
	var fronts []*wire
	for _, r := range h.fronts {
		c, err := dialError(r.address)
		if err != nil {
			return err
		}
		defer c.Close()
		fronts = append(fronts, &wire{c, bufio.NewReader(c)})
	}
	for {
		select {
		case <-h.stop:
			return nil
		case <-time.After(time.Duration(random.Int64N(int64(h.think)))):
		}
		front := random.IntN(len(fronts))
		if err := h.operate(id, front, fronts[front], h.pick(random), random); err != nil {
			return err
		}
	}
}

// operate runs one operation on a key and records it.
func (h *clientele) operate(id, front int, c *wire, k *track, random *rand.Rand) error {
	k.mu.Lock()
	k.tries++
	in := asked{op: uses[k.kind][random.IntN(len(uses[k.kind]))], value: fmt.Sprintf("%d.%d", k.tries, id), front: front}
	k.mu.Unlock()
	if k.kind == 'l' && in.op == "delete" && !k.held.Swap(false) {
		return nil // only the holder of a lock deletes it
	}
	if in.op != "get" && in.op != "gat" && strings.IndexByte(h.alone, k.kind) >= 0 {
		k.writing.Lock()
		defer k.writing.Unlock()
	}
	request := ""
	switch in.op {
	case "get", "delete":
		request, in.value = in.op+" "+k.key, ""
	case "gat":
		request, in.value = "gat 0 "+k.key, ""
	case "incr", "decr":
		request, in.value = in.op+" "+k.key+" 1", ""
	case "touch":
		request, in.value = "touch "+k.key+" 0", ""
	case "append", "prepend", "set", "add", "replace":
		switch {
		case in.op == "append":
			in.value = "," + in.value
		case in.op == "prepend":
			in.value += "|"
		case firstNumber[k.kind] > 0:
			in.value = strconv.Itoa(firstNumber[k.kind])
		}
		request = fmt.Sprintf("%s %s 0 0 %d\r\n%s", in.op, k.key, len(in.value), in.value)
	case "cas":
		call := h.now()
		f, err := c.ask("gets " + k.key)
		if err != nil {
			return err
		}
		h.note(id, k, asked{op: "get", front: front}, f, call)
		if f[0] != "VALUE" {
			return nil
		}
		in.expect = f[5]
		k.left.Add(-1)
		request = fmt.Sprintf("cas %s 0 0 %d %s\r\n%s", k.key, len(in.value), f[4], in.value)
	}
	meta := random.IntN(2) == 0
	if meta {
		request = metaOf(in.op, request)
	}
	call := h.now()
	f, err := c.ask(request)
	if err != nil {
		return err
	}
	if meta {
		f = textOf(in.op, f)
	}
	h.note(id, k, in, f, call)
	if k.kind == 'l' && (in.op == "add" && f[0] != "NOT_STORED" || in.op == "delete" && f[0] == "SERVER_ERROR") {
		k.held.Store(true)
	}
	return nil
}

// metaOf translates a text request into a meta request.
func metaOf(op, request string) string {
	line, value, _ := strings.Cut(request, "\r\n")
	f := strings.Fields(line)
	switch op {
	case "get":
		return "mg " + f[1] + " v"
	case "gat":
		return "mg " + f[2] + " v T0"
	case "touch":
		return "mg " + f[1] + " T0"
	case "delete":
		return "md " + f[1]
	case "incr", "decr":
		return "ma " + f[1] + " v M" + strings.ToUpper(op[:1])
	case "cas":
		return "ms " + f[1] + " " + f[4] + " C" + f[5] + "\r\n" + value
	}
	return "ms " + f[1] + " " + f[4] + " M" + map[string]string{"set": "S", "add": "E", "replace": "R", "append": "A", "prepend": "P"}[op] + "\r\n" + value
}

// textOf translates the fields of a meta reply into those of the text reply.
func textOf(op string, f []string) []string {
	switch done := map[string]string{"touch": "TOUCHED", "delete": "DELETED"}; {
	case f[0] == "VA" && (op == "incr" || op == "decr"):
		return f[len(f)-1:]
	case f[0] == "VA":
		f[0] = "VALUE"
	case f[0] == "HD":
		f[0] = cmp.Or(done[op], "STORED")
	case f[0] == "NS":
		f[0] = "NOT_STORED"
	case f[0] == "EX":
		f[0] = "EXISTS"
	case f[0] == "EN" && op != "touch":
		f[0] = "END"
	case f[0] == "EN" || f[0] == "NF":
		f[0] = "NOT_FOUND"
	}
	return f
}

func (h *clientele) now() int64 { return int64(time.Since(h.start)) }

// note records an operation and its reply.
func (h *clientele) note(id int, k *track, in asked, f []string, call int64) {
	o := porcupine.Operation{ClientId: id, Input: in, Call: call, Return: h.now()}
	out := told{answer: f[0]}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case f[0] == "SERVER_ERROR":
		h.refused.Add(1)
		switch out.answer = ""; in.op {
		case "get", "gat", "touch":
			return
		case "incr", "decr", "append", "prepend":
			o.Return = never
		}
		k.doubtful[in.value] = true
	case f[0] == "VALUE":
		out.value = f[len(f)-1]
		fallthrough
	default:
		h.acknowledged.Add(1)
		h.done[in.op].Add(1)
	}
	o.Output = out
	k.history = append(k.history, o)
}

// more waits until the clients have received the given number of further replies.
func (h *clientele) more(t testing.TB, answers int64) {
	t.Helper()
	goal := h.acknowledged.Load() + answers
	eventually(t, "clients get answers", func() bool { return h.acknowledged.Load() >= goal })
}

// complete waits until one server may fail without loss of data: see whole.
func (h *clientele) complete(t testing.TB, servers []*memcached) {
	t.Helper()
	h.mu.Lock()
	var keys []string
	used := map[string]*track{}
	for _, k := range h.live {
		keys, used[k.key] = append(keys, k.key), k
	}
	h.mu.Unlock()
	whole(t, h.fronts, servers, keys, func(key string) bool { return used[key].left.Load() > 0 })
}

// whole waits until no front suspects a server and every key in use has the same value on
// exactly two servers. Then one server may fail. Keys change during the wait, so each key
// is checked until it has been in that state once.
func whole(t testing.TB, fronts []*ringside, servers []*memcached, keys []string, used func(string) bool) {
	t.Helper()
	conns := make([]*conn, len(servers))
	for i, s := range servers {
		conns[i] = dial(t, s.address)
		defer conns[i].Close()
	}
	keys = slices.Clone(keys)
	wrong := map[string]string{}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		keys = slices.DeleteFunc(keys, func(key string) bool {
			if !used(key) {
				return true
			}
			have := map[string]int{}
			for _, c := range conns {
				if found, _ := c.get(key); len(found) > 0 {
					have[strings.TrimSpace(found[key])]++
				}
			}
			wrong[key] = fmt.Sprint(have)
			for _, n := range have {
				return n == 2 && len(have) == 1
			}
			return true
		})
		calm := !slices.ContainsFunc(fronts, func(r *ringside) bool { return !r.calm() })
		switch {
		case calm && len(keys) == 0:
			return
		case time.Now().After(end) && len(keys) > 0:
			t.Fatalf("%d keys are not on two servers or on none, such as %s: %s", len(keys), keys[0], wrong[keys[0]])
		case time.Now().After(end):
			t.Fatal("a server is suspect or not in, and all are well")
		}
	}
}

// halt stops the clients.
func (h *clientele) halt() {
	h.once.Do(func() { close(h.stop) })
	h.work.Wait()
}

// end stops the clients and checks their histories.
func (h *clientele) end(t testing.TB) {
	t.Helper()
	h.halt()
	if h.trouble != nil {
		t.Error(h.trouble)
	}
	wrong := 0
	for i, b := range h.breaches() {
		if i < 2 {
			t.Error(b.trace)
		}
		wrong++
	}
	t.Logf("%d keys: %d wrong; %d answers, %d errors, %d late reads left out, %d keys with reads of what was not answered yet, %d numbers read that were taken back without an answer", len(h.all), wrong, h.acknowledged.Load(), h.refused.Load(), h.leftOut.Load(), h.early.Load(), h.takenBack.Load())
}

// breach is a key with replies that contradict the model.
type breach struct {
	kind  byte
	trace string
}

// breaches checks the histories of the clients, which must have stopped.
func (h *clientele) breaches() (found []breach) {
	for _, k := range h.all {
		history := slices.DeleteFunc(k.history, func(o porcupine.Operation) bool { return h.lateRead(k, o) })
		check := checkHistory
		switch k.kind {
		case 'a':
			check = checkLog
		case 'n':
			check = checkNumber
		case 'c':
			check = checkCounter
		}
		err := check(k.key, history)
		if err != nil && k.kind == 'n' && checkNumber(k.key, acknowledgedNumbers(history)) == nil {
			h.takenBack.Add(1)
			continue
		}
		if err != nil && !strings.ContainsRune("anc", rune(k.kind)) && checkHistory(k.key, withoutEarlyReads(history)) == nil {
			h.early.Add(1)
			continue
		}
		if err != nil {
			found = append(found, breach{k.kind, err.Error()})
		}
	}
	for _, k := range h.unmended {
		found = append(found, breach{k.kind, k.key + ": has one replica alone, or one too many, and nobody mends that\n"})
	}
	return found
}

// withoutEarlyReads removes reads that saw a write or delete before it was acknowledged.
// If one server executes it late, a read from the other server shows it, and the next
// read may not.
func withoutEarlyReads(history []porcupine.Operation) []porcupine.Operation {
	written := map[string]int64{}
	var deletes []porcupine.Operation
	for _, o := range history {
		if in := o.Input.(asked); in.op == "delete" {
			deletes = append(deletes, o)
		} else if in.value != "" && o.Output.(told).value == "" {
			written[in.value] = o.Return
		}
	}
	return slices.DeleteFunc(slices.Clone(history), func(o porcupine.Operation) bool {
		in, out := o.Input.(asked), o.Output.(told)
		if (in.op == "get" || in.op == "gat") && out.answer == "END" {
			return slices.ContainsFunc(deletes, func(d porcupine.Operation) bool { return d.Call < o.Return && o.Return < d.Return })
		}
		return out.value != "" && o.Return < written[out.value]
	})
}

// lateRead reports whether o may have read a failed write that a server executed when it
// resumed, before Ringside undid it.
func (h *clientele) lateRead(k *track, o porcupine.Operation) bool {
	if out := o.Output.(told); out.value == "" || !k.doubtful[out.value] {
		return false
	}
	for _, moment := range h.lately {
		if o.Call <= moment[1] && o.Return >= moment[0] {
			h.leftOut.Add(1)
			return true
		}
	}
	return false
}

// afterHang is longer than the request timeout. After that time, each request sent to a
// hanging server either has its reply or is followed by an undo.
const afterHang = 500 * time.Millisecond

// undone waits until everything that a server did late is undone: no front is waiting for
// a late reply any more.
func undone(t testing.TB, fronts []*ringside) {
	t.Helper()
	time.Sleep(afterHang)
	for _, r := range fronts {
		client := dial(t, r.address)
		eventually(t, "the late answers are in", func() bool {
			for name, value := range client.stats("servers") {
				if strings.HasSuffix(name, ":zombies") && value != "0" {
					return false
				}
			}
			return true
		})
		client.Close()
	}
}

// breakOne kills or pauses one server for a random time; the longest causes an ejection.
// It then waits until all keys are on two servers again. It waits for that before, too:
// another server may have failed without the test, and two failures at once lose keys.
func (h *clientele) breakOne(t testing.TB, servers []*memcached, random *rand.Rand) {
	t.Helper()
	h.more(t, 300)
	h.complete(t, servers)
	s := servers[random.IntN(len(servers))]
	pause := []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}[random.IntN(4)]
	if random.IntN(2) == 0 {
		s.Kill()
		time.Sleep(pause)
		s.restart(t)
	} else {
		s.pause(t)
		time.Sleep(pause)
		before := h.now()
		s.resume(t)
		undone(t, h.fronts) // an undo may delete a newer value too, so the other replica must stay until it has run
		h.lately = append(h.lately, [2]int64{before, h.now()})
	}
	h.complete(t, servers)
}

// strictPool configures a pool that reacts to a change of a server's state within tenths
// of a second.
var strictPool = []string{
	"timeouts: {connect: 1s, request: 250ms, deadline: 1s}",
	"failover: {consistency: strict, ping: 100ms, lease: 600ms, eject_after: 400ms}",
}

func TestHistoriesOfCopies(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		rounds(t, testTolerance, func(t testing.TB) { histories(t, driver, 1) })
	})
}

// TestHistoriesOfCopiesThroughTwo runs clients through two proxies. Each may read and
// write any key at any time. Writes to a plain value are serialized, through either
// proxy, because the result of two concurrent writes is not promised. Locks, numbers and
// logs are written concurrently.
func TestHistoriesOfCopiesThroughTwo(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		rounds(t, testTolerance, func(t testing.TB) { histories(t, driver, 2) })
	})
}

// histories runs clients and faults on three servers. Replies of one server are sometimes
// delayed, but requests to it are not. A request that a server executes late during the
// repair of another fault would be a second fault.
func histories(t testing.TB, driver string, proxies int) {
	random := seeded(t)
	servers := startMemcacheds(t, 3)
	seen := slices.Clone(servers)
	seen[2] = &memcached{address: startForwarder(t, servers[2].address, false, random.Uint64())}
	var fronts []*ringside
	for range proxies {
		fronts = append(fronts, startRingside(t, driver, copied(seen, ", get_errors: error", strictPool...)))
	}
	m := mix{kinds: "rnlavdc", think: thinkTime}
	if proxies > 1 {
		m.alone = "rvd"
	}
	h := startClientele(t, fronts, m, random.Uint64())
	faults := 3
	if testenv.Full() {
		faults = 5
	}
	for range faults {
		h.breakOne(t, servers, random)
	}
	h.more(t, 300)
	h.end(t)
}
