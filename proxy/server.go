package proxy

// One memcached server as one engine sees it, and the connections to it.

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"ringside/proxy/wire"
)

// Server is one memcached server by address. Pools that name the same address
// share it.
type Server struct {
	e      *Servers
	target Target
	called string  // by people: its name, and its address if that differs
	conns  []*Conn // may be more than connections, after a reload

	// The settings of the pools that name it: see settle.
	connections       int
	queue             int
	preconnect        bool
	connect, greeting time.Duration
	backoff           Backoff
	downAfter         int

	retired bool  // no table names it any more: close when nothing is in flight
	order   Order // of all pools that name it, the one that asks least

	// Down: requests fail at once, and Ringside alone asks, at redialAt, until
	// the server answers.
	down     bool
	why      string // the error line for its requests while it is down
	crowded  string // the error line for a request over its queue's bound
	redialAt int64
	wait     int64 // between the last two redials
	timeouts int   // requests in a row that were not answered in time
	changed  int64 // when it was made, or down changed

	own map[uint32]*Conn // of errands, by number

	// Of a server that has copies: since when it runs, by its own clock in
	// seconds, and as which process; unknown on a new connection. Every Ringside
	// gets the same numbers of the same process.
	born, bornAs int64
	unknown      bool
	introducing  bool // it is being asked

	asked *Conn // where the part for this server is of the read that is being split

	release wire.Release // what it counted as, on the connection that asked it last; zero: none has
	version string       // what it called that itself
	count   ServerCounters
	zombies int // connections that only wait for late answers: see undo.go
}

// Conn is one connection to a server: requests go out in order, answers come
// back in the same order, and that is all that pairs them. What an answer names
// only shows whether the order is right: see pairing.go.
type Conn struct {
	Link
	srv   *Server
	state connState

	head, tail *Attempt // sent, being sent and queued, in order
	length     int
	internal   int // of these, Ringside's own

	given, taken  uint64 // bytes given to this connection so far; bytes the socket took
	holding       int    // the last requests of the list, not sent yet
	answered      bool   // an answer came since the last flush
	came, settled int    // bytes and answers, of late: what an answer is long
	streamLeft    int    // bytes of the head's value still to come
	streamLast    bool   // and that is the end of its answer
	deadline      int64  // nothing here is due before
	lastIn        int64  // when the last bytes came
	lastOut       int64  // when the socket took the last
	dialBy        int64  // when to give up dialing
	greeted       bool   // the server has answered on this connection

	speech wire.Features // what its server understands; 0: it has not told its release
	held   *Attempt      // from here on nothing goes out: see release.go

	undos  int               // in the list: deletes behind mutations that may run late
	zombie bool              // gets no new requests and stays open for what is in the list
	until  int64             // if nobody waits for it either
	last   map[uint64]uint64 // of a zombie: where the last request of each client begins that waits for it
}

type connState uint8

const (
	connIdle connState = iota // no socket
	connDialing
	connUp
)

// downAfter is how many requests in a row without an answer make a server
// down, unless its pools say otherwise.
const downAfter = 3

// settle takes up the settings of p. Pools that name the same address share
// its connections: the most connections, the longest queue and the shortest
// waits of them count. What a request may take is its own pool's.
func (srv *Server) settle(p *Pool, t Target, first bool) {
	if first {
		srv.retired = false
		srv.target.Name, srv.target.Weight = t.Name, t.Weight
		srv.called = t.Name
		if t.Name != t.Address {
			srv.called += " (" + t.Address + ")"
		}
		srv.connections, srv.queue, srv.preconnect = 1, 0, false
		srv.connect, srv.greeting, srv.backoff = p.Timeouts.Connect, p.Timeouts.Request, p.RetryBackoff
		srv.downAfter = math.MaxInt
	}
	srv.downAfter = min(srv.downAfter, cmp.Or(p.Failover.AfterFailures, downAfter))
	srv.connections = max(srv.connections, p.Connections)
	srv.queue = max(srv.queue, p.QueueLimit)
	srv.preconnect = srv.preconnect || p.Preconnect
	srv.connect = min(srv.connect, p.Timeouts.Connect)
	srv.greeting = min(srv.greeting, p.Timeouts.Request)
	srv.backoff.First = min(srv.backoff.First, p.RetryBackoff.First)
	srv.backoff.Max = min(srv.backoff.Max, p.RetryBackoff.Max)
	srv.crowded = fmt.Sprintf("server %s has %d requests waiting", srv.label(), srv.queue)
	for len(srv.conns) < srv.connections {
		srv.conns = append(srv.conns, srv.newConn())
	}
	if srv.preconnect {
		for _, c := range srv.conns {
			srv.e.mark(&c.Link)
		}
	}
}

func (srv *Server) newConn() *Conn {
	c := &Conn{srv: srv, deadline: never}
	c.end, c.server = c, c
	return c
}

// label names a server for people.
func (srv *Server) label() string { return srv.called }

// pick returns the connection for the next request of a client, by its number,
// or why there is none. It is the same for all requests of a client: a get behind a set that was not
// waited for must not overtake it on another. A request that is Ringside's own
// has a bound of its own: what a full queue kept from repairs, deletes and
// keepers would outlast the load.
func (srv *Server) pick(client uint64, internal bool) (c *Conn, trouble string, o Outcome) {
	if srv.down {
		srv.count.Refused++
		return nil, srv.why, Unavailable
	}
	c = srv.conns[0]
	if n := srv.connections; n > 1 {
		c = srv.conns[client%uint64(n)]
	}
	if srv.zombies > 0 {
		c = c.behind(client)
	}
	switch {
	case internal:
		if c.crowded() {
			return nil, crowdedInternal, Crowded
		}
	case srv.e.full:
		srv.count.Shed++
		return nil, outOfMemory, Crowded
	case c.length-c.internal >= srv.queue:
		srv.count.Crowded++
		return nil, srv.crowded, Crowded
	}
	return c, "", 0
}

// crowded says that c has no room for one more of Ringside's own requests.
func (c *Conn) crowded() bool { return c.internal >= maxInternal }

const (
	// maxInternal bounds how many of Ringside's own requests wait on one
	// connection, beside undos, of which a client's request has one at most.
	maxInternal     = 1024
	crowdedInternal = "too many of Ringside's own requests wait for it"
)

// begin puts a, which may take what t says, at the end of c's order. Its
// bytes follow, and then give.
func (c *Conn) begin(a *Attempt, t *Timeouts) {
	e := c.srv.e
	c.enlist(a)
	a.wait = min(t.Request, t.Deadline)
	a.deadline = e.now + int64(t.Deadline)
	if c.state == connUp {
		a.deadline = e.now + int64(a.wait)
	}
	c.watch(a.deadline)
	c.srv.count.Requests++
	e.asked++
}

// enlist puts a at the end of c's order.
func (c *Conn) enlist(a *Attempt) {
	a.sentAt = c.srv.e.now
	a.start = c.given
	if c.tail == nil {
		c.head = a
	} else {
		c.tail.next = a
	}
	c.tail = a
	c.length++
	c.srv.e.unheard++
	c.holding++
}

// give ends what begin began: all bytes of a are in c.out.
func (c *Conn) give(a *Attempt, n int) {
	a.size += n
	c.given += uint64(n)
	c.srv.e.mark(&c.Link)
}

// addKey puts one more key into the read of many that c was given last: word, a
// space before it, with a key of n bytes decoded.
func (c *Conn) addKey(word []byte, n int) {
	c.out.append(&c.srv.e.pool, word)
	c.tail.rememberOne(n)
	c.give(c.tail, len(word))
}

func (c *Conn) watch(t int64) {
	if t < c.deadline {
		c.deadline = t
		c.srv.e.at(requestTimer, t)
	}
}

// Flush decides in End whether c's bytes go now.
func (c *Conn) Flush() {
	e := c.srv.e
	switch c.state {
	case connIdle:
		if (c.length > 0 || c.srv.wanted()) && !c.zombie {
			c.dial()
		}
		return
	case connDialing:
		return
	}
	if c.srv.leaving() && !c.awaited() && !c.zombie {
		if c.undos > 0 {
			c.rise("")
		} else {
			c.close()
		}
		return
	}
	if c.zombie && c.length == 0 {
		c.close()
		return
	}
	if c.out.size == 0 || c.full || c.held != nil && c.held.start == c.taken {
		return
	}
	if t := e.Tune; t.HoldDue > 0 && !c.answered && c.holding < t.HoldMax {
		if d := c.due(); d >= promptFactor*t.HoldDue || d >= t.HoldDue && !e.Prompt {
			return
		}
	}
	c.answered = false
	c.holding = 0
	e.effect(Write, &c.Link)
}

// close ends a connection on which nobody waits for anything.
func (c *Conn) close() {
	k := Close
	if c.length > 0 { // late answers, which may never come
		k = Abort
	}
	c.hangUp(k)
	c.failAll("", Lost)
}

// promptFactor is how much longer a queue must be to be held when the engine
// is to be prompt: one that long is fed by pipelines and reads of many keys.
const promptFactor = 4

// awaited says whether somebody waits for an answer on c.
func (c *Conn) awaited() bool {
	for a := c.head; a != nil; a = a.next {
		if a.to != nil || a.probe {
			return true
		}
	}
	return false
}

// due is the number of requests that were sent and not answered.
func (c *Conn) due() int { return c.length - c.holding }

// wanted says whether a connection is opened ahead of requests.
func (srv *Server) wanted() bool { return srv.preconnect && !srv.down && !srv.leaving() }

func (c *Conn) dial() {
	e := c.srv.e
	c.state, c.closed, c.full, c.greeted = connDialing, false, false, false
	c.dialBy = e.now + int64(c.srv.connect)
	c.watch(c.dialBy)
	c.srv.count.Dials++
	if c.srv.retired && !slices.Contains(e.leaving, c) { // for a task that began before a reload
		e.leaving = append(e.leaving, c)
	}
	e.effect(Dial, &c.Link)
}

// Target is the address of c's server.
func (c *Conn) Target() (network, address string) { return c.srv.target.Network, c.srv.target.Address }

// Owed is how many answers are still due on c, and the mean size of its last
// ones in bytes; 0 while there were none.
func (c *Conn) Owed() (answers, size int) { return c.due(), c.came / max(c.settled, 1) }

// Came notes that n bytes have come from the server.
func (c *Conn) Came(n int) {
	c.srv.count.BytesIn += uint64(n)
	c.lastIn = c.srv.e.now
	c.came += n
}

// Pending appends to iov the bytes that may go out now.
func (c *Conn) Pending(iov [][]byte) [][]byte {
	if c.held != nil {
		return c.unheld(iov)
	}
	return c.out.spans(iov, spansAtOnce)
}

// Sent notes that the socket took n bytes.
func (c *Conn) Sent(n int) {
	c.srv.count.BytesOut += uint64(n)
	c.taken += uint64(n)
	c.lastOut = c.srv.e.now
	if c.out.size == 0 {
		c.holding = 0
	}
}

// Up sends what has waited, behind the question for the server's version: the
// answer to that says that somebody is alive there.
func (c *Conn) Up() {
	e := c.srv.e
	c.state = connUp
	if e.debug {
		e.log.Debug("connected to a server", "server", c.srv.target.Name, "address", c.srv.target.Address)
	}
	c.greet(e.now + int64(c.srv.greeting))
	for a := c.head; a != nil; a = a.next {
		if !a.probe {
			a.deadline = min(a.deadline, e.now+int64(a.wait))
		}
		c.watch(a.deadline)
	}
	e.observer.Connected(c)
	e.mark(&c.Link)
}

// greet puts Ringside's own question before all that waits.
func (c *Conn) greet(until int64) {
	e := c.srv.e
	a := e.newAttempt(nil)
	a.op, a.probe, a.size = wire.Version, true, len(askVersion)
	c.own(a)
	a.sentAt, a.deadline = e.now, until
	var q queue
	q.append(&e.pool, askVersion)
	c.out.moveTo(&e.pool, &q)
	c.out = q
	a.next = c.head
	c.head = a
	if c.tail == nil {
		c.tail = a
	}
	c.length++
	e.unheard++
	c.holding++
	c.given, c.taken = 0, 0
	for b := c.head; b != nil; b = b.next {
		b.start = c.given
		c.given += uint64(b.size)
	}
}

var askVersion = []byte("version\r\n")

// Lost is the end of a connection, or of the attempt to get one. A server
// that closes while it owes nothing is no event: it is asked again when there
// is something to ask.
func (c *Conn) Lost(err error) {
	srv := c.srv
	was, owed, greeted := c.state, c.length, c.greeted
	if was == connIdle {
		return
	}
	why := "connection closed by the server"
	if err != nil {
		why = reason(err)
	}
	zombie := c.zombie
	c.clear()
	if zombie {
		c.failAll("server "+srv.label()+": "+why, Lost)
		return
	}
	if was == connUp && greeted {
		if owed == 0 {
			srv.count.ClosedIdle++
			if srv.e.debug {
				srv.e.log.Debug("a server closed a connection that owed nothing", "server", srv.target.Name, "address", srv.target.Address)
			}
			if srv.wanted() {
				srv.e.mark(&c.Link)
			}
			return
		}
		srv.count.Lost++
		srv.e.log.Warn("server connection lost with requests in flight", "server", srv.target.Name, "address", srv.target.Address, "requests", owed, "why", why)
		c.failAll("server "+srv.label()+": "+why, Lost)
		return
	}
	srv.fail(why)
	c.failAll(srv.why, Unavailable)
}

// abort throws the connection away: what the kernel still holds of our
// requests must not reach the server later, and no answer on it can be
// trusted any more.
func (c *Conn) abort(why string, o Outcome) {
	if c.state == connIdle {
		return
	}
	c.srv.e.effect(Abort, &c.Link)
	c.clear()
	c.failAll(why, o)
}

// unfit gets rid of a connection on which the server has not greeted, and
// takes it for down: one that is asked again at once might do so for ever.
func (c *Conn) unfit(why string, o Outcome) {
	c.giveUp(c.srv.whyDown(why), o)
	c.srv.fail(why)
}

// hangUp closes a connection; its requests stay in the list.
func (c *Conn) hangUp(k EffectKind) {
	c.srv.e.effect(k, &c.Link)
	c.clear()
}

// clear forgets the socket and the bytes; the requests stay in the list.
func (c *Conn) clear() {
	e := c.srv.e
	c.state, c.closed, c.full, c.answered = connIdle, true, false, false
	c.streamLeft, c.need, c.speech = 0, 0, 0
	c.out.drop(&e.pool)
	if c.in != nil {
		e.pool.put(c.in)
		c.in = nil
	}
	for a := c.head; a != nil; a = a.next {
		a.expired = a.start >= c.taken // it can't run later: see answer.unsent
	}
	c.given, c.taken = 0, 0
	c.deadline = never
	if slices.Contains(c.srv.conns, c) {
		c.srv.unknown = c.srv.born != 0 // whoever answers next may have been started anew
	}
	c.bury()
}

// failAll fails every request on c.
func (c *Conn) failAll(why string, o Outcome) {
	c.srv.count.UndoLost += uint64(c.undos)
	c.srv.e.undos -= c.undos
	c.undos = 0
	a := c.head
	c.srv.e.unheard -= c.length
	c.head, c.tail, c.held, c.length, c.internal, c.holding = nil, nil, nil, 0, 0, 0 // who is told may ask again
	for a != nil {
		next := a.next
		c.failOne(a, why, o)
		c.srv.e.freeAttempt(a)
		a = next
	}
}

// failOne settles a without an answer.
func (c *Conn) failOne(a *Attempt, why string, o Outcome) {
	to := a.to
	if to == nil {
		return
	}
	f := Failure{Why: why, Outcome: o, Unsent: a.expired || c.state == connUp && a.start >= c.taken, Busy: c.lastIn > a.sentAt}
	a.to = nil
	if !a.asked {
		c.srv.count.Failed++
	}
	to.Failed(c, a, f)
}

// pop takes the head off the list. The caller frees it.
func (c *Conn) pop() *Attempt {
	a := c.head
	c.head = a.next
	if c.head == nil {
		c.tail = nil
	}
	a.next = nil
	c.length--
	c.srv.e.unheard--
	if a.internal {
		c.internal--
		if a.undo {
			c.undos--
			c.srv.e.undos--
		}
	}
	return a
}

// fail says that the server is down: its requests fail at once, and it alone
// is asked, later and later, until it answers.
func (srv *Server) fail(why string) {
	e := srv.e
	b := srv.backoff
	if !srv.down {
		srv.count.WentDown++
		srv.changed = e.now
		srv.wait = int64(b.First)
		e.log.Warn("server down", "server", srv.target.Name, "address", srv.target.Address, "why", why)
	} else {
		srv.wait = min(srv.wait*2, int64(b.Max))
	}
	srv.down = true
	srv.why = srv.whyDown(why)
	srv.redialAt = e.now + srv.wait
	e.at(requestTimer, srv.redialAt)
	for _, c := range srv.conns {
		c.giveUp(srv.why, Unavailable)
	}
	for _, c := range srv.own {
		c.abort("is down: "+why, Unavailable)
	}
	srv.e.observer.Down(srv, why)
}

func (srv *Server) whyDown(why string) string {
	return fmt.Sprintf("server %s is down: %s", srv.label(), why)
}

// alive ends an outage.
func (srv *Server) alive() {
	srv.timeouts = 0
	if srv.down {
		srv.down, srv.why, srv.changed = false, "", srv.e.now
		srv.e.log.Info("server up", "server", srv.target.Name, "address", srv.target.Address)
		srv.e.observer.Up(srv)
	}
}

// reason is err without what people know already: which address it was.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// obey puts o in force, which all pools that name srv agree in.
func (srv *Server) obey(o Order) {
	if srv.order == o {
		return
	}
	srv.order = o
	for _, c := range slices.Clone(srv.conns) { // giveUp may put others in their place
		if o == Down && (c.state != connIdle || c.length > 0) {
			c.giveUp(o.refusal(srv.target.Name), Unavailable)
		}
		srv.e.mark(&c.Link) // to be closed, or opened ahead of requests
	}
	if o == Restore && srv.down { // it is asked at once
		srv.redialAt = srv.e.now
		srv.e.at(requestTimer, srv.e.now)
	}
}

// leaving says that srv gets no new requests: its connections close when they
// owe nothing.
func (srv *Server) leaving() bool { return srv.retired || srv.order != Restore }

// ownConn is a connection for one errand alone, by the errand's number.
func (srv *Server) ownConn(n uint32) *Conn {
	c := srv.own[n]
	if c == nil {
		c = srv.newConn()
		if srv.own == nil {
			srv.own = map[uint32]*Conn{}
		}
		srv.own[n] = c
	}
	return c
}

// drop closes an errand's connection.
func (srv *Server) drop(n uint32) {
	c := srv.own[n]
	if c == nil {
		return
	}
	delete(srv.own, n)
	if c.state != connIdle {
		c.hangUp(Close)
	} else {
		c.clear() // what has been asked must not open it again
	}
	c.failAll("the errand is done", Lost)
}
