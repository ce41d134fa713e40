package tags

// This file handles tags that clients append to the key in a command.

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/wire"
)

var errCommand = errors.New("tags are named with a value, or with a get of it: not with this command")

// Cut removes the tags from the key of the request in Clients.Req, which has the bytes
// raw. It stores the tags in Named, and returns the request without them. If it
// returns an error, Clients.Req is unchanged.
func (t *Tags) Cut(lst *routing.Listener, raw []byte) (bare []byte, err error) {
	r := &t.Clients.Req
	t.Named = t.Named[:0]
	written := r.Key.Of(raw)
	key := t.decoded(written)
	at := lst.CutAt(key)
	if at == len(key) && !r.Op.Stores() {
		return raw, nil
	}
	rt := lst.Fitting(key[:at])
	if rt == nil || rt.Tags == nil || rt.Tags.Command {
		return raw, nil
	}
	t.all = rt.Tags.AppendTags(t.all[:0], key[:at])
	if at < len(key) {
		if !r.Op.Stores() && r.Op != wire.Get && r.Op != wire.Gets || r.Op == wire.Append || r.Op == wire.Prepend {
			return nil, errCommand
		}
		if t.Named, err = rt.Tags.AppendList(t.Named, key[at+len(rt.Tags.Suffix):]); err != nil {
			return nil, err
		}
		for _, tag := range t.Named {
			t.all = stamp.Add(t.all, tag)
		}
	}
	if most := t.Clients.Limits.Tags; len(t.all) > most && r.Op.Stores() {
		rt.Tags.Learned.Count(stats.TagTooMany)
		return nil, fmt.Errorf("too many tags: %d, and a value may have %d", len(t.all), most)
	}
	if at == len(key) {
		return raw, nil
	}
	binary := r.Flags & wire.Binary
	raw = slices.Concat(raw[:r.Key.Start], t.asWritten(key[:at]), raw[r.Key.End:])
	t.Wire.One(raw, r)
	r.Flags |= binary
	return raw, nil
}

// Bare returns a key without the tags after it, in the encoding of the request in
// Clients.Req.
func (t *Tags) Bare(lst *routing.Listener, written []byte) []byte {
	if !lst.Tagged {
		return written
	}
	key := t.decoded(written)
	if at := lst.CutAt(key); at < len(key) {
		return t.asWritten(key[:at])
	}
	return written
}

// CutAll removes the tags from the keys of the text read in Clients.Req, which has
// several keys.
func (t *Tags) CutAll(lst *routing.Listener, raw []byte) []byte {
	r := &t.Clients.Req
	if !slices.ContainsFunc(r.Several, func(span wire.Span) bool { return lst.CutAt(span.Of(raw)) < span.Len() }) {
		return raw
	}
	line := bytes.Clone(raw[:r.Keys.Start])
	for i, span := range r.Several {
		if i > 0 {
			line = append(line, ' ')
		}
		key := span.Of(raw)
		line = append(line, key[:lst.CutAt(key)]...)
	}
	line = append(line, wire.CRLF...)
	t.Wire.One(line, r)
	return line
}

// decoded returns a key of the request in Clients.Req. The parameter `written` is the
// key as the request contains it, possibly in base64.
func (t *Tags) decoded(written []byte) []byte {
	if t.Clients.Req.Flags&wire.Base64 == 0 {
		return written
	}
	t.key, _ = wire.DecodeKey(t.key[:0], written)
	return t.key
}

// asWritten encodes key like the request in Clients.Req: in base64, or unchanged.
func (t *Tags) asWritten(key []byte) []byte {
	if t.Clients.Req.Flags&wire.Base64 != 0 {
		return base64.StdEncoding.AppendEncode(nil, key)
	}
	return key
}
