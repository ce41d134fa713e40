// Package drill breaks a server on purpose and checks every answer meanwhile.
//
// It sends its own traffic to a running Ringside, has it put a fault on one of
// its servers for a time and lift it again, and reports what clients saw: how
// long it took to notice, what was refused, and whether anything wrong was read.
//
// # What is checked
//
// Every key has one writer, who numbers what it does to it: sets, and every
// tenth time a delete. It waits for each answer before it goes on. A value says
// its key and its number, and has a body that follows from them.
//
//   - A read is stale when it returns a value although a later write or delete
//     of that key was acknowledged before the read was sent. Because a key has
//     one writer, who waits, the later one was also sent after the value's own
//     write had been answered, well or not: there is no doubt.
//
//   - A read is wrong when it returns what was never written to its key.
//
//   - A miss counts when the last acknowledged change was a set, and no delete
//     has been sent since. Refused and unanswered sets don't excuse it. The
//     writer is told of it and writes the key anew, as an application would.
//
//   - A write is refused when its answer is an error; it may have been done
//     nevertheless. Errors are all other requests without a good answer.
//
//   - A counter is incremented by one client and never comes to a number twice.
//
//   - A journal is appended to by one client. What was acknowledged stands in it,
//     and nothing stands there twice.
//
//   - A lock is added by whoever comes first and deleted by him. Nobody else gets it
//     meanwhile.
//
// Where a key has one copy the server that is gone takes counters, journals and locks
// with it. The first two are then missed, and put back by their writer; but a lock is
// got by another one.
//
// The rate of clients that each wait for an answer before they ask again says whether
// a server that is gone costs its share or everybody's time. It is measured before
// the fault, and in steps of 100 ms while the fault lasts. An error is an answer.
//
// Times are measured by errors and refusals, not by misses: what was lost in an
// outage is still missed when the server is back.
//
// Keys begin with a prefix and a name that is new each time, expire within an
// hour, and are deleted at the end.
package drill

// One drill after another: traffic, fault, traffic.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"ringside/proxy/admin"
	"ringside/proxy/fault"
	"ringside/proxy/live"
)

// Options is what a drill must be told. All of it must be set.
type Options struct {
	Through      []Address       // where clients connect: each sends through all of them in turn
	Control      []*admin.Client // the Ringsides that are to have the fault; the first says how the server is
	Pool, Server string          // which server; the pool may be empty if only one has it

	Faults []Fault       // one after the other
	For    time.Duration // how long each lasts
	Before time.Duration // of traffic that must be in order, before each
	Settle time.Duration // without a failure, after which the server counts as back
	Return time.Duration // how long it may take to come back

	Clients int    // connections
	Rate    int    // requests a second, of all together, at most
	Keys    int    // at least Clients
	Prefix  string // of every key

	Progress func(Progress) // is told now and then; may be nil
}

// Address is where a Ringside listens.
type Address struct{ Network, Address string }

// Progress is how far a drill is.
type Progress struct {
	Fault                string
	Stage                string // before, during, after
	Gone, Of             time.Duration
	Requests, Bad, Wrong int // so far; those that failed, and those that must not be
}

// Fault is one kind of trouble.
type Fault struct {
	Kind    fault.Kind
	Delay   time.Duration // of kind delay
	Percent int           // of kind drop
}

func (f Fault) String() string {
	switch f.Kind {
	case fault.Delay:
		return fmt.Sprintf("%s %v", f.Kind, f.Delay)
	case fault.Drop:
		return fmt.Sprintf("%s %d%%", f.Kind, f.Percent)
	}
	return string(f.Kind)
}

// The bounds of what a drill keeps and sends.
const (
	MaxClients = 256
	MaxRate    = 20_000
	MaxKeys    = 10_000
	MaxFor     = 10 * time.Minute
)

const (
	patience = 10 * time.Second       // for an answer; Ringside promises one much sooner
	look     = 10 * time.Millisecond  // between two looks at the servers
	retry    = 200 * time.Millisecond // between two tries of what failed before a fault
	tries    = 10                     // of it
	lifetime = 3600                   // seconds that a key lives at most
)

// ErrNotAllowed is the error of Run where the proxy does not allow faults.
var ErrNotAllowed = errors.New("faults are not allowed there: set admin.allow_faults to true in its configuration and start it again")

// Run does the drills one after the other and calls each with the result of
// every one. An error means that there is no result; the fault is lifted
// whatever happens.
func Run(ctx context.Context, o Options, each func(*Result)) error {
	for _, c := range o.Control {
		if _, allowed, err := c.Faults(ctx); err != nil {
			return err
		} else if !allowed {
			return ErrNotAllowed
		}
	}
	if _, _, err := o.servers(ctx); err != nil {
		return err
	}
	t, err := startTraffic(ctx, &o)
	if err != nil {
		return err
	}
	defer t.stop()
	for _, f := range o.Faults {
		r, err := t.drill(ctx, f)
		if err != nil {
			return fmt.Errorf("%v: %w", f, err)
		}
		each(r)
	}
	return nil
}

// servers is the server of the drill as it is now, at the first of the Ringsides where it is
// not up, and the other servers that are not up at some Ringside: what clients see may then be
// their fault.
func (o *Options) servers(ctx context.Context) (s live.ServerState, others []live.ServerState, err error) {
	found := false
	for _, c := range o.Control {
		list, err := c.Servers(ctx)
		if err != nil {
			return s, nil, err
		}
		i := slices.IndexFunc(list, o.isServer)
		if i < 0 {
			return s, nil, fmt.Errorf("there is no server %q any more", o.Server)
		}
		if !found || s.State == live.Up {
			s, found = list[i], true
		}
		for _, other := range list {
			if other.Address != list[i].Address && other.State != live.Up && other.State != live.Unknown {
				others = append(others, other)
			}
		}
	}
	return s, others, nil
}

// isServer says whether s is the server of the drill.
func (o *Options) isServer(s live.ServerState) bool {
	return (o.Pool == "" || s.Pool == o.Pool) && (s.Server == o.Server || s.Address == o.Server)
}

// describe names a server that is not up, and says why.
func describe(s *live.ServerState) string {
	text := fmt.Sprintf("server %s of pool %s is %s", s.Server, s.Pool, s.State)
	if s.Why != "" {
		text += ": " + s.Why
	}
	return text
}

// traffic is the clients and their keys.
type traffic struct {
	*Options
	keys    []checked // the lock of every eighth is in locks
	locks   []*lock
	missing []chan *key // for each client, of its own keys
	tally   tally
	waiting []atomic.Int64 // for each client, when its request began, in ns; 0: it waits for none
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// checked is a key that has one writer and many readers.
type checked interface {
	key() string
	change(t *traffic, c *client) error
	look(t *traffic, c *client)
}

func startTraffic(ctx context.Context, o *Options) (*traffic, error) {
	t := &traffic{Options: o, waiting: make([]atomic.Int64, o.Clients)}
	name := strconv.FormatInt(time.Now().UnixNano(), 36)
	for i := range o.Keys {
		size := 100
		if i%32 == 7 {
			size = 80_000 // more than Ringside waits for to be whole
		}
		name := fmt.Sprintf("%s%s:%d", o.Prefix, name, i)
		switch i % 8 {
		case 2:
			t.keys = append(t.keys, &counter{name: name})
		case 4:
			t.keys = append(t.keys, &journal{name: name, doubtful: map[uint64]bool{}})
		case 6:
			t.locks = append(t.locks, &lock{name: name})
		default:
			t.keys = append(t.keys, &key{name: name, size: size})
		}
	}
	for i, k := range t.keys {
		if k, ok := k.(*key); ok {
			k.owner = i % o.Clients
		}
	}
	for range o.Clients {
		t.missing = append(t.missing, make(chan *key, 64))
	}
	t.tally.begin()
	for _, at := range o.Through {
		c := client{network: at.Network, address: at.Address}
		defer c.close()
		for _, k := range t.keys {
			err := k.change(t, &c)
			for i := 1; err != nil && err.Error() != errStuck.Error() && i < tries; i++ { // a busy machine may miss a timeout
				if err := sleep(ctx, retry); err != nil {
					return nil, err
				}
				err = k.change(t, &c)
			}
			if err != nil {
				return nil, fmt.Errorf("before the drill, through %s: %s: %w", at.Address, k.key(), err)
			}
		}
	}
	ctx, t.cancel = context.WithCancel(ctx)
	for n := range o.Clients {
		t.running.Add(1)
		go t.client(ctx, n)
	}
	return t, nil
}

// stop ends the traffic and deletes the keys, as far as that is possible.
func (t *traffic) stop() {
	t.cancel()
	t.running.Wait()
	c := client{network: t.Through[0].Network, address: t.Through[0].Address}
	defer c.close()
	names := []string{}
	for _, k := range t.keys {
		names = append(names, k.key())
	}
	for _, k := range t.locks {
		names = append(names, k.keys()...)
	}
	for _, name := range names {
		if _, err := c.ask("delete " + name); err != nil {
			return
		}
	}
}

// client is one client: it writes its own keys and reads all.
func (t *traffic) client(ctx context.Context, n int) {
	defer t.running.Done()
	var conns []*client
	for _, at := range t.Through {
		c := &client{network: at.Network, address: at.Address}
		defer c.close()
		conns = append(conns, c)
	}
	dice := rand.New(rand.NewPCG(uint64(n), 0))
	who := "client " + strconv.Itoa(n)
	var has *held
	var own []checked
	for i := n; i < len(t.keys); i += t.Clients {
		own = append(own, t.keys[i])
	}
	step := time.Second * time.Duration(t.Clients) / time.Duration(t.Rate)
	next := time.Now().Add(time.Duration(dice.Int64N(int64(step) + 1)))
	for {
		if sleep(ctx, time.Until(next)) != nil {
			return
		}
		if next = next.Add(step); time.Until(next) < 0 { // what was held up is not made up for
			next = time.Now()
		}
		t.waiting[n].Store(time.Now().UnixNano())
		c := conns[dice.IntN(len(conns))]
		switch what := dice.IntN(8); {
		case what < 4 || len(own) == 0:
			t.keys[dice.IntN(len(t.keys))].look(t, c)
		case what == 4 && has != nil:
			has.give(t, c, who)
			has = nil
		case what == 4 && len(t.locks) > 0:
			has = t.locks[dice.IntN(len(t.locks))].take(t, c, who)
		default:
			k := own[dice.IntN(len(own))]
			select {
			case k = <-t.missing[n]:
			default:
			}
			k.change(t, c)
		}
		t.waiting[n].Store(0)
	}
}

// longestWait returns how long the oldest request has been waiting for its answer.
func (t *traffic) longestWait() (wait time.Duration) {
	for i := range t.waiting {
		if began := t.waiting[i].Load(); began != 0 {
			wait = max(wait, time.Since(time.Unix(0, began)))
		}
	}
	return wait
}

// drill applies one fault and watches.
func (t *traffic) drill(ctx context.Context, f Fault) (*Result, error) {
	before, known, err := t.before(ctx, f)
	for i := 1; i < tries && errors.Is(err, errTrouble); i++ { // on a busy machine a request may fail now and then
		before, known, err = t.before(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	t.tally.begin()
	began := time.Now() // before the fault is there: what it breaks at once comes after it is set, but not after that is known
	server, lift, err := t.setFault(ctx, f)
	if err != nil {
		return nil, err
	}
	t.tally.setFault(began)
	during, err := t.watch(ctx, began.Add(t.For), func(watched) bool {
		t.showProgress(f, "during", time.Since(began), t.For)
		return false
	})
	if err != nil {
		return nil, errors.Join(err, lift())
	}
	over := time.Now() // what its end breaks is not what it broke while it lasted
	t.tally.setFault(time.Time{})
	if err := lift(); err != nil {
		return nil, fmt.Errorf("the fault could not be lifted: %w", err)
	}
	lifted := time.Now()
	after, err := t.watch(ctx, lifted.Add(t.Return), func(w watched) bool {
		t.showProgress(f, "after", time.Since(lifted), t.Return)
		quiet := lifted
		if _, _, last := t.tally.counted(); last.After(quiet) {
			quiet = last
		}
		return w.up && time.Since(quiet) >= t.Settle && t.longestWait() < t.Settle
	})
	if err != nil {
		return nil, err
	}
	r, first, last := t.tally.counted()
	r.Fault, r.Server = f.String(), server
	r.times(began, lifted, first, last, during, after)
	if !after.met && after.up {
		r.failing = t.tally.lastFailure()
		if wait := t.longestWait(); wait >= t.Settle {
			r.failing = fmt.Sprintf("a client has been waiting for its answer for %v", wait.Round(time.Millisecond))
		}
	}
	r.other(known, during.others, after.others)
	r.Unseen = during.unseen + after.unseen
	r.rates(float64(before.Requests)/t.Before.Seconds(), t.tally.inSteps(), over.Sub(began))
	return r, nil
}

// errTrouble is the error of a drill that does not begin because not all is in order.
var errTrouble = errors.New("there is trouble before the fault")

// before counts what traffic gets without a fault. It returns the other servers that are not up,
// which may only be drained ones and those of other pools: the fault would take what is left.
func (t *traffic) before(ctx context.Context, f Fault) (*Result, []live.ServerState, error) {
	t.tally.begin()
	t.showProgress(f, "before", 0, t.Before)
	if err := sleep(ctx, t.Before); err != nil {
		return nil, nil, err
	}
	r, _, _ := t.tally.counted()
	is, others, err := t.servers(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errTrouble, err)
	}
	if r.forbidden() > 0 { // another try would hide it
		return nil, nil, fmt.Errorf("%v: %d answers that must not be %s", errTrouble, r.forbidden(), r.Example)
	}
	for _, o := range others {
		if o.Pool == is.Pool && o.State != live.Drained {
			return nil, nil, fmt.Errorf("%w: %s; the drill would break a second one", errTrouble, describe(&o))
		}
	}
	if is.State != live.Up || r.trouble() > 0 {
		return nil, nil, fmt.Errorf("%w: server %s is %s; %d of %d requests failed %s", errTrouble, is.Server, is.State, r.trouble(), r.Requests, r.Example)
	}
	return r, others, nil
}

// setFault sets a fault at each of the Ringsides that are to have it, and returns what lifts
// it again and the server's name. Neither is given up half-way, or nobody would know whether
// there is a fault. If this process dies, it ends nevertheless.
func (t *traffic) setFault(ctx context.Context, f Fault) (server string, lift func() error, err error) {
	ctx = context.WithoutCancel(ctx)
	setting, done := context.WithTimeout(ctx, patience)
	defer done()
	var lifts []func() error
	lift = func() (err error) {
		for _, l := range lifts {
			err = errors.Join(err, l())
		}
		return err
	}
	for _, c := range t.Control {
		set, err := c.Fault(setting, admin.FaultState{Server: t.Server, Pool: t.Pool, Kind: f.Kind, Delay: admin.Duration(f.Delay),
			Percent: f.Percent, For: admin.Duration(t.For + time.Minute)})
		if err != nil {
			return "", nil, errors.Join(err, lift())
		}
		server = set.Server
		lifts = append(lifts, func() error {
			var err error
			for range tries {
				lifting, done := context.WithTimeout(ctx, patience)
				err = c.Lift(lifting, set.ID)
				done()
				if s := (*admin.StatusError)(nil); err == nil || errors.As(err, &s) && s.Status == 404 {
					return nil
				}
				time.Sleep(retry)
			}
			return err
		})
	}
	return server, lift, nil
}

func (t *traffic) showProgress(f Fault, stage string, gone, of time.Duration) {
	if t.Progress != nil {
		r, _, _ := t.tally.counted()
		t.Progress(Progress{f.String(), stage, gone, of, r.Requests, r.Errors + r.Refused, r.forbidden()})
	}
}

// watched is what polling the control API has shown.
type watched struct {
	trouble, good time.Time // first seen not up; seen up since; zero: never
	ejected       time.Time // first seen with its keys elsewhere, or without anybody to serve them; zero: never
	up            bool      // when it was looked at last
	met           bool      // the condition to stop

	others []live.ServerState // further servers, as they were first seen not up
	unseen int                // looks that the control API did not answer
}

// watch looks at the server until the end, or until done says so.
func (t *traffic) watch(ctx context.Context, end time.Time, done func(watched) bool) (watched, error) {
	w := watched{}
	for {
		is, others, err := t.servers(ctx)
		now := time.Now()
		switch up := err == nil && is.State == live.Up; {
		case ctx.Err() != nil:
			return w, ctx.Err()
		case err != nil: // the next look may be answered: a drill under load ends with a verdict
			w.unseen++
		case up && !w.up:
			w.good = now
			w.up = true
		case !up:
			if w.trouble.IsZero() {
				w.trouble = now
			}
			w.up = false
		}
		for _, o := range others {
			if !slices.ContainsFunc(w.others, func(s live.ServerState) bool { return s.Pool == o.Pool && s.Server == o.Server }) {
				w.others = append(w.others, o)
			}
		}
		if gone := err == nil && is.State != live.Up && (is.Failover == nil || is.Failover.Phase == "OUT"); gone && w.ejected.IsZero() {
			w.ejected = now
		}
		if done != nil && done(w) {
			w.met = true
			return w, nil
		}
		if !now.Before(end) {
			return w, nil
		}
		if err := sleep(ctx, min(look, end.Sub(now))); err != nil {
			return w, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
