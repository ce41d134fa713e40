package guard

// This file parses the reply of a server about an item.

import (
	"math"
	"slices"
	"strconv"

	"ringside/proxy/tags/stamp"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// emptyFlags are the client flags with which Ringside stores an empty value, if its client has
// set the flags 0. With flags 0 the item would look like a placeholder while it is refreshed or
// deleted.
const emptyFlags = "1381171200"

// tombstoneFlags are the client flags of a tombstone. An instance stores tombstones if its
// configuration replicates the key.
const tombstoneFlags = wire.TombstoneFlags

// Item is the parsed reply to an mg. Its byte slices point into that reply.
type Item struct {
	Kind            wire.Kind
	Letters         wire.Letters
	Flags, Cas, TTL []byte // empty if the mg has not requested them
	Size            int
	Via             upstream.ConnEpoch // epoch of the server connection on which the reply arrived
	At              int64              // when the mg was sent, on the loop's clock; 0: not known
	Won             bool               // the client of the mg is the lease holder, and is expected to rebuild the value
	Tags            stamp.Verdict      // whether the value is valid by its tags
	Void            bool               // the guard must treat the value as missing, because a tag has changed since the value was stored, or may have changed
}

// parseItem returns the Item in the reply r, with the bytes b.
func parseItem(r *wire.Reply, b []byte) (s Item) {
	s.Kind, s.Letters, s.Size = r.Kind, r.Letters, r.Body.Len()
	for rest := r.MetaFlags; ; {
		var word wire.Span
		if word, rest = wire.NextKey(b, rest); word.Len() == 0 {
			return s
		}
		switch arg := b[word.Start+1 : word.End]; b[word.Start] {
		case 'f':
			s.Flags = arg
		case 'c':
			s.Cas = arg
		case 't':
			s.TTL = arg
		case 's':
			if r.Kind != wire.Value {
				s.Size, _ = strconv.Atoi(string(arg))
			}
		}
	}
}

// itemOf returns the Item in the reply r.
func itemOf(r *upstream.Result) Item {
	s := parseItem(&r.Reply, r.Bytes)
	s.Via, s.At = r.ConnEpoch, r.Asked
	return s
}

// Clone returns a copy of s that does not use the bytes of the reply.
func (s *Item) Clone() Item {
	c := *s
	c.Flags, c.Cas, c.TTL = slices.Clone(s.Flags), slices.Clone(s.Cas), slices.Clone(s.TTL)
	return c
}

// HasLease reports whether the client of the request with the reply s is the lease holder.
// IsLeased reports whether another client is the lease holder.
func (s *Item) HasLease() bool { return s.Letters.Has('W') }
func (s *Item) IsLeased() bool { return s.Letters.Has('Z') }

// IsInvalidated reports whether the item is deleted, and only kept so that it can be served
// during its rebuild.
func (s *Item) IsInvalidated() bool { return s.Letters.Has('X') }

// IsSpecial reports whether the item is a tombstone, or memcached has set one of the flags W, Z
// and X. The item is then not simply a value.
func (s *Item) IsSpecial() bool {
	return s.HasLease() || s.IsLeased() || s.IsInvalidated() || string(s.Flags) == tombstoneFlags
}

// IsAbsent reports whether the server has no item.
func (s *Item) IsAbsent() bool { return s.Kind == wire.Miss }

// IsTombstone reports whether the item is a tombstone, which Ringside stores to protect a
// replica.
func (s *Item) IsTombstone() bool { return string(s.Flags) == tombstoneFlags }

// IsPlaceholder reports whether the item is a placeholder, which has no value until a client
// rebuilds it.
func (s *Item) IsPlaceholder() bool {
	return s.Size == 0 && string(s.Flags) == "0" && (s.HasLease() || s.IsLeased() || s.IsInvalidated())
}

// IsMiss reports whether clients must see a miss although the server may have an item. Only the
// guard's own commands use the item then.
func (s *Item) IsMiss() bool {
	return s.IsAbsent() || s.IsTombstone() || s.IsPlaceholder() || s.IsInvalidated() || s.Void
}

// IsPlainEmpty reports whether the item is an empty value that a client has stored with flags 0.
// Ringside has replaced these flags by emptyFlags.
func (s *Item) IsPlainEmpty() bool { return s.Size == 0 && string(s.Flags) == emptyFlags }

// ClientFlags returns the client flags that the client has stored. A value that is not empty has
// emptyFlags only if its client has set them, because an append to an IsPlainEmpty value stores the
// original flags.
func (s *Item) ClientFlags() []byte {
	if s.IsPlainEmpty() {
		return noFlags
	}
	return s.Flags
}

var noFlags = []byte{'0'}

// SecondsLeft returns how long the item lives, in seconds.
func (s *Item) SecondsLeft() int64 {
	n, err := strconv.ParseInt(string(s.TTL), 10, 64)
	if err != nil || n < 0 {
		return math.MaxInt64
	}
	return n
}

// itemLetters are the client flags and the cas, which Reader.Send requests. rebuildLetters are the flags with
// which memcached says that the item is being rebuilt, or must be rebuilt.
const (
	itemLetters    wire.Letters = 1<<('f'-'A') | 1<<('c'-'A')
	rebuildLetters wire.Letters = 1<<('W'-'A') | 1<<('Z'-'A') | 1<<('X'-'A')
)

// lacksItem reports whether the reply r lacks one of itemLetters.
func lacksItem(r *wire.Reply) bool { return ^r.Letters&itemLetters != 0 }

// isUsual reports whether the reply r has all itemLetters and none of rebuildLetters.
func isUsual(r *wire.Reply) bool { return r.Letters&(itemLetters|rebuildLetters) == itemLetters }
