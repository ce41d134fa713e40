package e2e

// Clients that share keys, through one ringside or several, and know a stale
// value when they see one.

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

// load is clients that read and write the same keys. Every value names its key
// and the write that made it, so each read is judged by itself:
//
//   - wrong: nobody has ever written that to the key;
//   - stale: a newer write or delete had been acknowledged before the read was
//     sent, and that newer one was sent after the value's own write had been
//     answered, well or not;
//   - lost: a miss, although the last thing that happened to the key was an
//     acknowledged write.
//
// Moments are numbers of one clock that all clients share: a request's is drawn
// before it is sent, an answer's after it was read, so doubt is never taken for
// staleness.
type load struct {
	keys    []*loadKey
	clock   atomic.Int64
	lastID  atomic.Int64
	began   time.Time
	stop    chan struct{}
	clients sync.WaitGroup

	mu     sync.Mutex
	groups []loadGroup
	bad    []string // stale and wrong values, and clients that are stuck
	said   []string // examples of refusals
}

// loadKey is one key and what has been done to it.
type loadKey struct {
	name  string
	group int // of keys that go the same way

	mu      sync.Mutex
	writes  map[int64]int64 // id of a write: when it was answered, 0: not yet
	newest  int64           // when the latest acknowledged mutation was sent
	open    int             // mutations without an answer
	changes int             // mutations sent
	sure    bool            // it holds a value: the last mutation stored one, and was alone
	past    []string        // what happened last, for messages
}

// note keeps one line of what happened. The key must be locked.
func (k *loadKey) note(format string, args ...any) {
	k.past = append(k.past, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
	k.past = k.past[max(0, len(k.past)-20):]
}

// story is what happened to the key last.
func (k *loadKey) story() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return "\n\t" + strings.Join(k.past, "\n\t")
}

// loadGroup counts the requests for keys of one group.
type loadGroup struct {
	tally
	row int // answered well since the last that was not
}

type tally struct {
	asked, hits   int
	lost          int // misses that should have been hits
	reads, writes int // refused
	cut           int // answers that ended too soon
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

// Each client pauses between two requests: these tests look for what is wrong,
// not for what is fast, and run many at a time.
const loadPause = 7 * time.Millisecond

// startLoad runs some clients on every address until end. With textOnly they
// use no meta commands.
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

// end stops the clients and fails the test for what must never happen.
func (l *load) end(t testing.TB) {
	t.Helper()
	l.halt()
	l.sound(t)
	if total := l.total(); total.asked == 0 || total.hits == 0 {
		t.Errorf("the load did nothing: %v", total)
	}
}

// sound fails the test for what must never have happened.
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

// forgive takes the stale values so far for allowed, and returns how many they
// were.
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

// of is what was counted for some groups so far, for all if none is named.
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

// examples are some of the refusals, for messages.
func (l *load) examples() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, "\n")
}

// more waits until so many requests more have been answered.
func (l *load) more(t testing.TB, requests int) {
	t.Helper()
	goal := l.total().asked + requests
	eventually(t, "the load goes on", func() bool { return l.total().asked >= goal })
}

// troubled waits until the keys of a group are in trouble. What begins that, and may
// already be over when it returns, is called here.
func (l *load) troubled(t testing.TB, group int, begin ...func()) {
	t.Helper()
	before := l.of(group).trouble()
	for _, f := range begin {
		f()
	}
	eventually(t, "clients notice", func() bool { return l.of(group).trouble() > before })
}

// calm waits until each of these groups, or all if none is named, has had so
// many requests answered well in a row.
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

// count notes how a request for k ended.
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

// flushed runs a flush_all and notes what it means for the oracle: no value
// from before may come back once it was acknowledged.
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

// moved says that keys have gone elsewhere: what was stored before may be
// missed from now on.
func (l *load) moved() {
	for _, k := range l.keys {
		k.mu.Lock()
		k.sure = false
		k.mu.Unlock()
	}
}

// begin notes that a mutation is about to be sent.
func (k *loadKey) begin() (change int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open++
	k.changes++
	k.sure = false
	if k.open > 1 {
		return -1 // not alone, and neither are those before it
	}
	return k.changes
}

// finish notes the answer to a mutation sent at a moment: a write with an id,
// or a removal with id 0.
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
