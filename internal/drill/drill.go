// Package drill breaks a server on purpose and checks all replies to clients during the
// failure.
//
// It sends test traffic to a running instance, which applies a fault to one of its
// servers for a time. The result says what clients saw: how long detection took, which
// requests were rejected, and whether a wrong value was read.
//
// # Checks
//
// Every key has one writer, which numbers its changes: sets, and every tenth change a
// delete. The writer waits for each reply before it continues. A value contains its
// key, its number and a body derived from them.
//
//   - A read is stale if it returns a value although a later write or delete of that
//     key was acknowledged before the read was sent. A key has one writer, which waits
//     for replies. So the later change was also sent after the value's own write had
//     been answered, and there is no doubt.
//   - A read is wrong if it returns a value that was never written to its key.
//   - A miss counts if the last acknowledged change was a set and no delete has been
//     sent since. Rejected and unanswered sets are no excuse. The writer then rewrites
//     the key, as an application would.
//   - A write is refused if its reply is an error; it may have been executed anyway.
//     Errors are all other requests without a correct reply.
//   - A counter is incremented by one client and never reaches the same number twice.
//   - A journal is appended to by one client. It must contain all acknowledged entries,
//     and none of them twice.
//   - A lock is added by the first client that tries, and deleted by the same client.
//     No other client must get it in between.
//
// If a key has no replicas, counters, journals and locks disappear with a failed
// server. The first two are missed and restored by their writer, but a lock can then be
// obtained by a second client.
//
// Each client waits for a reply before it sends the next request. So the request rate
// shows whether a failed server slows only its share of the requests or all of them. It
// is measured before the fault, and in steps of 100 ms during the fault. An error
// counts as a reply.
//
// Times are measured by errors and refusals, not by misses, because data lost in an
// outage is still missed after the server has returned.
//
// Keys begin with a prefix and a name that is unique to the run, expire within an hour,
// and are deleted at the end.
package drill

// This file runs the drills one after the other. In each there is traffic before, during and after
// the fault.

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ringside/proxy/admin"
	"ringside/proxy/fault"
	"ringside/proxy/live"
)

// Options configures a drill. All fields but Pool and Progress must be set.
type Options struct {
	Through      []Address     // addresses of the instances; each client connects to all of them and chooses one at random for each request
	Control      *admin.Client // the admin interface of the instance that applies the fault; it also reports the server's state
	Pool, Server string        // the server to break; Pool may be empty if only one pool has a server of this name

	Faults []Fault       // faults to apply, one after the other
	For    time.Duration // duration of each fault
	Before time.Duration // how long there is traffic before each fault
	Settle time.Duration // how long no request may fail before the server counts as back
	Return time.Duration // how long the drill waits, after a fault, until the server is back

	Clients int    // number of clients
	Rate    int    // maximum requests per second, all clients together
	Keys    int    // number of keys; at least as many as clients
	Prefix  string // prefix of every key

	Progress func(Progress) // called from time to time with the state of the drill; may be nil
}

// Address is an address of an instance at which clients connect.
type Address struct {
	Network, Address string
	TLS              *tls.Config // TLS of the connections; nil: none
	User, Password   string      // login at the beginning of each connection; empty: none
}

// Progress describes the progress of a drill.
type Progress struct {
	Fault                string
	Stage                string // before, during or after the fault
	Gone, Of             time.Duration
	Requests, Bad, Wrong int // numbers of requests so far: all, those that failed, and those with a reply that must never happen (stale, wrong and others)
}

// Fault is one kind of fault with its parameters.
type Fault struct {
	Kind    fault.Kind
	Delay   time.Duration // delay of each reply; only for faults of kind delay
	Percent int           // percentage of the TCP segments that are lost, 1 to 100; only for faults of kind drop
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

// Limits for the options of a drill.
const (
	MaxClients = 256
	MaxRate    = 20_000
	MaxKeys    = 10_000
	MaxFor     = 10 * time.Minute
)

const (
	patience = 10 * time.Second       // longest wait for a reply, of an instance or of the admin interface
	look     = 10 * time.Millisecond  // time between two requests for the state of the servers
	retry    = 200 * time.Millisecond // time between two attempts of a request that failed
	tries    = 10                     // maximum number of attempts of one request
	lifetime = 3600                   // time after which the keys of a drill expire, in seconds
)

// ErrNotAllowed is returned by Run if the configuration of the proxy does not allow faults.
var ErrNotAllowed = errors.New("faults are not allowed there: set admin.allow_faults to true in its configuration and start it again")

// Run runs the drills one after the other. It passes every result to the function `each`. An error
// means that a drill has no result. Run ends the fault in any case.
func Run(ctx context.Context, o Options, each func(*Result)) error {
	if _, allowed, err := o.Control.Faults(ctx); err != nil {
		return err
	} else if !allowed {
		return ErrNotAllowed
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

// servers returns the state of the server that the drill breaks. It also returns the other servers
// that are not up, because these may cause failures, too.
func (o *Options) servers(ctx context.Context) (s live.ServerState, others []live.ServerState, err error) {
	list, err := o.Control.Servers(ctx)
	if err != nil {
		return s, nil, err
	}
	i := slices.IndexFunc(list, o.isServer)
	if i < 0 {
		return s, nil, fmt.Errorf("%w %q any more at %s: a reload has removed or renamed it", errRemoved, o.Server, o.Control.Address())
	}
	s = list[i]
	return s, slices.DeleteFunc(list, func(o live.ServerState) bool {
		return o.Address == s.Address || o.State == live.Up || o.State == live.Unknown
	}), nil
}

// errRemoved means that an instance no longer has the server that the drill breaks.
var errRemoved = errors.New("there is no server")

// isServer reports whether s is the server that the drill breaks.
func (o *Options) isServer(s live.ServerState) bool {
	return (o.Pool == "" || s.Pool == o.Pool) && (s.Server == o.Server || s.Address == o.Server)
}

// describe returns a text with the state of a server that is not up, and the reason.
func describe(s *live.ServerState) string {
	text := fmt.Sprintf("server %s of pool %s is %s", s.Server, s.Pool, s.State)
	if s.Why != "" {
		text += ": " + s.Why
	}
	return text
}

// traffic has the clients of the drill and their keys.
type traffic struct {
	*Options
	keys    []checked // all keys except the locks; the locks are an eighth of all keys
	locks   []*lock
	missing []chan *key // for each client: those of its own keys that a read has missed, which the client writes again
	tally   tally
	waiting []atomic.Int64 // for each client: time when its current request was sent, in nanoseconds; 0: it waits for no reply
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// checked is a key that one client changes and all clients read. A read checks the value.
type checked interface {
	key() string
	change(t *traffic, c *client) (how ending, why string)
	known() any // what is known of the key when a read is sent; judge gets it
	// judge evaluates a read that returned value, or a miss if found is false.
	judge(value string, found bool, known any) (how ending, why string)
}

// writer is what a client has written to a key that only this client changes.
type writer struct {
	name string

	mu    sync.Mutex // guards acked, and the fields of the key that embeds the writer
	acked uint64     // number of the last change that was acknowledged
}

func (w *writer) key() string { return w.name }

func (w *writer) known() any {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}

// write sends a request that changes a key. judge evaluates the reply. The result says how the request
// ended, and has an example for the report.
func (t *traffic) write(c *client, line string, judge func(answer string) (how ending, why string)) (how ending, why string) {
	began := time.Now()
	answer, err := c.ask(line)
	if err != nil {
		how, why = unanswered, err.Error()
	} else {
		how, why = judge(answer)
	}
	t.tally.count(began, how, why)
	return how, why
}

// look reads a key and evaluates the result. A missed key is written again by its writer.
func (t *traffic) look(k checked, c *client) {
	known, began := k.known(), time.Now()
	value, found, err := c.get(k.key())
	if err != nil {
		t.tally.count(began, broken, err.Error())
		return
	}
	how, why := k.judge(value, found, known)
	t.tally.count(began, how, why)
	if k, ok := k.(*key); ok && how == miss {
		select {
		case t.missing[k.owner] <- k:
		default: // the writer of the key has enough other keys to write again
		}
	}
}

func startTraffic(ctx context.Context, o *Options) (*traffic, error) {
	t := &traffic{Options: o, waiting: make([]atomic.Int64, o.Clients)}
	name := strconv.FormatInt(time.Now().UnixNano(), 36)
	for i := range o.Keys {
		name, k := fmt.Sprintf("%s%s:%d", o.Prefix, name, i), &key{size: 100, owner: len(t.keys) % o.Clients}
		if k.name = name; i%32 == 7 {
			k.size = 80_000 // more bytes than a value has that Ringside forwards only as a whole, so this value is streamed
		}
		switch i % 8 {
		case 2:
			t.keys = append(t.keys, &counter{writer: writer{name: name}})
		case 4:
			t.keys = append(t.keys, &journal{writer: writer{name: name}})
		case 6:
			t.locks = append(t.locks, &lock{name: name})
		default:
			t.keys = append(t.keys, k)
		}
	}
	for range o.Clients {
		t.missing = append(t.missing, make(chan *key, 64))
	}
	t.tally.begin()
	for _, at := range o.Through {
		c := client{Address: at}
		defer c.close()
		if err := c.admitted(o.Prefix + name); err != nil {
			return nil, err
		}
		for _, k := range t.keys {
			how, why := k.change(t, &c)
			for i := 1; how.failed() && why != errStuck.Error() && i < tries; i++ { // on a busy machine a request may time out
				if err := sleep(ctx, retry); err != nil {
					return nil, err
				}
				how, why = k.change(t, &c)
			}
			if how.failed() {
				is, others, unknown := t.servers(ctx)
				if broken := describeBroken(is, others); unknown == nil && broken != "" {
					why += "; " + broken
				}
				return nil, fmt.Errorf("before the drill, through %s: %s: %s", at.Address, k.key(), why)
			}
		}
	}
	ctx, t.cancel = context.WithCancel(ctx)
	for n := range o.Clients {
		t.running.Go(func() { t.client(ctx, n) })
	}
	return t, nil
}

// stop ends the traffic and deletes the keys of the drill. It gives up at the first error.
func (t *traffic) stop() {
	t.cancel()
	t.running.Wait()
	c := client{Address: t.Through[0]}
	defer c.close()
	var names []string
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

// client runs the client with number n until ctx ends. It changes its own keys, and reads the keys
// of all clients.
func (t *traffic) client(ctx context.Context, n int) {
	var conns []*client
	for _, at := range t.Through {
		c := &client{Address: at}
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
		if next = next.Add(step); time.Until(next) < 0 { // a client that is late does not send more requests to catch up
			next = time.Now()
		}
		t.waiting[n].Store(time.Now().UnixNano())
		c := conns[dice.IntN(len(conns))]
		switch what := dice.IntN(8); {
		case what < 4 || len(own) == 0:
			t.look(t.keys[dice.IntN(len(t.keys))], c)
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

// longestWait returns how long the oldest request without a reply has been waiting.
func (t *traffic) longestWait() (wait time.Duration) {
	for i := range t.waiting {
		if began := t.waiting[i].Load(); began != 0 {
			wait = max(wait, time.Since(time.Unix(0, began)))
		}
	}
	return wait
}

// drill applies the fault f to the server and evaluates what the clients saw.
func (t *traffic) drill(ctx context.Context, f Fault) (*Result, error) {
	before, known, err := t.before(ctx, f)
	for i := 1; i < tries && errors.Is(err, errTrouble); i++ { // on a busy machine requests may fail sometimes without a fault, so it tries again
		before, known, err = t.before(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	t.tally.begin()
	began := time.Now() // taken before the fault is set, because the fault may break requests before the admin interface confirms it
	server, kept, lift, err := t.setFault(ctx, f)
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
	over := time.Now() // requests that fail while the fault is being lifted do not count as failures during the fault
	t.tally.setFault(time.Time{})
	if err := kept(); err != nil {
		return nil, errors.Join(err, lift())
	}
	if err := lift(); err != nil {
		return nil, fmt.Errorf("the fault could not be lifted: %w", err)
	}
	lifted := time.Now()
	after, err := t.watch(ctx, lifted.Add(t.Return), func(w watched) bool {
		t.showProgress(f, "after", time.Since(lifted), t.Return)
		quiet := lifted
		if last := t.tally.counted().last; last.After(quiet) {
			quiet = last
		}
		return w.up && time.Since(quiet) >= t.Settle && t.longestWait() < t.Settle
	})
	if err != nil {
		return nil, err
	}
	counted := t.tally.counted()
	r := &counted.is
	r.Fault, r.Server = f.String(), server
	r.times(began, lifted, counted.first, counted.last, during, after)
	if !after.met && after.up {
		r.failing = counted.lastExample
		if wait := t.longestWait(); wait >= t.Settle {
			r.failing = fmt.Sprintf("a client has been waiting for its answer for %v", wait.Round(time.Millisecond))
		}
	}
	r.other(known, during.others, after.others)
	r.Unseen = during.unseen + after.unseen
	r.rates(float64(before.Requests)/t.Before.Seconds(), counted.steps, over.Sub(began))
	return r, nil
}

// errTrouble means that requests failed or servers were not up before the fault, so the drill did
// not start.
var errTrouble = errors.New("there is trouble before the fault")

// describeBroken names the servers that are not up in the pool of the server `is`. It leaves out
// drained servers. others are all servers besides `is` that are not up.
func describeBroken(is live.ServerState, others []live.ServerState) string {
	var names []string
	for i := range others {
		if o := &others[i]; o.Pool == is.Pool && o.State != live.Drained {
			names = append(names, describe(o))
		}
	}
	return strings.Join(names, ", ")
}

// before counts the traffic without a fault. It returns the other servers that are not up. It fails
// if one of them is in the pool of the drill and is not drained, because the fault would then break
// a second server.
func (t *traffic) before(ctx context.Context, f Fault) (*Result, []live.ServerState, error) {
	t.tally.begin()
	t.showProgress(f, "before", 0, t.Before)
	if err := sleep(ctx, t.Before); err != nil {
		return nil, nil, err
	}
	r := &t.tally.counted().is
	is, others, err := t.servers(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errTrouble, err)
	}
	if r.forbidden() > 0 { // not errTrouble, because the drill is then tried again, which would hide these replies
		return nil, nil, fmt.Errorf("%v: %d answers that must not be %s", errTrouble, r.forbidden(), r.Example)
	}
	if broken := describeBroken(is, others); broken != "" {
		return nil, nil, fmt.Errorf("%w: %s; the drill would break one more", errTrouble, broken)
	}
	if is.State != live.Up || r.trouble() > 0 {
		return nil, nil, fmt.Errorf("%w: server %s is %s; %d of %d requests failed %s", errTrouble, is.Server, is.State, r.trouble(), r.Requests, r.Example)
	}
	return r, others, nil
}

// setFault sets a fault. It returns the server's name and two functions. kept checks that the instance
// still has the fault, and lift ends the fault. They ignore that ctx is cancelled, because it would then
// be unknown whether there is a fault. If this process dies, the fault ends by itself.
func (t *traffic) setFault(ctx context.Context, f Fault) (server string, kept, lift func() error, err error) {
	ctx = context.WithoutCancel(ctx)
	setting, done := context.WithTimeout(ctx, patience)
	defer done()
	set, err := t.Control.Fault(setting, admin.FaultState{Server: t.Server, Pool: t.Pool, Kind: f.Kind, Delay: admin.Duration(f.Delay),
		Percent: f.Percent, For: admin.Duration(t.For + time.Minute)})
	if err != nil {
		return "", nil, nil, err
	}
	kept = func() error {
		var list []admin.FaultState
		err := repeat(ctx, func(ctx context.Context) (err error) {
			list, _, err = t.Control.Faults(ctx)
			return err
		})
		if err == nil && !slices.ContainsFunc(list, func(f admin.FaultState) bool { return f.ID == set.ID }) {
			err = fmt.Errorf("the fault has ended early: the instance at %s does not have it any more, because it was started again, or an operator removed the fault", t.Control.Address())
		}
		return err
	}
	lift = func() error {
		return repeat(ctx, func(ctx context.Context) error {
			err := t.Control.Lift(ctx, set.ID)
			if s := (*admin.StatusError)(nil); errors.As(err, &s) && s.Status == 404 {
				return nil
			}
			return err
		})
	}
	return set.Server, kept, lift, nil
}

// repeat calls request until it succeeds, at most `tries` times. It returns the last error.
func repeat(ctx context.Context, request func(ctx context.Context) error) (err error) {
	for range tries {
		trying, done := context.WithTimeout(ctx, patience)
		err = request(trying)
		if done(); err == nil {
			return nil
		}
		time.Sleep(retry)
	}
	return err
}

func (t *traffic) showProgress(f Fault, stage string, gone, of time.Duration) {
	if t.Progress != nil {
		r := &t.tally.counted().is
		t.Progress(Progress{f.String(), stage, gone, of, r.Requests, r.Errors + r.Refused, r.forbidden()})
	}
}

// watched is what the control API has reported about the server while a drill polled it.
type watched struct {
	trouble, good time.Time // trouble: when the server was first seen not up; good: when it was seen up again; zero: never
	ejected       time.Time // when the server was first seen ejected; in a pool that does not move keys: first seen down; zero: never
	up            bool      // the server was up at the last query
	met           bool      // the condition to stop was true before the time was over

	others []live.ServerState // other servers that were not up at some query, in the first such state
	unseen int                // number of queries that the control API did not answer
}

// watch polls the state of the server until the time end, or until done returns true.
func (t *traffic) watch(ctx context.Context, end time.Time, done func(watched) bool) (watched, error) {
	w := watched{}
	for {
		is, others, err := t.servers(ctx)
		now := time.Now()
		switch up := is.State == live.Up; {
		case ctx.Err() != nil:
			return w, ctx.Err()
		case errors.Is(err, errRemoved):
			return w, err
		case err != nil: // the next query may succeed, so the drill continues: it must have a result even under load
			w.unseen++
		case !up:
			w.up, w.trouble = false, cmp.Or(w.trouble, now)
		case !w.up:
			w.up, w.good = true, now
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
