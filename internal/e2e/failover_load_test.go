package e2e

// This file runs clients that share keys, through one instance or several, and detect
// stale values.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load is a set of clients that read and write the same keys. Every value contains its
// key and the id of its write, so each read is judged independently:
//
//   - wrong: no client ever wrote that value to the key;
//   - stale: a newer write or delete had been acknowledged before the read was sent, and
//     that newer one was sent after the value's own write had been answered, successfully
//     or not;
//   - lost: a miss, although the last operation on the key was an acknowledged write.
//
// Times are numbers of one clock that all clients share. A request's number is drawn
// before it is sent, a reply's after it was read. Concurrent operations are therefore
// never reported as stale.
type load struct {
	keys    []*loadKey
	clock   atomic.Int64
	lastID  atomic.Int64
	began   time.Time
	stop    chan struct{}
	clients sync.WaitGroup

	mu     sync.Mutex
	groups []loadGroup
	bad    []string // stale and wrong values, and requests without any reply
	said   []string // the last errors, as examples for messages
}

// loadKey is one key and what clients did to it.
type loadKey struct {
	name  string
	group int // index of the server that owns the key

	mu      sync.Mutex
	writes  map[int64]int64 // time of the reply, by id of the write; 0: no reply yet
	newest  int64           // time when the latest acknowledged mutation was sent
	open    int             // mutations without a reply
	changes int             // mutations sent
	sure    bool            // the key has a value: the last mutation stored it and ran alone
	past    []string        // the last operations, for messages
}

// note records one line about an operation. The caller must hold k.mu.
func (k *loadKey) note(format string, args ...any) {
	k.past = append(k.past, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
	k.past = k.past[max(0, len(k.past)-20):]
}

// story returns the last operations on the key.
func (k *loadKey) story() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return "\n\t" + strings.Join(k.past, "\n\t")
}

// loadGroup counts the requests for keys of one group.
type loadGroup struct {
	tally
	row int // successful requests since the last failed one
}

type tally struct {
	asked, hits   int
	lost          int // misses that should have been hits
	reads, writes int // requests that got an error
	cut           int // replies that ended too soon
	stale, wrong  int
}

func (y tally) trouble() int { return y.lost + y.reads + y.writes + y.cut + y.stale + y.wrong }

func (y tally) String() string {
	return fmt.Sprintf("%d requests, %d hits, %d lost, %d reads and %d writes refused, %d cut, %d stale, %d wrong",
		y.asked, y.hits, y.lost, y.reads, y.writes, y.cut, y.stale, y.wrong)
}

func (y tally) minus(o tally) tally {
	return tally{y.asked - o.asked, y.hits - o.hits, y.lost - o.lost, y.reads - o.reads, y.writes - o.writes, y.cut - o.cut, y.stale - o.stale, y.wrong - o.wrong}
}

func (y tally) plus(o tally) tally { return y.minus(tally{}.minus(o)) }

// loadPause is the mean pause of a client between two requests. It is long because these
// tests look for wrong replies, not for speed, and many of them run at the same time.
const loadPause = 12 * time.Millisecond

// startLoad runs the given number of clients on every address until end is called. With
// textOnly they send no meta commands.
func startLoad(t testing.TB, names []string, groupOf func(key string) int, clients int, textOnly bool, addresses ...string) *load {
	t.Helper()
	l := &load{began: time.Now(), stop: make(chan struct{})}
	for _, name := range names {
		k := &loadKey{name: name, group: groupOf(name), writes: map[int64]int64{}}
		l.keys = append(l.keys, k)
		for len(l.groups) <= k.group {
			l.groups = append(l.groups, loadGroup{})
		}
	}
	t.Cleanup(l.halt)
	for i, address := range addresses {
		for j := range clients {
			c := &loadClient{load: l, address: address, textOnly: textOnly, name: fmt.Sprintf("ringside %d, client %d", i, j), dice: rand.New(rand.NewPCG(uint64(i), uint64(j)))}
			l.clients.Add(1)
			go c.work()
		}
	}
	return l
}

func (l *load) halt() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.clients.Wait()
}

// end stops the clients and fails the test if they saw wrong or stale replies.
func (l *load) end(t testing.TB) {
	t.Helper()
	l.halt()
	l.sound(t)
	if total := l.total(); total.asked == 0 || total.hits == 0 {
		t.Errorf("the load did nothing: %v", total)
	}
}

// sound fails the test if clients have seen wrong or stale replies so far.
func (l *load) sound(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, what := range l.bad {
		if i == 10 {
			t.Errorf("and %d more", len(l.bad)-i)
			break
		}
		if !strings.HasPrefix(what, "stale") {
			certain(t)
		}
		t.Error(what)
	}
}

// forgive allows the stale values seen so far, and returns their number.
func (l *load) forgive() (stale int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad = slices.DeleteFunc(l.bad, func(what string) bool {
		old := strings.HasPrefix(what, "stale")
		if old {
			stale++
		}
		return old
	})
	return stale
}

// of returns the counts of some groups so far, or of all groups if none is given.
func (l *load) of(groups ...int) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sum tally
	for i := range l.groups {
		if len(groups) == 0 || slices.Contains(groups, i) {
			sum = sum.plus(l.groups[i].tally)
		}
	}
	return sum
}

func (l *load) total() tally { return l.of() }

// examples returns some of the errors, for messages.
func (l *load) examples() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, "\n")
}

// more waits until the given number of further requests has been answered.
func (l *load) more(t testing.TB, requests int) {
	t.Helper()
	goal := l.total().asked + requests
	eventually(t, "the load goes on", func() bool { return l.total().asked >= goal })
}

// troubled waits until requests for the keys of a group fail. It calls begin itself,
// because the failures may be over when begin returns.
func (l *load) troubled(t testing.TB, group int, begin ...func()) {
	t.Helper()
	before := l.of(group).trouble()
	for _, f := range begin {
		f()
	}
	eventually(t, "clients notice", func() bool { return l.of(group).trouble() > before })
}

// calm waits until each of these groups has had the given number of successful requests
// in a row. Without groups it waits for all of them.
func (l *load) calm(t testing.TB, row int, groups ...int) {
	t.Helper()
	if len(groups) == 0 {
		for i := range l.groups {
			groups = append(groups, i)
		}
	}
	l.mu.Lock()
	for _, g := range groups {
		l.groups[g].row = 0
	}
	l.mu.Unlock()
	end := time.Now().Add(patience)
	for !func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !slices.ContainsFunc(groups, func(g int) bool { return l.groups[g].row < row })
	}() {
		if time.Now().After(end) {
			t.Fatalf("not everything went well for %d requests in a row within %v: %v\n%s", row, patience, l.of(groups...), l.examples())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// count records how a request for k ended.
func (l *load) count(k *loadKey, note func(*tally), example string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := &l.groups[k.group]
	before := g.trouble()
	note(&g.tally)
	g.asked++
	g.row++
	if g.trouble() > before {
		g.row = 0
		l.said = append(l.said, fmt.Sprintf("%v %s (of group %d): %s", time.Since(l.began).Round(time.Millisecond), k.name, k.group, example))
		l.said = l.said[max(0, len(l.said)-20):]
	}
}

func (l *load) blame(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad = append(l.bad, fmt.Sprintf(format, args...))
}

// flushed runs a flush_all. It counts as a mutation of every key: after its
// acknowledgement, no older value may be read.
func (l *load) flushed(flush func() (acked bool)) {
	at := l.clock.Add(1)
	for _, k := range l.keys {
		k.begin()
	}
	acked := flush()
	for _, k := range l.keys {
		k.finish(at, 0, 0, acked)
	}
}

// moved records that keys have moved to other servers: values stored before may be missed
// from now on.
func (l *load) moved() {
	for _, k := range l.keys {
		k.mu.Lock()
		k.sure = false
		k.mu.Unlock()
	}
}

// begin records that a mutation is about to be sent.
func (k *loadKey) begin() (change int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open++
	k.changes++
	k.sure = false
	if k.open > 1 {
		return -1 // neither this mutation nor the others in progress run alone
	}
	return k.changes
}

// finish records the reply to a mutation that was sent at sent. id is 0 for a delete or a
// flush.
func (k *loadKey) finish(sent, id int64, change int, acked bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open--
	if acked {
		k.newest = max(k.newest, sent)
		k.sure = id != 0 && change == k.changes
	}
	k.note("mutation sent at %d (write %d): acknowledged %t", sent, id, acked)
}
