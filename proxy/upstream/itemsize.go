package upstream

// This file finds out how large the items of a server can be, and whether they have a cas.
//
// memcached 1.6 removes the item of a key if it has no room for the new item of an ms, even if the
// ms stores only under a condition, as an add or a cas does. Its text commands keep the item. So a
// conditional ms is not sent if its item is larger than the server's item_size_max.

import (
	"bytes"
	"strconv"

	"ringside/proxy/wire"
)

// itemSize is the largest item that a server stores. Ringside asks for it on each new connection,
// because the server may have been restarted with another size.
type itemSize struct {
	needed bool   // some route needs the size
	asking bool   // a request for the size has no reply yet
	max    int    // item_size_max in bytes; 0: not known
	last   int    // the last known item_size_max in bytes, also while the server is down; 0: it was never known
	cas    string // cas_enabled: whether items have a cas, yes or no; empty: not known
}

// usualItem is the item_size_max in bytes of a memcached that was started without -I. It is assumed
// while the size is not known.
const usualItem = 1 << 20

// AskSettings is the request for the settings of a server.
var AskSettings = []byte("stats settings\r\n")

// LearnItemSize makes Ringside ask the server for the size of its items, now and on each new
// connection.
func (srv *Server) LearnItemSize() {
	if !srv.items.needed {
		srv.items.needed = true
		srv.askItemSize()
	}
}

// askItemSize asks for the size of the server's items, unless the server is about to reply or is not
// connected.
func (srv *Server) askItemSize() {
	if c := srv.Conns[0]; !srv.items.asking && c.State == ConnUp && !c.InternalFull() {
		srv.items.asking = true
		srv.e.Ask(c, itemSizeReply{srv}, 0, srv.OwnTimeouts(srv.Greeting), AskSettings, true)
	}
}

// askItemSize asks for the size of the server's items before all other requests, on the new
// connection c.
func (c *Conn) askItemSize() {
	if srv := c.Server; srv.items.needed && srv.Keeps(c) {
		srv.items.asking = true
		c.AskFirst(itemSizeReply{srv}, srv.OwnTimeouts(srv.Greeting), AskSettings)
	}
}

// itemSizeReply is the receiver of the reply to AskSettings.
type itemSizeReply struct{ srv *Server }

func (d itemSizeReply) Answered(_ int, r *Result) {
	d.srv.items.asking = false
	if r.Bytes == nil { // RemovesItem asks again
		return
	}
	items := &d.srv.items
	items.max, _ = strconv.Atoi(wire.StatOf(r.Bytes, "item_size_max"))
	items.last = items.max
	items.cas = wire.StatOf(r.Bytes, "cas_enabled")
}

// The sizes of the parts of an item in memcached, in bytes, besides its key and its value.
const (
	itemHead  = 48 + 1 + 2 // the head of the item, a zero byte after the key, and CRLF after the value
	itemCas   = 8
	itemFlags = 4 // client flags, unless they are 0
)

// ExceedsItem reports whether an item is too large for the server. key and value are the lengths of
// its key and its value. flags means that it has client flags other than 0. ExceedsItem returns false
// if no route needs the size.
func (srv *Server) ExceedsItem(key, value int, flags bool) bool {
	most := srv.items.max
	if most == 0 && srv.items.needed {
		most = usualItem
	}
	return most > 0 && itemBytes(key, value, flags, srv.items.cas == "yes" || srv.items.max == 0) > most
}

// itemBytes returns the size of an item in bytes.
func itemBytes(key, value int, flags, cas bool) int {
	size := itemHead + key + value
	if cas {
		size += itemCas
	}
	if flags {
		size += itemFlags
	}
	return size
}

// LacksCas reports whether the server has said that its items have no cas: memcached was started with
// -C. The server then can't store a value only if its item has not changed. LacksCas returns false if
// no route needs a cas.
func (srv *Server) LacksCas() bool { return srv.items.cas == "no" }

// AppendNoCas appends to dst the error for a command that needs a cas for the given purpose, if the
// server has none: see LacksCas. If there is no connection to the server, it opens one, because the
// server may have been restarted with cas.
func (srv *Server) AppendNoCas(dst []byte, purpose string) []byte {
	srv.e.Mark(&srv.Conns[0].Link) // see wantsConn
	return wire.AppendServerError(dst, "server "+srv.Label()+" has no cas, which "+purpose+" need: start memcached without -C")
}

// KnownItemSize returns the size in bytes of the largest item that the server stores, and 0 if it was
// never known. While the server is down, it returns the last known size.
func (srv *Server) KnownItemSize() int { return srv.items.last }

// KnownToExceed is like ExceedsItem, but uses KnownItemSize, and returns false if that is not known.
func (srv *Server) KnownToExceed(key, value int, flags bool) bool {
	return srv.items.last > 0 && itemBytes(key, value, flags, srv.items.cas == "yes") > srv.items.last
}

// RemovesItem reports whether the server would reject the request r, and remove the item of its key:
// r is an ms that stores under a condition, and its item is too large. r was parsed from line.
func (srv *Server) RemovesItem(r *wire.Request, line []byte) bool {
	if !srv.items.needed || r.Dialect != wire.Meta || !r.Op.Stores() || r.Op == wire.Set {
		return false
	}
	key := r.Key.Len()
	if r.Flags&wire.Base64 != 0 {
		key = key / 4 * 3
		if key > 0 {
			key -= bytes.Count(r.Key.Of(line), []byte("="))
		}
	}
	exceeds := srv.ExceedsItem(key, r.Body.Len(), wire.ClientFlags(r.ClientFlags.Of(line)) != 0)
	if exceeds && srv.items.max == 0 { // the server did not reply to the last request for its size
		srv.askItemSize()
	}
	return exceeds
}

// RejectItem returns the result of a request that is not sent on c because of RemovesItem:
// memcached's error. It counts the error as if the server had sent it.
func (c *Conn) RejectItem() *Result {
	c.Server.noteError(bytes.TrimSpace(tooLarge))
	return c.rejected(tooLarge)
}

// RejectLine returns the result of a request that is not sent on c, because it is not exactly one request that
// memcached accepts.
func (c *Conn) RejectLine() *Result { return c.rejected(UnfitLine) }

// rejected returns the result of a request that is not sent on c, with the reply line.
func (c *Conn) rejected(line []byte) *Result {
	r := &Result{Server: c.Server, Failure: Failure{Unsent: true}}
	r.ConnEpoch = ConnEpoch{conn: c, life: c.life.n, Asked: c.Server.e.Now}
	r.SetAnswer(wire.Set, wire.Meta, line)
	return r
}

// unfitLine is the error for a request that can't be sent, because it has too many meta flags for those that
// Ringside must add.
const unfitLine = "too many flags, or too long a line, for this route, which adds flags of its own"

// UnfitLine is the reply to such a request.
var UnfitLine = wire.AppendClientError(nil, unfitLine)

var tooLarge = []byte("SERVER_ERROR object too large for cache\r\n")
