package fleet

// Invariants of an engine between two wakeups.

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"ringside/proxy"
	"ringside/proxy/client"
	"ringside/proxy/link"
	"ringside/proxy/upstream"
	"ringside/proxy/watch"
)

// inventory walks everything that an engine references and collects violated
// invariants.
type inventory struct {
	e      *proxy.Engine
	owner  map[*link.Chunk]string
	bytes  int64 // bytes found so far
	asks   map[*client.Exchange]int
	live   map[*client.Exchange]bool
	faults []string
}

// faults returns the violated invariants of e between two wakeups. If a client has used the binary protocol, batches of
// quiet gets also have memory.
func faults(e *proxy.Engine, batches bool) []string {
	v := &inventory{e: e, owner: map[*link.Chunk]string{}, asks: map[*client.Exchange]int{}, live: map[*client.Exchange]bool{}}
	v.chunk(e.Scratch, "scratch")
	for s := range e.Sessions {
		v.session(s)
	}
	for _, c := range v.conns() {
		v.conn(c)
	}
	for x, n := range v.asks {
		v.want(x.Waiting == n, "an exchange waits for %d attempts, %d are there", x.Waiting, n)
		if x.Session == nil {
			v.exchange(x, "orphan")
			v.want(x.Next == nil, "an orphan has a next, and keeps what became of that")
		}
	}
	v.free()
	v.bytes += int64(len(v.live)) * client.ExchangeSize
	v.want(v.bytes == e.Buffers.Held || batches && v.bytes < e.Buffers.Held, "the pool counts %d bytes, %d are held", e.Buffers.Held, v.bytes)
	v.want(e.Booked.Load() == e.Buffers.Held, "the pool counts %d bytes, %d are booked", e.Buffers.Held, e.Booked.Load())
	v.want(len(e.PendingFlush) == 0 && len(e.ToWake) == 0, "%d links dirty, %d sessions to wake", len(e.PendingFlush), len(e.ToWake))
	return v.faults
}

func (v *inventory) want(ok bool, format string, args ...any) {
	if !ok {
		v.faults = append(v.faults, fmt.Sprintf(format, args...))
	}
}

func (v *inventory) chunk(c *link.Chunk, where string) {
	if c == nil {
		return
	}
	v.want(v.owner[c] == "", "a chunk belongs to %s and to %s", v.owner[c], where)
	v.want(0 <= c.Start && c.Start <= c.End && c.End <= len(c.Data), "%s: a chunk holds %d to %d of %d", where, c.Start, c.End, len(c.Data))
	v.owner[c] = where
	v.bytes += int64(len(c.Data))
}

func (v *inventory) queue(q *link.Queue, where string) {
	size := 0
	var last *link.Chunk
	for c := q.Head; c != nil; c = c.Next {
		if v.owner[c] != "" {
			v.want(false, "a chunk belongs to %s and to %s", v.owner[c], where)
			return // possibly a cycle
		}
		v.chunk(c, where)
		size += c.Len()
		last = c
	}
	v.want(last == q.Tail, "%s: the tail is not the last chunk", where)
	v.want(size == q.Size, "%s: %d bytes, counted %d", where, size, q.Size)
}

func (v *inventory) conns() (list []*upstream.Conn) {
	for _, srv := range v.e.ByAddress {
		list = append(list, srv.Conns...)
		list = slices.AppendSeq(list, maps.Values(srv.Dedicated))
		v.want(srv.Lingering <= upstream.LingeringPerConn*srv.Connections, "%s: %d connections linger", srv.Label(), srv.Lingering)
		v.want(srv.Asked == nil, "a read is being split between wakeups")
		if srv.Down && srv.Conns[0].State == upstream.ConnIdle {
			v.want(srv.RedialAt >= v.e.Timers[link.RequestTimer], "%s: redialled at %d, looked at %d", srv.Label(), srv.RedialAt, v.e.Timers[link.RequestTimer])
		}
	}
	for _, c := range v.e.Closing {
		for _, c := range c.Server.Conns {
			if !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
	}
	lateDeletes, unheard := 0, 0
	for _, c := range v.e.Lingering {
		v.want(!slices.Contains(list, c), "%s: a lingering connection serves", c.Server.Label())
		v.want(c.Lingering && c.State == upstream.ConnUp && c.Length > 0, "%s: it lingers for nothing", c.Server.Label())
		v.want(v.e.Timers[link.RequestTimer] <= c.Until, "%s: it lingers until %d, the engine looks at %d", c.Server.Label(), c.Until, v.e.Timers[link.RequestTimer])
		list = append(list, c)
	}
	for _, c := range list {
		lateDeletes += c.LateDeletes
		unheard += c.Length
	}
	v.want(lateDeletes == v.e.LateDeletes, "%d late deletes, counted %d", lateDeletes, v.e.LateDeletes)
	waiting := 0
	for s := range v.e.Sessions {
		if s.Head != nil {
			waiting++
		}
	}
	v.want(waiting == v.e.Awaiting, "%d clients wait, counted %d", waiting, v.e.Awaiting)
	v.want(unheard == v.e.Outstanding, "%d requests without an answer, counted %d", unheard, v.e.Outstanding)
	return list
}

func (v *inventory) session(s *client.Session) {
	n, last := 0, (*client.Exchange)(nil)
	for x := s.Head; x != nil; x = x.Next {
		if v.live[x] {
			v.want(false, "an exchange is twice in its client's order")
			return
		}
		v.want(x.Session == s, "an exchange of one client is in the order of another")
		v.exchange(x, fmt.Sprintf("client %d", s.ID))
		if x.Waiting > 0 {
			v.asks[x] += 0
		}
		v.want(x.Settled == (x.Waiting == 0 && len(x.Rest) == 0), "an exchange waits for %d attempts; settled: %v", x.Waiting, x.Settled)
		last = x
		n++
	}
	v.want(n == s.InFlight, "%d in flight, counted %d", n, s.InFlight)
	v.want(n > 0 || s.Reads == nil || s.Quitting, "reads that need no task are on their way, and no command is")
	v.want(last == s.Tail, "the tail is not the last exchange")
	if s.Head != nil {
		v.want(s.Head.Out.Size == 0, "the first exchange keeps %d bytes", s.Head.Out.Size)
		v.want(!s.Head.Settled, "the first exchange is settled and still there")
	}
	v.chunk(s.In, "a client's input")
	v.queue(&s.Out, "a client's output")
	if s.Out.Size > 0 && !s.Full && !s.Whole {
		v.want(s.Head != nil, "client %d: %d bytes are a part of no answer", s.ID, s.Out.Size)
	} else if s.Out.Size > 0 && !s.Full {
		held := slices.ContainsFunc(v.e.Held.List[v.e.Held.First:], func(h client.HeldClient) bool { return h.Session == s && h.Until == s.HoldUntil })
		v.want(held, "client %d: %d bytes wait and nobody will send them", s.ID, s.Out.Size)
	}
	switch {
	case s.Quitting && s.Head == nil: // a client that was cut off inside a value has nothing to resume
	case s.Stalled:
		v.want(!s.MayGoOn() || s.Head != nil, "client %d is stalled for no reason", s.ID) // some commands wait for the replies to all earlier ones
	case s.In != nil:
		v.want(s.TryAt > 0 || s.Need > s.In.Len(), "client %d: %d bytes wait to be parsed", s.ID, s.In.Len())
	}
	v.want(!s.Quitting || s.Head != nil || s.Out.Size > 0 || s.Full, "client %d is done and not closed", s.ID)
}

func (v *inventory) exchange(x *client.Exchange, where string) {
	v.live[x] = true
	v.bytes += int64(x.GatheredBytes + cap(x.Rest))
	v.queue(&x.Out, where+": an exchange's answer")
	if st := x.Streaming; st != nil {
		v.queue(&st.Late, where+": an exchange's late values")
		for _, b := range st.Next {
			v.queue(&b.Held, where+": a value held back")
		}
		v.want(st.Turn != nil || st.Late.Size == 0, "%s: late values and no stream", where)
	}
	if x.InOrder != nil {
		v.bytes += int64(x.InOrder.Held)
		for i := range x.InOrder.Values {
			v.queue(&x.InOrder.Values[i].Block, where+": a value that waits for its place")
		}
	}
}

func (v *inventory) conn(c *upstream.Conn) {
	name := c.Server.Label()
	n, last := 0, (*upstream.Attempt)(nil)
	earliest, pos, lateDeletes, internal := int64(link.Never), uint64(0), 0, 0
	for a := c.Head; a != nil; a = a.Next {
		v.want(last == nil || a.Start == pos, "%s: a request begins at %d, the one before ends at %d", name, a.Start, pos)
		pos = a.Start + uint64(a.Size)
		x := exchangeOf(a)
		if x != nil {
			v.asks[x]++
			v.want(x.Session == nil || v.live[x], "%s: an attempt of an exchange that is in no client's order", name)
		}
		if a.LateDelete {
			lateDeletes++
		}
		if a.Internal {
			internal++
		}
		v.bytes += upstream.AttemptSize
		if n := cap(a.Room()); n > 1<<10 { // keys of a long line
			v.bytes += int64(n)
		}
		v.want(!a.Unguarded(), "%s: a mutation may run late and no delete is behind it", name)
		if x != nil || a.Probe {
			earliest = min(earliest, a.Deadline)
		}
		last = a
		if n++; n > c.Length {
			break
		}
	}
	v.want(n == c.Length, "%s: %d requests, counted %d", name, n, c.Length)
	v.want(lateDeletes == c.LateDeletes, "%s: %d lateDeletes, counted %d", name, lateDeletes, c.LateDeletes)
	v.want(internal == c.Internal, "%s: %d requests of Ringside's own, counted %d", name, internal, c.Internal)
	v.want(last == c.Tail, "%s: the tail is not the last request", name)
	v.want(last == nil || pos == c.Given, "%s: the last request ends at %d, given %d", name, pos, c.Given)
	v.want(c.Given-c.Taken == uint64(c.Out.Size), "%s: given %d, taken %d, %d wait", name, c.Given, c.Taken, c.Out.Size)
	if c.State == upstream.ConnDialing {
		earliest = min(earliest, c.DialBy)
	}
	v.want(c.Deadline <= earliest, "%s: due at %d, looked at %d", name, earliest, c.Deadline)
	v.want(v.e.Timers[link.RequestTimer] <= c.Deadline, "%s: due at %d, the engine looks at %d", name, c.Deadline, v.e.Timers[link.RequestTimer])
	v.want(c.State != upstream.ConnIdle || c.Length == 0, "%s: %d requests wait and nobody dials", name, c.Length)
	v.want(c.State != upstream.ConnIdle || c.In == nil, "%s: no connection, and input", name)
	if c.State == upstream.ConnUp && !c.Full && c.Out.Size > 0 {
		v.want(c.Due() > 0, "%s: %d bytes wait and nothing will flush them", name, c.Out.Size)
	}
	v.want(c.StreamLeft == 0 || c.Length > 0, "%s: in the middle of nobody's value", name)
	v.chunk(c.In, name+": input")
	v.queue(&c.Out, name+": output")
}

// free checks that nothing in a free list is in use.
func (v *inventory) free() {
	for i, c := range v.e.Buffers.Free {
		n := 0
		for ; c != nil && n <= v.e.Buffers.Count[i]; c = c.Next {
			v.want(v.owner[c] == "", "a free chunk belongs to %s", v.owner[c])
			v.bytes += int64(len(c.Data))
			n++
		}
		v.want(n == v.e.Buffers.Count[i], "%d free chunks of class %d, counted %d", n, i, v.e.Buffers.Count[i])
	}
	seen := map[*client.Exchange]bool{}
	for x := v.e.FreeExchanges; x != nil; x = x.Next {
		v.want(!v.live[x], "an exchange in use is free")
		v.bytes += client.ExchangeSize
		if seen[x] {
			v.want(false, "the free exchanges are a circle")
			break
		}
		seen[x] = true
	}
	used := map[*upstream.Attempt]bool{}
	for _, c := range v.conns() {
		for a := c.Head; a != nil && !used[a]; a = a.Next {
			used[a] = true
		}
	}
	for a := v.e.FreeAttempts; a != nil; a = a.Next {
		if used[a] {
			v.want(false, "an attempt is free twice, or free and in use")
			break
		}
		used[a] = true
		v.bytes += upstream.AttemptSize
	}
}

// exchangeOf returns the client command that a belongs to, or nil.
func exchangeOf(a *upstream.Attempt) *client.Exchange {
	to := a.To
	if s, ok := to.(*watch.SampleReceiver); ok {
		to = s.Receiver
	}
	if x, ok := to.(*client.Exchange); ok {
		return x
	}
	if to := reflect.ValueOf(to); to.Kind() == reflect.Pointer && to.Elem().Kind() == reflect.Struct { // other receivers of package client have a pointer to the exchange
		for i := range to.Elem().NumField() {
			if f := to.Elem().Field(i); f.Type() == reflect.TypeFor[*client.Exchange]() {
				return (*client.Exchange)(f.UnsafePointer())
			}
		}
	}
	return nil
}
