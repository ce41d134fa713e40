package ticket

// One ticket.

import (
	"slices"
	"sync/atomic"

	"ringside/proxy/routing"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/upstream"
)

// Ticket is a miss of which the set is awaited. That set is stored only if nothing
// has touched the key since: its item has the ticket's cas still.
type Ticket struct {
	key    *key
	Hash   uint64
	Holder *Holder
	Spot
	Cas string
	Via upstream.Via // of the cas
	TagsRead
	At   int64 // when the miss was asked for
	Win  bool  // it is this client that rebuilds
	Stub bool  // of what no value is left
	Void bool  // nothing is known of the item: its set is not stored

	Strike bool // its win counts as one that nobody has filled, until somebody does

	// Of a pooled client: another one's set may have used it up, or not. A set of its
	// own connection goes out with it all the same.
	Doubtful bool

	counted     bool           // what has come of its win is counted
	Route       *routing.Guard // that it came to be by
	older, next *Ticket
}

// Holder is a client, as all loops see it.
type Holder struct {
	ID     uint64
	Shared atomic.Bool // it has had two requests without an answer at once
}

// TagsRead is what was known at a miss of the key's tags. What is stored can't be
// newer.
type TagsRead struct {
	Known stamp.Known // versions
	First string      // the cas, whatever it has followed to since
}

// Spot is where a key is, in which of its server's lives.
type Spot struct {
	Server *upstream.Server
	Name   string // there
	Gen    uint64 // changes with the phases

	Copied bool   // it is one of several that have the key
	Seal   uint64 // then: between a cas there and its token, which is worth nothing elsewhere
}

// Good says that a set with tk on c meets the item of its cas, or none.
func (tk *Ticket) Good(here Spot, c *upstream.Conn) bool {
	if tk.Copied || here.Copied { // its token says which life of which server it is of
		return !tk.Void && tk.Copied == here.Copied
	}
	return !tk.Void && tk.Spot == here && c != nil && c.Reaches(tk.Via)
}

// SameTags says that two misses knew the same of the key's tags: what is stored by
// either may be stored by both.
func (tk *Ticket) SameTags(o *Ticket) bool {
	return tk.First == o.First && slices.Equal(tk.Known, o.Known)
}

// Follow binds a ticket to what was stored by a set that may have been its own.
func (tk *Ticket) Follow(cas string, via upstream.Via) {
	tk.Cas, tk.Via, tk.Win, tk.Stub = cas, via, false, false
}

// Ended counts, once, what has come of a win.
func (tk *Ticket) Ended(filled bool) {
	if tk.Win && !tk.counted {
		tk.counted = true
		tk.Route.Learned.Ended(filled)
	}
}
