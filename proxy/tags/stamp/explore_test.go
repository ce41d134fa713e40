package stamp

// This file runs reads, rebuilds and invalidations of values with tags in every order of their requests, breadth first. There are one
// or two servers, whose processes can be replaced, and lose items and replies. Each ablation leaves out one rule of package
// tags, and must break the guarantee that it names:
//
//	V1: a read returns no value that is older than an invalidation that was acknowledged before the read began
//	V2: a read does not drop a value whose tag is unchanged
//	V3: a read ends: it starts again only after something has happened to the server

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"ringside/internal/testenv"
)

// The items of a key.
const (
	noItem      = iota
	placeholder // a client rebuilds the value
	valid       // the value of a client
	marked      // a value that a read has found invalid, while a client rebuilds it
)

// modelServer has one tag and one key. The last cas id is in last.
type modelServer struct{ life, last, tag, bucket, item, cas, version, data uint8 }

func (s *modelServer) next() uint8 { s.last++; return s.last }

// The steps of a client. Each is executed by the server or the client at once, and anything may happen between two of them.
const (
	idle       = iota
	readTag    // the version of the tag is requested
	readValue  // the value is requested
	judge      // the replies have arrived
	readMore   // the missing version is requested
	judgeAgain // that has arrived
	mark       // the value is invalid, and is marked
	load       // after a miss: the data source is read
	nameTag    // the version of a tag that was not known at the miss is requested
	nameBucket // and that of its bucket
	store      // the value is stored on the condition of the miss
)

type modelClient struct {
	step, rounds             uint8
	disturbed                bool  // something has happened since the read began
	floor                    uint8 // oldest data that the read may return
	known, knownLife         uint8 // version of the tag that was read, and the process that has sent it
	version, data, cas, life uint8 // the value that was read, or the item of the miss
	bucket, nowTag           uint8
}

type modelWorld struct {
	servers           [2]modelServer
	clients           [2]modelClient
	db, floor         uint8    // present data; oldest data that may be read
	began             bool     // an invalidation is in progress
	progress          [2]uint8 // steps of the invalidation on each server: bucket, tag
	invalidations     uint8    // left
	restarts, evicted uint8    // left
	lost              uint8    // replies with versions that can still be lost
}

type ablation struct {
	judge                                                               func(k Known, h Head) Verdict
	again                                                               func(k Known, h Head) Verdict
	late                                                                func(c0, now, bucket uint64) bool
	cached, ownTime, bucketFirst, tagFirst, firstOnly, process, unbound bool
}

type exploration struct {
	rounds                                   [2]uint8 // reads of each client
	named                                    [2]bool  // the client names the tag only when it stores the value, and when it has read it
	servers                                  int
	invalidations, restarts, evictions, lost uint8
	ablation

	seed   maphash.Seed
	seen   map[uint64]origin
	queue  []modelWorld
	at     uint64
	broken string
}

type origin struct {
	from uint64
	what string
}

func (x *exploration) fail(format string, args ...any) {
	if x.broken == "" {
		x.broken = fmt.Sprintf(format, args...)
	}
}

func (x *exploration) visit(w modelWorld, what string) {
	for i := range w.clients {
		switch c := &w.clients[i]; c.step { // what is not needed any more must not make states differ
		case idle:
			*c = modelClient{rounds: c.rounds, known: c.known, knownLife: c.knownLife}
			if !x.cached {
				c.known, c.knownLife = 0, 0
			}
		case load:
			c.version, c.data, c.floor, c.disturbed = 0, 0, 0, false
		case nameTag, nameBucket, store:
			c.floor, c.disturbed = 0, false
		}
	}
	h := maphash.Comparable(x.seed, w)
	if _, ok := x.seen[h]; !ok {
		x.seen[h] = origin{x.at, what}
		x.queue = append(x.queue, w)
	}
	if _, ok := x.seen[0]; !ok && x.broken != "" {
		x.seen[0] = origin{x.at, what}
	}
}

const theTag Tag = 7

// judgement returns the verdict on the value of client c, by the function f.
func judgement(c *modelClient, f func(k Known, h Head) Verdict) Verdict {
	var k Known
	if c.known != 0 {
		k.Set(theTag, uint64(c.known))
	}
	return f(k, Head(AppendHead(nil, 0, []Version{{theTag, uint64(c.version)}})))
}

// happens records an event that may be the reason why a read starts again.
func (w *modelWorld) happens() {
	for i := range w.clients {
		w.clients[i].disturbed = true
	}
}

// begin starts a read.
func (x *exploration) begin(w *modelWorld, i int, again bool) {
	c := &w.clients[i]
	if again {
		if !c.disturbed {
			x.fail("V3: a read starts again although nothing has happened")
		}
		c.disturbed = false
	} else {
		*c = modelClient{rounds: c.rounds - 1, floor: w.floor, known: c.known, knownLife: c.knownLife}
	}
	if !x.cached || c.known == 0 {
		c.known, c.knownLife = 0, 0
	}
	if c.step = readTag; x.named[i] || c.known != 0 {
		c.step = readValue
	}
}

// advance executes the next step of client i.
func (x *exploration) advance(w *modelWorld, i int) (what string) {
	c, s := &w.clients[i], &w.servers[i%x.servers]
	version := func() {
		if s.tag == 0 {
			s.tag = s.next()
		}
		c.known, c.knownLife = s.tag, s.life
	}
	if c.known != 0 && c.step == readValue && c.knownLife != s.life && !x.process {
		c.known = 0
	}
	step := c.step
	switch step {
	case idle:
		x.begin(w, i, false)
	case readTag, readMore:
		version()
		c.step++
	case readValue:
		switch c.step = judge; s.item {
		case noItem:
			s.item, s.cas = placeholder, s.next()
			fallthrough
		case placeholder, marked:
			c.cas, c.life, c.step = s.cas, s.life, load
		default:
			c.version, c.data, c.cas, c.life = s.version, s.data, s.cas, s.life
		}
	case judge, judgeAgain:
		f := x.judge
		if step == judgeAgain {
			f = x.again
			if c.life != c.knownLife && !x.process {
				c.known = 0
			}
		}
		switch v := judgement(c, f); {
		case v == Stands:
			if c.step = idle; c.data < c.floor {
				x.fail("V1: a read returns data %d, and %d was invalidated before", c.data, c.floor)
			}
		case v == Fallen:
			if c.step = mark; s.life == c.life && s.tag == c.version {
				x.fail("V2: a read drops a value whose tag is unchanged")
			}
		case step == judge:
			c.step = readMore
		default:
			x.begin(w, i, true)
		}
	case mark:
		if s.life != c.life || s.cas != c.cas || s.item == noItem {
			if s.item == valid { // another client has stored a value
				x.begin(w, i, true)
				break
			}
			c.step = idle
			break
		}
		s.item, s.cas = marked, s.next()
		c.cas, c.step = s.cas, load
	case load:
		c.data = w.db
		if c.step = store; x.named[i] || x.ownTime {
			c.step = nameTag
		} else if c.known == 0 {
			c.step = idle // the version is not known, so the rebuild is refused
		}
	case nameTag, nameBucket:
		if (step == nameTag) != x.bucketFirst {
			if s.tag == 0 {
				s.tag = s.next()
			}
			c.nowTag = s.tag
		} else {
			if s.bucket == 0 {
				s.bucket = s.next()
			}
			c.bucket = s.bucket
		}
		if c.step++; step == nameTag {
			break
		}
		if c.version = c.nowTag; !x.ownTime && (s.life != c.life || x.late(uint64(c.cas), uint64(c.nowTag), uint64(c.bucket))) {
			if c.step = idle; s.life == c.life && s.cas == c.cas && s.item == placeholder {
				s.item = noItem // the next read begins the rebuild again
			}
		}
	case store:
		if !x.named[i] && !x.ownTime {
			c.version = c.known
		}
		if s.item != noItem && s.life == c.life && (s.cas == c.cas || x.unbound) {
			s.item, s.cas, s.version, s.data = valid, s.next(), c.version, c.data
			w.happens()
		}
		c.step = idle
	}
	return fmt.Sprintf("%c%d", 'a'+i, step)
}

// expand visits all states that can follow.
func (x *exploration) expand(from modelWorld) {
	for i := range from.clients {
		c := &from.clients[i]
		if c.step != idle || c.rounds > 0 {
			w := from
			what := x.advance(&w, i)
			x.visit(w, what)
		}
		if from.lost > 0 && (c.step == readTag || c.step == readMore) { // the server executes it, and the reply is lost
			w := from
			w.lost--
			what := x.advance(&w, i)
			if w.clients[i].known = 0; c.step == readMore {
				w.clients[i].step = idle // the read fails
			}
			x.visit(w, what+" lost")
		}
	}
	w := from
	if !w.began && w.invalidations > 0 {
		w.invalidations--
		w.db++
		w.began = true
		w.happens()
		x.visit(w, "invalidate")
	}
	for i := range x.servers {
		if w = from; w.began && w.progress[i] < 2 {
			if s := &w.servers[i]; (w.progress[i] == 0) != x.tagFirst {
				s.bucket = s.next()
			} else {
				s.tag = 0
			}
			w.progress[i]++
			x.visit(w, fmt.Sprintf("invalidate %d", i))
		}
		if w = from; w.restarts > 0 {
			w.restarts--
			w.servers[i] = modelServer{life: w.servers[i].life + 1}
			w.happens()
			if w.progress[i] < 2 {
				w.progress[i] = 0 // the invalidation has no reply, and is repeated
			}
			for n := range w.clients {
				if c := &w.clients[n]; n%x.servers == i && c.step == readValue && c.known != 0 && !x.cached {
					c.step = idle // the replies on one connection are lost together
				}
			}
			x.visit(w, fmt.Sprintf("restart %d", i))
		}
		for what := range 3 {
			if w = from; w.evicted > 0 {
				w.evicted--
				w.happens()
				switch s := &w.servers[i]; what {
				case 0:
					s.tag = 0
				case 1:
					s.bucket = 0
				default:
					s.item = noItem
				}
				x.visit(w, fmt.Sprintf("evict %d", what))
			}
		}
	}
	if w = from; w.began && w.progress[0] == 2 && (x.servers == 1 || w.progress[1] == 2 || x.firstOnly) {
		w.began, w.progress, w.floor = false, [2]uint8{}, w.db
		x.visit(w, "acknowledged")
	}
}

func (x exploration) explore() (states int, broken string) {
	x.seed, x.seen = maphash.MakeSeed(), map[uint64]origin{}
	if x.judge == nil {
		x.judge = Known.Judge
	}
	if x.again == nil {
		x.again = Known.JudgeAgain
	}
	if x.late == nil {
		x.late = Late
	}
	w := modelWorld{db: 1, invalidations: x.invalidations, restarts: x.restarts, evicted: x.evictions, lost: x.lost}
	for i := range w.clients {
		w.clients[i].rounds = x.rounds[i]
	}
	for x.visit(w, "start"); len(x.queue) > 0 && x.broken == ""; {
		next := x.queue[0]
		x.queue = x.queue[1:]
		x.at = maphash.Comparable(x.seed, next)
		x.expand(next)
	}
	if x.broken == "" {
		return len(x.seen), ""
	}
	var trace []string
	for at := x.seen[0]; at.what != "start" && len(trace) < 60; at = x.seen[at.from] {
		trace = append(trace, at.what)
	}
	slices.Reverse(trace)
	return len(x.seen), x.broken + ": " + strings.Join(trace, " · ")
}

var explorations = map[string]exploration{
	"known":              {servers: 1, invalidations: 2},
	"known, evictions":   {servers: 1, invalidations: 1, evictions: 1, lost: 1},
	"known, restart":     {servers: 1, invalidations: 1, restarts: 1},
	"named":              {servers: 1, invalidations: 2, named: [2]bool{true, false}},
	"named, evictions":   {servers: 1, invalidations: 1, evictions: 1, lost: 1, named: [2]bool{true, true}},
	"named, restart":     {servers: 1, invalidations: 1, restarts: 1, named: [2]bool{true, true}},
	"named, two servers": {servers: 2, invalidations: 1, lost: 1, named: [2]bool{true, false}},
}

// TestOrders checks the guarantees in all configurations.
func TestOrders(t *testing.T) {
	for name, x := range explorations {
		if x.rounds = [2]uint8{2, 1}; testenv.Full() {
			x.rounds = [2]uint8{3, 3}
		}
		states, broken := x.explore()
		if t.Logf("%s: %d states", name, states); broken != "" {
			t.Errorf("%s: %s", name, broken)
		}
	}
}

// TestOrdersFindAblations leaves out one rule at a time, and must find which guarantee breaks.
func TestOrdersFindAblations(t *testing.T) {
	for _, a := range []struct {
		name, breaks, in string
		ablation
	}{
		{"versions are cached", "V1", "known", ablation{cached: true}},
		{"a newer version counts as another one", "V2", "known", ablation{judge: func(k Known, h Head) Verdict {
			if v := k.Judge(h); v != Unknown || len(k) == 0 {
				return v
			}
			return Fallen
		}}},
		{"an undecided value counts as valid", "V1", "named", ablation{judge: func(k Known, h Head) Verdict {
			if v := k.Judge(h); v != Unknown {
				return v
			}
			return Stands
		}}},
		{"a value has the versions at the time of the set", "V1", "known", ablation{ownTime: true}},
		{"a set does not check the order", "V1", "named", ablation{late: func(_, _, _ uint64) bool { return false }}},
		{"a set does not check the bucket", "V1", "named", ablation{late: func(c0, now, _ uint64) bool { return now == 0 }}},
		{"a set reads the bucket first", "V1", "named", ablation{bucketFirst: true}},
		{"an invalidation deletes the tag first", "V1", "named", ablation{tagFirst: true}},
		{"an invalidation needs one server", "V1", "named, two servers", ablation{firstOnly: true}},
		{"versions of two processes are compared", "V1", "named, restart", ablation{process: true}},
	} {
		x := explorations[a.in]
		x.rounds, x.ablation = [2]uint8{3, 3}, a.ablation
		states, broken := x.explore()
		if t.Logf("%s: %d states: %s", a.name, states, broken); !strings.HasPrefix(broken, a.breaks) {
			t.Errorf("%s: breaks %q, want %s", a.name, broken, a.breaks)
		}
	}
}
