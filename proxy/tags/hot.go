package tags

// This file reads values with tags without a task, if they are valid.

import (
	"strconv"

	"ringside/proxy/client"
	"ringside/proxy/guard"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Tags serves values with tags on one loop. Only its loop may use it.
type Tags struct {
	*guard.Guard
	Named []stamp.Tag          // tags that the request in Clients.Req names
	Pools []*routing.BoundPool // pools with tagged routes, and their gutters
	Count *stats.Invalidations // counters of the invalidations by this process
	all   []stamp.Tag          // tags of the key that is being requested
	key   []byte               // scratch space for a decoded key
	open  []*reading           // the readings with requests that have no reply yet
	free  link.Free[reading]

	reader guard.Reader
}

// New returns the Tags of the loop of g.
func New(g *guard.Guard, count *stats.Invalidations) *Tags {
	return &Tags{Guard: g, Count: count, reader: guard.Reader{Guard: g}}
}

// reading is the part of a read command that is sent on one connection: its keys, and before each
// key those of its tags that were not requested yet. The server answers in this order. It is the
// task.Judge of the keys.
type reading struct {
	guard.Reader
	t      *Tags
	x      *client.Exchange
	c      *upstream.Conn
	known  stamp.Known  // the tags that this reading requests, in order, with the versions that have arrived
	now    guard.Stamps // tags and versions for the key that gets its reply next
	told   int          // number of versions that have arrived so far
	must   []stamp.Tag  // required tags of all keys, one key after the other
	ends   []int        // for each key, the end of its tags in the slice must
	next   int          // index of the key that gets its reply next
	asking int          // number of the attempts of this reading that have not ended
	at     int          // index of this reading in Tags.open
}

// Conn returns the connection to the owner of the key, as guard.Reader does. A binary read needs a task.
func (t *Tags) Conn(x *client.Exchange, rt *routing.Route, owner *upstream.Server, name []byte) *upstream.Conn {
	if x.Flags&wire.Binary != 0 {
		return nil
	}
	return t.reader.Conn(x, rt, owner, name)
}

// Send requests the versions of the tags of r's key, and then the key.
func (t *Tags) Send(read *task.Read, rt *routing.Route, c *upstream.Conn, a *upstream.Attempt) task.Judge {
	r := t.reading(read.X, c)
	t.key = a.AppendKey(t.key[:0])
	r.now.Learned = rt.Tags.Learned
	r.must = rt.Tags.AppendTags(r.must, t.key)
	t.all = rt.Tags.AppendTags(t.all[:0], t.key)
	r.ends = append(r.ends, len(r.must))
	for _, tag := range t.Named {
		t.all = stamp.Add(t.all, tag)
	}
	if rt.Tags.Suffix != "" {
		t.all = rt.Tags.Learned.AppendKnown(t.all, t.Loops.HashKey(read.Name))
	}
	for _, tag := range t.all {
		if _, ok := r.known.Of(tag); !ok {
			r.askVersion(rt, tag)
		}
	}
	r.asking++
	r.arrange()
	r.Reader.Send(read, rt, c, a)
	return r
}

// reading returns the reading of x on c. If there is none, it creates one.
func (t *Tags) reading(x *client.Exchange, c *upstream.Conn) *reading {
	for i := len(t.open); i > 0 && t.open[i-1].x == x; i-- { // the readings of one exchange are at the end of the list, because its keys are requested in a row
		if r := t.open[i-1]; r.c == c {
			return r
		}
	}
	r := t.free.Take()
	r.Reader, r.t, r.x, r.c, r.at = guard.Reader{Guard: t.Guard, Tags: &r.now}, t, x, c, len(t.open)
	t.open = append(t.open, r)
	return r
}

// askVersion requests the version of a tag, and creates it if there is none.
func (r *reading) askVersion(rt *routing.Route, tag stamp.Tag) {
	t, c := r.t, r.c
	r.known = append(r.known, stamp.Version{Tag: tag})
	a := r.x.Attempt()
	a.To = (*version)(r)
	a.Op, a.Dialect, a.Flags = wire.Get, wire.Meta, wire.Effects
	r.asking++
	t.Line = append(tag.AppendKey(append(t.Line[:0], "mg "...)), " c N0\r\n"...)
	c.Enqueue(a, &rt.Timeouts, wire.Metas, t.Line)
	r.x.Session.UseTurn(1) // it is as much work as a key
	r.x.AddWork(1)
}

// arrange sets r.now for the key that gets its reply next: its tags, and the versions that have
// arrived so far.
func (r *reading) arrange() {
	if r.next < len(r.ends) {
		from := 0
		if r.next > 0 {
			from = r.ends[r.next-1]
		}
		r.now.Must = r.must[from:r.ends[r.next]]
	}
	r.now.Known = r.known[:r.told]
}

// Ended records that the request of a key has ended.
func (r *reading) Ended() {
	r.next++
	r.ended()
}

// ended records that an attempt of the reading r has ended. After the last one it frees r.
func (r *reading) ended() {
	if r.asking--; r.asking > 0 {
		r.arrange()
		return
	}
	t := r.t
	last := len(t.open) - 1
	t.open[r.at] = t.open[last]
	t.open[r.at].at = r.at
	t.open = t.open[:last]
	*r = reading{must: r.must[:0], ends: r.ends[:0], known: r.known[:0]}
	t.free.Keep(r)
}

// version is the receiver of the replies with the versions of tags.
type version reading

func (v *version) Client() uint64 { return v.x.Client() }

func (v *version) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	if r.Kind.Failed() {
		v.known[v.told].Tag = 0 // the server replied with an error: without a version, the tag is requested again if it is needed
	} else if at, ok := wire.FlagArg(b, r.MetaFlags, 'c'); ok {
		v.known[v.told].Cas, _ = strconv.ParseUint(string(at.Of(b)), 10, 64)
	}
	return 0
}

func (v *version) Done(c *upstream.Conn, a *upstream.Attempt) {
	x := v.x
	v.told++
	(*reading)(v).ended()
	x.Done(c, a)
}

func (v *version) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	v.known[v.told].Tag = 0
	v.Done(c, a)
}
