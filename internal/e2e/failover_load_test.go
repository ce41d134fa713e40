package e2e

// Clients that share keys, through one ringside or several, and know a stale
// value when they see one.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
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
func startLoad(t *testing.T, names []string, groupOf func(key string) int, clients int, textOnly bool, addresses ...string) *load {
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
func (l *load) end(t *testing.T) {
	t.Helper()
	l.halt()
	l.sound(t)
	if total := l.total(); total.asked == 0 || total.hits == 0 {
		t.Errorf("the load did nothing: %v", total)
	}
}

// sound fails the test for what must never have happened.
func (l *load) sound(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, what := range l.bad {
		if i == 10 {
			t.Errorf("and %d more", len(l.bad)-i)
			break
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
func (l *load) more(t *testing.T, requests int) {
	t.Helper()
	goal := l.total().asked + requests
	eventually(t, "the load goes on", func() bool { return l.total().asked >= goal })
}

// troubled waits until the keys of a group are in trouble.
func (l *load) troubled(t *testing.T, group int) {
	t.Helper()
	before := l.of(group).trouble()
	eventually(t, "clients notice", func() bool { return l.of(group).trouble() > before })
}

// calm waits until each of these groups, or all if none is named, has had so
// many requests answered well in a row.
func (l *load) calm(t *testing.T, row int, groups ...int) {
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

// loadClient is one connection, made anew whenever it is cut.
type loadClient struct {
	*load
	address  string
	name     string
	textOnly bool // no meta commands
	dice     *rand.Rand
	c        net.Conn
	r        *bufio.Reader
}

func (c *loadClient) work() {
	defer c.clients.Done()
	defer c.drop()
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(loadPause/2 + time.Duration(c.dice.Int64N(int64(loadPause)))):
		}
		k := c.keys[c.dice.IntN(len(c.keys))]
		what := c.dice.IntN(20)
		if c.textOnly && (what >= 2 && what <= 6 || what == 12) {
			what = 7
		}
		switch what {
		case 0, 1:
			c.getMany()
		case 2, 3, 4:
			c.get(k, "mg %s v", "")
		case 5, 6:
			c.mutate(k, "ms %s %d", "HD")
		case 7, 8, 9:
			c.mutate(k, "set %s 0 0 %d", "STORED")
		case 10:
			c.mutate(k, "add %s 0 0 %d", "STORED")
		case 11:
			c.remove(k, "delete %s", "DELETED", "NOT_FOUND")
		case 12:
			c.remove(k, "md %s", "HD", "NF")
		case 13, 14:
			if token := c.get(k, "gets %s", "cas"); token != "" {
				c.mutate(k, "cas %s 0 0 %d "+token, "STORED")
			}
		default:
			c.get(k, "get %s", "")
		}
	}
}

// valueOfWrite is what write id puts into a key. Some are too large to be
// forwarded in one piece.
func valueOfWrite(key string, id int64) string {
	size := 40
	switch {
	case id%64 == 7:
		size = 90_000
	case id%16 == 3:
		size = 6_000
	}
	return fmt.Sprintf("%s %d %s", key, id, loadFiller[id%10:][:size])
}

var loadFiller = strings.Repeat("0123456789", 10_000)

// mutate stores a value of its own.
func (c *loadClient) mutate(k *loadKey, command, done string) {
	id := c.lastID.Add(1)
	value := valueOfWrite(k.name, id)
	k.mu.Lock()
	k.writes[id] = 0
	k.mu.Unlock()
	answer := c.change(k, id, fmt.Sprintf(command, k.name, len(value))+"\r\n"+value, done)
	k.mu.Lock()
	k.writes[id] = c.clock.Add(1)
	k.mu.Unlock()
	c.judge(k, answer, command)
}

// remove deletes a key. That there was nothing is as good.
func (c *loadClient) remove(k *loadKey, command string, done ...string) {
	c.judge(k, c.change(k, 0, fmt.Sprintf(command, k.name), done...), command)
}

// change sends a mutation and returns the line that answers it, "" if none
// came.
func (c *loadClient) change(k *loadKey, id int64, request string, done ...string) string {
	sent := c.clock.Add(1)
	change := k.begin()
	answer := ""
	if c.send(request) {
		answer, _ = c.line()
	}
	k.finish(sent, id, change, slices.Contains(done, answer))
	return answer
}

func (c *loadClient) judge(k *loadKey, answer, command string) {
	c.load.count(k, func(y *tally) {
		switch answer {
		case "":
			y.cut++
		case "HD", "NF", "EX", "NS", "STORED", "NOT_STORED", "DELETED", "EXISTS", "NOT_FOUND":
		default:
			y.writes++
		}
	}, fmt.Sprintf("%s, %s: %q", c.name, command, answer))
}

// reading is a key that is being read, and what was known before.
type reading struct {
	k       *loadKey
	sent    int64
	newest  int64
	changes int
	sure    bool
}

func (c *loadClient) read(k *loadKey) reading {
	k.mu.Lock()
	defer k.mu.Unlock()
	return reading{k, c.clock.Add(1), k.newest, k.changes, k.sure}
}

// get reads one key and returns the word of the header behind the size: a cas
// token for gets.
func (c *loadClient) get(k *loadKey, command, wants string) (token string) {
	is := c.read(k)
	if !c.send(fmt.Sprintf(command, k.name)) {
		c.missed(is, "", command)
		return ""
	}
	meta := strings.HasPrefix(command, "mg")
	end := ""
	found := false
	for {
		line, ok := c.line()
		if !ok {
			c.missed(is, "", command)
			return ""
		}
		f := strings.Fields(line)
		switch {
		case meta && len(f) >= 2 && f[0] == "VA":
			c.value(is, k.name, f[1], command)
			return ""
		case !meta && len(f) >= 4 && f[0] == "VALUE":
			found = c.value(is, f[1], f[3], command)
			if wants != "" && len(f) == 5 {
				token = f[4]
			}
			if c.c == nil {
				return ""
			}
			continue
		}
		end = line
		break
	}
	if !found || end != "END" {
		c.missed(is, end, command)
		return ""
	}
	return token
}

// getMany reads some keys in one command.
func (c *loadClient) getMany() {
	var names []string
	wanted := map[string]reading{}
	for range 6 {
		k := c.keys[c.dice.IntN(len(c.keys))]
		if _, twice := wanted[k.name]; !twice {
			wanted[k.name] = c.read(k)
			names = append(names, k.name)
		}
	}
	end := ""
	if c.send("get " + strings.Join(names, " ")) {
		for {
			line, ok := c.line()
			f := strings.Fields(line)
			if !ok {
				break
			}
			if len(f) < 4 || f[0] != "VALUE" {
				end = line
				break
			}
			is, asked := wanted[f[1]]
			if !asked {
				c.load.blame("wrong: %s got %s, which it had not asked for or had got already", c.name, f[1])
				c.drop()
				return
			}
			delete(wanted, f[1])
			c.value(is, f[1], f[3], "get of many")
			if c.c == nil {
				break
			}
		}
	}
	for _, is := range wanted {
		if end != "END" && end != "" { // one line for all: whose fault it is, is not said
			is.sure = false
			c.missed(is, "END", "get of many")
			continue
		}
		c.missed(is, end, "get of many")
	}
}

// missed judges an answer that ends without a value.
func (c *loadClient) missed(is reading, end, command string) {
	is.k.mu.Lock()
	lost := is.sure && is.k.sure && is.k.changes == is.changes && (end == "END" || end == "EN")
	is.k.note("read sent at %d: %q, lost %t", is.sent, end, lost)
	is.k.mu.Unlock()
	c.load.count(is.k, func(y *tally) {
		switch {
		case end == "":
			y.cut++
		case end != "END" && end != "EN":
			y.reads++
		case lost:
			y.lost++
		}
	}, fmt.Sprintf("%s, %s: %q%s", c.name, command, end, map[bool]string{true: is.k.story()}[lost]))
}

// value reads a value of so many bytes and judges it.
func (c *loadClient) value(is reading, key, size, command string) (ok bool) {
	n := 0
	fmt.Sscan(size, &n)
	got := make([]byte, n+2)
	if _, err := io.ReadFull(c.r, got); err != nil {
		c.broken(err)
		c.missed(is, "", command)
		return false
	}
	value := string(got[:n])
	k := is.k
	var id int64
	var named string
	fmt.Sscan(value, &named, &id)
	k.mu.Lock()
	answered, written := k.writes[id]
	k.note("read sent at %d: write %d", is.sent, id)
	k.mu.Unlock()
	at := time.Now().Format(time.StampMilli)
	switch {
	case key != k.name || !written || value != valueOfWrite(k.name, id) || string(got[n:]) != "\r\n":
		c.load.blame("wrong: at %s, %s: %s of %s brought %s under the name %s", at, c.name, command, k.name, brief(value), key)
		c.load.count(k, func(y *tally) { y.wrong++ }, "wrong")
	case answered != 0 && answered < is.newest:
		c.load.blame("stale: at %s, %s: %s of %s (group %d), sent at %d, brought write %d, answered at %d; since then a mutation sent at %d has been acknowledged%s",
			at, c.name, command, k.name, k.group, is.sent, id, answered, is.newest, k.story())
		c.load.count(k, func(y *tally) { y.stale++ }, "stale")
	default:
		c.load.count(k, func(y *tally) { y.hits++ }, "")
	}
	return true
}

func (c *loadClient) send(request string) bool {
	for c.c == nil {
		conn, err := dialError(c.address)
		if err == nil {
			c.c, c.r = conn, bufio.NewReaderSize(conn, 16<<10)
			break
		}
		select {
		case <-c.stop:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	c.c.SetDeadline(time.Now().Add(patience))
	_, err := io.WriteString(c.c, request+"\r\n")
	if err != nil {
		c.broken(err)
	}
	return err == nil
}

func (c *loadClient) line() (string, bool) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.broken(err)
		return "", false
	}
	return strings.TrimSuffix(line, "\r\n"), true
}

// broken gives up the connection. That nothing came at all is not allowed:
// every request has a deadline, far below this client's patience.
func (c *loadClient) broken(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.load.blame("stuck: %s got no answer within %v", c.name, patience)
	}
	c.drop()
}

func (c *loadClient) drop() {
	if c.c != nil {
		c.c.Close()
		c.c = nil
	}
}
