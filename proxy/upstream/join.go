package upstream

// Gets that share a line.
//
// Up to some release after 1.6.18 memcached sends the answer to each get by itself, one
// system call each, however many gets it has been sent at once; the values of one get of
// many keys leave together. So a get that comes behind another which the socket has not
// got yet continues its line:
//
//	clients   get a    get b    gets c    get d    set e …    get f
//	server    get a b ↵         gets c ↵  get d ↵  set e … ↵  get f ↵
//
// Each stays a request of its own in the queue, with its client, deadline and fate: only
// the line's end moves from one to the next, so the bytes of the queue are whole at any
// time. The server answers the keys in their order and leaves out those that it hasn't.
// So the answer to one ends with its VALUE; and a VALUE of a key further on, or END, says
// that those before it are misses (Conn.divide). An error line in the place of a VALUE is
// for all the keys that had none, as the server says nothing more of them.
//
// A line that goes out can't lose a key: dropUnsent leaves a get that nobody waits for any
// more in it, as an orphan, until the line as a whole is given up (keepLines).

import "ringside/proxy/wire"

// longestLine is how long a line may become, in bytes. Of a longer one memcached looks at
// the beginning before it is whole, and needs a larger buffer for it.
const longestLine = 2000

// GiveGet puts the get or gets a, r that was parsed from raw, into c.Out: on the line of
// before, which was last in the queue, if it can be. strip is not for the server. It
// reports false, and has done nothing, if a can't share a line.
func (c *Conn) GiveGet(a, before *Attempt, r *wire.Request, raw []byte, strip string) bool {
	key := int(r.Key.Start)
	if !c.Server.joinGets || r.Dialect != wire.Text || r.Flags&wire.Binary != 0 ||
		key != len("get ")+int(r.Op-wire.Get) || len(raw) != int(r.Key.End)+len(wire.LineEnd) || raw[r.Key.End] != '\r' {
		return false
	}
	e := c.Server.e
	a.Strip = strip
	word := raw[key+len(strip):] // with the end of the line
	if before != nil && before.line > 0 && before.Op == a.Op && before.Start >= c.Taken &&
		int(before.line)+len(word) < longestLine && c.Out.Unappend(len(wire.LineEnd)) {
		before.joined = true
		before.Size -= len(wire.LineEnd)
		a.Start -= uint64(len(wire.LineEnd))
		c.Given -= uint64(len(wire.LineEnd))
		a.line = before.line + int32(len(word)-len(wire.LineEnd)+len(" "))
		if strip == "" {
			word = raw[key-len(" "):]
			c.Out.Append(&e.Buffers, word)
			c.Give(a, len(word))
			return true
		}
		c.Out.Append(&e.Buffers, raw[key-len(" "):key])
		c.Out.Append(&e.Buffers, word)
		c.Give(a, len(" ")+len(word))
		return true
	}
	n := key + len(word)
	a.line = int32(n)
	if strip == "" {
		c.Out.Append(&e.Buffers, raw)
	} else {
		c.Out.Append(&e.Buffers, raw[:key])
		c.Out.Append(&e.Buffers, word)
	}
	c.Give(a, n)
	return true
}

// divide looks at r, at the head of buf: the next reply of the answer to a line that goes on
// behind a, the head of the queue. If that is a VALUE of a's key it is all of the answer to
// a, and divide reports false. Else it is for a key further on, which is not a's to take:
// passing becomes how many are misses before it. An error is for a and those behind it.
func (c *Conn) divide(a *Attempt, r *wire.Reply, buf []byte) bool {
	switch {
	case r.Awaited:
	case r.Kind == wire.End:
		for b := a; b.joined; b = b.Next {
			c.passing++
		}
		return true
	case r.Kind.Failed():
		c.noteAnswer()
		c.reply(a, r, buf[:r.Size])
		return true
	default:
		key, misses := r.Key.Of(buf), 0
		for b := a; ; b = b.Next {
			if name, _ := b.Named(); string(name) == string(key) {
				break
			}
			if misses++; !b.joined {
				return false // of none: the caller ends the connection
			}
		}
		if c.passing = misses; misses > 0 {
			return true
		}
	}
	r.Last = true
	return false
}

// pass tells a, the head of the queue, that its server hasn't the key.
func (c *Conn) pass(a *Attempt) {
	r := &c.Server.e.rep
	c.passing--
	*r = wire.Reply{Kind: wire.End, Last: true, Line: wire.Span{End: uint32(len(wire.AnswerEnd) - len(wire.LineEnd))}, Size: len(wire.AnswerEnd)}
	c.noteAnswer()
	c.reply(a, r, wire.EndLine)
}

// keepLines keeps what has expired in the queue, and with it its key on a line that is not
// given up as a whole.
func (c *Conn) keepLines() {
	for first := c.Head; first != nil; first = first.Next {
		if !first.joined {
			continue
		}
		last, whole := first, true
		for a := first; ; a = a.Next {
			whole = whole && (a.expired || a.To == nil) && a.Start >= c.Taken
			if last = a; !a.joined {
				break
			}
		}
		for a := first; ; a = a.Next {
			if a.expired = whole; a == last {
				break
			}
		}
		first = last
	}
}
