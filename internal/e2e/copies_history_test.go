package e2e

// Many clients on many keys with copies while servers die and hang: every answer
// is held against the model.

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

// seeded is a source of chance whose seed a failing test prints.
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
	liveKeys   = 24  // at a time
	keyHistory = 150 // operations on one key, whose place another takes then
	clientsAt  = 16  // clients
	thinkTime  = 30 * time.Millisecond
)

// uses are what is done to a key of each kind, each as often as it stands there.
// Half of it is asked in meta commands: see metaOf.
var uses = map[byte][]string{
	'r': strings.Fields("get get get gat set set set add replace cas delete"),                    // a register
	'v': strings.Fields("get get get gat set set cas touch add replace"),                         // a value
	'd': strings.Fields("get get get get set set add replace delete delete delete"),              // one that comes and goes
	'l': strings.Fields("get get get get add add add add delete delete"),                         // a lock: who has got it gives it back
	'n': strings.Fields("get get get get incr incr incr incr incr add"),                          // a number
	'c': strings.Fields("get get get gat incr incr incr decr decr decr touch add"),               // a number that goes up and down
	'a': strings.Fields("get get get gat append append append append prepend prepend touch add"), // a log
}

// track is one key and what has been done to it.
type track struct {
	key     string
	kind    byte        // of uses
	writing sync.Mutex  // where writers must not meet
	held    atomic.Bool // a lock that somebody has got and is to give back, or may have got
	left    atomic.Int32

	mu       sync.Mutex
	history  []porcupine.Operation
	tries    int             // writes, for values that are all different
	doubtful map[string]bool // values of writes that got an error
}

// clientele is clients at work on keys.
type clientele struct {
	fronts []*ringside
	mix
	settings func(weights ...int) string // of the fronts
	weights  []int                       // that servers have now

	start time.Time
	stop  chan struct{}
	once  sync.Once // closes stop
	work  sync.WaitGroup

	mu       sync.Mutex
	live     []*track
	all      []*track
	lately   [][2]int64 // the moments after a hanging server went on
	harms    []string   // faults, for people
	unmended []*track   // keys that had one copy alone, or three, when all was well again
	trouble  error

	acknowledged, refused, leftOut, takenBack, early atomic.Int64
	done                                             map[string]*atomic.Int64 // acknowledged, by command
}

// mix is what clients do.
type mix struct {
	prefix string        // of all keys
	kinds  string        // of keys, in turn
	alone  string        // kinds of keys that have one writer at a time
	think  time.Duration // between two operations of a client, at most
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

// fresh is a new key for place i.
func (h *clientele) fresh(i int) *track {
	k := &track{kind: h.kinds[i%len(h.kinds)], doubtful: map[string]bool{}}
	k.key = fmt.Sprintf("%s%c:%d", h.prefix, k.kind, len(h.all))
	k.left.Store(keyHistory)
	h.all = append(h.all, k)
	return k
}

// pick is a key for one operation, often the same.
func (h *clientele) pick(random *rand.Rand) *track {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := min(random.IntN(liveKeys), random.IntN(liveKeys))
	for h.live[i].left.Add(-1) < 0 {
		h.live[i] = h.fresh(i)
	}
	return h.live[i]
}

// wire is a client's connection to one ringside.
type wire struct {
	net.Conn
	r *bufio.Reader
}

// ask sends one request and returns the fields of the line that answers it; a
// value it finds is the last of them.
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

// operate does one operation on a key and writes it down.
func (h *clientele) operate(id, front int, c *wire, k *track, random *rand.Rand) error {
	k.mu.Lock()
	k.tries++
	in := asked{op: uses[k.kind][random.IntN(len(uses[k.kind]))], value: fmt.Sprintf("%d.%d", k.tries, id), front: front}
	k.mu.Unlock()
	if k.kind == 'l' && in.op == "delete" && !k.held.Swap(false) {
		return nil // only who has got a lock gives it back
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

// metaOf is a request in meta commands.
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

// textOf is what the text command would have answered where a meta command answered f.
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

// note writes an operation and its answer down.
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

// more waits until the clients have so many answers more.
func (h *clientele) more(t testing.TB, answers int64) {
	t.Helper()
	goal := h.acknowledged.Load() + answers
	eventually(t, "clients get answers", func() bool { return h.acknowledged.Load() >= goal })
}

// complete waits until one server may go: see whole.
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

// whole waits until no ringside suspects a server and both members of each key
// that is in use have the same, so that one of them may go. Keys change
// meanwhile, so each is looked at until it has been seen so once.
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

// end stops the clients and checks what they have seen.
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

// breach is a key whose answers can't be explained.
type breach struct {
	kind  byte
	trace string
}

// breaches are what the clients, who have stopped, have seen.
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
		found = append(found, breach{k.kind, k.key + ": has one copy alone, or one too many, and nobody mends that\n"})
	}
	return found
}

// withoutEarlyReads leaves out what was read of a write or a delete that had no answer yet.
// Where one server does it late, a read that the other has answered shows it, and the next
// may not.
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

// lateRead says that a read may have seen a write in the moment in which a
// server that had hung did it, before it was undone.
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

// afterHang is longer than a request waits for its answer: after that, what was
// sent to a server that hung has its answer, or an undo behind it.
const afterHang = 500 * time.Millisecond

// undone waits until what a server did late is undone: no front waits for a late
// answer any more.
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

// breakOne lets one server die or hang, for a while or until the others know,
// and waits until all is whole again.
func (h *clientele) breakOne(t testing.TB, servers []*memcached, random *rand.Rand) {
	t.Helper()
	h.more(t, 300)
	s := servers[random.IntN(len(servers))]
	pause := []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}[random.IntN(4)]
	if random.IntN(2) == 0 {
		s.kill()
		time.Sleep(pause)
		s.restart(t)
	} else {
		s.pause(t)
		time.Sleep(pause)
		before := h.now()
		s.resume(t)
		undone(t, h.fronts) // one may take a newer value with it: the other copy must stay until it has run
		h.lately = append(h.lately, [2]int64{before, h.now()})
	}
	h.complete(t, servers)
}

// strictPool is a pool in which changes of a server's state take tenths of
// seconds.
var strictPool = []string{
	"timeouts: {connect: 1s, request: 250ms, deadline: 1s}",
	"failover: {consistency: strict, ping: 100ms, lease: 600ms, eject_after: 400ms}",
}

func TestHistoriesOfCopies(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		rounds(t, testTolerance, func(t testing.TB) { histories(t, driver, 1) })
	})
}

// Two proxies may each read and write at any time. Writes on one value come one after
// another, but through either: how two that meet end is not promised. What is made to be
// met by others, locks, numbers and logs, is.
func TestHistoriesOfCopiesThroughTwo(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		rounds(t, testTolerance, func(t testing.TB) { histories(t, driver, 2) })
	})
}

// One server's answers come late now and then. Its requests don't: what a server carries
// out late, while a fault is healed, is two faults.
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
